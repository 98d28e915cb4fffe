"""Input that is what it says: no number for a text, no text for a number, nothing unknown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NoReturn

from django.http import QueryDict
from rest_framework import serializers
from rest_framework.request import Request

from ..core.errors import InvalidTag
from ..core.segment import MAX_ID, check_tag
from .failures import few_of

__all__ = ["Choice", "IdNumber", "Input", "TagName", "Text", "Whole", "read_body", "read_query"]

TEXT_ALONE = "text_alone"
"""Says that it comes from a form or a query, where numbers are written as text."""
DIGITS = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)


class Input(serializers.Serializer):  # type: ignore[type-arg]
    """Refuses a field that it does not know, and one that is given twice."""

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


class Whole(serializers.Field):  # type: ignore[type-arg]
    """A whole number of ``least`` to ``most``; in JSON a number, not a text."""

    takes_text = False

    def __init__(self, *, least: int, most: int, **options: Any) -> None:
        super().__init__(**options)
        self.least, self.most = least, most

    def to_internal_value(self, data: object) -> int:
        if isinstance(data, str) and (self.takes_text or self._is_text_alone()):
            if not DIGITS.fullmatch(data):
                self._refuse()
            data = int(data)
        if isinstance(data, bool) or not isinstance(data, int):
            self._refuse()
        if not self.least <= data <= self.most:
            self._refuse()
        return data

    def to_representation(self, value: int) -> object:
        return value

    def _is_text_alone(self) -> bool:
        return bool(self.context.get(TEXT_ALONE))

    def _refuse(self) -> NoReturn:
        raise serializers.ValidationError(
            f"It must be a whole number of {self.least} to {self.most}.", code="invalid"
        )


class IdNumber(Whole):
    """An id, or a mark among ids: as text or as a number; always written as text."""

    takes_text = True

    def __init__(self, *, least: int = 1, most: int = MAX_ID, **options: Any) -> None:
        super().__init__(least=least, most=most, **options)

    def to_representation(self, value: int) -> str:
        return str(value)


class Text(serializers.CharField):
    """Text alone: a number is none. Kept as it is, white space included."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"trim_whitespace": False, **options})

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            raise serializers.ValidationError("It must be a text.", code="invalid")
        return super().to_internal_value(data)


class TagName(Text):
    """What can be a tag."""

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        try:
            return check_tag(text)
        except InvalidTag as error:
            raise serializers.ValidationError(str(error), code="invalid") from error


class Choice(serializers.ChoiceField):
    """One of some words, each a text."""

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, str):
            self.fail("invalid_choice", input=data)
        return super().to_internal_value(data)


def read_query(request: Request, kind: type[Input]) -> dict[str, Any]:
    """What the URL asks for. Raises :class:`~rest_framework.exceptions.ValidationError`."""
    return _read(kind, request.query_params)


def read_body(request: Request, kind: type[Input]) -> dict[str, Any]:
    """What the body asks for. Raises :class:`~rest_framework.exceptions.ValidationError`."""
    return _read(kind, request.data)


def _read(kind: type[Input], data: Any) -> dict[str, Any]:
    text_alone = isinstance(data, QueryDict)
    # A plain dictionary: of a form, DRF takes an empty value for one that is not given.
    given = kind(data=_single(data) if text_alone else data, context={TEXT_ALONE: text_alone})
    given.is_valid(raise_exception=True)
    return dict(given.validated_data)


def _single(data: QueryDict) -> dict[str, Any]:
    twice = [name for name, values in data.lists() if len(values) > 1]
    if twice:
        raise serializers.ValidationError(few_of({name: ["It is given twice."] for name in twice}))
    return dict(data.items())
