"""Access tokens: made, found by their secret, replaced.

A secret has 256 random bits, so its SHA-256 digest is all that needs to be stored: there
is nothing to guess, hence nothing for a slow hash to slow down. The secret itself is
seen once, by whoever makes the token.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from hashlib import sha256

from django.core.exceptions import ValidationError
from django.db.models import Q

from .models import AccessToken, validate_patterns

__all__ = ["PREFIX", "KnownToken", "digest_of", "find_token", "make_token", "replace_token"]

PREFIX = "idgen_"
"""What a secret begins with, so that scanners for leaked secrets know one."""
HINT_LENGTH = 4


@dataclass(frozen=True, slots=True)
class KnownToken:
    """A token as the database had it. Frozen, freely shared; holds no secret."""

    pk: int
    name: str
    tags: tuple[str, ...]
    generators: tuple[str, ...]
    leases: tuple[str, ...]
    expires_at: datetime | None

    def is_valid_at(self, now: datetime) -> bool:
        return self.expires_at is None or now < self.expires_at

    def may_take_of_tag(self, tag: str) -> bool:
        return _matches(self.tags, tag)

    def may_take_of_generator(self, alias: str) -> bool:
        return _matches(self.generators, alias)

    def may_borrow_of_generator(self, alias: str) -> bool:
        return _matches(self.leases, alias)


def digest_of(secret: str) -> str:
    """What is stored of a secret."""
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def find_token(secret: str) -> KnownToken | None:
    """The token of a secret, if there is one that has not expired. Asks the database."""
    found = AccessToken.objects.filter(digest=digest_of(secret)).first()
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
    return known if known.is_valid_at(datetime.now(UTC)) else None


def make_token(
    name: str,
    *,
    tags: Iterable[str] = (),
    generators: Iterable[str] = (),
    leases: Iterable[str] = (),
    expires_at: datetime | None = None,
) -> tuple[AccessToken, str]:
    """A new token and its secret, which can't be had again later.

    ``tags``, ``generators`` and ``leases`` are patterns, as in the shell's file names.
    Raises :class:`~django.core.exceptions.ValidationError`.
    """
    secret = PREFIX + secrets.token_urlsafe(32)
    token = AccessToken(
        name=name,
        tags=_lines(tags),
        generators=_lines(generators),
        leases=_lines(leases),
        expires_at=expires_at,
        digest=digest_of(secret),
        hint=secret[-HINT_LENGTH:],
    )
    token.full_clean()
    token.save(force_insert=True)
    return token, secret


def replace_token(name: str, *, overlap: timedelta) -> tuple[AccessToken, str]:
    """A new token with the rights of the latest one of ``name``; the others end after ``overlap``.

    Both work meanwhile. Raises :class:`AccessToken.DoesNotExist`.
    """
    now = datetime.now(UTC)
    living = AccessToken.objects.filter(Q(expires_at=None) | Q(expires_at__gt=now), name=name)
    latest = living.latest("pk")
    token, secret = make_token(
        name,
        tags=latest.tags.splitlines(),
        generators=latest.generators.splitlines(),
        leases=latest.leases.splitlines(),
    )
    end = now + overlap
    older = living.exclude(pk=token.pk)
    older.filter(Q(expires_at=None) | Q(expires_at__gt=end)).update(expires_at=end)
    return token, secret


def _lines(patterns: Iterable[str]) -> str:
    lines = list(patterns)
    for line in lines:
        if not line or "\n" in line or "\r" in line:
            raise ValidationError(f"{line!r} is no pattern of tags or generators.")
        validate_patterns(line)
    return "\n".join(lines)


def _matches(patterns: tuple[str, ...], name: str) -> bool:
    return any(pattern == name or fnmatchcase(name, pattern) for pattern in patterns)
