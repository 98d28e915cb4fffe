"""Who is asking: a program with an access token, or a user of the project."""

from __future__ import annotations

from base64 import b64decode
from contextlib import suppress
from typing import Any

from django.db import Error as AnyDatabaseError
from django.http import HttpRequest
from django.views.decorators.debug import sensitive_variables
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import APIException, AuthenticationFailed, Throttled
from rest_framework.request import Request

from .failures import log_database
from .throttles import KnownSecrets, WrongSecretThrottle
from .token_cache import TOKENS
from .tokens import PREFIX, KnownToken

__all__ = [
    "AuthenticationUnavailable",
    "TokenAuthentication",
    "TokenUser",
    "check_credentials",
    "secret_of",
]

SCHEMES = ("bearer ", "token ")
MOST_HEADER = 512
"""Characters of a header that are looked at; a secret has 49."""


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
        # Guessing is hopeless; it just shall not keep the database busy.
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
    """The secret in an ``Authorization`` header, or None if it holds none of ours."""
    text = header.decode("latin-1") if isinstance(header, bytes) else header
    if len(text) > MOST_HEADER:
        return None
    for scheme in SCHEMES:
        if text[: len(scheme)].lower() == scheme:
            secret = text[len(scheme) :].strip()
            return secret if secret.startswith(PREFIX) else None
    return None
