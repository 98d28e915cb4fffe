"""Who is asking: a program with an access token, or a user of the project.

Tokens seen lately are kept, so that a hot endpoint answers without asking the database.
"""

from __future__ import annotations

import logging
import os
from base64 import b64decode
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from django.db import Error as AnyDatabaseError
from django.http import HttpRequest
from django.utils import timezone
from django.views.decorators.debug import sensitive_variables
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import APIException, AuthenticationFailed, Throttled
from rest_framework.request import Request

from ..core.bounded import keep_newest
from ..core.clock import SYSTEM_CLOCK, Clock
from ..process.handlers import current_settings
from .failures import log_database
from .throttles import KnownSecrets, WrongSecretThrottle
from .tokens import PREFIX, KnownToken, digest_of, find_token

__all__ = [
    "TOKENS",
    "AuthenticationUnavailable",
    "TokenAuthentication",
    "TokenCache",
    "TokenUser",
    "check_credentials",
    "secret_of",
]

SCHEMES = ("bearer ", "token ")
MOST_HEADER = 512
"""Characters of a header that are looked at; a secret has 49."""
MOST_TOKENS = 10_000
"""Tokens kept; the oldest go first."""
RETRY_AFTER = 5.0
"""Seconds until a database that couldn't be asked is asked again for one token."""

logger = logging.getLogger("django_idgen")


class AuthenticationUnavailable(APIException):
    """The database, which knows the tokens, can't be asked."""

    status_code = 503
    default_code = "authentication_unavailable"
    default_detail = "Access tokens can't be checked just now. Try again in some seconds."
    wait = 5


class TokenUser:
    """The program that a token was made for. It has no permissions but the token's."""

    is_authenticated = True
    is_anonymous = False
    is_active = True
    is_staff = False
    is_superuser = False

    def __init__(self, token: KnownToken) -> None:
        self.token = token
        self.pk = f"token:{token.pk}"
        """Tells callers apart in throttles; no key of a user."""

    def __str__(self) -> str:
        return self.token.name

    def get_username(self) -> str:
        return self.token.name

    def has_perm(self, perm: str, obj: object = None) -> bool:  # noqa: ARG002
        return False

    def has_perms(self, perms: object, obj: object = None) -> bool:  # noqa: ARG002
        return False

    def has_module_perms(self, app_label: str) -> bool:  # noqa: ARG002
        return False


class TokenAuthentication(BaseAuthentication):
    """``Authorization: Bearer <secret>`` (or ``Token <secret>``) of an access token.

    ``request.user`` is a :class:`TokenUser`, ``request.auth`` its
    :class:`KnownToken`. Secrets that don't begin as ours do are left to other
    authentications.
    """

    @sensitive_variables()
    def authenticate(self, request: Request | HttpRequest) -> tuple[Any, Any] | None:
        secret = secret_of(get_authorization_header(request))  # type: ignore[arg-type]
        if secret is None:
            return None
        token = TOKENS.lately(secret)
        if token is None:
            token = _looked_up(request, secret)
        return TokenUser(token), token

    def authenticate_header(self, request: Request) -> str:  # noqa: ARG002
        return "Bearer"


def _looked_up(request: Request | HttpRequest, secret: str) -> KnownToken:
    known = KnownSecrets()
    if not TOKENS.has_seen(secret) and not known.has(secret):
        # Guessing is hopeless, but must not keep the database busy.
        _check_address(request, counting=False)
    try:
        token = TOKENS.get(secret)
    except AnyDatabaseError as error:
        log_database(error)
        raise AuthenticationUnavailable from error
    if token is None:
        _check_address(request, counting=True)
        raise AuthenticationFailed("This access token is not known, or has expired.")
    known.add(secret)
    return token


def _check_address(request: Request | HttpRequest, *, counting: bool) -> None:
    throttle = WrongSecretThrottle(counting=counting)
    if not throttle.allow_request(request, None):
        raise Throttled(throttle.wait())


def check_credentials(request: Request | HttpRequest) -> None:
    """Refuse a user's name with a NUL, at which a database breaks off instead of finding none."""
    parts = request.META.get("HTTP_AUTHORIZATION", "").encode("latin-1", "replace").split()
    if len(parts) != 2 or parts[0].lower() != b"basic":
        return
    with suppress(ValueError):  # what is no base64 is refused as that
        if b"\0" in b64decode(parts[1]).partition(b":")[0]:
            raise AuthenticationFailed("No user's name has a NUL.")


def secret_of(header: bytes | str) -> str | None:
    """The secret in an ``Authorization`` header, or None if it holds no access token."""
    text = header.decode("latin-1") if isinstance(header, bytes) else header
    if len(text) > MOST_HEADER:
        return None
    for scheme in SCHEMES:
        if text[: len(scheme)].lower() == scheme:
            secret = text[len(scheme) :].strip()
            return secret if secret.startswith(PREFIX) else None
    return None


# --- tokens seen lately --------------------------------------------------------------


@dataclass(slots=True)
class _Entry:
    token: KnownToken
    asked_at: float
    """Stopwatch seconds of the last answer of the database."""
    fresh_until: float
    asking: bool = False
    """Whether a thread asks the database about it just now."""


class TokenCache:
    """Secrets to tokens, by digest: the secrets themselves are not kept. Thread-safe.

    A token is asked for again after ``IDGEN["REST"]["token_max_age"]``, by one thread at a
    time; while the database can't be asked, or says nothing, it is believed for
    ``token_outage`` more. An unknown secret is not remembered: a token that was made a
    moment ago works at once.
    """

    def __init__(
        self, find: Callable[[str], KnownToken | None] = find_token, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._find = find
        self._now = clock.stopwatch
        self._entries: dict[str, _Entry] = {}

    def lately(self, secret: str) -> KnownToken | None:
        """The token of ``secret`` if it needs no question to the database."""
        entry = self._entries.get(digest_of(secret))
        if entry is None or self._now() >= entry.fresh_until:
            return None
        return _living(entry.token)

    def has_seen(self, secret: str) -> bool:
        """Whether there was such a token, when the database was last asked."""
        return digest_of(secret) in self._entries

    def get(self, secret: str) -> KnownToken | None:
        """The token of ``secret``, or None if there is none.

        Raises :class:`django.db.Error` where only the database could tell.
        """
        digest = digest_of(secret)
        entry = self._entries.get(digest)
        if entry is not None and self._now() < entry.fresh_until:
            return _living(entry.token)
        if entry is None:
            return self._asked(secret, digest, None)
        if entry.asking and self._now() < _believed_until(entry):
            # A database that does not answer holds up one thread, not all of them.
            return _living(entry.token)
        entry.asking = True
        try:
            return self._asked(secret, digest, entry)
        finally:
            entry.asking = False

    def clear(self) -> None:
        """Forget all of them, so that the database is asked."""
        self._entries = {}

    def _asked(self, secret: str, digest: str, entry: _Entry | None) -> KnownToken | None:
        asked_at = self._now()
        try:
            found = self._find(secret)
        except AnyDatabaseError as error:
            if entry is None or self._now() >= _believed_until(entry):
                raise
            return self._believed(entry, error)
        if found is None:
            self._entries.pop(digest, None)
            return None
        self._keep(digest, found, asked_at)
        return _living(found)

    def _believed(self, entry: _Entry, error: AnyDatabaseError) -> KnownToken | None:
        now = self._now()
        entry.fresh_until = min(now + RETRY_AFTER, _believed_until(entry))
        logger.warning(
            "The database can't be asked about access token %r; it is believed as it was %.0f s "
            "ago: %s",
            entry.token.name,
            now - entry.asked_at,
            error,
        )
        return _living(entry.token)

    def _keep(self, digest: str, token: KnownToken, asked_at: float) -> None:
        # Counted from the question: the answer may have been long on its way.
        entry = _Entry(token, asked_at, asked_at + current_settings().rest.token_max_age)
        keep_newest(self._entries, digest, entry, most=MOST_TOKENS)


def _believed_until(entry: _Entry) -> float:
    rest = current_settings().rest
    return entry.asked_at + rest.token_max_age + rest.token_outage


def _living(token: KnownToken) -> KnownToken | None:
    if token.expires_at is None:
        return token
    return token if token.is_valid_at(timezone.now()) else None


TOKENS = TokenCache()
"""The cache of this process."""

if hasattr(os, "register_at_fork"):
    # Of the parent's questions the child gets no answer.
    os.register_at_fork(after_in_child=TOKENS.clear)
