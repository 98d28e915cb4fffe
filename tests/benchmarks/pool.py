"""Segments through a pool in Redis, the source behind it being one of 50 ms a fetch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from secrets import token_hex

from django_idgen.contrib.bench.targets import Peer
from django_idgen.core.loader import Loader
from django_idgen.core.segment_generator import SegmentAllocator
from tests import servers

from .bars import Row, Skipped, at_most, paired
from .project import REDIS, configure
from .slow import SlowSource, measured
from .timing import call_ns, id_ns

ROUNDS = 101
SINGLE_CALLS = 10_000
BATCHES = 200
STOCK = 20_000_000


class OwnedSource(SlowSource):
    """Says whose its ids are, as a source behind a pool has to."""

    can_be_pooled = True

    def __init__(self, step: int) -> None:
        super().__init__(step)
        self._loader = Loader("bench")
        self._owner = f"benchmark-{token_hex(8)}"

    @property
    def loader(self) -> Loader:
        return self._loader

    def owner(self, tag: str, *, max_age: float = 0.0) -> str:
        return self._owner


def rows() -> Iterator[Row]:
    if not servers.is_open("redis"):
        raise Skipped(f"no Redis server at {servers.REDIS['redis']}")
    configure()
    yield from _single()
    yield from _slowly()


@contextmanager
def _pooled(step: int) -> Iterator[SegmentAllocator]:
    """An allocator whose pool is full, and is emptied at the end."""
    from django_idgen.sources.pool.source import PoolSource

    source = PoolSource(alias=REDIS, source=OwnedSource(step))
    source.refill("bench", STOCK)
    allocator = SegmentAllocator(source, source.loader)
    try:
        yield allocator
    finally:
        source.clear(["bench"])
        allocator.close()


def _single() -> Iterator[Row]:
    with _pooled(1_000_000) as allocator:
        ours = allocator.generator("bench")
        ours.next_id()
        sources = [Peer("count"), ours]
        medians, ratios = paired([partial(id_ns, each, SINGLE_CALLS) for each in sources], ROUNDS)
        note = f"{medians[1]:.1f} against {medians[0]:.1f} ns"
        yield at_most("segment next_id() with a pool, against count", 1.1, ratios[1], note=note)
        batch = partial(call_ns, partial(ours.next_ids, 1000), BATCHES)
        ((spent,), _) = paired([batch], ROUNDS // 10)
        what = "segment next_ids(1000) with a pool"
        yield at_most(what, 45, spent / 1000, "ns", "this machine's; absolute")


def _slowly() -> Iterator[Row]:
    with _pooled(1000) as allocator:
        yield from measured("with a pool, 50 ms a fetch", allocator.generator("bench"))
