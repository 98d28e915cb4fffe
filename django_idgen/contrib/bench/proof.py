"""The proof that no id came twice, in memory that does not grow with their number.

Each thread's ids go to a file as they come. While they rise, the file is one sorted
run. At the end all runs of all threads and processes are merged in blocks, and each id
is compared with the next: equal ids are neighbours then.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from operator import eq, lt
from pathlib import Path
from typing import Any

from ...core.errors import IdgenError

__all__ = ["Fall", "Journal", "NotAnId", "Proof", "Run", "prove"]

WIDTH = 8
"""Bytes of an id in a file."""
IN_MEMORY = 400_000
"""Ids held in memory while runs are merged, of all runs together."""


class NotAnId(IdgenError):
    """A generator returned something other than an integer of 1 to 2**63 - 1."""

    def __init__(self, value: object, holder: str) -> None:
        self.value = value
        super().__init__(f"{holder} was given {value!r}, which is no id of 1 to 2**63 - 1.")


@dataclass(frozen=True, slots=True)
class Run:
    """Sorted ids in a file: those numbered ``start`` to ``stop`` (exclusive)."""

    path: str
    start: int
    stop: int
    holder: str
    """Which process and thread took them."""

    def blocks(self, size: int) -> Iterator[array[int]]:
        """The ids in arrays of at most ``size``."""
        for at in range(self.start, self.stop, size):
            block = array("q")
            with Path(self.path).open("rb") as file:
                file.seek(at * WIDTH)
                block.fromfile(file, min(size, self.stop - at))
            yield block


@dataclass(frozen=True, slots=True)
class Fall:
    """A thread was given ``after`` later than ``before``, though it is not above it."""

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
    """The first place where they did not rise."""
    _size: int = 0
    _last: int = 0
    """The id that was taken last."""
    _top: int = 0
    """The highest id of the last run."""

    def add(self, taken: Iterable[Any]) -> None:
        """Write down what was taken. Raises :class:`NotAnId` or :class:`OSError`."""
        block = self._block(taken)
        if not block:
            return
        self._check_rise(block)
        if not _rises(block):
            block = array("q", sorted(block))
        with self.path.open("ab") as file:
            block.tofile(file)
        self._extend_runs(block)

    def _block(self, taken: Iterable[Any]) -> array[int]:
        values = list(taken)
        try:
            block = array("q", values)
        except (TypeError, OverflowError):
            block = array("q", [0])
        if block and min(block) < 1:
            raise NotAnId(next(value for value in values if not _is_id(value)), self.holder)
        return block

    def _check_rise(self, block: array[int]) -> None:
        if self.fall is None and not (self._last < block[0] and _rises(block)):
            before = self._last
            for after in block:
                if after <= before:
                    self.fall = Fall(self.holder, before, after)
                    break
                before = after
        self._last = block[-1]

    def _extend_runs(self, block: array[int]) -> None:
        start, self._size = self._size, self._size + len(block)
        rising = self.runs and self._top < block[0]
        begun = self.runs.pop().start if rising else start
        self.runs.append(Run(str(self.path), begun, self._size, self.holder))
        self._top = block[-1]


@dataclass(frozen=True, slots=True)
class Proof:
    """What the comparison of all ids of one target showed."""

    compared: int
    repeats: int
    """How many ids were there already."""
    example: int | None = None
    holders: tuple[str, ...] = ()
    """Who was given the example."""
    fall: Fall | None = None

    @property
    def holds(self) -> bool:
        return not self.repeated and not self.fell

    @property
    def repeated(self) -> str:
        """Which ids repeat, in words; empty if none does."""
        if not self.repeats:
            return ""
        return (
            f"{self.repeats:,} of {self.compared:,} ids REPEAT, such as {self.example}, "
            f"given to {' and to '.join(self.holders)}."
        )

    @property
    def fell(self) -> str:
        """Where ids did not rise, in words; empty if they did."""
        fall = self.fall
        if fall is None:
            return ""
        return f"ids did NOT RISE: {fall.holder} got {fall.before}, then {fall.after}."


def prove(
    runs: Sequence[Run], falls: Iterable[Fall | None] = (), *, in_memory: int = IN_MEMORY
) -> Proof:
    """Compare every id of ``runs`` with every other, ``in_memory`` ids at a time.

    Raises :class:`OSError`.
    """
    compared = repeats = last = 0
    example: int | None = None
    for block in _merged(runs, max(1, in_memory // max(1, len(runs)))):
        compared += len(block)
        found = sum(map(eq, block, islice(block, 1, None))) + (block[0] == last)
        if found and example is None:
            example = _first_repeat([last, *block])
        repeats += found
        last = block[-1]
    holders = () if example is None else tuple(_holders(runs, example))
    fall = next((fall for fall in falls if fall is not None), None)
    return Proof(compared, repeats, example, holders, fall)


def _merged(runs: Sequence[Run], size: int) -> Iterator[list[int]]:
    """The ids of all runs, sorted, read in blocks of ``size`` of each.

    Of the blocks read, everything up to the lowest block's end can be given out:
    no run has anything below that still to come.
    """
    readers = [run.blocks(size) for run in runs]
    heads = [next(reader) for reader in readers]
    while readers:
        limit = min(head[-1] for head in heads)
        merged: list[int] = []
        for at, head in enumerate(heads):
            cut = bisect_right(head, limit)
            merged.extend(head[:cut])
            heads[at] = head[cut:] or next(readers[at], array("q"))
        merged.sort()
        yield merged
        readers = [reader for reader, head in zip(readers, heads, strict=True) if head]
        heads = [head for head in heads if head]


def _first_repeat(values: Sequence[int]) -> int:
    return next(first for first, second in pairwise(values) if first == second)


def _holders(runs: Sequence[Run], example: int) -> Iterator[str]:
    for run in runs:
        for block in run.blocks(IN_MEMORY):
            yield from (run.holder for _ in range(block.count(example)))


def _rises(block: array[int]) -> bool:
    return all(map(lt, block, islice(block, 1, None)))


def _is_id(value: object) -> bool:
    return type(value) is int and 1 <= value < 2**63
