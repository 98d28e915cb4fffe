"""One id a call, in one thread, against peers.

Each result is thrown away, as :mod:`timeit` does. A round is short enough that
``max_ahead`` of a second is never used up: the layout is not the limit here.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

from django_idgen.contrib.bench.targets import Peer
from django_idgen.core.buffered import BufferedGenerator
from django_idgen.core.layout import parse_layout
from django_idgen.core.segment_generator import SegmentAllocator
from django_idgen.core.tag_generator import SerialGenerator
from django_idgen.leases.memory import MemoryLeases
from django_idgen.sources.file import FileSource
from tests.snowflake_tools import space_of

from .bars import Row, at_most, paired
from .generators import STEP, segment, snowflake
from .timing import call_ns, id_ns

ROUNDS = 151
CALLS = 10_000


def rows() -> Iterator[Row]:
    yield from _snowflake()
    yield from _segment()
    yield from _buffered()
    yield from _serial()


def _snowflake() -> Iterator[Row]:
    with snowflake(max_ahead=1.0) as ours:
        ours.next_id()
        others = ["uuid7", "snowflake-id"]
        sources = [ours, *map(Peer, others)]
        medians, ratios = paired([partial(id_ns, each, CALLS) for each in sources], ROUNDS)
    for name, bar, median, ratio in zip(others, (1.0, 0.4), medians[1:], ratios[1:], strict=True):
        what = f"snowflake next_id(), max_ahead 1 s, against {name}"
        yield at_most(what, bar, 1 / ratio, note=f"{medians[0]:.1f} against {median:.1f} ns")


def _segment() -> Iterator[Row]:
    with segment() as ours:
        yield from _against_count("segment", ours)


def _buffered() -> Iterator[Row]:
    # A tick that is not used up in the rounds: the layout is not the limit here.
    layout = parse_layout({"time": 30, "worker": 3, "sequence": 30, "tick": 1})
    with BufferedGenerator(layout, MemoryLeases(space_of(layout))) as ours:
        yield from _against_count("buffered", ours)


def _serial() -> Iterator[Row]:
    with TemporaryDirectory() as directory:
        source = FileSource(directory=directory, default_step=STEP)
        with SerialGenerator(SegmentAllocator(source, source.loader), tag="t", worker=1) as ours:
            yield from _against_count("serial", ours)


def _against_count(what: str, ours: Any) -> Iterator[Row]:
    """Looked up for each id, and kept by its caller: against the same of ``count``."""
    ours.next_id()
    count = Peer("count")
    looked_up = [partial(id_ns, each, CALLS) for each in (count, ours)]
    kept = [partial(call_ns, each.next_id, CALLS) for each in (count, ours)]
    for how, jobs in (("", looked_up), (" that was kept", kept)):
        medians, ratios = paired(jobs, ROUNDS)
        what_of = f"{what} next_id(){how} against itertools.count().__next__"
        note = f"{medians[1]:.1f} against {medians[0]:.1f} ns"
        yield at_most(what_of, 1.1, ratios[1], note=note)
