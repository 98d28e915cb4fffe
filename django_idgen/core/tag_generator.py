"""Generators of ``IDGEN["GENERATORS"]`` whose ids come from a tag, each with its own source.

All tags of ``segments`` share one source. Here each alias names its source:
several databases (Flickr's ticket servers), Redis (``INCRBY`` in blocks), a file of the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from .errors import SegmentExhausted
from .generator import HAS_GIL
from .loader import Loader
from .options import check_whole
from .segment import MAX_ID, STEP, Demand, Segment, check_tag
from .segment_generator import LockedSegmentGenerator, SegmentAllocator, SegmentGenerator
from .source import Source

_Base = SegmentGenerator if HAS_GIL else LockedSegmentGenerator


class TagGenerator(_Base):  # type: ignore[misc, valid-type]
    """Rising ids of ``tag``, the only tag of ``allocator``. Thread-safe.

    Raises as :class:`SegmentGenerator`.
    """

    __slots__ = ("_allocator",)
    default_source: ClassVar[str] = "django_idgen.sources.database.DatabaseSource"
    """The source if the settings name no ``SOURCE``."""
    may_pass_rows: ClassVar[bool] = True
    """Whether its ids may go past all ids that rows have."""

    def __init__(self, allocator: SegmentAllocator, *, tag: str) -> None:
        self._allocator = allocator
        super().__init__(check_tag(tag), allocator)

    @property
    def source(self) -> Source:
        """What grants its segments."""
        return self._allocator.source

    def close(self) -> None:
        """Give back what is left, and close the source. May be called twice."""
        super().close()
        self._allocator.close()

    def forget(self) -> None:
        """Drop what the child of a fork inherited."""
        self._allocator.forget()
        super().forget()


class SerialGenerator(TagGenerator):
    """Ids that no clock has a part in: the worker id on top, a counter of 53 bits below.

    As Bee's SerialUniqueId. ``worker`` (0 to 1023) keeps apart what shares no source, such as
    hosts with a file each: configure each host's own. The counters of all workers of ``tag``
    are apart even where they do share one.
    """

    __slots__ = ()
    default_source = "django_idgen.sources.file.FileSource"
    may_pass_rows = False  # the rows of a higher worker are above all its ids

    def __init__(self, allocator: SegmentAllocator, *, tag: str, worker: int = 0) -> None:
        check_whole("worker", worker, least=0, most=(1 << WORKER_BITS) - 1)
        allocator.source = _Below(allocator.source, worker)
        super().__init__(allocator, tag=tag)


WORKER_BITS = 10
COUNTER_BITS = 53


class _Below(Source):
    """The ids of ``source`` below the bits of ``worker``."""

    def __init__(self, source: Source, worker: int) -> None:
        self._source = source
        self._worker = worker
        self._base = worker << COUNTER_BITS

    @property
    def loader(self) -> Loader:
        return self._source.loader

    def fetch(self, tag: str, *, floor: int = 0, demand: Demand = STEP) -> Segment:
        granted = demand.granted
        below = replace(demand, granted=None if granted is None else granted - self._base)
        found = self._source.fetch(self._tag(tag), floor=max(floor - self._base, 0), demand=below)
        end = 1 << COUNTER_BITS
        if found.start >= end:
            raise SegmentExhausted(
                f"The counter of worker {self._worker} of tag {tag!r} has reached 2**53-1. Give "
                "this process another 'worker'."
            )
        start, stop = found.start + self._base, min(found.stop, end) + self._base
        return Segment(tag, start, min(stop, MAX_ID + 1), found.step, found.delta)

    def give_back(self, tag: str, ranges: Sequence[range]) -> None:
        below = [range(r.start - self._base, r.stop - self._base, r.step) for r in ranges]
        self._source.give_back(self._tag(tag), below)

    def probes(self) -> Mapping[str, Callable[[], None]]:
        return self._source.probes()

    def abandon(self) -> None:
        self._source.abandon()

    def close(self) -> None:
        self._source.close()

    def _tag(self, tag: str) -> str:
        return f"{tag}.{self._worker}"
