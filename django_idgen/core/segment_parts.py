"""Walking a segment: part after part, each an iterator that ids are taken from."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from operator import length_hint
from typing import Final

from .errors import GeneratorClosed
from .segment import Segment
from .segment_loads import Load, Services, TagLoads
from .tails import CHUNK, drained, joined

__all__ = ["TagParts"]

_SHARE: Final = 8
"""While too little is ahead, the rest is walked in such shares of what is left of it, so
that a preload that failed is tried again well before the end."""


class TagParts(TagLoads):
    """The current segment of a tag: the part that is open, and the rest.

    The first part ends at the preload mark. None is longer than can be drained in
    a millisecond or so.
    """

    __slots__ = ("_before_mark", "_closed", "_current", "_ids", "_opened", "_rest", "_waits")

    def __init__(self, tag: str, services: Services, floor: int = 0) -> None:
        super().__init__(tag, services, floor)
        self._closed = False
        self._drop()
        self._opened = self._waits = 0

    def _drop(self) -> None:
        self._ids: Iterator[int] = iter(range(0))
        self._rest = range(0)
        self._before_mark = 0
        self._current: Segment | None = None

    def _take(self, count: int) -> list[int]:
        return list(islice(self._ids, count))

    # --- with the lock held ----------------------------------------------------

    def _issued(self) -> int:
        return self._opened - length_hint(self._ids)

    def _remaining(self) -> int:
        ahead = sum(len(segment.ids()) for segment in self._chain.segments)
        return length_hint(self._ids) + len(self._rest) + ahead

    def _lowest_to_give(self) -> int:
        """No id below will be given; it may lie somewhat lower than the next one."""
        if length_hint(self._ids) or self._rest:
            return 0 if self._current is None else self._current.start
        ahead = self._chain.segments
        return ahead[0].start if ahead else self.lowest

    def _refuse_if_closed(self) -> None:
        if self._closed or self._services.closed:
            raise GeneratorClosed(
                f"The generator of tag {self.tag!r} was closed. Take its ids before that, or "
                f"make a new one."
            )

    def _open_part(self, now: float) -> bool:
        """Whether there are ids to take, the next part being opened if need be."""
        self._refuse_if_closed()
        if length_hint(self._ids):
            return True  # another thread was here first
        if not self._rest and not self._open_segment(now):
            return False
        part = self._part_length()
        self._ids = iter(self._rest[:part])
        self._rest = self._rest[part:]
        self._opened += part
        return True

    def _open_segment(self, now: float) -> bool:
        self._chain.use_up(now, self._services.growth)
        segment = self._chain.open_next(now)
        if segment is None:
            return False
        self._current, self._rest = segment, segment.ids()
        self._before_mark = self._services.preload_mark(len(self._rest))
        self._past_mark = False
        return True

    def _part_length(self) -> int:
        if self._before_mark:
            part = min(self._before_mark, CHUNK)
            self._before_mark -= part
            return part
        self._past_mark = True
        left = len(self._rest)
        return min(max(1, left // _SHARE) if self._is_short() else left, CHUNK)

    def _load_due(self, ready: bool, now: float, in_time: bool) -> Load | None:
        if ready:
            return self._arm_preload(now)
        if self._services.loader.background:
            self._chain.hunger(now, self._step, self._services.growth)
        # A caller past its deadline takes what there is, and starts nothing new.
        return self._arm(now) if in_time else None

    def _take_back(self) -> list[range]:
        """All that is held, taken away from callers: rising ranges."""
        delta = 1 if self._current is None else self._current.delta
        open_part = drained(self._ids, delta)
        self._opened -= sum(map(len, open_part))
        ahead = [segment.ids() for segment in self._chain.segments]
        held = joined([*open_part, self._rest, *ahead])
        self._chain.reset()
        self._past_mark = False
        self._drop()
        self._given_back += sum(map(len, held))
        return held
