"""What the old servers have in common: who may ask, for which ids, and how views are mounted.

The views are plain Django ones, which cost less than Django REST framework's. DRF is asked
only who sent a request, and only where no token that was seen lately says so.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from copy import copy
from enum import Enum
from functools import wraps
from types import SimpleNamespace
from typing import Any, ClassVar

from django.core.checks import CheckMessage, Warning  # noqa: A004
from django.core.exceptions import ImproperlyConfigured
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

from ...core.generator import Generator
from ...core.layout import BitLayout, parse_layout
from ...core.segment import STEP, Segment, check_tag
from ...db.atomic_requests import never_atomic
from ...process.handlers import current_settings, generators, segments
from ...rest.access import Caller, default_authentication
from ...rest.authentication import (
    TOKENS,
    TokenAuthentication,
    TokenUser,
    check_credentials,
    secret_of,
)
from ...rest.base import NEVER_CACHED, check_body, check_url, known_failure
from ...rest.failures import Failure
from ...rest.lending import Lending
from ...rest.tags import KNOWN_TAGS, UnknownTag
from ...rest.throttles import CallerThrottle, SubjectThrottle
from ...rest.tokens import fits
from ...settings.config import SettingsError

__all__ = [
    "DEFAULT",
    "Authentication",
    "Door",
    "OldKeyConverter",
    "OldServer",
    "Tags",
    "View",
    "checked_alias",
    "json_answer",
    "of_generator",
    "parameter",
    "throttle",
]


class Default(Enum):
    """The one value says: access tokens, then the project's own DRF authentications."""

    AUTHENTICATION = "the native API's"


DEFAULT = Default.AUTHENTICATION
Authentication = Iterable[type[BaseAuthentication]] | None | Default
View = Callable[..., HttpResponse]
Failed = Callable[[Exception, Failure, HttpRequest], HttpResponse]
"""Writes what went wrong as the old server does."""
NO_OWNERS = (
    " Its machine ids have no owner: anybody can give back, and then have, the one that an "
    "instance works with."
)
COUNTED = "idgen_counted"
"""An attribute of a request that throttles have counted: a view may ask for the caller twice."""


class Door:
    """Lets in the callers that one of ``authentication`` knows; all callers if it is empty."""

    def __init__(self, authentication: Authentication) -> None:
        self._classes = None if isinstance(authentication, Default) else tuple(authentication or ())

    @property
    def is_open(self) -> bool:
        return self._classes == ()

    @sensitive_variables()
    def caller(
        self, request: HttpRequest, secret: str | None = None, *, counted: bool = True
    ) -> Caller | None:
        """Who sent the request; None at an open door. ``secret``: one that is in no header.

        ``counted``: whether throttles count the request. Raises DRF's exceptions.
        """
        found = None if self.is_open else self._known(request, secret)
        if counted:
            _count(request, found)
        return found

    def user(self, request: HttpRequest) -> Caller:
        """The same at a closed door; an open one lets in those whom the native API knows."""
        found = (Door(DEFAULT) if self.is_open else self)._known(request, None)
        _count(request, found)
        return found

    def need(self, request: HttpRequest, permission: str) -> Any:
        """The user who sent it and has the permission. Raises :class:`PermissionDenied`."""
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
    """Raise :class:`Throttled` by the throttles of the project and of this app, once a request."""
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


# --- which ids ---------------------------------------------------------------------------


class Tags:
    """The tags that match one of ``patterns`` (“*” stands for any characters).

    ``make``: whether a request for an unknown one makes it; None: as the setting
    ``IDGEN["REST"]["make_tags"]`` says.
    """

    def __init__(self, patterns: Iterable[str], make: bool | None) -> None:
        self._patterns = _patterns(patterns)
        self._serves_all = "*" in self._patterns
        if make is not None and not isinstance(make, bool):
            raise ImproperlyConfigured(f"make_tags must be True, False or None, not {make!r}.")
        self._make = make

    def generator(self, caller: Caller | None, tag: str) -> Generator:
        """What gives ids of ``tag`` to ``caller``.

        Raises :class:`UnknownTag`, DRF's exceptions and :class:`IdgenError`.
        """
        self.check(caller, tag)
        return segments.get(tag) or segments.open(tag)

    def segment(self, caller: Caller | None, tag: str) -> Segment:
        """A whole segment out of the source, for ``caller`` alone; raises likewise.

        As long as the row's step says, up to ``max_segment``.
        """
        self.check_segments(caller, tag)
        allocator = segments.allocator()
        allocator.check_process()
        return Lending(allocator, tag, current_settings().rest.max_segment).take(STEP, 0)

    def makes(self) -> bool:
        """Whether an unknown tag is made by a request for it."""
        return current_settings().rest.make_tags if self._make is None else self._make

    def check(self, caller: Caller | None, tag: str, *, may_make: bool = False) -> None:
        """Raise unless ``caller`` (None: any caller) may take ids of ``tag``, and the tag is there.

        ``may_make``: the tag need not be there, as what calls this makes it.
        """
        check_tag(tag)
        if caller is not None and not caller.may_take_of_tag(tag):
            raise PermissionDenied(caller.refusal("tag"))
        throttle(tag=tag)
        if not self.serves(tag):
            raise UnknownTag(tag)
        if not may_make and not self.makes() and not KNOWN_TAGS.has(tag):
            raise UnknownTag(tag)

    def check_segments(self, caller: Caller | None, tag: str, *, may_make: bool = False) -> None:
        """As :meth:`check`, for whole segments."""
        self.check(caller, tag, may_make=may_make)
        if caller is not None:
            caller.check_segments_of(tag)

    def serves(self, tag: str) -> bool:
        return self._serves_all or any(fits(each, tag) for each in self._patterns)


def of_generator(caller: Caller | None, alias: str) -> Generator:
    """What gives ids of the generator ``alias``; raises as :meth:`Tags.generator`."""
    if caller is not None and not caller.may_take_of_generator(alias):
        raise PermissionDenied(caller.refusal("generator"))
    throttle(alias=alias)
    return generators[alias]


def checked_alias(alias: object) -> str:
    """``alias``, if ``IDGEN["GENERATORS"]`` has it; raises :class:`ImproperlyConfigured`."""
    known = current_settings().generators
    if not isinstance(alias, str) or alias not in known:
        raise ImproperlyConfigured(
            f"There is no generator {alias!r} in IDGEN['GENERATORS']. There are "
            f"{', '.join(map(repr, known))}."
        )
    return alias


def _patterns(given: object) -> tuple[str, ...]:
    found = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (None,)
    if not all(isinstance(each, str) and each for each in found):
        raise ImproperlyConfigured(
            f"tags must be a list of patterns, such as ['*'], not {given!r}."
        )
    return found


# --- how -----------------------------------------------------------------------------------


class OldKeyConverter:
    """Any text as a key: a wrong one gets the old server's own error."""

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


class OldServer(ABC):
    """The base of each old server, whose views are its methods. Thread-safe.

    ``authentication``: see :class:`Door`. ``aliases``: the generators whose snowflakes it
    gives; a system check compares their time with :attr:`epoch`.
    """

    name: ClassVar[str]
    slash: ClassVar[bool] = True
    """Whether its paths may end with a slash, which is no part of a key."""
    epoch: ClassVar[str | None] = None
    """That of the old server's snowflakes."""

    def __init__(self, authentication: Authentication, aliases: Iterable[str] = ()) -> None:
        self.door = Door(authentication)
        self.aliases = tuple(dict.fromkeys(aliases))

    @abstractmethod
    def failed(self, error: Exception, failure: Failure, request: HttpRequest) -> HttpResponse:
        """What went wrong, as the old server writes it."""

    def begin(self, request: HttpRequest) -> None:  # noqa: B027  # most have nothing to do
        """Called with each request before anything else is done with it."""

    def path(
        self, route: str, view: View | None = None, *, failed: Failed | None = None, **methods: View
    ) -> URLPattern:
        """``route`` to ``view``, whatever the method, or to one for each of ``methods``."""
        end = "<idgen_slash:slash>" if self.slash else ""
        return path(route + end, self._mounted(view, methods, failed or self.failed))

    def _mounted(self, every: View | None, methods: dict[str, View], failed: Failed) -> View:
        by_method = {name.upper(): view for name, view in methods.items()}

        def mounted(request: HttpRequest, slash: str = "", **kwargs: str) -> HttpResponse:  # noqa: ARG001
            view = every or by_method.get(request.method or "")
            if view is None:
                return HttpResponseNotAllowed(by_method)
            try:
                try:
                    check_url(request)
                finally:  # which cuts what is too long
                    self.begin(request)
                check_body(request)
                response = view(request, **kwargs)
            except Exception as error:  # noqa: BLE001  (what is a bug is raised again)
                response = _told(error, request, failed)
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


def _told(error: Exception, request: HttpRequest, failed: Failed) -> HttpResponse:
    failure = failure_in(error)
    if failure is None:
        raise error
    response = failed(error, failure, request)
    if failure.retry_after is not None:
        response.headers["Retry-After"] = str(failure.retry_after)
    header = getattr(error, "auth_header", None)
    if header is not None:
        response.headers["WWW-Authenticate"] = header
    return response


def parameter(request: HttpRequest, name: str) -> str | None:
    """A parameter in the query, else in a form that was posted."""
    found = request.GET.get(name)
    return request.POST.get(name) if found is None and request.method == "POST" else found


def json_answer(content: object, content_type: str, status: int = 200) -> HttpResponse:
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return HttpResponse(text, status=status, content_type=content_type)


def failure_in(error: Exception) -> Failure | None:
    """How to answer ``error``; None for a bug."""
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
