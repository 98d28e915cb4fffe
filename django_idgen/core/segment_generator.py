"""Ids out of segments: rising integers of a tag, most of them without asking anyone.

A generator walks the segment it holds as a few iterators: the first 10 %, whose
end starts the load of the next segment, then the rest. Taking an id is one C
call on a range iterator, which is atomic under the GIL. All else is the slow
path, which runs when such an iterator ends: :mod:`.segment_waits`.
"""

from __future__ import annotations

from bisect import bisect_right
from types import TracebackType

from .counts import check_count
from .segment_loads import Load, Services
from .segment_stats import SegmentStats
from .segment_waits import TagWaits

__all__ = ["LockedSegmentGenerator", "SegmentGenerator", "SegmentStats"]


class SegmentGenerator(TagWaits):
    """Rising ids of one tag. Safe to share between threads; the allocator makes it.

    Giving ids raises :class:`SegmentUnavailable` (none could be had within
    the allocator's timeout; the cause is chained), and at once
    :class:`TagPaused`, :class:`SegmentExhausted`, :class:`InvalidTag`,
    :class:`ConfigurationError` or :class:`GeneratorClosed`.
    """

    __slots__ = ("__weakref__", "_seen", "has_left", "looked_at")

    def __init__(self, tag: str, services: Services, floor: int = 0) -> None:
        super().__init__(tag, services, floor)
        self._seen = 0
        self.has_left = False
        """Whether the allocator has dropped it, as nobody used it."""
        self.looked_at = services.clock.stopwatch()
        """When the allocator last looked whether it is used."""

    def next_id(self) -> int:
        """The next id, 1 to 2**63-1, higher than all before it."""
        for value in self._ids:
            return value
        return self._take_slow(1)[0]

    def next_ids(self, n: int) -> list[int]:
        """``n`` ids (0 to 10,000,000), strictly rising, though not always consecutive.

        What is missing is asked for in one fetch. Raises :class:`TypeError` or
        :class:`ConfigurationError` (a :class:`ValueError`) for another ``n``.
        When it fails half-way, the ids that it had taken are lost.
        """
        ids = self._take(check_count(n))
        return ids if len(ids) == n else ids + self._take_slow(n - len(ids))

    async def anext_id(self) -> int:
        """As :meth:`next_id`, for coroutines: the event loop is never held up.

        One load serves all the tasks that wait. Under asyncio alone.
        """
        for value in self._ids:
            return value
        return (await self._take_in_loop(1))[0]

    async def anext_ids(self, n: int) -> list[int]:
        """As :meth:`next_ids`, for coroutines."""
        ids = self._take(check_count(n))
        return ids if len(ids) == n else ids + await self._take_in_loop(n - len(ids))

    def preload(self, timeout: float = 0.0) -> bool:
        """Load what is to be ahead, now: whether it is there.

        Waits up to ``timeout`` seconds for it (0: not at all), then raises
        :class:`SegmentUnavailable`; otherwise as for ids. Where loads run in
        the caller's thread, they do so here whatever the timeout.
        """
        deadline = self._services.clock.stopwatch() + timeout
        while not self._load_ahead(deadline):
            if self._services.clock.stopwatch() >= deadline:
                ahead = self._is_ahead()
                if timeout and not ahead:
                    raise self._unavailable(timeout) from self._error
                return ahead
        return True

    def clear(self) -> int:
        """Give back all ids that are held; the next one comes out of a new fetch.

        It is higher than all before it, as always. Returns how many were given back.
        """
        self._services.check_process()
        with self._lock:
            load = self._detach()
            ranges = self._take_back()
        if load is not None:
            load.finish()
        self._services.give_back(self.tag, ranges)
        return sum(map(len, ranges))

    def go_past(self, top: int) -> None:
        """Give no id up to ``top`` from now on: rows that came from elsewhere have them.

        What it holds is given back, but for those ids, unless all of it lies above.
        """
        self._services.check_process()
        with self._lock:
            if top < self._lowest_to_give():
                return
            self._loaded_past = top + 1
            load = self._detach()
            ranges = [ids[bisect_right(ids, top) :] for ids in self._take_back()]
        if load is not None:
            load.finish()
        self._services.give_back(self.tag, [ids for ids in ranges if ids])

    def stats(self) -> SegmentStats:
        """Counts and holdings; exact when no call is under way."""
        self._services.check_process()
        with self._lock:
            return SegmentStats(
                tag=self.tag,
                issued=self._issued(),
                loads=self._loads,
                waits=self._waits,
                failures=self._failures,
                remaining=self._remaining(),
                floor=self._floor,
                current=self._current,
                held=(*filter(None, [self._current]), *self._chain.segments),
                ahead=len(self._chain.segments),
                distance=self._chain.distance,
                times=self._chain.times,
                hungers=self._chain.hungers,
                given_back=self._given_back,
            )

    @property
    def floor(self) -> int:
        """End, exclusive, of the highest segment ever granted; 0 if there was none."""
        return self._floor

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Refuse all further calls, and give back what is left; those that wait fail, too.

        May be called twice.
        """
        self.leave()

    def leave(self) -> Load | None:
        """Close: the load under way, if any, whose answer will go back when it comes."""
        self._services.check_process()
        with self._lock:
            self._closed = True
            load = self._detach()
            ranges = self._take_back()
        if load is not None:
            load.finish()
        self._services.give_back(self.tag, ranges)
        return load if load is not None and load.began is not None else None

    def forget(self) -> None:
        """Drop all segments and counts, but not the floor, as the child of a fork must.

        The answer of a load that is under way will be ignored. Not to be called
        while other threads use the generator.
        """
        self._forget_loads()
        self._drop()
        self._opened = self._waits = self._seen = 0

    # --- for the allocator, which knows when to look -----------------------------

    def tail_if_idle(self) -> list[range] | None:
        """What it held, if no id was taken since the last look; else ``None``.

        It then counts as left: whoever still has it may go on, by a new fetch.
        """
        with self._lock:
            # What was just loaded is what somebody waits for, but has not taken yet.
            used = self._issued() + self._loads
            if used != self._seen or self._pending is not None:
                self._seen = used
                return None
            self.has_left = True
            return self._take_back()

    def __enter__(self) -> SegmentGenerator:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of tag {self.tag!r}>"


class LockedSegmentGenerator(SegmentGenerator):
    """The same where there is no GIL: two threads could read one value of an iterator."""

    __slots__ = ()

    def next_id(self) -> int:
        self._services.check_process()  # or the lock may be one that no one will release
        with self._lock:
            for value in self._ids:
                return value
        return self._take_slow(1)[0]

    async def anext_id(self) -> int:
        ids = self._take(1)
        return (ids or await self._take_in_loop(1))[0]

    def _take(self, count: int) -> list[int]:
        self._services.check_process()
        with self._lock:
            return super()._take(count)
