"""What a request for ids may say: how many, and as what."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.http import QueryDict
from rest_framework.exceptions import ParseError, ValidationError

from ..core.generator import MAX_BATCH
from ..process.handlers import current_settings
from .failures import few_of

__all__ = ["COUNT", "FORM", "Wanted", "read_wanted"]

COUNT = "count"
FORM = "as"
FORMS = {"string": False, "number": True}
NOTHING: Mapping[str, Any] = {}
DIGITS = re.compile("[0-9]{1,12}", re.ASCII)


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
