"""Tables of values that are refused: one test for all rows of a table."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest


def refused(
    errors: type[Exception] | tuple[type[Exception], ...],
    call: Callable[..., Any],
    *values: Any,
    match: str = "",
    **options: Any,
) -> Exception:
    """The error with which ``call`` refuses the row, and which says ``match`` (an expression).

    A row that is taken, or refused in another way, fails the test, which names the row.
    """
    row = f"in the row {values} {options}"
    try:
        got = call(*values, **options)
    except Exception as error:
        if isinstance(error, errors) and re.search(match, str(error)):
            return error
        error.add_note(f"{row}, where {errors} was expected, to say {match!r}")
        raise
    pytest.fail(f"{got!r} {row}, where {errors} was expected")
