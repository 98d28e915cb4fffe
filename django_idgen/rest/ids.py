"""Ids over HTTP: of a generator, and of a tag.

A request that is as plain as can be (a token seen lately, no body, no throttle) is
answered before Django REST framework takes it up, which would cost more than all the
rest; see :func:`_short_cut`. Both ways give the same answers.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar

from django.core.exceptions import SuspiciousOperation
from django.http import HttpRequest, HttpResponse, QueryDict
from django.views.decorators.debug import sensitive_variables
from rest_framework.exceptions import APIException, NotFound, ParseError, ValidationError
from rest_framework.permissions import BasePermission, IsAuthenticated
from rest_framework.request import Request
from rest_framework.settings import api_settings
from rest_framework.throttling import BaseThrottle

from ..core.errors import IdgenError
from ..core.generator import MAX_BATCH
from ..core.segment import MAX_ID
from ..process.handlers import current_settings, generators, segments
from .access import Caller
from .authentication import TOKENS, secret_of
from .base import NEVER_CACHED, IdgenView, has_unmeasured_body
from .failures import MOST_URL, Failure, failure_of, few_of
from .serializers import Choice, IdNumber, Input, Operation, Shape, Whole
from .tags import KNOWN_TAGS, check_known
from .throttles import ids_throttles

if TYPE_CHECKING:
    from ..core.generator import Generator
    from .tokens import KnownToken

__all__ = ["GeneratorIdsView", "TagIdsView", "UnknownGenerator", "Wanted", "read_wanted"]

COUNT = "count"
FORM = "as"
FORMS = {"string": False, "number": True}
NOTHING: Mapping[str, Any] = {}
DIGITS = re.compile("[0-9]{1,12}", re.ASCII)


# --- what a request may say ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was asked for. Frozen."""

    count: int | None
    """How many, for a list; None for a single one that is not in a list."""
    numbers: bool
    """Whether as JSON numbers; else as strings."""


def read_wanted(query: QueryDict, body: object = NOTHING) -> Wanted:
    """What ``query`` and ``body`` (of JSON or of a form, already read) ask for.

    Raises :class:`ValidationError`, with all that is wrong by field, or
    :class:`ParseError` for a body that has no fields.
    """
    rest = current_settings().rest
    given = list(_given(query, body))
    values: dict[str, Any] = {}
    wrong: dict[str, list[str]] = {}
    unknown: dict[str, list[str]] = {}
    for name, value in given:
        if name not in (COUNT, FORM):
            unknown[name] = [f"There is no such parameter; there are {COUNT!r} and {FORM!r}."]
        elif name in values:
            wrong[name] = ["It is given twice."]
        else:
            values[name] = value
    count = None
    numbers = rest.numbers
    if COUNT in values and COUNT not in wrong:
        count = _count(values[COUNT], min(rest.max_count, MAX_BATCH), wrong)
    if FORM in values and FORM not in wrong:
        numbers = _form(values[FORM], wrong)
    if wrong or unknown:
        raise ValidationError({**wrong, **few_of(unknown)})
    return Wanted(count, numbers)


def _given(query: QueryDict, body: object) -> Iterator[tuple[str, Any]]:
    """Name and value of each parameter; text in a query or form becomes a number if it is one."""
    yield from _texts(query)
    if isinstance(body, QueryDict):
        yield from _texts(body)
    elif isinstance(body, Mapping):
        yield from body.items()
    else:
        raise ParseError(f"The body must be an object, such as {{{COUNT!r}: 10}}.")


def _texts(query: QueryDict) -> Iterator[tuple[str, Any]]:
    for name, texts in query.lists():
        for text in texts:
            yield name, int(text) if name == COUNT and DIGITS.fullmatch(text) else text


def _count(value: object, most: int, wrong: dict[str, list[str]]) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most:
        return value
    wrong[COUNT] = [f"It must be a whole number of 1 to {most}, not {_short(value)}."]
    return 1


def _form(value: object, wrong: dict[str, list[str]]) -> bool:
    if isinstance(value, str) and value in FORMS:
        return FORMS[value]
    wrong[FORM] = [f"It must be 'string' or 'number', not {_short(value)}."]
    return False


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


# --- for the schema: the views read and write by hand, for speed -----------------------

FIELDS = {
    COUNT: Whole(
        least=1,
        most=10_000,
        required=False,
        help_text="How many ids, as a list; one that is not in a list if it is not given. The "
        "service's setting max_count is the most.",
    ),
    FORM: Choice(
        list(FORMS),
        required=False,
        help_text="Whether ids are JSON strings or numbers: JavaScript reads long ones wrong.",
    ),
}
IdsInput: type[Input] = type(
    "IdsInput", (Input,), {"__doc__": "How many ids, and as what.", "example": {COUNT: 2}, **FIELDS}
)
AN_ID: Shape = {"oneOf": [IdNumber().shape(False), Whole(least=1, most=MAX_ID).shape(True)]}
IDS: Shape = {
    "oneOf": [
        {
            "type": "object",
            "properties": {name: shape},
            "additionalProperties": False,
            "required": [name],
        }
        for name, shape in (("id", AN_ID), ("ids", {"type": "array", "items": AN_ID}))
    ]
}
TAKE = Operation(
    name="take_ids_of_{}",
    summary="Take ids of a {}",
    body=IdsInput,
    answer=IDS,
    errors=(409, 429),
    examples={200: {"ids": ["249876543210987520", "249876543210987521"]}},
)
OPERATIONS = {
    "post": TAKE,
    "get": replace(
        TAKE,
        name="get_ids_of_{}",
        body=None,
        query=IdsInput,
        description="As POST; never cached.",
    ),
}


# --- views ---------------------------------------------------------------------------


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
        if view.keyword not in view.kwargs:
            return True  # a schema is made without one
        return bool(view.may_take(caller, view.subject))


class IdsView(IdgenView, ABC):
    """GET and POST take ids; HEAD says what GET would, and takes none."""

    http_method_names: Sequence[str] = ("get", "post", "head", "options")
    permission_classes: Sequence[type[BasePermission]] = (IsAuthenticated, MayTake)
    throttle_classes: Sequence[type[BaseThrottle]] = ids_throttles()
    group = "ids"
    keyword: ClassVar[str]
    """The URL's part that names what ids are taken of."""
    what: ClassVar[str]

    @classmethod
    def as_view(cls, **initkwargs: Any) -> Any:
        ordinary = super().as_view(**initkwargs)
        # A project's own class may be stricter.
        if initkwargs or cls not in (GeneratorIdsView, TagIdsView):
            return ordinary
        return _with_short_cut(cls, ordinary)

    @classmethod
    def operation_of(cls, method: str) -> Operation | None:
        found = OPERATIONS.get(method.lower())
        if found is None:
            return None
        return replace(
            found, name=found.name.format(cls.what), summary=found.summary.format(cls.what)
        )

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
    @abstractmethod
    def may_take(caller: Caller | KnownToken, subject: str) -> bool:
        """Whether the caller may take ids of ``subject``."""

    @staticmethod
    @abstractmethod
    def is_there_lately(subject: str) -> bool:
        """Whether ``subject`` is known to be there; asks no database."""

    @staticmethod
    @abstractmethod
    def check_there(subject: str) -> None:
        """Raise a 404 unless ``subject`` is there."""

    @staticmethod
    @abstractmethod
    def generator(subject: str) -> Generator:
        """What gives ids of ``subject``."""


class GeneratorIdsView(IdsView):
    """Ids of a generator: one, or up to ``max_count`` with ``count``."""

    keyword = "alias"
    what = "generator"

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
    what = "tag"

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
