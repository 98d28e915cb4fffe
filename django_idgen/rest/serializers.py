"""Requests and answers: strict JSON, the fields, and the serializers of both.

A field checks input and knows its own JSON schema. An :class:`Operation` names the serializers of
a view's method, so ``schema/`` describes exactly what the views check and send. Input is strict:
no number for a text, no text for a number, no unknown field.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn, Protocol, TypeVar

from django.http import QueryDict
from rest_framework import serializers
from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser
from rest_framework.request import Request
from rest_framework.utils.urls import remove_query_param, replace_query_param

from ..core.errors import InvalidTag
from ..core.segment import MAX_ID, MAX_TAG_LENGTH, check_tag
from .failures import few_of

Shape = dict[str, Any]
"""A JSON schema."""
Method = TypeVar("Method", bound=Callable[..., Any])

HIGHEST = 2**64
"""Past every id and every layout: higher marks get an error that says what they are past."""
TEXT_ALONE = "text_alone"
"""Context of a form or a query, in which numbers are written as text."""


class StrictJSONParser(JSONParser):
    """JSON in UTF-8 without duplicate keys and without endless nesting."""

    def parse(
        self,
        stream: Any,
        media_type: str | None = None,  # noqa: ARG002
        parser_context: Mapping[str, Any] | None = None,  # noqa: ARG002
    ) -> Any:
        """Raises :class:`ParseError`."""
        try:
            text = stream.read().decode("utf-8")
            found = json.loads(text, parse_constant=_refuse, object_pairs_hook=_object)
            # Refuse lone surrogates, which no database and no answer can hold, and 1e999, which
            # Python reads as infinity.
            json.dumps(found, ensure_ascii=False, allow_nan=False).encode("utf-8")
        except RecursionError as error:
            raise ParseError("The JSON nests too deeply.") from error
        except ValueError as error:
            raise ParseError(f"This is not JSON: {error}") from error
        return found


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


# --- fields ----------------------------------------------------------------------------


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."


class Described(ABC):
    """A field that knows its own JSON schema."""

    @abstractmethod
    def shape(self, asked: bool) -> Shape:
        """The schema in a request (``asked``) or in an answer."""


class Whole(Described, serializers.Field):  # type: ignore[type-arg]
    """A whole number from ``least`` to ``most``; in JSON a number, not a text."""

    takes_text: ClassVar[bool] = False
    digits: ClassVar[re.Pattern[str]] = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)

    def __init__(self, *, least: int, most: int, **options: Any) -> None:
        super().__init__(**options)
        self.least, self.most = least, most

    def to_internal_value(self, data: object) -> int:
        value = data
        if isinstance(data, str) and (self.takes_text or self.context.get(TEXT_ALONE)):
            value = int(data) if self.digits.fullmatch(data) else None
        if isinstance(value, bool) or not isinstance(value, int):
            self._refuse(data)
        if not self.least <= value <= self.most:
            self._refuse(value)
        return value

    def to_representation(self, value: int) -> object:
        return value

    def shape(self, asked: bool) -> Shape:
        number = {"type": "integer", "minimum": self.least, "maximum": self.most}
        if not asked:
            return {"type": "integer"}
        return {"oneOf": [number, self._text()]} if self.takes_text else number

    def _text(self) -> Shape:
        """Decimal text that is certainly in range: one digit shorter than ``most``."""
        length = len(str(self.most)) - 1
        first = f"[1-9][0-9]{{0,{length - 1}}}" if self.least else f"[0-9]{{1,{length}}}"
        return {"type": "string", "pattern": f"^{first}$"}

    def _refuse(self, data: object) -> NoReturn:
        raise serializers.ValidationError(
            f"It must be a whole number of {self.least} to {self.most}, not {_short(repr(data))}.",
            code="invalid",
        )


class WholeNumber(Whole):
    """A whole number, as a JSON number or as decimal text."""

    takes_text = True
    digits = re.compile(r"[0-9]{1,20}", re.ASCII)

    def __init__(self, *, least: int = 0, most: int = HIGHEST, **options: Any) -> None:
        super().__init__(least=least, most=most, **options)


class Mark(WholeNumber):
    """A tick, or an end of a segment: always written as text, which JavaScript reads exactly."""

    text: ClassVar[Shape] = {
        "type": "string",
        "pattern": "^[0-9]{1,20}$",
        "example": "13089600517",
    }

    def to_representation(self, value: int) -> str:
        return str(value)

    def shape(self, asked: bool) -> Shape:
        return super().shape(asked) if asked else dict(self.text)


class IdNumber(Mark):
    """An id, or a mark among ids."""

    digits = Whole.digits
    text = {"type": "string", "pattern": "^[1-9][0-9]{0,18}$", "example": "5001"}  # noqa: RUF012

    def __init__(self, *, least: int = 1, most: int = MAX_ID, **options: Any) -> None:
        super().__init__(least=least, most=most, **options)


class Seconds(serializers.FloatField):
    """A number. DRF's own field also reads true as 1, and "nan", which passes any bounds."""

    def to_internal_value(self, data: Any) -> float:
        if isinstance(data, bool) or not isinstance(data, int | float):
            self.fail("invalid")
        try:
            return float(data)
        except OverflowError:
            self.fail("invalid")


class Moment(serializers.DateTimeField):
    """A moment in an answer; ignores the project's ``DATETIME_FORMAT``."""

    def __init__(self, **options: Any) -> None:
        super().__init__(format=None, **options)


class Text(Described, serializers.CharField):
    """Text, kept with its white space. A number is no text."""

    format: ClassVar[str] = "idgen-text"  # databases refuse a NUL

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"trim_whitespace": False, **options})

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            raise serializers.ValidationError("It must be a string.", code="invalid")
        text: str = super().to_internal_value(data)
        return text

    def shape(self, asked: bool) -> Shape:
        if not asked:
            return {"type": "string"}
        least = {} if self.allow_blank else {"minLength": 1}
        return {"type": "string", **least, "maxLength": self.max_length, "format": self.format}


class PrintableText(Text):
    """Text that any database can store."""

    format = "idgen-words"

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        if not text.isprintable():
            raise serializers.ValidationError("Only printable characters are allowed.")
        return text


class TagName(Text):
    """A valid tag."""

    def to_internal_value(self, data: Any) -> str:
        try:
            return check_tag(super().to_internal_value(data))
        except InvalidTag as error:
            raise serializers.ValidationError(str(error), code="invalid") from error

    def shape(self, asked: bool) -> Shape:  # noqa: ARG002
        return dict(TAG)


TAG: Shape = {
    "type": "string",
    "minLength": 1,
    "maxLength": MAX_TAG_LENGTH,
    "format": "idgen-tag",
    "example": "orders",
}


class Choice(Described, serializers.ChoiceField):
    """One of several texts."""

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, str) or data not in self.choices:
            self.fail("invalid_choice", input=_short(str(data)))
        return data

    def shape(self, asked: bool) -> Shape:  # noqa: ARG002
        return {"type": "string", "enum": list(self.choices)}


class Shaped(Described, serializers.Field):  # type: ignore[type-arg]
    """A part of an answer that is written unchanged; ``shape`` is its JSON schema."""

    def __init__(self, shape: Shape, **options: Any) -> None:
        super().__init__(**options)
        self._shape = shape

    def to_representation(self, value: Any) -> Any:
        return value

    def shape(self, asked: bool) -> Shape:  # noqa: ARG002
        return dict(self._shape)


# --- serializers -----------------------------------------------------------------------


class TolerantInput(serializers.Serializer):  # type: ignore[type-arg]
    """The input of a request. Ignores unknown fields, which later versions may send."""

    example: ClassVar[Any] = None

    @classmethod
    def read(cls, data: Any) -> dict[str, Any]:
        """Raises :class:`~rest_framework.exceptions.ValidationError`, by field."""
        return cls._validated(data)

    @classmethod
    def _validated(cls, data: Any, **context: Any) -> dict[str, Any]:
        given = cls(data=data, context=context)
        given.is_valid(raise_exception=True)
        return dict(given.validated_data)


class Input(TolerantInput):
    """Refuses unknown fields, and fields that are given twice."""

    just_one: ClassVar[bool] = False
    """Whether exactly one of its fields must be given."""

    @classmethod
    def read(cls, data: Any) -> dict[str, Any]:
        if not isinstance(data, QueryDict):
            return cls._validated(data)
        twice = [name for name, values in data.lists() if len(values) > 1]
        if twice:
            raise serializers.ValidationError(
                few_of({name: ["It is given twice."] for name in twice})
            )
        # A plain dictionary: in a form DRF takes an empty value for a missing one.
        return cls._validated(dict(data.items()), **{TEXT_ALONE: True})

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return super().to_internal_value(data)
        known = ", ".join(self.fields) or "none"
        unknown = few_of(
            {
                name: [f"There is no such field. Known: {known}."]
                for name in data
                if name not in self.fields
            }
        )
        try:
            found = super().to_internal_value(data)
        except serializers.ValidationError as error:
            detail: Any = error.detail
            raise serializers.ValidationError({**unknown, **detail}) from error
        if unknown:
            raise serializers.ValidationError(unknown)
        return found


class NoInput(Input):
    """A body, or a query, without fields."""


class Answer(serializers.Serializer):  # type: ignore[type-arg]
    """The body of an answer: these fields and no others."""

    example: ClassVar[Any] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What a method of a view takes and answers: a decorator of that method."""

    name: str
    summary: str
    answer: type[Answer] | Shape
    """The serializer of the answer; a schema, if the view writes the answer by hand."""
    query: type[TolerantInput] | None = None
    body: type[TolerantInput] | None = None
    permission: str = ""
    """The Django permission that users need."""
    status: int = 200
    description: str = ""
    errors: tuple[int, ...] = ()
    """Statuses of errors, besides those that follow from path, query and body."""
    examples: Mapping[int, Any] = field(default_factory=dict)
    """By status; by default the answer's own example."""

    def __call__(self, method: Method) -> Method:
        method.operation = self  # type: ignore[attr-defined]
        return method

    def read(self, request: Request) -> dict[str, Any]:
        """The input of ``request``. Raises :class:`~rest_framework.exceptions.ValidationError`."""
        if self.query is not None:
            return self.query.read(request.query_params)
        return (self.body or NoInput).read(request.data)


# --- pages -----------------------------------------------------------------------------


class Listed(Protocol):
    """A list, or a query that knows its length and reads its slices."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> Sequence[Any]: ...


class PageInput(Input):
    """Which part of a list to show."""

    limit = Whole(least=1, most=1000, default=100, help_text="How many to show at most.")
    offset = Whole(least=0, most=2**31 - 1, default=0, help_text="How many to pass over.")


def pages_of(kind: type[Answer]) -> type[Answer]:
    """The serializer of pages of ``kind``."""

    class Page(Answer):
        example: ClassVar[Any] = {
            "count": 1,
            "next": None,
            "previous": None,
            "results": [kind.example],
        }
        count = serializers.IntegerField()
        next = serializers.URLField(allow_null=True)
        previous = serializers.URLField(allow_null=True)
        results = kind(many=True)

    return Page


def page_of(
    request: Request,
    wanted: dict[str, Any],
    listed: Listed,
    document: Callable[[Any], dict[str, Any]] = dict,
) -> dict[str, Any]:
    """The page that ``wanted`` (of a :class:`PageInput`) asks for, with links to its neighbours."""
    limit, offset = wanted["limit"], wanted["offset"]
    count = len(listed)
    url = request.build_absolute_uri()
    after, before = offset + limit, max(0, offset - limit)
    first = remove_query_param(url, "offset")
    return {
        "count": count,
        "next": replace_query_param(url, "offset", str(after)) if after < count else None,
        "previous": (replace_query_param(url, "offset", str(before)) if before else first)
        if offset
        else None,
        "results": [document(each) for each in listed[offset:after]],
    }
