"""What the serializers of the native API share: strict input, and the fields of this app."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from math import inf, isfinite
from typing import Any, NoReturn

from rest_framework import serializers
from rest_framework.exceptions import ParseError
from rest_framework.pagination import LimitOffsetPagination
from rest_framework.parsers import JSONParser

from ..core.errors import InvalidTag
from ..core.segment import MAX_ID, check_tag

HIGHEST = 2**64
"""Past every id and every layout: higher marks get an error that says what they are past."""
DEEPEST = 50
"""Levels of nested lists and objects in a body."""
MOST_NAMED = 10
"""Unknown fields that an answer names."""
MOST_NAME = 80
"""Characters of each of these names."""


class StrictParser(JSONParser):
    """JSON that any database and any answer can hold, of at most 50 levels."""

    def parse(
        self,
        stream: Any,
        media_type: str | None = None,  # noqa: ARG002
        parser_context: Mapping[str, Any] | None = None,  # noqa: ARG002
    ) -> Any:
        """Raises :class:`ParseError`."""
        try:
            found = json.loads(stream.read().decode(), parse_constant=_refuse)
            # Lone surrogates, and 1e999, which Python reads as infinity.
            json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
        except RecursionError:
            _check_depth([], 0)
        except ValueError as error:
            raise ParseError(f"This is not JSON: {error}") from error
        _check_depth(found, DEEPEST)
        return found


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def _check_depth(value: object, left: int) -> None:
    if isinstance(value, dict | list):
        if not left:
            raise ParseError(f"The JSON nests more than {DEEPEST} levels.")
        for each in value.values() if isinstance(value, dict) else value:
            _check_depth(each, left - 1)


class Input(serializers.Serializer):  # type: ignore[type-arg]
    """The input of a request. Refuses unknown fields, whose names may be misspelt."""

    def to_internal_value(self, data: Any) -> Any:
        unknown = sorted(data.keys() - self.fields.keys()) if isinstance(data, Mapping) else []
        text = f"There is no such field. Known: {', '.join(self.fields) or 'none'}."
        wrong: dict[str, Any] = {name[:MOST_NAME]: [text] for name in unknown[:MOST_NAMED]}
        try:
            found = super().to_internal_value(data)
        except serializers.ValidationError as error:
            if not isinstance(error.detail, dict):
                raise
            wrong |= error.detail
        if wrong:
            raise serializers.ValidationError(wrong)
        return found


class Mark(serializers.IntegerField):
    """A tick, or an end of a segment. Written as text, which JavaScript reads exactly."""

    def __init__(self, *, min_value: int = 0, max_value: int = HIGHEST, **options: Any) -> None:
        super().__init__(min_value=min_value, max_value=max_value, **options)

    def to_representation(self, value: Any) -> Any:
        return str(value)


class IdMark(Mark):
    """An id, or a mark among ids."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"min_value": 1, "max_value": MAX_ID, **options})


class Seconds(serializers.FloatField):
    """A finite number: "nan" would pass any bounds, and a long number is none for DRF's field."""

    def to_internal_value(self, data: Any) -> float:
        if isinstance(data, bool):
            self.fail("invalid")
        try:
            found: float = super().to_internal_value(data)
        except OverflowError:
            found = inf
        if not isfinite(found):
            self.fail("invalid")
        return found


class Choice(serializers.ChoiceField):
    """One of a few words. In a schema of the project they get no name, which its own may have."""


class Whole(serializers.IntegerField):
    """A whole number without a point: DRF reads 1.0 as 1, and its pages then ignore it."""

    re_decimal = re.compile(r"(?!)")  # of zeros after a point, which DRF would drop


class Text(serializers.CharField):
    """Printable text, which any database can store, kept with its white space."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"trim_whitespace": False, **options})

    def to_internal_value(self, data: Any) -> str:
        text: str = super().to_internal_value(data)
        if not text.isprintable():
            raise serializers.ValidationError("Only printable characters are allowed.")
        return text


class TagName(Text):
    """A valid tag."""

    def to_internal_value(self, data: Any) -> str:
        try:
            return check_tag(super().to_internal_value(data))
        except InvalidTag as error:
            raise serializers.ValidationError(str(error)) from error


class Moment(serializers.DateTimeField):
    """A moment in an answer; ignores the project's ``DATETIME_FORMAT``."""

    def __init__(self, **options: Any) -> None:
        super().__init__(format=None, **options)


class Pages(LimitOffsetPagination):
    """Lists of 100 rows a page, of 1,000 if asked."""

    default_limit = 100
    max_limit = 1000


class PageInput(Input):
    """Which part of a list to show."""

    limit = Whole(min_value=1, max_value=Pages.max_limit, required=False)
    offset = Whole(min_value=0, max_value=2**31 - 1, required=False)
