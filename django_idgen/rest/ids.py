"""Ids over HTTP: of a generator, of a tag, and decoded.

The plainest requests (a token seen lately, no body, no throttle) are answered before Django REST
framework sees them, which would take longer than all the rest: see :func:`_short_cut`. Both ways
give the same answers.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.debug import sensitive_variables
from rest_framework import serializers
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.permissions import BasePermission, IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.settings import api_settings
from rest_framework.throttling import BaseThrottle

from ..core.encoding import ALPHABETS, MAX_PREFIX_LENGTH, PREFIX, TextForm
from ..core.errors import IdgenError, InvalidId
from ..core.generator import MAX_BATCH
from ..core.segment import MAX_ID
from ..ops.decoding import layout_document, parts_document
from ..process.maps import current_settings, generators, segments
from ..settings import DEFAULT_ALIAS
from .authentication import TOKENS, Caller, ids_throttles, secret_of
from .base import NEVER_CACHED, IdgenView, has_unmeasured_body
from .failures import MOST_URL, answer_to, content_of
from .serializers import (
    Answer,
    Choice,
    Described,
    IdNumber,
    Input,
    Moment,
    Operation,
    Shape,
    Text,
    Whole,
)
from .tags import KNOWN_TAGS, check_known

if TYPE_CHECKING:
    from ..core.generator import Generator
    from .tokens import KnownToken


JSON = "application/json"
FORMS = {"string": False, "number": True}


# --- input -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a request asks for."""

    count: int | None
    """The length of a list; None for a single id, which is in no list."""
    numbers: bool
    """Whether to write ids as JSON numbers instead of strings."""


class Count(Whole):
    """As many ids as ``max_count`` allows."""

    digits = re.compile("[0-9]{1,12}", re.ASCII)

    def to_internal_value(self, data: object) -> int:
        self.most = _max_count()
        return super().to_internal_value(data)


def _max_count() -> int:
    return min(current_settings().rest.max_count, MAX_BATCH)


FIELDS = {
    "count": Count(
        least=1,
        most=10_000,
        required=False,
        help_text="How many ids, as a list. Without it, a single id in no list. The setting "
        "max_count of the service is the maximum.",
    ),
    "as": Choice(
        list(FORMS),
        required=False,
        help_text="Whether ids are JSON strings or numbers. JavaScript reads long numbers wrong.",
    ),
}
IdsInput: type[Input] = type(
    "IdsInput",
    (Input,),
    {"__doc__": "How many ids, and as what.", "example": {"count": 2}} | FIELDS,
)  # as a class, since "as" is a keyword


def read_wanted(request: Request) -> Wanted:
    """What the query and the body ask for. Raises :class:`ValidationError`, by field."""
    asked = IdsInput.read(request.query_params)
    if request.method == "POST":
        body = IdsInput.read(request.data)
        twice = asked.keys() & body.keys()
        if twice:
            raise ValidationError({name: ["It is given twice."] for name in twice})
        asked |= body
    return _wanted(asked.get("count"), asked.get("as"))


def _wanted(count: int | None, form: str | None) -> Wanted:
    return Wanted(count, current_settings().rest.numbers if form is None else FORMS[form])


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


# --- views -----------------------------------------------------------------------------


class MayTake(BasePermission):
    """Whether the caller may take ids of what the URL names. DRF asks before any throttle."""

    message = ""

    def has_permission(self, request: Request, view: Any) -> bool:
        caller = Caller.of(request)
        if caller is None:
            return False
        self.message = caller.refusal("tag or generator")
        if view.keyword not in view.kwargs:
            return True  # drf-spectacular makes a schema without one
        return bool(view.may_take(caller, view.subject))


class IdsView(IdgenView, ABC):
    """GET and POST take ids; HEAD answers as GET, and takes none."""

    http_method_names: Sequence[str] = ("get", "post", "head", "options")
    permission_classes: Sequence[type[BasePermission]] = (IsAuthenticated, MayTake)
    throttle_classes: Sequence[type[BaseThrottle]] = ids_throttles()
    group = "ids"
    keyword: ClassVar[str]
    """The part of the URL that names the subject: a tag, or a generator's alias."""
    what: ClassVar[str]

    @classmethod
    def as_view(cls, **initkwargs: Any) -> Any:
        ordinary = super().as_view(**initkwargs)
        # A project's subclass may be stricter.
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
        wanted = read_wanted(request)
        self.check_there(self.subject)
        return _answer(self.generator(self.subject), wanted)

    post = get

    def head(self, request: Request, **_kwargs: str) -> HttpResponse:
        read_wanted(request)
        self.check_there(self.subject)
        return HttpResponse(content_type=JSON)

    @property
    def subject(self) -> str:
        return str(self.kwargs[self.keyword])

    @staticmethod
    @abstractmethod
    def may_take(caller: Caller | KnownToken, subject: str) -> bool:
        """Whether the caller may take ids of ``subject``."""

    @staticmethod
    @abstractmethod
    def is_known(subject: str) -> bool:
        """Whether ``subject`` is known to be there without a query."""

    @staticmethod
    @abstractmethod
    def check_there(subject: str) -> None:
        """Raise a 404 unless ``subject`` is there."""

    @staticmethod
    @abstractmethod
    def generator(subject: str) -> Generator:
        """The generator of ``subject``."""


class GeneratorIdsView(IdsView):
    """Ids of a generator: one, or up to ``max_count`` with ``count``."""

    keyword = "alias"
    what = "generator"

    @staticmethod
    def may_take(caller: Caller | KnownToken, subject: str) -> bool:
        return caller.may_take_of_generator(subject)

    @staticmethod
    def is_known(subject: str) -> bool:
        return subject in generators

    @staticmethod
    def check_there(subject: str) -> None:
        if subject not in generators:
            raise NotFound(f"There is no generator {subject!r}.")

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
    def is_known(subject: str) -> bool:
        return KNOWN_TAGS.has_lately(subject)

    @staticmethod
    def check_there(subject: str) -> None:
        check_known(subject)

    @staticmethod
    def generator(subject: str) -> Generator:
        return segments.get(subject) or segments.open(subject)


def _answer(generator: Generator, wanted: Wanted) -> HttpResponse:
    """Take ids and write the JSON by hand: ids need no escapes.

    As bytes, which take Django half the time that text does.
    """
    if wanted.count is None:
        value = generator.next_id()
        text = f'{{"id":{value}}}' if wanted.numbers else f'{{"id":"{value}"}}'
    else:
        ids = tuple(generator.next_ids(wanted.count))
        # One format for all ids takes a third less time than a str() for each.
        if wanted.numbers:
            text = '{"ids":[' + ("%d," * len(ids))[:-1] % ids + "]}"
        else:
            text = '{"ids":["' + ('%d","' * len(ids))[:-3] % ids + '"]}'
    return HttpResponse(text.encode(), content_type=JSON)


# --- the short cut ---------------------------------------------------------------------

NO_BODY = (None, "", "0")
ANYTHING = (None, "*/*", JSON)
"""Values of ``Accept`` that need no negotiation."""
QUERY = re.compile("(?:count=([0-9]{1,12})(?:&|$))?(?:as=(string|number)&?)?", re.ASCII)
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
    """The answer, or None if the request must go the ordinary way; then no id is taken."""
    meta = request.META
    rest = current_settings().rest
    query = meta.get("QUERY_STRING", "")
    if not (
        request.method in ("GET", "POST")
        and meta.get("HTTP_ACCEPT") in ANYTHING
        and meta.get("CONTENT_LENGTH") in NO_BODY
        and "HTTP_TRANSFER_ENCODING" not in meta
        and not request.content_params
        and len(query) <= MOST_URL - len(request.path_info)
        and not has_unmeasured_body(request)
        and rest.caller_rate is None
        and rest.tag_rate is None
    ):
        return None
    secret = secret_of(meta.get("HTTP_AUTHORIZATION", ""))
    token = None if secret is None else TOKENS.lately(secret)
    subject = kwargs[cls.keyword]
    if token is None or not cls.may_take(token, subject) or not cls.is_known(subject):
        return None
    wanted = _quick_wanted(query)
    return None if wanted is None else _quick_answer(cls, subject, wanted)


def _quick_wanted(query: str) -> Wanted | None:
    found = QUERY.fullmatch(query)
    if found is None:
        return None
    count = None if found[1] is None else int(found[1])
    if count is not None and not 1 <= count <= _max_count():
        return None
    return _wanted(count, found[2])


def _quick_answer(cls: type[IdsView], subject: str, wanted: Wanted) -> HttpResponse:
    try:
        response = _answer(cls.generator(subject), wanted)
    except IdgenError as error:
        answer: Any = answer_to(error)
        options = {"ensure_ascii": False, "separators": (",", ":")}
        response = JsonResponse(
            content_of(answer), status=answer.status_code, json_dumps_params=options
        )
        if answer.wait is not None:
            response.headers["Retry-After"] = str(answer.wait)
    for name, value in HEADERS.items():
        response.headers[name] = value
    return response


# --- decoding --------------------------------------------------------------------------

SHOWN = "54901763806867456"


class AnyId(Described, serializers.Field):  # type: ignore[type-arg]
    """An id in any form: the view reads it once the form is known."""

    def to_internal_value(self, data: object) -> object:
        return data

    def shape(self, asked: bool) -> Shape:  # noqa: ARG002
        number = {"type": "integer", "minimum": 1, "maximum": MAX_ID}
        return {"oneOf": [number, {"type": "string"}], "example": SHOWN}


class Alias(Text):
    """A configured generator. The view checks it."""

    def shape(self, asked: bool) -> Shape:  # noqa: ARG002
        return {"type": "string", "enum": list(generators)}


class DecodeInput(Input):
    """The id to decode."""

    example: ClassVar[Any] = {"id": SHOWN}
    id = AnyId(help_text="The id: a number, or a text in the form that is named.")
    form = Choice(sorted(ALPHABETS), default="decimal", help_text="The alphabet of the id.")
    prefix = serializers.RegexField(
        rf"\A({PREFIX.pattern})?\Z",
        trim_whitespace=False,
        max_length=MAX_PREFIX_LENGTH,
        allow_blank=True,
        default="",
        help_text="The text before the id's digits, such as “ord_”.",
    )
    generator = Alias(
        max_length=128,
        default=DEFAULT_ALIAS,
        help_text="The generator of the id: an alias of the settings.",
    )


class LayoutShown(Answer):
    """A layout."""

    name = serializers.CharField()
    bits = serializers.DictField(child=serializers.IntegerField())
    tick_ms = serializers.FloatField()
    epoch = Moment()


class Decoded(Answer):
    """The parts of an id."""

    example: ClassVar[Any] = {
        "generator": "default",
        "id": SHOWN,
        "time": "2025-06-01T12:00:00.517000Z",
        "time_ms": 1748779200517,
        "worker": 3,
        "worker_parts": {},
        "sequence": 0,
        "batch": 0,
        "layout": {
            "name": "standard",
            "bits": {"time": 41, "worker": 10, "sequence": 12},
            "tick_ms": 1.0,
            "epoch": "2025-01-01T00:00:00Z",
        },
    }
    generator = serializers.CharField()
    id = IdNumber()
    time = Moment()
    time_ms = serializers.IntegerField(help_text="The same in milliseconds since 1970.")
    worker = serializers.IntegerField()
    worker_parts = serializers.DictField(child=serializers.IntegerField())
    sequence = serializers.IntegerField()
    batch = serializers.IntegerField()
    layout = LayoutShown()


DECODE = Operation(
    name="decode_id",
    summary="Decode an id",
    description="Shows when and by which worker id it was made. Takes no id.",
    query=DecodeInput,
    answer=Decoded,
)


class DecodeView(IdgenView):
    """Decodes an id without a query."""

    group = "ids"

    @DECODE
    def get(self, request: Request, **_kwargs: str) -> Response:  # noqa: ARG002
        wanted = self.read()
        generator = _generator_with_parts(wanted["generator"])
        parts = generator.decode(_value(wanted))
        layout = layout_document(generator.layout)
        return self.respond(
            {"generator": wanted["generator"], **parts_document(parts), "layout": layout}
        )

    @replace(DECODE, name="take_apart_id", query=None, body=DecodeInput)
    def post(self, request: Request, **kwargs: str) -> Response:
        return self.get(request, **kwargs)


def _value(wanted: dict[str, Any]) -> int:
    form = TextForm(wanted["form"], wanted["prefix"])
    given = wanted["id"]
    if wanted["prefix"] and not (isinstance(given, str) and given.startswith(wanted["prefix"])):
        raise InvalidId(given, f"it does not begin with {wanted['prefix']!r}")
    return form.read(given)


def _generator_with_parts(alias: str) -> Any:
    if alias not in generators:
        known = ", ".join(generators)
        raise ValidationError({"generator": [f"There is no generator {alias!r}. Known: {known}."]})
    found: Any = generators[alias]
    if not found.has_parts:
        raise ValidationError(
            {"generator": [(f"The ids of generator {alias!r} contain no time and no worker id.")]}
        )
    return found
