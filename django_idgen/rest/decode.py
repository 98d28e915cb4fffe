"""Ids taken apart, over HTTP."""

from __future__ import annotations

from typing import Any

from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Field

from ..core.encoding import ALPHABETS, MAX_PREFIX_LENGTH, TextForm
from ..core.errors import ConfigurationError, InvalidId
from ..ops.decoding import layout_document, parts_document
from ..process.handlers import generators
from ..settings.config import DEFAULT_ALIAS
from .base import IdgenView
from .strict_input import Choice, Input, Text, read_body, read_query

__all__ = ["DecodeView"]


class AnyId(Field):  # type: ignore[type-arg]
    """An id as it was given: its text form is read later, when it is known."""

    def to_internal_value(self, data: object) -> object:
        return data

    def to_representation(self, value: object) -> object:
        return value


class Prefix(Text):
    """What stands before an id's digits: whether it can is seen when it is used."""


class Alias(Text):
    """A generator of the settings: likewise."""


class DecodeInput(Input):
    """What is to be taken apart."""

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


class DecodeView(IdgenView):
    """Says when and by which worker an id was made. Takes none, and asks no database."""

    def get(self, request: Request, **_kwargs: str) -> Response:
        return Response(_decoded(read_query(request, DecodeInput)))

    def post(self, request: Request, **_kwargs: str) -> Response:
        return Response(_decoded(read_body(request, DecodeInput)))


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
    if not hasattr(found, "decode"):
        raise ValidationError({"generator": [f"The ids of generator {alias!r} have no parts."]})
    return found
