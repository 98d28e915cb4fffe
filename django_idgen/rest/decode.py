"""Ids taken apart, over HTTP."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from ..core.encoding import ALPHABETS, MAX_PREFIX_LENGTH, PREFIX, TextForm
from ..core.errors import ConfigurationError, InvalidId
from ..core.segment import MAX_ID
from ..ops.decoding import layout_document, parts_document
from ..process.handlers import generators
from ..settings.config import DEFAULT_ALIAS
from .base import IdgenView
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
)

__all__ = ["DecodeView"]


SHOWN = "54901763806867456"


class AnyId(Described, serializers.Field):  # type: ignore[type-arg]
    """An id as it was given: its text form is read later, when it is known."""

    def to_internal_value(self, data: object) -> object:
        return data

    def shape(self, asked: bool) -> Shape:  # noqa: ARG002
        number = {"type": "integer", "minimum": 1, "maximum": MAX_ID}
        return {"oneOf": [number, {"type": "string"}], "example": SHOWN}


class Prefix(Text):
    """What stands before an id's digits: whether it can is seen when it is used."""

    def shape(self, asked: bool) -> Shape:  # noqa: ARG002
        return {"type": "string", "pattern": f"^({PREFIX.pattern})?$"}


class Alias(Text):
    """A generator of the settings: likewise."""

    def shape(self, asked: bool) -> Shape:  # noqa: ARG002
        return {"type": "string", "enum": list(generators)}


class DecodeInput(Input):
    """What is to be taken apart."""

    example: ClassVar[Any] = {"id": SHOWN}
    id = AnyId(help_text="The id: a number, or a text in the form that is named.")
    form = Choice(
        sorted(ALPHABETS), default="decimal", help_text="The alphabet that the id is written in."
    )
    prefix = Prefix(
        max_length=MAX_PREFIX_LENGTH,
        allow_blank=True,
        default="",
        help_text="What stands before the id's digits, such as “ord_”.",
    )
    generator = Alias(
        max_length=128, default=DEFAULT_ALIAS, help_text="Whose id it is: an alias of the settings."
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


APART = Operation(
    name="decode_id",
    summary="Take an id apart",
    description="When and by which worker it was made. Takes none.",
    query=DecodeInput,
    answer=Decoded,
)


class DecodeView(IdgenView):
    """Says when and by which worker an id was made. Takes none, and asks no database."""

    group = "ids"

    @APART
    def get(self, request: Request, **_kwargs: str) -> Response:  # noqa: ARG002
        return self.respond(_decoded(self.read()))

    @replace(APART, name="take_apart_id", query=None, body=DecodeInput)
    def post(self, request: Request, **_kwargs: str) -> Response:  # noqa: ARG002
        return self.respond(_decoded(self.read()))


def _decoded(wanted: dict[str, Any]) -> dict[str, Any]:
    generator = _generator(wanted["generator"])
    parts = generator.decode(_value(wanted))
    return {
        "generator": wanted["generator"],
        **parts_document(parts),
        "layout": layout_document(generator.layout),
    }


def _value(wanted: dict[str, Any]) -> int:
    try:
        form = TextForm(wanted["form"], wanted["prefix"])
    except ConfigurationError as error:
        raise ValidationError({"prefix": [str(error)]}) from error
    given = wanted["id"]
    if wanted["prefix"] and not (isinstance(given, str) and given.startswith(wanted["prefix"])):
        raise InvalidId(given, f"it does not begin with {wanted['prefix']!r}")
    return form.read(given)


def _generator(alias: str) -> Any:
    if alias not in generators:
        known = ", ".join(generators)
        raise ValidationError(
            {"generator": [f"There is no generator {alias!r}. There are {known}."]}
        )
    found: Any = generators[alias]
    if not found.has_parts:
        raise ValidationError({"generator": [f"The ids of generator {alias!r} have no parts."]})
    return found
