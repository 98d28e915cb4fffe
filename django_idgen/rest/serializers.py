"""What requests and answers say: strict JSON, the fields, and the serializers of both.

A field checks what comes in and knows its own JSON schema, and an :class:`Operation` names the
serializers of a view's method: what is checked and sent is also what ``schema/`` describes.
Input is what it says: no number for a text, no text for a number, nothing unknown.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn, TypeVar

from django.http import QueryDict
from rest_framework import serializers
from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser
from rest_framework.request import Request

from ..core.errors import InvalidTag
from ..core.segment import MAX_ID, MAX_TAG_LENGTH, check_tag
from .failures import few_of

__all__ = [
    "Answer",
    "Asked",
    "Choice",
    "Described",
    "IdNumber",
    "Input",
    "Mark",
    "Moment",
    "NoInput",
    "Operation",
    "PrintableText",
    "Seconds",
    "Shape",
    "Shaped",
    "StrictJSONParser",
    "TagName",
    "Text",
    "Whole",
    "WholeNumber",
]

Shape = dict[str, Any]
"""A JSON schema."""
Method = TypeVar("Method", bound=Callable[..., Any])

HIGHEST = 2**64
"""Marks past every id and every layout: they are refused in words of their own."""
TEXT_ALONE = "text_alone"
"""Says that input comes from a form or a query, where numbers are written as text."""


class StrictJSONParser(JSONParser):
    """JSON in UTF-8, in which no key stands twice and nothing nests without end."""

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
            # An escaped half of a character is no text: no database takes it, no answer has it.
            # Nor may an answer say infinity, which is what 1e999 is to Python.
            json.dumps(found, ensure_ascii=False, allow_nan=False).encode("utf-8")
        except RecursionError as error:
            raise ParseError("The JSON nests too deeply.") from error
        except ValueError as error:
            raise ParseError(f"This is no JSON: {error}") from error
        return found


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


# --- fields --------------------------------------------------------------------------


class Described(ABC):
    """A field that knows its own JSON schema."""

    @abstractmethod
    def shape(self, asked: bool) -> Shape:
        """The schema of what a request says (``asked``), or of what an answer does."""


class Whole(Described, serializers.Field):  # type: ignore[type-arg]
    """A whole number of ``least`` to ``most``; in JSON a number, not a text."""

    takes_text: ClassVar[bool] = False
    digits: ClassVar[re.Pattern[str]] = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)

    def __init__(self, *, least: int, most: int, **options: Any) -> None:
        super().__init__(**options)
        self.least, self.most = least, most

    def to_internal_value(self, data: object) -> int:
        if isinstance(data, str) and (self.takes_text or self.context.get(TEXT_ALONE)):
            data = int(data) if self.digits.fullmatch(data) else None
        if isinstance(data, bool) or not isinstance(data, int):
            self._refuse()
        if not self.least <= data <= self.most:
            self._refuse()
        return data

    def to_representation(self, value: int) -> object:
        return value

    def shape(self, asked: bool) -> Shape:
        number = {"type": "integer", "minimum": self.least, "maximum": self.most}
        if not asked:
            return {"type": "integer"}
        return {"oneOf": [number, self._text()]} if self.takes_text else number

    def _text(self) -> Shape:
        """Decimal text that is surely in range: without the longest numbers."""
        length = len(str(self.most)) - 1
        first = f"[1-9][0-9]{{0,{length - 1}}}" if self.least else f"[0-9]{{1,{length}}}"
        return {"type": "string", "pattern": f"^{first}$"}

    def _refuse(self) -> NoReturn:
        raise serializers.ValidationError(
            f"It must be a whole number of {self.least} to {self.most}.", code="invalid"
        )


class WholeNumber(Whole):
    """A whole number, as a JSON number or as decimal text."""

    takes_text = True
    digits = re.compile(r"[0-9]{1,20}", re.ASCII)

    def __init__(self, *, least: int = 0, most: int = HIGHEST, **options: Any) -> None:
        super().__init__(least=least, most=most, **options)


class Mark(WholeNumber):
    """A tick, or an end of a segment: always written as text, for the sake of JavaScript."""

    def to_representation(self, value: int) -> str:
        return str(value)

    def shape(self, asked: bool) -> Shape:
        text = {"type": "string", "pattern": "^[0-9]{1,20}$", "example": "13089600517"}
        return super().shape(asked) if asked else text


class IdNumber(Whole):
    """An id, or a mark among ids: as text or as a number; always written as text."""

    takes_text = True

    def __init__(self, *, least: int = 1, most: int = MAX_ID, **options: Any) -> None:
        super().__init__(least=least, most=most, **options)

    def to_representation(self, value: int) -> str:
        return str(value)

    def shape(self, asked: bool) -> Shape:
        text = {"type": "string", "pattern": "^[1-9][0-9]{0,18}$", "example": "5001"}
        return super().shape(asked) if asked else text


class Seconds(serializers.FloatField):
    """A number, no text: DRF 3.16 reads "nan", which lies within any bounds, and true as 1."""

    def to_internal_value(self, data: Any) -> float:
        if isinstance(data, bool) or not isinstance(data, int | float):
            self.fail("invalid")
        try:
            return float(data)
        except OverflowError:
            self.fail("invalid")


class Moment(serializers.DateTimeField):
    """A moment in an answer, as it was read: the project's formats are for its own API."""

    def __init__(self, **options: Any) -> None:
        super().__init__(format=None, **options)


class Text(Described, serializers.CharField):
    """Text alone: a number is none. Kept as it is, white space included."""

    format: ClassVar[str] = "idgen-text"  # a NUL is no text for a database

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"trim_whitespace": False, **options})

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            raise serializers.ValidationError("It must be a text.", code="invalid")
        text: str = super().to_internal_value(data)
        return text

    def shape(self, asked: bool) -> Shape:
        if not asked:
            return {"type": "string"}
        least = {} if self.allow_blank else {"minLength": 1}
        return {"type": "string", **least, "maxLength": self.max_length, "format": self.format}


class PrintableText(Text):
    """Text that any database can keep."""

    format = "idgen-words"

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        if not text.isprintable():
            raise serializers.ValidationError("Only printable characters are allowed.")
        return text


class TagName(Text):
    """What can be a tag."""

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
    """One of some words, each a text."""

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, str):
            self.fail("invalid_choice", input=data)
        return super().to_internal_value(data)

    def shape(self, asked: bool) -> Shape:  # noqa: ARG002
        return {"type": "string", "enum": list(self.choices)}


class Shaped(Described, serializers.Field):  # type: ignore[type-arg]
    """A part of an answer that is written as it is; ``shape`` is its JSON schema."""

    def __init__(self, shape: Shape, **options: Any) -> None:
        super().__init__(**options)
        self._shape = shape

    def to_representation(self, value: Any) -> Any:
        return value

    def shape(self, asked: bool) -> Shape:  # noqa: ARG002
        return dict(self._shape)


# --- serializers ---------------------------------------------------------------------


class Asked(serializers.Serializer):  # type: ignore[type-arg]
    """What a request says. Fields that it does not know are for later versions."""

    example: ClassVar[Any] = None

    @classmethod
    def read(cls, data: Any) -> dict[str, Any]:
        """Raises :class:`~rest_framework.exceptions.ValidationError`, by field."""
        return cls._checked(data)

    @classmethod
    def _checked(cls, data: Any, **context: Any) -> dict[str, Any]:
        given = cls(data=data, context=context)
        given.is_valid(raise_exception=True)
        return dict(given.validated_data)


class Input(Asked):
    """Refuses a field that it does not know, and one that is given twice."""

    just_one: ClassVar[bool] = False
    """Whether one of its fields has to be there, and no other."""

    @classmethod
    def read(cls, data: Any) -> dict[str, Any]:
        if not isinstance(data, QueryDict):
            return cls._checked(data)
        # A plain dictionary: of a form, DRF takes an empty value for one that is not given.
        return cls._checked(_single(data), **{TEXT_ALONE: True})

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, Mapping):
            self._refuse_unknown(data)
        return super().to_internal_value(data)

    def _refuse_unknown(self, data: Mapping[str, Any]) -> None:
        known = ", ".join(self.fields) or "none"
        wrong = {
            name: [f"There is no such field. There are: {known}."]
            for name in data
            if name not in self.fields
        }
        if wrong:
            raise serializers.ValidationError(few_of(wrong))


def _single(data: QueryDict) -> dict[str, Any]:
    twice = [name for name, values in data.lists() if len(values) > 1]
    if twice:
        raise serializers.ValidationError(few_of({name: ["It is given twice."] for name in twice}))
    return dict(data.items())


class NoInput(Input):
    """A body, or a query, without fields."""


class Answer(serializers.Serializer):  # type: ignore[type-arg]
    """What an answer says: these fields and no others."""

    example: ClassVar[Any] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What a method of a view takes and answers: a decorator of that method. Frozen."""

    name: str
    summary: str
    answer: type[Answer] | Shape
    """What writes the answer; only a schema, where the view writes it by hand."""
    query: type[Asked] | None = None
    body: type[Asked] | None = None
    permission: str = ""
    """Django's, which people of the project need."""
    status: int = 200
    description: str = ""
    errors: tuple[int, ...] = ()
    """Statuses of refusals, besides those that follow from path, query and body."""
    examples: Mapping[int, Any] = field(default_factory=dict)
    """By status, where the answer's own example says too little."""

    def __call__(self, method: Method) -> Method:
        method.operation = self  # type: ignore[attr-defined]
        return method

    def asked(self, request: Request) -> dict[str, Any]:
        """What ``request`` says. Raises :class:`~rest_framework.exceptions.ValidationError`."""
        if self.query is not None:
            return self.query.read(request.query_params)
        return (self.body or NoInput).read(request.data)
