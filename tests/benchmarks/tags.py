"""100,000 tags in one process: memory for each, and finding one of them."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator
from functools import partial
from time import perf_counter_ns
from typing import Protocol

from django_idgen.core.loader import inline_loader

from .bars import Row, at_most, paired
from .generators import allocator
from .project import configure
from .timing import quiet_gc

TAGS = 100_000
BUSY = 100
ROUNDS = 11


class Bare(dict[str, object]):
    """Makes what it lacks, too: CPython is quicker only for a dict that does not."""

    def __missing__(self, tag: str) -> object:
        raise KeyError(tag)


class Tags(Protocol):
    def __getitem__(self, tag: str, /) -> object: ...


def rows() -> Iterator[Row]:
    configure()
    from django_idgen.process.maps import SegmentMap

    names = [f"shop.tag_{number}" for number in range(TAGS)]
    segments = SegmentMap()
    tracemalloc.start()
    segments._allocator = allocator(1000, inline_loader())
    before = tracemalloc.get_traced_memory()[0]
    for name in names:
        segments[name].next_id()
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    note = "used once each; the tag's own text not counted"
    yield at_most("memory a tag, 100,000 tags", 1280, held / TAGS, "B", note)
    yield from _look_ups(segments, names)
    segments.close()


def _look_ups(segments: Tags, names: list[str]) -> Iterator[Row]:
    # Made in the order in which ours was, or its entries would lie in the order of the look-ups.
    bare = Bare({name: segments[name] for name in names})
    # In an order that no processor can foresee: its caches don't hold 100,000 tags.
    random.Random(7).shuffle(names)
    for picked, what in ((names, "all in turn, at random"), (names[:BUSY] * 1000, "100 busy ones")):
        with quiet_gc():
            looked_up = [partial(_look_up_ns, tags, picked) for tags in (bare, segments)]
            medians, ratios = paired(looked_up, ROUNDS)
        note = f"{medians[1]:.0f} against {medians[0]:.0f} ns of a dict with __missing__"
        yield at_most(f"look-up of a tag, 100,000 tags, {what}", 1.3, ratios[1], note=note)


def _look_up_ns(tags: Tags, names: list[str]) -> float:
    begun = perf_counter_ns()
    for name in names:
        tags[name]
    return (perf_counter_ns() - begun) / len(names)
