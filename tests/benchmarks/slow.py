"""Segments of a database that takes 50 ms a fetch, at 100,000 ids a second: who waits?

The tag starts with its row's step of 1000, a hundredth of a second's worth. What is
measured is the time of each call once segments have followed the consumption.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterator

from django_idgen.contrib.bench.report import timer_ns
from django_idgen.core.loader import Loader
from django_idgen.core.segment import STEP, Demand, Segment
from django_idgen.core.segment_generator import SegmentAllocator, SegmentGenerator
from django_idgen.sources.memory import MemorySource

from .bars import Row, Skipped, at_most
from .timing import quiet_gc

FETCH = 0.05
"""Seconds that a fetch takes."""
PAUSE_NS = 10_000
"""Nanoseconds from one call to the next."""
WARM_UP = 300_000
CALLS = 1_000_000
LATE = 0.5
"""The part of the calls that may come late, the processor being elsewhere, and still count."""


class SlowSource(MemorySource):
    """Ids that take a while, as from a database far away. Waiting holds no lock of Python's."""

    def fetch(self, tag: str, *, floor: int = 0, demand: Demand = STEP) -> Segment:
        time.sleep(FETCH)
        return super().fetch(tag, floor=floor, demand=demand)


def rows() -> Iterator[Row]:
    allocator = SegmentAllocator(SlowSource(1000), Loader("bench"))
    with allocator.generator("bench") as made:
        yield from measured("50 ms a fetch, 100,000 ids/s", made)
    allocator.close()


def measured(what: str, made: SegmentGenerator) -> Iterator[Row]:
    """The rows of ``made``, which was used for nothing before."""
    made.next_id()
    _paced(made, WARM_UP)
    waits = made.stats().waits
    with quiet_gc():
        spans = sorted(_paced(made, CALLS))
    waited = made.stats().waits - waits
    cost = timer_ns()
    p50, p999 = (spans[int(len(spans) * part)] - cost for part in (0.5, 0.999))
    note = f"median {p50} ns"
    yield at_most(f"segment next_id(), {what}: p99.9", 20, p999 / 1e3, "µs", note)
    yield at_most("the same: callers who waited", 0, waited, "", f"of {CALLS:,}")


def _paced(made: SegmentGenerator, calls: int) -> array[int]:
    """The nanoseconds of each of ``calls``, which begin 10 µs apart. Raises :class:`Skipped`."""
    clock = time.perf_counter_ns
    spans = array("q", bytes(8 * calls))
    due, late = clock(), 0
    for index in range(calls):
        due += PAUSE_NS
        begun = clock()
        if begun > due + PAUSE_NS:
            late += 1
            due = begun
        while begun < due:
            begun = clock()
        made.next_id()
        spans[index] = clock() - begun
    if late > LATE * calls:
        raise Skipped("this machine can't keep up with 100,000 calls a second")
    return spans
