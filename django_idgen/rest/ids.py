"""Ids over HTTP: of a generator, and of a tag.

A request that is as plain as can be (a token seen lately, no body, no throttle) is
answered before Django REST framework takes it up, which would cost more than all the
rest; see :func:`_short_cut`. Both ways give the same answers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar

from django.core.exceptions import SuspiciousOperation
from django.http import HttpRequest, HttpResponse
from django.views.decorators.debug import sensitive_variables
from rest_framework.exceptions import APIException, NotFound
from rest_framework.permissions import BasePermission, IsAuthenticated
from rest_framework.request import Request
from rest_framework.settings import api_settings
from rest_framework.throttling import BaseThrottle

from ..core.errors import IdgenError
from ..process.handlers import current_settings, generators, segments
from .access import Caller
from .authentication import secret_of
from .base import NEVER_CACHED, IdgenView, has_unmeasured_body
from .failures import MOST_URL, Failure, failure_of
from .id_input import Wanted, read_wanted
from .known_tags import KNOWN_TAGS, check_known
from .throttles import ids_throttles
from .token_cache import TOKENS

if TYPE_CHECKING:
    from ..core.generator import Generator
    from .tokens import KnownToken

__all__ = ["GeneratorIdsView", "TagIdsView", "UnknownGenerator"]


class UnknownGenerator(NotFound):
    """404: there is no such alias in ``IDGEN["GENERATORS"]``."""

    def __init__(self, alias: str) -> None:
        self.alias = alias
        super().__init__(f"There is no generator {alias!r}.")


class MayTake(BasePermission):
    """Whether the caller may take ids of what the URL names. Before any throttle counts it."""

    message = ""

    def has_permission(self, request: Request, view: Any) -> bool:
        caller = Caller.of(request)
        if caller is None:
            return False
        self.message = caller.refusal("tag or generator")
        return bool(view.may_take(caller, view.subject))


class IdsView(IdgenView):
    """GET and POST take ids; HEAD says what GET would, and takes none."""

    http_method_names: Sequence[str] = ("get", "post", "head", "options")
    permission_classes: Sequence[type[BasePermission]] = (IsAuthenticated, MayTake)
    throttle_classes: Sequence[type[BaseThrottle]] = ids_throttles()
    keyword: ClassVar[str]
    """The URL's part that names what ids are taken of."""

    @classmethod
    def as_view(cls, **initkwargs: Any) -> Any:
        ordinary = super().as_view(**initkwargs)
        # A project's own class may be stricter.
        if initkwargs or cls not in (GeneratorIdsView, TagIdsView):
            return ordinary
        return _with_short_cut(cls, ordinary)

    def get(self, request: Request, **_kwargs: str) -> HttpResponse:
        return self._answer(read_wanted(request.query_params))

    def post(self, request: Request, **_kwargs: str) -> HttpResponse:
        return self._answer(read_wanted(request.query_params, request.data))

    def head(self, request: Request, **_kwargs: str) -> HttpResponse:
        read_wanted(request.query_params)
        self.check_there(self.subject)
        return HttpResponse(content_type=JSON)

    @property
    def subject(self) -> str:
        """The tag, or the generator's alias."""
        return str(self.kwargs[self.keyword])

    def _answer(self, wanted: Wanted) -> HttpResponse:
        self.check_there(self.subject)
        return _answer(self.generator(self.subject), wanted)

    # --- what differs -----------------------------------------------------------------

    @staticmethod
    def may_take(caller: Caller | KnownToken, subject: str) -> bool:
        raise NotImplementedError

    @staticmethod
    def is_there_lately(subject: str) -> bool:
        """Whether there is surely such a one, without a question to anybody."""
        raise NotImplementedError

    @staticmethod
    def check_there(subject: str) -> None:
        """Raise a 404 unless there is such a one."""
        raise NotImplementedError

    @staticmethod
    def generator(subject: str) -> Generator:
        raise NotImplementedError


class GeneratorIdsView(IdsView):
    """Ids of a generator: one, or up to ``max_count`` with ``count``."""

    keyword = "alias"

    @staticmethod
    def may_take(caller: Caller | KnownToken, subject: str) -> bool:
        return caller.may_take_of_generator(subject)

    @staticmethod
    def is_there_lately(subject: str) -> bool:
        return subject in generators

    @staticmethod
    def check_there(subject: str) -> None:
        if subject not in generators:
            raise UnknownGenerator(subject)

    @staticmethod
    def generator(subject: str) -> Generator:
        return generators[subject]


class TagIdsView(IdsView):
    """Ids of a tag: one, or up to ``max_count`` with ``count``."""

    keyword = "tag"

    @staticmethod
    def may_take(caller: Caller | KnownToken, subject: str) -> bool:
        return caller.may_take_of_tag(subject)

    @staticmethod
    def is_there_lately(subject: str) -> bool:
        return KNOWN_TAGS.has_lately(subject)

    @staticmethod
    def check_there(subject: str) -> None:
        check_known(subject)

    @staticmethod
    def generator(subject: str) -> Generator:
        return segments.get(subject) or segments.open(subject)


# --- answers -------------------------------------------------------------------------

JSON = "application/json"


def _answer(generator: Generator, wanted: Wanted) -> HttpResponse:
    """Take what is wanted, and write it down. Put together by hand: ids need no escapes."""
    if wanted.count is None:
        value = generator.next_id()
        text = f'{{"id":{value}}}' if wanted.numbers else f'{{"id":"{value}"}}'
    else:
        ids = tuple(generator.next_ids(wanted.count))
        # One format for all of them: a third less time than a str() for each.
        if wanted.numbers:
            text = '{"ids":[' + ("%d," * len(ids))[:-1] % ids + "]}"
        else:
            text = '{"ids":["' + ('%d","' * len(ids))[:-3] % ids + '"]}'
    return HttpResponse(text, content_type=JSON)


# --- the short cut -------------------------------------------------------------------

NO_BODY = (None, "", "0")
ANYTHING = (None, "*/*", JSON)
"""Values of ``Accept`` that need no negotiation."""
HEADERS = {"Allow": "GET, POST, HEAD, OPTIONS", **NEVER_CACHED}
View = Callable[..., HttpResponse]


def _with_short_cut(cls: type[IdsView], ordinary: View) -> View:
    is_throttled = bool(api_settings.DEFAULT_THROTTLE_CLASSES)

    @wraps(ordinary)
    def view(request: HttpRequest, **kwargs: str) -> HttpResponse:
        response = None if is_throttled else _short_cut(cls, request, kwargs)
        return ordinary(request, **kwargs) if response is None else response

    return view


@sensitive_variables()
def _short_cut(
    cls: type[IdsView], request: HttpRequest, kwargs: dict[str, str]
) -> HttpResponse | None:
    """The answer, or None where the request has to go the ordinary way; no id is taken then."""
    meta = request.META
    rest = current_settings().rest
    if not (
        request.method in ("GET", "POST")
        and meta.get("HTTP_ACCEPT") in ANYTHING
        and meta.get("CONTENT_LENGTH") in NO_BODY
        and "HTTP_TRANSFER_ENCODING" not in meta
        and not request.content_params
        and len(meta.get("QUERY_STRING", "")) <= MOST_URL - len(request.path_info)
        and not has_unmeasured_body(request)
        and rest.caller_rate is None
        and rest.tag_rate is None
    ):
        return None
    secret = secret_of(meta.get("HTTP_AUTHORIZATION", ""))
    token = None if secret is None else TOKENS.lately(secret)
    subject = kwargs[cls.keyword]
    if token is None or not cls.may_take(token, subject) or not cls.is_there_lately(subject):
        return None
    wanted = _wanted(request)
    return None if wanted is None else _quick_answer(cls, subject, wanted)


def _wanted(request: HttpRequest) -> Wanted | None:
    if not request.META.get("QUERY_STRING"):
        return Wanted(None, current_settings().rest.numbers)
    try:
        return read_wanted(request.GET)
    except (APIException, SuspiciousOperation):
        return None  # it is said in the ordinary way


def _quick_answer(cls: type[IdsView], subject: str, wanted: Wanted) -> HttpResponse:
    try:
        response = _answer(cls.generator(subject), wanted)
    except IdgenError as error:
        response = _failed(failure_of(error))
    for name, value in HEADERS.items():
        response.headers[name] = value
    return response


def _failed(failure: Failure) -> HttpResponse:
    text = json.dumps(failure.content, ensure_ascii=False, separators=(",", ":"))
    response = HttpResponse(text, status=failure.status, content_type=JSON)
    if failure.retry_after is not None:
        response.headers["Retry-After"] = str(failure.retry_after)
    return response
