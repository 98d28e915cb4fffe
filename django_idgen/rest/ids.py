"""Ids over HTTP: of a generator, of a tag, and decoded.

The plainest requests (a token seen lately, no body, no throttle) are answered before Django REST
framework sees them, which would take longer than all the rest: see :func:`_short_cut`. Both ways
give the same answers.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.debug import sensitive_variables
from rest_framework import serializers
from rest_framework.exceptions import NotFound
from rest_framework.permissions import BasePermission, IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.settings import api_settings
from rest_framework.throttling import BaseThrottle

from ..core.encoding import ALPHABETS, MAX_PREFIX_LENGTH, PREFIX, TextForm
from ..core.errors import IdgenError, InvalidId
from ..core.generator import MAX_BATCH
from ..ops.decoding import layout_document, parts_document
from ..process.maps import current_settings, generators, segments
from ..settings import DEFAULT_ALIAS
from .authentication import Caller, ids_throttles, seen_lately
from .base import NEVER_CACHED, IdgenView, has_unmeasured_body
from .failures import MOST_URL, answer_to, content_of
from .serializers import Choice, IdMark, Input, Moment, Text
from .tags import check_known, is_known

if TYPE_CHECKING:
    from ..core.generator import Generator


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


class IdsInput(Input):
    """How many ids, and as what."""

    count = serializers.IntegerField(
        required=False,
        min_value=1,
        help_text="How many ids, as a list; max_count of the service at most. Without it, one id.",
    )

    def get_fields(self) -> dict[str, Any]:
        fields = super().get_fields()
        fields["as"] = Choice(  # its name is a keyword
            list(FORMS), required=False, help_text="Whether ids are JSON strings or numbers."
        )
        return fields

    def validate_count(self, count: int) -> int:
        if count > _max_count():
            raise serializers.ValidationError(f"The maximum is {_max_count()} (max_count).")
        return count


class Ids(serializers.Serializer):  # type: ignore[type-arg]
    """One id, or with ``count`` a list."""

    id = IdMark(required=False)
    ids = serializers.ListField(child=IdMark(), required=False)


def _max_count() -> int:
    return min(current_settings().rest.max_count, MAX_BATCH)


def _wanted(count: int | None, form: str | None) -> Wanted:
    return Wanted(count, current_settings().rest.numbers if form is None else FORMS[form])


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

    permission_classes: Sequence[type[BasePermission]] = (IsAuthenticated, MayTake)
    throttle_classes: Sequence[type[BaseThrottle]] = ids_throttles()
    inputs: ClassVar[Any] = {"take": IdsInput}
    answers: ClassVar[Any] = {"take": Ids}
    keyword: ClassVar[str]
    """The part of the URL that names the subject: a tag, or a generator's alias."""

    @classmethod
    def as_view(cls, actions: Any = None, **initkwargs: Any) -> Any:
        actions = actions or {"get": "take", "post": "take", "head": "look"}
        ordinary = super().as_view(actions, **initkwargs)
        # A project's subclass may be stricter.
        if initkwargs or cls not in (GeneratorIdsView, TagIdsView):
            return ordinary
        return _with_short_cut(cls, ordinary)

    def wanted(self) -> Wanted:
        """What query and body ask for; the body counts. Raises DRF's ``ValidationError``."""
        asked = self.checked(IdsInput, self.request.query_params)
        if self.request.method == "POST":
            asked |= self.checked(IdsInput, self.request.data)
        return _wanted(asked.get("count"), asked.get("as"))

    def take(self, request: Request, **_kwargs: str) -> HttpResponse:  # noqa: ARG002
        wanted = self.wanted()
        self.check_there(self.subject)
        return _answer(self.generator(self.subject), wanted)

    def look(self, request: Request, **_kwargs: str) -> HttpResponse:  # noqa: ARG002
        self.wanted()
        self.check_there(self.subject)
        return HttpResponse(content_type=JSON)

    @property
    def subject(self) -> str:
        return str(self.kwargs[self.keyword])

    @staticmethod
    @abstractmethod
    def may_take(caller: Caller, subject: str) -> bool:
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

    @staticmethod
    def may_take(caller: Caller, subject: str) -> bool:
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

    @staticmethod
    def may_take(caller: Caller, subject: str) -> bool:
        return caller.may_take_of_tag(subject)

    @staticmethod
    def is_known(subject: str) -> bool:
        return is_known(subject)

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
    caller, subject = seen_lately(request), kwargs[cls.keyword]
    if caller is None or not cls.may_take(caller, subject) or not cls.is_known(subject):
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


class DecodeInput(Input):
    """The id to decode."""

    id = Text(help_text="A number, or a text in the form that is named.")
    form = Choice(sorted(ALPHABETS), default="decimal")
    prefix = serializers.RegexField(
        rf"\A({PREFIX.pattern})?\Z",
        trim_whitespace=False,
        max_length=MAX_PREFIX_LENGTH,
        allow_blank=True,
        default="",
        help_text="The text before the id's digits, such as “ord_”.",
    )
    generator = serializers.CharField(default=DEFAULT_ALIAS, help_text="An alias of the settings.")

    def validate_generator(self, alias: str) -> str:
        if alias not in generators:
            known = ", ".join(generators)
            raise serializers.ValidationError(f"There is no generator {alias!r}. Known: {known}.")
        return alias


class Layout(serializers.Serializer):  # type: ignore[type-arg]
    """A layout of ids."""

    name = serializers.CharField()
    bits = serializers.DictField(child=serializers.IntegerField())
    tick_ms = serializers.FloatField()
    epoch = Moment()


class Decoded(serializers.Serializer):  # type: ignore[type-arg]
    """The parts of an id."""

    generator = serializers.CharField()
    id = IdMark()
    time = Moment()
    time_ms = serializers.IntegerField(help_text="The same in milliseconds since 1970.")
    worker = serializers.IntegerField()
    worker_parts = serializers.DictField(child=serializers.IntegerField())
    sequence = serializers.IntegerField()
    batch = serializers.IntegerField()
    layout = Layout()


class DecodeView(IdgenView):
    """Decodes an id without a query."""

    inputs: ClassVar[Any] = {"decode": DecodeInput}
    answers: ClassVar[Any] = {"decode": Decoded}

    def decode(self, request: Request, **_kwargs: str) -> Response:  # noqa: ARG002
        """When and by which worker id an id was made. Takes no id."""
        wanted = self.read()
        alias, given, prefix = wanted["generator"], wanted["id"], wanted["prefix"]
        if prefix and not given.startswith(prefix):
            raise InvalidId(given, f"it does not begin with {prefix!r}")
        generator: Any = generators[alias]
        if not generator.has_parts:
            why = f"The ids of generator {alias!r} contain no time and no worker id."
            raise serializers.ValidationError({"generator": [why]})
        parts = generator.decode(TextForm(wanted["form"], prefix).read(given))
        layout = layout_document(generator.layout)
        found = {"generator": alias, **parts_document(parts), "layout": layout}
        return Response(Decoded(found).data)
