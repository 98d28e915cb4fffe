"""The proof that no id came twice, in memory that does not grow with the number of ids.

Each thread writes its ids to a file as they come, and they must rise, so each file is sorted. At
the end the files of all threads and processes are merged, and each id is compared with the one
before it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import pairwise
from pathlib import Path
from typing import Any

from .targets import BenchFailed

WIDTH = 8
"""Bytes of an id in a file."""
IN_MEMORY = 400_000
"""Ids held in memory while files are merged, of all files together."""


class Fault(BenchFailed):
    """Ids repeat, or those of a thread do not rise."""


class Journal:
    """The ids of ``target`` that one thread got, in order. Used by one thread at a time.

    The name of its file says which thread.
    """

    def __init__(self, target: str, path: Path) -> None:
        self._who = f"{target}: {path.name}"
        self._path = path
        self._last = 0

    def add(self, taken: Iterable[Any]) -> None:
        """Write ids to the file.

        Raises :class:`Fault` if they do not rise, :class:`BenchFailed` for what is no id, and
        :class:`OSError`.
        """
        ids = list(taken)
        for before, after in pairwise([self._last, *ids]):
            if type(after) is not int or not 1 <= after < 2**63:
                raise BenchFailed(f"{self._who} got {after!r}, which is not an id: 1 to 2**63 - 1.")
            if after <= before:
                raise Fault(f"{self._who} got {before}, then {after}: ids did NOT RISE.")
            self._last = after
        with self._path.open("ab") as file:
            array("q", ids).tofile(file)


def prove(target: str, paths: Sequence[Path], *, in_memory: int = IN_MEMORY) -> int:
    """Compare all ids in the files of the journals of ``target``; return how many there are.

    Raises :class:`Fault` if one repeats, and :class:`OSError`.
    """
    buffer = max(1, in_memory // max(1, len(paths)))
    compared = repeats = last = example = 0
    for value in merge(*(_read(path, buffer) for path in paths)):
        compared += 1
        if value == last:
            repeats += 1
            example = example or value
        last = value
    if repeats:
        holders = [path.name for path in paths if example in _read(path, buffer)]
        raise Fault(
            f"{target}: {repeats:,} of {compared:,} ids REPEAT, such as {example}, given to "
            f"{' and to '.join(holders)}."
        )
    return compared


def _read(path: Path, buffer: int) -> Iterator[int]:
    """The ids in a file, read ``buffer`` at a time. Opened for each, since there may be many."""
    for at in range(0, path.stat().st_size, buffer * WIDTH):
        with path.open("rb") as file:
            file.seek(at)
            block = array("q", file.read(buffer * WIDTH))
        yield from block
