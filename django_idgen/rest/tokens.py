"""Access tokens: made, found by their secret, replaced, revoked.

The database keeps the SHA-256 digest of a secret. A slow hash would add no safety: a secret has 256
random bits, which cannot be guessed. The secret is shown once, when the token is made.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from hashlib import sha256

from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.db import connections, router, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_variables

from ..core.errors import IdgenError
from ..models import LONGEST_LIFE, AccessToken, LeafAlloc, validate_patterns
from ..process.maps import current_settings
from ..process.tags import find_tag, source_behind_pool, tag_databases

PREFIX = "idgen_"
"""Begins each secret, so that scanners for leaked secrets recognize it."""
HINT_LENGTH = 4


@dataclass(frozen=True, slots=True)
class KnownToken:
    """A token as it was read from the database, without its secret."""

    pk: int
    name: str
    tags: tuple[str, ...]
    generators: tuple[str, ...]
    leases: tuple[str, ...]
    expires_at: datetime | None

    def is_valid(self) -> bool:
        return self.expires_at is None or timezone.now() < self.expires_at

    @property
    def names_nothing(self) -> bool:
        return not (self.tags or self.generators or self.leases)

    def may_take_of_tag(self, tag: str) -> bool:
        return _matches(self.tags, tag)

    def may_take_of_generator(self, alias: str) -> bool:
        return _matches(self.generators, alias)

    def may_borrow_of_generator(self, alias: str) -> bool:
        return _matches(self.leases, alias)


def digest_of(secret: str) -> str:
    """The part of a secret that is stored."""
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def find_token(secret: str) -> KnownToken | None:
    """Query the token of a secret; None if there is none, or it has expired."""
    found = stored_tokens().filter(digest=digest_of(secret)).first()
    if found is None:
        return None
    known = KnownToken(
        pk=found.pk,
        name=found.name,
        tags=tuple(found.tags.splitlines()),
        generators=tuple(found.generators.splitlines()),
        leases=tuple(found.leases.splitlines()),
        expires_at=found.expires_at,
    )
    return known if known.is_valid() else None


def stored_tokens() -> QuerySet[AccessToken]:
    """All tokens, read from the database that is written: a replica may lag behind."""
    return AccessToken.objects.using(router.db_for_write(AccessToken))


def living_tokens(now: datetime | None = None) -> QuerySet[AccessToken]:
    """The tokens that are valid at ``now``, by default the current time."""
    moment = now or timezone.now()
    return stored_tokens().filter(Q(expires_at=None) | Q(expires_at__gt=moment))


def set_new_secret(token: AccessToken) -> str:
    """Set a new secret for ``token``, which is not saved yet. Returns the secret."""
    secret = PREFIX + secrets.token_urlsafe(32)
    token.digest = digest_of(secret)
    token.hint = secret[-HINT_LENGTH:]
    return secret


@sensitive_variables("secret")
def make_token(
    name: str,
    *,
    tags: Iterable[str] = (),
    generators: Iterable[str] = (),
    leases: Iterable[str] = (),
    expires_at: datetime | None = None,
) -> tuple[AccessToken, str]:
    """Make a token. Returns it with its secret, which can't be read again later.

    ``tags``, ``generators`` and ``leases`` are patterns, in which “*” stands for any characters.
    Raises :class:`~django.core.exceptions.ValidationError`.
    """
    token = AccessToken(
        name=name,
        tags=_lines(tags),
        generators=_lines(generators),
        leases=_lines(leases),
        expires_at=expires_at,
    )
    if not name.isprintable():
        raise ValidationError({"name": f"{name!r} has a character that can't be printed."})
    secret = set_new_secret(token)
    # Secrets don't repeat, and the check for it might read a replica.
    token.full_clean(validate_unique=False)
    token.save(force_insert=True)
    return token, secret


class RightsDiffer(IdgenError):
    """Tokens of one name have different rights, so that one can't replace them all."""

    def __init__(self, name: str, tokens: Iterable[AccessToken]) -> None:
        ids = ", ".join(str(token.pk) for token in tokens)
        super().__init__(
            f"The tokens of {name!r} have different rights: {ids}. 'manage.py idgen_token list' "
            f"shows them; 'manage.py idgen_token rotate --id ID' replaces one."
        )


def replace_token(name: str, *, overlap: timedelta) -> tuple[AccessToken, str]:
    """Replace the tokens of ``name`` by a new one with the same rights.

    The old ones expire after ``overlap``. If the latest one expires, the new one gets the same
    lifetime. Raises :class:`AccessToken.DoesNotExist` if no token of ``name`` is valid, and
    :class:`RightsDiffer`.
    """
    tokens = list(living_tokens().filter(name=name).order_by("pk"))
    if not tokens:
        raise AccessToken.DoesNotExist
    if any(_rights(token) != _rights(tokens[-1]) for token in tokens):
        raise RightsDiffer(name, tokens)
    return _successor(tokens[-1], overlap)


def replace_living_token(token: AccessToken, *, overlap: timedelta) -> tuple[AccessToken, str]:
    """Replace ``token``, and others of its name with the same rights.

    Raises :class:`AccessToken.DoesNotExist` if it is not valid.
    """
    return _successor(living_tokens().get(pk=token.pk), overlap)


def revoke_tokens(tokens: QuerySet[AccessToken]) -> int:
    """Revoke ``tokens`` for good. Returns how many of them were valid.

    Other processes accept them for up to ``IDGEN["REST"]["token_max_age"]`` more.
    """
    now = timezone.now()
    return tokens.filter(Q(expires_at=None) | Q(expires_at__gt=now)).update(expires_at=now)


@sensitive_variables("secret", "made")
def _successor(former: AccessToken, overlap: timedelta) -> tuple[AccessToken, str]:
    now = timezone.now()
    ends = former.expires_at
    expires_at = None if ends is None else now + min(ends - former.created_at, LONGEST_LIFE)
    made = make_token(
        former.name,
        tags=former.tags.splitlines(),
        generators=former.generators.splitlines(),
        leases=former.leases.splitlines(),
        expires_at=expires_at,
    )
    end = now + max(overlap, timedelta(0))
    # Only older ones, so that two replacements at once don't end each other.
    older = living_tokens(end).filter(name=former.name, pk__lt=made[0].pk, **_rights(former))
    with transaction.atomic(using=older.db):
        if connections[older.db].features.has_select_for_update:
            # Lock in one order: two UPDATEs, each in its own order, could deadlock.
            list(older.select_for_update().order_by("pk").values_list("pk"))
        older.update(expires_at=end)
    return made


def _rights(token: AccessToken) -> dict[str, str]:
    return {right: getattr(token, right) for right in ("tags", "generators", "leases")}


def _lines(patterns: Iterable[str]) -> str:
    lines = list(patterns)
    for line in lines:
        # Stored one a line: a line break, also one of Unicode's, would make two of it.
        if line.splitlines() != [line]:
            raise ValidationError(f"{line!r} is not a pattern of tags or generators.")
        validate_patterns(line)
    return "\n".join(lines)


def warnings_about(token: AccessToken) -> list[str]:
    """Warnings for a person: the names in ``token`` that match nothing, or that it has none."""
    if not (token.tags or token.generators or token.leases):
        return [_("It names no tag, no generator and no lease: it may take nothing.")]
    lines = [*token.generators.splitlines(), *token.leases.splitlines()]
    try:
        known = list(current_settings().generators)
        tags = token.tags.splitlines() if source_behind_pool().keeps_rows else []
        absent = [tag for tag in tags if tag and not _names_a_tag(tag)]
    except (IdgenError, ImproperlyConfigured):
        return []  # the system checks report it
    unmatched = [each for each in lines if not any(fits(each, alias) for alias in known)]
    return [
        *(_("There is no tag “%(tag)s” yet.") % {"tag": tag} for tag in dict.fromkeys(absent)),
        *(
            _("No generator is called “%(alias)s”; there are: %(known)s.")
            % {"alias": alias, "known": ", ".join(known)}
            for alias in dict.fromkeys(unmatched)
        ),
    ]


def _names_a_tag(pattern: str) -> bool:
    """Whether a tag matches. A pattern for all of them counts for those to come."""
    start, star, _rest = pattern.partition("*")
    if not star:
        return find_tag(pattern) is not None
    return not pattern.strip("*") or any(
        fits(pattern, tag)
        for alias in tag_databases()
        for tag in LeafAlloc.objects.using(alias)
        .filter(pk__startswith=start)
        .values_list("pk", flat=True)
        .iterator()
    )


def fits(pattern: str, name: str) -> bool:
    """Whether ``name`` matches ``pattern``, whose only wildcard is “*”."""
    return pattern in ("*", name) or fnmatchcase(name, pattern.translate(_LITERAL))


_LITERAL = {ord("?"): "[?]", ord("["): "[[]"}
"""Escapes the other wildcards of fnmatch."""


def _matches(patterns: tuple[str, ...], name: str) -> bool:
    return any(fits(pattern, name) for pattern in patterns)
