"""Callers: who they are, what each may take, and how often.

A caller is a program with an access token, or a user of the project. Tokens seen lately are cached,
so that a hot endpoint needs no query. Rate limits are Django REST framework's throttles with the
rates of ``IDGEN["REST"]``. They keep the times of the last requests in Django's cache ``default``;
while that cache fails, they let all requests in: ids matter more than limits.
"""

from __future__ import annotations

import logging
import math
import os
from base64 import b64decode
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any, ClassVar, TypeVar

from django.core.cache import cache
from django.db import Error as AnyDatabaseError
from django.http import HttpRequest
from django.utils.crypto import salted_hmac
from django.views.decorators.debug import sensitive_variables
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import (
    AuthenticationFailed,
    NotAuthenticated,
    PermissionDenied,
    Throttled,
)
from rest_framework.request import Request
from rest_framework.settings import api_settings
from rest_framework.throttling import BaseThrottle, SimpleRateThrottle

from ..core.bounded import keep_newest
from ..core.clock import SYSTEM_CLOCK, Clock
from ..process.maps import current_settings
from .failures import Refusal, log_database
from .tokens import PREFIX, KnownToken, digest_of, find_token

CHANGE = "django_idgen.change_leafalloc"
SCHEMES = ("bearer ", "token ")
MOST_HEADER = 512
"""Characters of a header that are read; a secret has 49."""
MOST_TOKENS = 10_000
"""Tokens in the cache; the oldest go first."""
RETRY_AFTER = 5.0
"""Seconds before a database that didn't answer is asked again for a token."""
REMEMBERED = 86_400 * 30
"""Seconds for which a secret that was right passes the limit on wrong secrets."""
WARN_EVERY = 60.0
"""Seconds between two warnings about the cache."""
COUNTED = "idgen_failure_counted"
"""The attribute of a request whose credentials were refused and counted."""

logger = logging.getLogger("django_idgen")
T = TypeVar("T")


# --- callers ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request: a user of the project, or a program with a token."""

    user: Any
    token: KnownToken | None

    @classmethod
    def of(cls, request: Request) -> Caller | None:
        """None without credentials. Raises what the authentications raise."""
        user = request.user
        if user is None or not user.is_authenticated:
            return None
        return cls(user, request.auth if isinstance(request.auth, KnownToken) else None)

    def may_take_of_tag(self, tag: str) -> bool:
        """A token may take of the tags that it names, a user of all."""
        return self.token is None or self.token.may_take_of_tag(tag)

    def may_take_of_generator(self, alias: str) -> bool:
        return self.token is None or self.token.may_take_of_generator(alias)

    def may_borrow_of_generator(self, alias: str) -> bool:
        """Worker ids are for programs: only a token can name their generators."""
        return self.token is not None and self.token.may_borrow_of_generator(alias)

    @property
    def borrows(self) -> bool:
        """Whether the caller may borrow worker ids of any generator."""
        return self.token is not None and bool(self.token.leases)

    def refusal(self, what: str) -> str:
        """The text for a token that doesn't name the ``what`` of the request."""
        if self.token is not None and self.token.names_nothing:
            return "This access token names no tag, no generator and no lease: it may take nothing."
        return f"This access token does not name that {what}."

    def check_segments_of(self, tag: str) -> None:
        """Raise :class:`PermissionDenied` unless the caller may take whole segments of ``tag``.

        A segment moves the tag as far as the caller says, so a user needs the right to change tags.
        """
        if self.token is None and not self.has_perm(CHANGE):
            raise PermissionDenied(
                f"To take a whole segment, you need the permission {CHANGE}, or an access token "
                "that names the tag."
            )
        if not self.may_take_of_tag(tag):
            raise PermissionDenied(self.refusal("tag"))

    def has_perm(self, permission: str) -> bool:
        """Whether the user has a Django permission. Tokens have none."""
        return bool(self.user.has_perm(permission))


class TokenUser:
    """``request.user`` of a program with a token. It has no Django permissions."""

    is_authenticated = True
    is_anonymous = False
    is_active = True
    is_staff = False
    is_superuser = False

    def __init__(self, token: KnownToken) -> None:
        self.token = token
        self.pk = f"token:{token.pk}"
        """Identifies the caller in throttles. No user has such a key."""

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

    Sets ``request.user`` to a :class:`TokenUser` and ``request.auth`` to its
    :class:`KnownToken`. It ignores secrets without this app's prefix, so that other
    authentications can read them.
    """

    @sensitive_variables()
    def authenticate(self, request: Request | HttpRequest) -> tuple[Any, Any] | None:
        secret = secret_of(get_authorization_header(request))  # type: ignore[arg-type]
        if secret is None:
            return None
        token = TOKENS.lately(secret)
        if token is None:
            seen, digest = TOKENS.has_seen(secret), digest_of(secret)
            token = _counted(request, digest, partial(_look_up, secret), is_known=seen)
        return TokenUser(token), token

    def authenticate_header(self, request: Request) -> str:  # noqa: ARG002
        return "Bearer"


def default_authentication() -> list[type[BaseAuthentication]]:
    """Access tokens first, then the project's ``DEFAULT_AUTHENTICATION_CLASSES``."""
    known: Iterable[Any] = api_settings.DEFAULT_AUTHENTICATION_CLASSES
    return [TokenAuthentication, *known]


@sensitive_variables()
def seen_lately(request: HttpRequest) -> Caller | None:
    """The sender of a request with an access token that was seen lately; makes no query.

    The short cut of the native API and of the old servers. It does what
    :class:`TokenAuthentication` does, and so holds only where that is asked first.
    """
    secret = secret_of(request.META.get("HTTP_AUTHORIZATION", ""))
    token = None if secret is None else TOKENS.lately(secret)
    return None if token is None else Caller(TokenUser(token), token)


@sensitive_variables()
def authenticated(request: Request) -> Caller | None:
    """The sender of the request; None without credentials.

    Raises what the authentication classes of ``request`` raise, and :class:`Throttled` for an
    address with too many wrong credentials. All requests but those of :func:`seen_lately` pass
    here, so each refused credential is counted here: what a class refuses, from any header, and an
    ``Authorization`` header that no class reads.
    """
    header = request.META.get("HTTP_AUTHORIZATION", "")
    find: Callable[[], Caller | None] = partial(_find_caller, request)
    if header and secret_of(header) is None:  # the class of access tokens does this for them
        find = partial(
            _counted, request, salted_hmac("django_idgen.rest", header).hexdigest(), find
        )
    try:
        found = find()
    except (AuthenticationFailed, NotAuthenticated) as error:
        if header or isinstance(error, AuthenticationFailed):
            _count_failure(request)
        raise
    if found is None and header:
        _count_failure(request)
    return found


@sensitive_variables()
def _find_caller(request: Request) -> Caller | None:
    _check_user_name(request)
    return Caller.of(request)


@sensitive_variables()
def _look_up(secret: str) -> KnownToken:
    try:
        token = TOKENS.get(secret)
    except AnyDatabaseError as error:
        log_database(error)
        raise Refusal(
            503,
            "authentication_unavailable",
            "Access tokens can't be checked just now. Try again in some seconds.",
            wait=5,
        ) from error
    if token is None:
        raise AuthenticationFailed("This access token is not known, or has expired.")
    return token


@sensitive_variables()
def _counted(
    request: Request | HttpRequest, digest: str, find: Callable[[], T], *, is_known: bool = False
) -> T:
    """What ``find`` finds. With ``caller_rate`` the sender's address may fail only so often.

    A guess at an access token can't succeed, but must not keep the database busy. Credentials that
    were right lately, in any process, pass. Otherwise the clients of a new process, whose cache of
    tokens is empty, would wait while a stranger at the same address (which may be a proxy's)
    guesses. ``digest`` stands for the credentials. ``is_known``: this process knows them.
    """
    if current_settings().rest.caller_rate is None:
        return find()
    key = _key("known", digest)
    if not is_known and not _ask_cache(cache.get, key):
        _check_address(request, counting=False)
    try:
        found = find()
    except AuthenticationFailed:
        _count_failure(request)
        raise
    if found is not None:
        _ask_cache(cache.set, key, 1, REMEMBERED)
    return found


def _count_failure(request: Request | HttpRequest) -> None:
    """Count a refused credential of ``request``, only once however many classes refuse one.

    Raises :class:`Throttled` if the address is over the limit.
    """
    inner = getattr(request, "_request", request)
    if not hasattr(inner, COUNTED):
        setattr(inner, COUNTED, True)
        _check_address(request, counting=True)


def _check_address(request: Request | HttpRequest, *, counting: bool) -> None:
    throttle = WrongSecretThrottle(counting=counting)
    if not throttle.allow_request(request, None):
        raise Throttled(throttle.wait())


@sensitive_variables()
def _check_user_name(request: Request) -> None:
    """Refuse a user name with a NUL: databases raise an error for it instead of finding none."""
    words = get_authorization_header(request).split()
    if len(words) == 2 and words[0].lower() == b"basic":
        with suppress(ValueError):  # BasicAuthentication refuses invalid base64
            if b"\0" in b64decode(words[1]).partition(b":")[0]:
                raise AuthenticationFailed("A user name can't contain a NUL character.")


def secret_of(header: bytes | str) -> str | None:
    """The access token's secret in an ``Authorization`` header, or None."""
    text = header.decode("latin-1") if isinstance(header, bytes) else header
    if len(text) > MOST_HEADER:
        return None
    for scheme in SCHEMES:
        if text[: len(scheme)].lower() == scheme:
            secret = text[len(scheme) :].strip()
            return secret if secret.startswith(PREFIX) else None
    return None


def has_foreign_secret(request: Request) -> bool:
    """Whether a request has a bearer token that is none of this app's."""
    header = get_authorization_header(request).lower()
    return header.startswith(b"bearer ") and secret_of(header) is None


# --- rate limits -----------------------------------------------------------------------


class SettingThrottle(SimpleRateThrottle):
    """A throttle whose rate is a setting of ``IDGEN["REST"]``; None switches it off."""

    setting: ClassVar[str] = "caller_rate"
    _warn_at: ClassVar[float] = -math.inf

    def get_rate(self) -> str | None:
        rate: str | None = getattr(current_settings().rest, self.setting)
        return rate

    def get_ident(self, request: Any) -> str:
        """The client's address; ``X-Forwarded-For`` counts only as ``NUM_PROXIES`` says.

        Without ``NUM_PROXIES`` DRF trusts that header, which callers can forge.
        """
        if api_settings.NUM_PROXIES is None:
            return str(request.META.get("REMOTE_ADDR") or "")
        return str(super().get_ident(request))

    def allow_request(self, request: Any, view: Any) -> bool:
        try:
            return bool(super().allow_request(request, view))
        except Exception as error:  # noqa: BLE001  (cache clients raise errors of their own)
            _warn(error)
            return True


class CallerThrottle(SettingThrottle):
    """``caller_rate``: requests of one user or token; at an open mount, of one address."""

    def get_cache_key(self, request: Request, view: Any) -> str | None:  # noqa: ARG002
        pk = getattr(request.user, "pk", None)
        return _key("open", self.get_ident(request)) if pk is None else _key("caller", str(pk))


class SubjectThrottle(SettingThrottle):
    """``tag_rate``: requests of all callers for one tag, or one generator."""

    setting = "tag_rate"

    def get_cache_key(self, request: Request, view: Any) -> str | None:  # noqa: ARG002
        tag = view.kwargs.get("tag")
        if tag is not None:
            return _key("tag", tag)
        return _key("generator", view.kwargs.get("alias", ""))


class WrongSecretThrottle(SettingThrottle):
    """``caller_rate`` for the refused credentials of one address.

    With ``counting=False`` it checks the limit without counting the request.
    """

    def __init__(self, *, counting: bool) -> None:
        super().__init__()
        self.counting = counting

    def get_cache_key(self, request: Any, view: Any) -> str | None:  # noqa: ARG002
        return _key("address", self.get_ident(request))

    def throttle_success(self) -> bool:
        return bool(super().throttle_success()) if self.counting else True


def ids_throttles() -> list[type[BaseThrottle]]:
    """The project's ``DEFAULT_THROTTLE_CLASSES``, then this app's."""
    known: Iterable[Any] = api_settings.DEFAULT_THROTTLE_CLASSES
    return [*known, CallerThrottle, SubjectThrottle]


def _key(kind: str, name: str) -> str:
    # Some caches refuse spaces, or long keys.
    return f"idgen_throttle_{kind}_{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _ask_cache(call: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except Exception as error:  # noqa: BLE001  (cache clients raise errors of their own)
        _warn(error)


def _warn(error: Exception) -> None:
    now = SYSTEM_CLOCK.stopwatch()
    if now >= SettingThrottle._warn_at:
        SettingThrottle._warn_at = now + WARN_EVERY
        logger.warning("Requests are not throttled, because the cache failed: %r", error)


# --- tokens seen lately ----------------------------------------------------------------


@dataclass(slots=True)
class _Entry:
    token: KnownToken
    asked_at: float
    """Stopwatch seconds of the last query."""
    fresh_until: float


class TokenCache:
    """Tokens by the digest of their secret; secrets are not kept. Thread-safe.

    After ``IDGEN["REST"]["token_max_age"]`` one thread queries a token again. While it waits, and
    while the database fails, the cached token stays valid for ``token_outage`` more. Unknown
    secrets are not cached: a token that was just made works at once.
    """

    def __init__(
        self, find: Callable[[str], KnownToken | None] = find_token, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._find = find
        self._now = clock.stopwatch
        self._entries: dict[str, _Entry] = {}

    def lately(self, secret: str) -> KnownToken | None:
        """The token of ``secret`` if the cache has it; makes no query."""
        entry = self._entries.get(digest_of(secret))
        if entry is None or self._now() >= entry.fresh_until:
            return None
        return _living(entry.token)

    def has_seen(self, secret: str) -> bool:
        """Whether the last query for ``secret`` found a token."""
        return digest_of(secret) in self._entries

    def get(self, secret: str) -> KnownToken | None:
        """The token of ``secret``, or None if there is none.

        Raises :class:`django.db.Error` if the database fails and the cache has no token.
        """
        digest, rest, now = digest_of(secret), current_settings().rest, self._now()
        entry = self._entries.get(digest)
        if entry is not None and now < entry.fresh_until:
            return _living(entry.token)
        believed_until = -math.inf
        if entry is not None:
            believed_until = entry.asked_at + rest.token_max_age + rest.token_outage
            # A database that hangs must hold up one thread only.
            entry.fresh_until = believed_until
        try:
            found = self._find(secret)
        except AnyDatabaseError as error:
            if entry is None or self._now() >= believed_until:
                raise
            logger.warning(
                "The database can't be queried for access token %r. What was known of it %.0f s "
                "ago is used: %s",
                entry.token.name,
                now - entry.asked_at,
                error,
            )
            return _living(entry.token)
        finally:
            if entry is not None:
                entry.fresh_until = min(self._now() + RETRY_AFTER, believed_until)
        if found is None:
            self._entries.pop(digest, None)
            return None
        # Count from before the query: its answer may be old by now.
        fresh = _Entry(found, asked_at=now, fresh_until=now + rest.token_max_age)
        keep_newest(self._entries, digest, fresh, most=MOST_TOKENS)
        return _living(found)

    def clear(self) -> None:
        """Forget all tokens."""
        self._entries = {}


def _living(token: KnownToken) -> KnownToken | None:
    return token if token.is_valid() else None


TOKENS = TokenCache()

if hasattr(os, "register_at_fork"):
    # No thread of the child will finish the parent's queries.
    os.register_at_fork(after_in_child=TOKENS.clear)
