"""What earlier systems say of themselves, measured in the same way here.

finger-mark puts a million ids into a set in 701 ms, where UUIDs as strings take 3171 ms. Bee counts
100 million serial ids, taken as ranges; a counter of the standard library is the peer here.
"""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count, islice
from tempfile import TemporaryDirectory

from django_idgen.core.segment_generator import SegmentAllocator
from django_idgen.core.tag_generator import COUNTER_BITS, SerialGenerator
from django_idgen.sources.file import FileSource

from .bars import Row, at_most, paired
from .generators import snowflake

MILLION = 1_000_000
SERIALS = 100_000_000
ROUNDS = 5


def rows() -> Iterator[Row]:
    yield from _set()
    yield from _serial()


def _set() -> Iterator[Row]:
    def ours() -> float:
        with snowflake(max_ahead=1.0) as made:
            return _seconds(lambda: len({made.next_id() for _ in range(MILLION)}))

    def uuids() -> float:
        return _seconds(lambda: len({str(uuid.uuid4()) for _ in range(MILLION)}))

    medians, ratios = paired([uuids, ours], ROUNDS)
    note = f"{medians[1] * 1e3:.0f} against {medians[0] * 1e3:.0f} ms"
    yield at_most("1 M ids into a set, against UUIDs", 701 / 3171, ratios[1], note=note)


def _serial() -> Iterator[Row]:
    with TemporaryDirectory() as directory:
        source = FileSource(directory=directory, default_step=10 * MILLION)
        with SerialGenerator(SegmentAllocator(source, source.loader), tag="t", worker=1) as made:
            made.next_id()

            def ours() -> None:
                for _ in range(SERIALS // (10 * MILLION)):
                    for ids in made.next_ranges(10 * MILLION):
                        deque(ids, maxlen=0)

            def counted() -> None:
                deque(islice(count(1 << COUNTER_BITS), SERIALS), maxlen=0)

            jobs = [lambda: _seconds(counted), lambda: _seconds(ours)]
            medians, ratios = paired(jobs, ROUNDS)
    note = f"{medians[1]:.2f} against {medians[0]:.2f} s"
    yield at_most("100 M serial ids as ranges, against count", 1.0, ratios[1], note=note)


def _seconds(job: Callable[[], object]) -> float:
    began = time.perf_counter()
    job()
    return time.perf_counter() - began
