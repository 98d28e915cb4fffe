"""The proof that no id came twice, in memory that does not grow with the number of ids.

Each thread writes its ids to a file as they come. While they rise, the file is one sorted
run. At the end all runs of all threads and processes are merged, and each id is compared
with the one before it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from ...core.errors import IdgenError

WIDTH = 8
"""Bytes of an id in a file."""
IN_MEMORY = 400_000
"""Ids held in memory while runs are merged, of all runs together."""


class NotAnId(IdgenError):
    """A generator returned something other than an integer of 1 to 2**63 - 1."""

    def __init__(self, value: object, holder: str) -> None:
        self.value = value
        super().__init__(f"{holder} got {value!r}, which is not an id: 1 to 2**63 - 1.")


@dataclass(frozen=True, slots=True)
class Run:
    """Sorted ids in a file: those numbered ``start`` to ``stop`` (exclusive)."""

    path: str
    start: int
    stop: int
    holder: str
    """Which process and thread took them."""

    def ids(self, buffer: int) -> Iterator[int]:
        """The ids, read ``buffer`` at a time."""
        for at in range(self.start, self.stop, buffer):
            block = array("q")
            with Path(self.path).open("rb") as file:
                file.seek(at * WIDTH)
                block.fromfile(file, min(buffer, self.stop - at))
            yield from block


@dataclass(frozen=True, slots=True)
class Fall:
    """A thread got ``after`` later than ``before``, though it is not above it."""

    holder: str
    before: int
    after: int


@dataclass(slots=True)
class Journal:
    """The ids of one thread, in the order in which it got them. Used by one thread at a time."""

    path: Path
    holder: str
    runs: list[Run] = field(default_factory=list)
    fall: Fall | None = None
    """The first place where the ids did not rise."""
    _size: int = 0
    _last: int = 0
    """The last id that was added."""
    _highest: int = 0
    """The highest id of the last run."""

    def add(self, taken: Iterable[Any]) -> None:
        """Write ids to the file. Raises :class:`NotAnId` and :class:`OSError`."""
        ids = list(taken)
        if wrong := [value for value in ids if not _is_id(value)]:
            raise NotAnId(wrong[0], self.holder)
        if not ids:
            return
        pairs = pairwise(chain([self._last], ids))
        falls = (Fall(self.holder, before, after) for before, after in pairs if after <= before)
        self.fall = self.fall or next(falls, None)
        self._last = ids[-1]
        self._append(array("q", sorted(ids)))

    def _append(self, block: array[int]) -> None:
        with self.path.open("ab") as file:
            block.tofile(file)
        start, self._size = self._size, self._size + len(block)
        if self.runs and self._highest < block[0]:
            start = self.runs.pop().start
        self.runs.append(Run(str(self.path), start, self._size, self.holder))
        self._highest = block[-1]


def _is_id(value: object) -> bool:
    return type(value) is int and 1 <= value < 2**63


@dataclass(frozen=True, slots=True)
class Proof:
    """What the comparison of all ids of one target showed."""

    compared: int
    repeats: int
    """How many ids had occurred before."""
    example: int | None = None
    holders: tuple[str, ...] = ()
    """The threads that got the example."""
    fall: Fall | None = None

    @property
    def holds(self) -> bool:
        return not self.faults()

    def faults(self) -> list[str]:
        """A sentence for each kind of fault; none if the ids are unique and rise."""
        found = []
        if self.repeats:
            found.append(
                f"{self.repeats:,} of {self.compared:,} ids REPEAT, such as {self.example}, "
                f"given to {' and to '.join(self.holders)}."
            )
        if self.fall is not None:
            found.append(
                f"ids did NOT RISE: {self.fall.holder} got {self.fall.before}, then "
                f"{self.fall.after}."
            )
        return found


def prove(
    runs: Sequence[Run], falls: Iterable[Fall | None] = (), *, in_memory: int = IN_MEMORY
) -> Proof:
    """Compare every id of ``runs`` with every other, with ``in_memory`` ids in memory.

    Raises :class:`OSError`.
    """
    buffer = max(1, in_memory // max(1, len(runs)))
    compared = repeats = last = 0
    example: int | None = None
    for value in merge(*(run.ids(buffer) for run in runs)):
        compared += 1
        if value == last:
            repeats += 1
            example = example or value
        last = value
    holders = (run.holder for run in runs for value in run.ids(buffer) if value == example)
    fall = next((fall for fall in falls if fall is not None), None)
    return Proof(compared, repeats, example, tuple(holders) if example else (), fall)
