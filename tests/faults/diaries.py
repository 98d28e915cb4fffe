"""Reading what the children of :mod:`.site.nursery` wrote down."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import chain, pairwise
from pathlib import Path


def written(directory: Path, kind: str) -> list[array[int]]:
    """The ids of one kind, child by child. What a kill cut short in mid-write was not used."""
    found = []
    for path in sorted(directory.glob(f"{kind}-*")):
        data = path.read_bytes()
        found.append(array("q", data[: len(data) // 8 * 8]))
    return found


def latest(directory: Path, kind: str) -> Iterator[tuple[str, int]]:
    """Each child that took any ids of that kind, and its last one so far."""
    for path in directory.glob(f"{kind}-*"):
        whole = path.stat().st_size // 8 * 8
        if whole:
            with path.open("rb") as diary:
                diary.seek(whole - 8)
                yield path.name, array("q", diary.read(8))[0]


def assert_no_repeats(diaries: list[array[int]]) -> int:
    """I1 and I2: no id came twice, and each child's rose; returns how many there were."""
    for diary in diaries:
        assert all(one < following for one, following in pairwise(diary))
    ids = sorted(chain.from_iterable(diaries))
    assert ids, "nothing was taken"
    assert all(one < following for one, following in pairwise(ids)), "an id came twice"
    return len(ids)
