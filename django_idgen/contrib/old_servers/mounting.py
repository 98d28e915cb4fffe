"""What the old servers share: who may ask, for which ids, and how views are mounted.

The views are plain Django views, which cost less than Django REST framework's. DRF only
authenticates callers, and only those without a token that was seen lately.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from enum import Enum
from types import SimpleNamespace
from typing import Any, ClassVar

from django.core.checks import CheckMessage, Warning  # noqa: A004
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.urls import URLPattern, re_path
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
from ...core.segment import check_tag
from ...db.transactions import never_atomic
from ...process.maps import current_settings, generators, segments
from ...rest.asgi import check_body_limit
from ...rest.authentication import (
    Caller,
    CallerThrottle,
    SubjectThrottle,
    TokenAuthentication,
    authenticated,
    default_authentication,
    seen_lately,
)
from ...rest.base import NEVER_CACHED, check_body, check_url
from ...rest.failures import answer_to
from ...rest.tags import UnknownTag, is_there
from ...rest.tokens import fits
from ...settings import SettingsError


class Default(Enum):
    """The default of ``authentication``: access tokens, then the project's own classes."""

    AUTHENTICATION = "the native API's"


DEFAULT = Default.AUTHENTICATION
Authentication = Iterable[type[BaseAuthentication]] | None | Default
View = Callable[..., HttpResponse]
Failed = Callable[[Exception, APIException, HttpRequest], HttpResponse]
"""Writes an error as the old server does: the error, and the native API's answer to it."""


class Door:
    """Lets in the callers that one of ``authentication`` knows; all callers if it is empty."""

    def __init__(self, authentication: Authentication) -> None:
        self._classes = None if isinstance(authentication, Default) else tuple(authentication or ())
        self.is_open = self._classes == ()

    @sensitive_variables()
    def caller(
        self, request: HttpRequest, *, secret: str | None = None, counted: bool = True
    ) -> Caller | None:
        """The sender of the request; None at an open door. Raises DRF's exceptions.

        ``secret``: of an access token that was in no header. ``counted``: whether throttles count
        the request.
        """
        found = None if self.is_open else self._known(request, secret)
        if counted:
            _count(request, found)
        return found

    def need(self, request: HttpRequest, permission: str) -> Any:
        """The user who sent the request, also at an open door.

        Raises :class:`PermissionDenied` unless the user has ``permission``.
        """
        caller = self._known(request)
        _count(request, caller)
        if not caller.has_perm(permission):
            raise PermissionDenied
        return caller.user

    @sensitive_variables()
    def _known(self, request: HttpRequest, secret: str | None = None) -> Caller:
        classes = [*(self._classes or default_authentication())]
        if secret is not None:
            # As if it were in the header, where it belongs.
            classes = [kind for kind in classes if issubclass(kind, TokenAuthentication)][:1]
            request = _with_secret(request, secret)
        if classes[:1] == [TokenAuthentication]:  # a subclass of the project's may be stricter
            caller = seen_lately(request)
            if caller is not None:
                return caller
        authenticators = [kind() for kind in classes]
        asking = Request(request, authenticators=authenticators)
        try:
            found = authenticated(asking)
            if found is None:
                raise NotAuthenticated
        except (NotAuthenticated, AuthenticationFailed) as error:
            if secret is None:
                error.auth_header = authenticators[0].authenticate_header(asking)  # type: ignore[union-attr]
                error.status_code = 401 if error.auth_header else 403  # type: ignore[union-attr]
            raise
        return found


@sensitive_variables()
def _with_secret(request: HttpRequest, secret: str) -> HttpRequest:
    """The request as if it had ``secret`` in its header."""
    if not secret.isascii():
        # No header can hold it, and the resulting error would show all of it. No secret has a "?".
        secret = secret.encode("ascii", "replace").decode()
    asking = copy(request)
    asking.META = {**request.META, "HTTP_AUTHORIZATION": f"Bearer {secret}"}
    return asking


def _count(request: HttpRequest, caller: Caller | None) -> None:
    """Raise :class:`Throttled` by the throttles of the project and of this app."""
    kinds: list[Any] = [*api_settings.DEFAULT_THROTTLE_CLASSES]
    if current_settings().rest.caller_rate is not None:
        kinds.append(CallerThrottle)
    if not kinds:
        return
    asking = Request(copy(request))  # a copy, since DRF also sets its user
    if caller is not None:
        asking.user, asking.auth = caller.user, caller.token
    view = APIView()
    view.setup(request)
    for kind in kinds:
        _check_limit(kind(), asking, view)


def throttle(**subject: str) -> None:
    """Raise :class:`Throttled` by ``tag_rate``; ``subject`` is the ``tag`` or the ``alias``."""
    if current_settings().rest.tag_rate is not None:
        _check_limit(SubjectThrottle(), Request(HttpRequest()), SimpleNamespace(kwargs=subject))


def _check_limit(limit: BaseThrottle, asking: Request, view: Any) -> None:
    if not limit.allow_request(asking, view):
        raise Throttled(limit.wait())


# --- which ids -------------------------------------------------------------------------


class Tags:
    """The tags that match one of ``patterns``, in which “*” stands for any characters.

    ``make``: whether a request for an unknown tag makes it; None: as
    ``IDGEN["REST"]["make_tags"]`` says.
    """

    def __init__(self, patterns: Iterable[str], make: bool | None) -> None:
        is_list = isinstance(patterns, Iterable) and not isinstance(patterns, str)
        self._patterns = tuple(patterns) if is_list else ()
        if not is_list or not all(isinstance(each, str) and each for each in self._patterns):
            raise ImproperlyConfigured(
                f"tags must be a list of patterns, such as ['*'], not {patterns!r}."
            )
        if make is not None and not isinstance(make, bool):
            raise ImproperlyConfigured(f"make_tags must be True, False or None, not {make!r}.")
        self._make = make

    def makes(self) -> bool:
        """Whether a request for an unknown tag makes it."""
        return current_settings().rest.make_tags if self._make is None else self._make

    def serve(self, tag: str) -> None:
        """Raise :class:`UnknownTag` if no pattern matches ``tag``."""
        if not any(fits(each, tag) for each in self._patterns):
            raise UnknownTag(tag)

    def check(self, caller: Caller | None, tag: str, *, may_make: bool = False) -> None:
        """Raise unless ``caller`` (None: any caller) may take ids of ``tag``, and the tag is there.

        ``may_make``: the tag may be missing, since the request makes it. Raises
        :class:`UnknownTag`, DRF's exceptions and :class:`IdgenError`.
        """
        check_tag(tag)
        if caller is not None and not caller.may_take_of_tag(tag):
            raise PermissionDenied(caller.refusal("tag"))
        throttle(tag=tag)
        self.serve(tag)
        if not may_make and not self.makes() and not is_there(tag):
            raise UnknownTag(tag)

    def check_segments(self, caller: Caller | None, tag: str) -> None:
        """As :meth:`check`, for whole segments."""
        self.check(caller, tag)
        if caller is not None:
            caller.check_segments_of(tag)


def checked_alias(alias: object) -> str:
    """``alias``, if ``IDGEN["GENERATORS"]`` has it. Raises :class:`ImproperlyConfigured`."""
    known = current_settings().generators
    if not isinstance(alias, str) or alias not in known:
        raise ImproperlyConfigured(
            f"There is no generator {alias!r} in IDGEN['GENERATORS']. Known: "
            f"{', '.join(map(repr, known))}."
        )
    return alias


# --- mounting --------------------------------------------------------------------------


KEY = r"[\s\S]+?"
"""Any text as a key: the view answers a wrong one with the old server's error."""


class OldServer(ABC):
    """The base class of the old servers, whose views are its methods. Thread-safe.

    ``authentication``: see :class:`Door`. ``generator``: the alias of its snowflakes, if it has
    any; ``more``: the aliases of others. ``tags`` and ``make_tags``: see :class:`Tags`. Raises
    :class:`~django.core.exceptions.ImproperlyConfigured`.
    """

    name: ClassVar[str]
    slash: ClassVar[bool] = True
    """Whether its paths may end with a slash, which is no part of a key."""
    epoch: ClassVar[str | None] = None
    """The epoch of the old server's snowflakes, if it has any. A system check compares ours."""
    if_open: ClassVar[str] = ""
    """What the system check says of an open mount, besides that it gives ids to anybody."""

    def __init__(
        self,
        authentication: Authentication,
        generator: str | None = None,
        *,
        more: Iterable[str] = (),
        tags: Iterable[str] = (),
        make_tags: bool | None = None,
    ) -> None:
        self.door = Door(authentication)
        self.tags = Tags(tags, make_tags)
        self.alias = "" if self.epoch is None else checked_alias(generator)
        self._aliases = {self.alias: None, **{checked_alias(each): None for each in more}}

    @abstractmethod
    def failed(self, error: Exception, answer: APIException, request: HttpRequest) -> HttpResponse:
        """``error`` as the old server writes it; ``answer`` is the native API's answer to it."""

    def begin(self, request: HttpRequest) -> None:  # noqa: B027  # most have nothing to do
        """Called first for each request."""

    def of_tag(self, caller: Caller | None, tag: str) -> Generator:
        """The generator of ``tag``. Raises as :meth:`Tags.check`."""
        self.tags.check(caller, tag)
        return segments.get(tag) or segments.open(tag)

    def of_generator(self, caller: Caller | None, alias: str) -> Generator:
        """The generator ``alias``, if ``caller`` (None: any caller) may take its ids."""
        if caller is not None and not caller.may_take_of_generator(alias):
            raise PermissionDenied(caller.refusal("generator"))
        throttle(alias=alias)
        return generators[alias]

    def path(
        self, route: str, view: View | None = None, *, failed: Failed | None = None, **methods: View
    ) -> URLPattern:
        """``route``, a regular expression, to ``view``, or to a view for each of ``methods``."""
        by_method = {name.upper(): each for name, each in methods.items()}

        def mounted(request: HttpRequest, **kwargs: str) -> HttpResponse:
            chosen = view or by_method.get(request.method or "")
            if chosen is None:
                return HttpResponseNotAllowed(by_method)
            try:
                try:
                    check_url(request)
                finally:  # also cleans a URL that is too long
                    self.begin(request)
                check_body(request)
                response = chosen(request, **kwargs)
            except Exception as error:  # noqa: BLE001  (bugs are raised again)
                response = _error_response(error, request, failed or self.failed)
            for name, value in NEVER_CACHED.items():
                response.headers[name] = value
            return response

        mounted.idgen_check = self._check  # type: ignore[attr-defined]
        end = "/?$" if self.slash else "$"
        return re_path(f"^{route}{end}", never_atomic(csrf_exempt(mounted)))

    # --- system checks -----------------------------------------------------------------

    def _check(self, prefix: str) -> list[CheckMessage]:
        """The system check of this mount, which is below ``prefix``."""
        found = [*self._check_epoch(prefix), *check_body_limit(prefix)]
        if self.door.is_open:
            warning = Warning(
                f"{self.name}.urls() at {'/' + prefix!r} gives ids to anybody who can reach it: it "
                f"is mounted with authentication=None.{self.if_open}",
                hint="Leave authentication out, and give each client an access token. Or make sure "
                "that only trusted clients can reach these URLs, and silence this check.",
                id="django_idgen.W007",
            )
            found.append(warning)
        return found

    def _check_epoch(self, prefix: str) -> Iterator[CheckMessage]:
        """W011. One warning for each generator whose ids don't continue the old server's."""
        if self.epoch is None:
            return
        theirs = parse_layout("standard", epoch=self.epoch)
        try:
            known = current_settings().generators
        except SettingsError:
            return  # E001 reports it
        for alias in self._aliases:
            if alias in known and _time(known[alias].layout) != _time(theirs):
                yield Warning(
                    f"{self.name}.urls() at {'/' + prefix!r} gives ids of generator {alias!r}, "
                    f"whose layout and epoch ({known[alias].layout}) differ from the old server's "
                    f"({theirs}): its ids don't continue those of the old server, and may repeat "
                    "some of them.",
                    hint=f'Add a generator with "EPOCH": "{self.epoch}" to IDGEN["GENERATORS"], '
                    f"and name it in {self.name}.urls(generator=...). If no client has snowflakes "
                    "of the old server, silence this check.",
                    id="django_idgen.W011",
                )


def _time(layout: BitLayout) -> tuple[int, int, int]:
    """The part of a layout that places the time; how the bits below it are split is irrelevant."""
    return layout.epoch_us, layout.tick_us, layout.time_shift


def _error_response(error: Exception, request: HttpRequest, failed: Failed) -> HttpResponse:
    answer: Any = answer_to(error)
    if answer is None:
        raise error
    response = failed(error, answer, request)
    wait, header = getattr(answer, "wait", None), getattr(answer, "auth_header", None)
    if wait is not None:
        response.headers["Retry-After"] = str(int(wait))
    if header is not None:
        response.headers["WWW-Authenticate"] = header
    return response


def parameter(request: HttpRequest, name: str) -> str | None:
    """A parameter of the query, or of a posted form."""
    found = request.GET.get(name)
    return request.POST.get(name) if found is None and request.method == "POST" else found


def json_answer(content: object, content_type: str, status: int = 200) -> HttpResponse:
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return HttpResponse(text, status=status, content_type=content_type)
