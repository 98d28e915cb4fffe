"""Ids out of segments: rising integers of a tag, most of them without asking anyone.

A generator walks the segment it holds as two iterators: the first 10 %, whose
end starts the load of the next segment, then the rest. Taking an id is one C
call on a range iterator, which is atomic under the GIL. All else is the slow
path, which runs when such an iterator ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from operator import length_hint
from types import TracebackType

from .counts import check_count
from .errors import GeneratorClosed, SegmentUnavailable
from .segment import Segment
from .segment_loads import FINAL_ERRORS, Load, Services, TagLoads

__all__ = ["LockedSegmentGenerator", "SegmentGenerator", "SegmentStats"]


@dataclass(frozen=True, slots=True)
class SegmentStats:
    """A generator at one moment. Its counts are those of this process."""

    tag: str
    issued: int
    """Ids given out."""
    loads: int
    """Segments granted."""
    waits: int
    """Calls that found nothing left and had to wait for a load."""
    failures: int
    """Loads that failed, and segments that were refused."""
    remaining: int
    """Ids held and not given out yet."""
    floor: int
    """End, exclusive, of the highest segment ever granted; 0 if there was none."""
    current: Segment | None
    """The segment that ids are taken from."""


class SegmentGenerator(TagLoads):
    """Rising ids of one tag. Safe to share between threads; the allocator makes it.

    Giving ids raises :class:`~.errors.SegmentUnavailable` (none could be had within
    the allocator's timeout; the cause is chained), and at once
    :class:`~.errors.SegmentExhausted`, :class:`~.errors.InvalidTag`,
    :class:`~.errors.ConfigurationError` or :class:`~.errors.GeneratorClosed`.
    """

    __slots__ = ("__weakref__", "_closed", "_current", "_ids", "_opened", "_rest", "_waits")

    def __init__(self, tag: str, services: Services) -> None:
        super().__init__(tag, services)
        self._closed = False
        self._drop()
        self._opened = self._waits = 0

    def next_id(self) -> int:
        """The next id, 1 to 2**63-1, higher than all before it."""
        for value in self._ids:
            return value
        return self._take_slow(1)[0]

    def next_ids(self, n: int) -> list[int]:
        """``n`` ids (0 to 10,000,000), strictly rising, though not always consecutive.

        Raises :class:`TypeError` or :class:`~.errors.ConfigurationError` (a
        :class:`ValueError`) for another ``n``. When it fails half-way, the ids
        that it had taken are lost.
        """
        ids = self._take(check_count(n))
        while len(ids) < n:
            ids += self._take_slow(n - len(ids))
        return ids

    def stats(self) -> SegmentStats:
        """Counts and holdings; exact when no call is under way."""
        self._services.check_process()
        with self._lock:
            left = length_hint(self._ids)
            behind = len(self._rest) + (len(self._next.ids()) if self._next else 0)
            return SegmentStats(
                tag=self.tag,
                issued=self._opened - left,
                loads=self._loads,
                waits=self._waits,
                failures=self._failures,
                remaining=left + behind,
                floor=self._floor,
                current=self._current,
            )

    def close(self) -> None:
        """Drop what is left and refuse all further calls; those that wait fail, too.

        May be called twice.
        """
        self._services.check_process()
        with self._lock:
            self._closed = True
            self._opened -= length_hint(self._ids)
            load, self._pending = self._pending, None
            self._next = None
            self._drop()
        if load is not None:
            load.done.set()

    def forget(self) -> None:
        """Drop all segments and counts, but not the floor, as the child of a fork must.

        The answer of a load that is under way will be ignored. Not to be called
        while other threads use the generator.
        """
        self._forget_loads()
        self._drop()
        self._opened = self._waits = 0

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

    def _drop(self) -> None:
        self._ids: Iterator[int] = iter(range(0))
        self._rest = range(0)
        self._current: Segment | None = None

    def _take(self, count: int) -> list[int]:
        return list(islice(self._ids, count))

    # --- the slow path: taking and waiting, without the lock -----------------

    def _take_slow(self, count: int) -> list[int]:
        """1 to ``count`` ids, after waiting for them if need be."""
        clock = self._services.clock
        began = clock.stopwatch()
        deadline = began + self._services.timeout
        ids, load = self._advance(count, deadline)
        if ids:
            return ids
        try:
            while not ids:
                self._wait(load, deadline)
                ids, load = self._advance(count, deadline)
        finally:
            with self._lock:
                self._waits += 1
            seconds = clock.stopwatch() - began
            self._services.on_event("segment_waited", tag=self.tag, seconds=seconds)
        return ids

    def _advance(self, count: int, deadline: float) -> tuple[list[int], Load | None]:
        """What there is of ``count`` ids; if nothing, the load to wait for.

        Without ids and without a load there is a pause to keep, or the deadline is past.
        """
        while True:
            self._services.check_process()
            now = self._services.clock.stopwatch()
            with self._lock:
                ready = self._open_part()
                load = self._arm(now) if self._load_is_due(ready, now < deadline) else None
            if load is not None and load.began is None:
                # Each that waits submits it again: it may stand behind the preloads of
                # other tags, or the one who armed it was interrupted before submitting.
                self._submit(load, urgent=not ready)
            ids = self._take(count)
            if ids or not ready:
                return ids, load

    def _wait(self, load: Load | None, deadline: float) -> None:
        clock = self._services.clock
        now = clock.stopwatch()
        left = max(deadline - now, 0.0)
        if load is None and left:
            clock.sleep(min(left, max(self._retry_at - now, 0.0)))
        elif load is not None and load.done.wait(left):
            if isinstance(load.error, FINAL_ERRORS) and not self._has_ids():
                raise load.error
        elif not self._has_ids():
            raise self._unavailable() from self._error

    def _unavailable(self) -> SegmentUnavailable:
        error = self._error
        reason = "the load is still under way" if error is None else f"the last failure: {error}"
        return SegmentUnavailable(
            f"No segment of tag {self.tag!r} could be had within {self._services.timeout:g} s "
            f"({reason}). Check that the segment source answers, raise the tag's step so that "
            f"segments last longer, or raise the timeout. The next call tries again."
        )

    def _has_ids(self) -> bool:
        with self._lock:
            return self._open_part()

    # --- the segment's parts, with the lock held -----------------------------

    def _open_part(self) -> bool:
        """Whether there are ids to take, the next part being opened if need be."""
        if self._closed or self._services.closed:
            raise GeneratorClosed(
                f"The generator of tag {self.tag!r} was closed. Take its ids before that, or "
                f"make a new one."
            )
        if length_hint(self._ids):
            return True  # another thread was here first
        if self._rest:
            self._open(len(self._rest))
        elif self._next is not None:
            self._current, self._next = self._next, None
            self._rest = self._current.ids()
            self._open(self._services.preload_mark(len(self._rest)))
        else:
            return False
        return True

    def _open(self, count: int) -> None:
        part, self._rest = self._rest[:count], self._rest[count:]
        self._opened += count
        self._ids = iter(part)

    def _load_is_due(self, ready: bool, in_time: bool) -> bool:
        # A caller past its deadline takes what there is, and starts nothing new.
        preload = self._services.loader.background and not self._rest
        return preload if ready else in_time


class LockedSegmentGenerator(SegmentGenerator):
    """The same where there is no GIL: two threads could read one value of an iterator."""

    __slots__ = ()

    def next_id(self) -> int:
        self._services.check_process()  # or the lock may be one that no one will release
        with self._lock:
            for value in self._ids:
                return value
        return self._take_slow(1)[0]

    def _take(self, count: int) -> list[int]:
        self._services.check_process()
        with self._lock:
            return super()._take(count)
