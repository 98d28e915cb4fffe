"""What is left of segments, as ranges that can be given back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

__all__ = ["CHUNK", "drained", "joined", "runs"]

CHUNK: Final = 65_536


def drained(ids: Iterator[int], delta: int) -> list[range]:
    """All that is left of ``ids``, taken from it, as ranges by ``delta``.

    Another thread may be taking from the very same iterator, and go on with it: as
    each value comes out of it once, none is in a range and with that thread, too.
    """
    found: list[range] = []
    while chunk := list(islice(ids, CHUNK)):
        found += runs(chunk, delta)
    return found


def runs(values: list[int], delta: int) -> Iterator[range]:
    """Rising ``values`` as ranges by ``delta``, split where some are missing."""
    first = 0
    if values[-1] - values[0] != (len(values) - 1) * delta:  # seldom: someone else takes, too
        for index in range(1, len(values)):
            if values[index] - values[index - 1] != delta:
                yield range(values[first], values[index - 1] + 1, delta)
                first = index
    yield range(values[first], values[-1] + 1, delta)


def joined(ranges: Iterable[range]) -> list[range]:
    """``ranges``, rising and without the empty ones, those that follow each other as one."""
    found: list[range] = []
    for each in ranges:
        if not each:
            continue
        last = found[-1] if found else None
        if last is not None and last.step == each.step and last[-1] + last.step == each[0]:
            found[-1] = range(last.start, each.stop, last.step)
        else:
            found.append(each)
    return found
