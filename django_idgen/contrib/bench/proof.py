"""The proof that no id came twice, in memory that does not grow with the number of ids.

Each thread writes its ids to a file as they come, and they must rise, so each file is sorted. At
the end the files of all threads and processes are merged, and each id is compared with the one
before it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import pairwise
from pathlib import Path
from typing import Any

from .targets import BenchFailed

IN_MEMORY = 400_000
"""Ids held in memory while files are merged, of all files together."""
WIDTH = array("q").itemsize


class Fault(BenchFailed):
    """Ids repeat, or those of a thread do not rise."""


@dataclass
class Journal:
    """The ids of ``target`` that one thread got, in order. Used by one thread at a time.

    The name of its file says which thread.
    """

    target: str
    path: Path
    last: int = 0

    def add(self, taken: Iterable[Any]) -> None:
        """Write ids to the file.

        Raises :class:`Fault` if they do not rise, :class:`BenchFailed` for what is no id, and
        :class:`OSError`.
        """
        who = f"{self.target}: {self.path.name}"
        ids = [self.last, *taken]
        for before, after in pairwise(ids):
            if type(after) is not int or not 1 <= after < 2**63:
                raise BenchFailed(f"{who} got {after!r}, which is not an id: 1 to 2**63 - 1.")
            if after <= before:
                raise Fault(f"{who} got {before}, then {after}: ids did NOT RISE.")
        self.last = ids[-1]
        with self.path.open("ab") as file:
            array("q", ids[1:]).tofile(file)


def prove(target: str, paths: Sequence[Path], *, in_memory: int = IN_MEMORY) -> int:
    """Compare all ids in the files of the journals of ``target``; return how many there are.

    Raises :class:`Fault` if one repeats, and :class:`OSError`.
    """
    buffer = max(1, in_memory // max(1, len(paths)))
    rising = merge(*(_read(path, buffer) for path in paths))
    repeats = [after for before, after in pairwise(rising) if after == before]
    compared = sum(path.stat().st_size for path in paths) // WIDTH
    if repeats:
        holders = [path.name for path in paths if repeats[0] in _read(path, buffer)]
        raise Fault(
            f"{target}: {len(repeats):,} of {compared:,} ids REPEAT, such as {repeats[0]}, given "
            f"to {' and to '.join(holders)}."
        )
    return compared


def _read(path: Path, buffer: int) -> Iterator[int]:
    """The ids in a file, ``buffer`` at a time. Opened for each, since there may be many files."""
    for at in range(0, path.stat().st_size, buffer * WIDTH):
        with path.open("rb") as file:
            file.seek(at)
            block = array("q", file.read(buffer * WIDTH))
        yield from block
