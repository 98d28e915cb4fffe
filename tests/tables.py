"""Tables of values that are refused: one test for all rows of a table."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

E = TypeVar("E", bound=Exception)


def refused(
    error: type[E],
    call: Callable[..., Any],
    *values: Any,
    match: str = "",
    **options: Any,
) -> E:
    """The error with which ``call`` refuses the row, and which says ``match`` (an expression).

    A row that is taken, or refused in another way, fails the test, which names the row.
    """
    row = f"in the row {values} {options}, where {error.__name__} was expected"
    try:
        got = call(*values, **options)
    except Exception as raised:
        if isinstance(raised, error) and re.search(match, str(raised)):
            return raised
        raised.add_note(f"{row}, to say {match!r}")
        raise
    pytest.fail(f"{got!r} {row}")
