"""What the old servers' URL modules have in common: who may ask, and how views are mounted.

The views are plain Django ones, which cost less than Django REST framework's; that is
asked only who sent a request, and only where a token seen lately doesn't say so already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from enum import Enum
from functools import wraps
from types import SimpleNamespace
from typing import Any

from django.core.checks import CheckMessage, Warning  # noqa: A004
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.urls import URLPattern, path, register_converter
from django.urls.converters import get_converters
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.debug import sensitive_variables
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import (
    APIException,
    AuthenticationFailed,
    NotAuthenticated,
    PermissionDenied,
    Throttled,
)
from rest_framework.request import Request
from rest_framework.settings import api_settings
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView

from ...core.layout import BitLayout
from ...core.presets import parse_layout
from ...db.atomic_requests import never_atomic
from ...process.handlers import current_settings
from ...rest.access import Caller, default_authentication
from ...rest.authentication import TokenAuthentication, TokenUser, check_credentials, secret_of
from ...rest.base import NEVER_CACHED, check_body, check_url, known_failure
from ...rest.failures import Failure
from ...rest.throttles import CallerThrottle, SubjectThrottle
from ...rest.token_cache import TOKENS
from ...settings.config import SettingsError

__all__ = ["DEFAULT", "Authentication", "Door", "Mount", "OldKeyConverter", "View", "throttle"]


class Default(Enum):
    """The one value says: access tokens, then the project's own DRF authentications."""

    AUTHENTICATION = "the native API's"


DEFAULT = Default.AUTHENTICATION
Authentication = Iterable[type[BaseAuthentication]] | None | Default
View = Callable[..., HttpResponse]
NO_OWNERS = (
    " Its machine ids have no owner: anybody can give back, and then have, the one that an "
    "instance works with."
)
COUNTED = "idgen_counted"
"""An attribute of a request that a throttle has counted: who asks may be asked for twice."""


class Door:
    """Who may come in: those whom one of ``authentication`` knows; anybody if it is empty."""

    def __init__(self, authentication: Authentication) -> None:
        self._classes = None if isinstance(authentication, Default) else tuple(authentication or ())

    @property
    def is_open(self) -> bool:
        return self._classes == ()

    @sensitive_variables()
    def caller(
        self, request: HttpRequest, secret: str | None = None, *, counted: bool = True
    ) -> Caller | None:
        """Who sent the request; None if anybody may. ``secret`` is one not in the header.

        It is counted, unless ``counted`` is False. Raises DRF's exceptions.
        """
        found = None if self.is_open else self._known(request, secret)
        if counted:
            _count(request, found)
        return found

    def user(self, request: HttpRequest) -> Caller:
        """The same at a closed door; at an open one those whom the native API knows come in."""
        found = (Door(DEFAULT) if self.is_open else self)._known(request, None)
        _count(request, found)
        return found

    def need(self, request: HttpRequest, permission: str) -> Any:
        """The user with that permission who sent the request. Raises :class:`PermissionDenied`."""
        caller = self.user(request)
        if not caller.has_perm(permission):
            raise PermissionDenied
        return caller.user

    @sensitive_variables()
    def _known(self, request: HttpRequest, secret: str | None) -> Caller:
        classes = default_authentication() if self._classes is None else self._classes
        if classes[0] is TokenAuthentication:  # a class of the project's own may be stricter
            given = secret or secret_of(request.META.get("HTTP_AUTHORIZATION", ""))
            token = None if given is None else TOKENS.lately(given)
            if token is not None:
                return Caller(TokenUser(token), token)
        if secret is not None:
            return _by_secret(classes, request, secret)
        return _authenticated(classes, request)


@sensitive_variables()
def _by_secret(
    classes: Iterable[type[BaseAuthentication]], request: HttpRequest, secret: str
) -> Caller:
    """As if the secret stood in the header, where it belongs."""
    if not secret.isascii():
        # No header can hold it, and the error that says so shows all of it.
        raise AuthenticationFailed
    first = next((kind for kind in classes if issubclass(kind, TokenAuthentication)), None)
    asking = HttpRequest()
    asking.META = {**request.META, "HTTP_AUTHORIZATION": f"Bearer {secret}"}
    found = first().authenticate(asking) if first is not None else None
    if found is None:
        raise AuthenticationFailed
    return Caller(*found)


def _authenticated(classes: Iterable[type[BaseAuthentication]], request: HttpRequest) -> Caller:
    authenticators = [kind() for kind in classes]
    asking = Request(request, authenticators=authenticators)
    try:
        check_credentials(request)
        found = Caller.of(asking)
        if found is None:
            raise NotAuthenticated
    except (NotAuthenticated, AuthenticationFailed) as error:
        header = authenticators[0].authenticate_header(asking)
        if header is None:
            error.status_code = 403
        else:
            error.auth_header = header  # type: ignore[union-attr]
        raise
    return found


def _count(request: HttpRequest, caller: Caller | None) -> None:
    """Raise :class:`Throttled` by the project's throttles and ours; once for each request."""
    if hasattr(request, COUNTED):
        return
    setattr(request, COUNTED, True)
    kinds: list[Any] = [*api_settings.DEFAULT_THROTTLE_CLASSES]
    if current_settings().rest.caller_rate is not None:
        kinds.append(CallerThrottle)
    if not kinds:
        return
    asking = Request(copy(request))  # whose user is set on what it wraps, too
    if caller is not None:
        asking.user, asking.auth = caller.user, caller.token
    view = APIView()
    view.setup(request)
    for kind in kinds:
        _check(kind(), asking, view)


def throttle(**subject: str) -> None:
    """Raise :class:`Throttled` by the settings; ``subject`` is the ``tag`` or the ``alias``."""
    if current_settings().rest.tag_rate is not None:
        view: Any = SimpleNamespace(kwargs=subject)
        _check(SubjectThrottle(), Request(HttpRequest()), view)


def _check(limit: BaseThrottle, asking: Request, view: Any) -> None:
    if not limit.allow_request(asking, view):
        raise Throttled(limit.wait())


class OldKeyConverter:
    """What a client wrote as a key, whatever it is: the old server's own error answers it."""

    regex = r"[\s\S]+?"

    def to_python(self, value: str) -> str:
        return value

    def to_url(self, value: str) -> str:
        return value


class SlashConverter(OldKeyConverter):
    """The slash that a path may end with."""

    regex = "/?"


if "idgen_old_key" not in get_converters():
    register_converter(OldKeyConverter, "idgen_old_key")
    register_converter(SlashConverter, "idgen_slash")


class Mount:
    """Makes the views of one old server: ``failed`` writes what went wrong in its own words.

    ``first`` is called with each request before anything else is done about it. ``slash``:
    whether its paths may end with a slash, too, which is none of the key. ``epoch``: that of
    the old server's snowflakes, which ``aliases`` give here: a system check compares them.
    """

    def __init__(
        self,
        name: str,
        door: Door,
        failed: Callable[[Exception, Failure, HttpRequest], HttpResponse],
        *,
        first: Callable[[HttpRequest], None] | None = None,
        slash: bool = True,
        epoch: str | None = None,
        aliases: Iterable[str] = (),
    ) -> None:
        self.name = name
        self.door = door
        self._failed = failed
        self._first = first
        self._end = "<idgen_slash:slash>" if slash else ""
        self.epoch = epoch
        self.aliases = tuple(dict.fromkeys(aliases))

    def path(self, route: str, view: View | None = None, **methods: View) -> URLPattern:
        """``route`` to ``view``, whatever the method, or to one for each of ``methods``."""
        return path(route + self._end, self._mounted(view, methods))

    def _mounted(self, every: View | None, methods: dict[str, View]) -> View:
        by_method = {name.upper(): view for name, view in methods.items()}

        def mounted(request: HttpRequest, slash: str = "", **kwargs: str) -> HttpResponse:  # noqa: ARG001
            view = every or by_method.get(request.method or "")
            if view is None:
                return HttpResponseNotAllowed(by_method)
            try:
                try:
                    check_url(request)
                finally:  # which cuts what is too long
                    if self._first is not None:
                        self._first(request)
                check_body(request)
                response = view(request, **kwargs)
            except Exception as error:  # noqa: BLE001  (what is a bug is raised again)
                response = self._told(error, request)
            for name, value in NEVER_CACHED.items():
                response.headers[name] = value
            return response

        mounted.idgen_check = self._check  # type: ignore[attr-defined]
        if every is not None:
            mounted = wraps(every)(mounted)
        return never_atomic(csrf_exempt(mounted))

    def _check(self, prefix: str) -> list[CheckMessage]:
        """What the system checks say of this mount, which is below ``prefix``."""
        open_to_all = check_open(self.name, prefix) if self.door.is_open else []
        return [*open_to_all, *check_epoch(self.name, prefix, self.epoch, self.aliases)]

    def _told(self, error: Exception, request: HttpRequest) -> HttpResponse:
        failure = failure_in(error)
        if failure is None:
            raise error
        response = self._failed(error, failure, request)
        if failure.retry_after is not None:
            response.headers["Retry-After"] = str(failure.retry_after)
        header = getattr(error, "auth_header", None)
        if header is not None:
            response.headers["WWW-Authenticate"] = header
        return response


def failure_in(error: Exception) -> Failure | None:
    """What to say to ``error``; None if it is a bug."""
    if isinstance(error, APIException):
        wait = getattr(error, "wait", None)
        return Failure(
            error.status_code, str(error.get_codes()), str(error.detail), None, wait and int(wait)
        )
    return known_failure(error)


def check_open(name: str, prefix: str) -> list[CheckMessage]:
    """W007."""
    return [
        Warning(
            f"{name}.urls() at {'/' + prefix!r} gives ids to anybody who can reach it: it is "
            f"mounted with authentication=None." + (NO_OWNERS if name == "cosid" else ""),
            hint="Leave authentication out, and give each client an access token; or see that "
            "nobody else can reach it, and silence this check.",
            id="django_idgen.W007",
        )
    ]


def check_epoch(
    name: str, prefix: str, epoch: str | None, aliases: Iterable[str]
) -> list[CheckMessage]:
    """W011. One warning for each generator whose ids don't go on above the old server's."""
    if epoch is None:
        return []
    theirs = parse_layout("standard", epoch=epoch)
    try:
        known = current_settings().generators
    except SettingsError:
        return []  # E001 says so
    return [
        Warning(
            f"{name}.urls() at {'/' + prefix!r} gives ids of generator {alias!r}, whose time "
            f"({known[alias].layout}) is not the old server's ({theirs}): its ids don't go on "
            f"above those of the old server, and may come to some that it gave.",
            hint=f'Add a generator with "EPOCH": "{epoch}" to IDGEN["GENERATORS"], and name it in '
            f"{name}.urls(generator=...). If no client has snowflakes of the old server, silence "
            f"this check.",
            id="django_idgen.W011",
        )
        for alias in aliases
        if alias in known and _time(known[alias].layout) != _time(theirs)
    ]


def _time(layout: BitLayout) -> tuple[int, int, int]:
    """Where an id has its time; how the bits below it are split does not count."""
    return layout.epoch_us, layout.tick_us, layout.time_shift
