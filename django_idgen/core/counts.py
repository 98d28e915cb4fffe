"""How many ids one call may ask for: the same for every generator."""

from __future__ import annotations

from typing import Final

from .errors import ConfigurationError

__all__ = ["MAX_BATCH", "check_count"]

MAX_BATCH: Final = 10_000_000
"""The most ids that one call of ``next_ids`` gives."""


def check_count(count: object) -> int:
    """Return ``count`` if so many ids can be asked for at once.

    Raises :class:`TypeError` for what is no int, and :class:`ConfigurationError`
    (a :class:`ValueError`) for one outside 0 to :data:`MAX_BATCH`.
    """
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"A number of ids must be an int of 0 to {MAX_BATCH}, not {count!r}.")
    if not 0 <= count <= MAX_BATCH:
        raise ConfigurationError(
            f"{count} ids can't be given by one call: ask for 0 to {MAX_BATCH} at a time."
        )
    return count
