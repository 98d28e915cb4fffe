"""Ids out of segments: rising integers of a tag, most of them without any I/O.

A :class:`SegmentAllocator` has the generators of all tags of a source, and what they share.

A generator walks the segment that it holds as a few iterators: the first 10 %, whose
end starts the load of the next segment, then the rest. Taking an id is one C
call on a range iterator, which is atomic under the GIL. All else is the slow path, which runs
when an iterator ends.

:class:`.Pace` decides how long segments are. One is loaded ahead.
A :class:`Load` is one fetch: never two of a tag at a time, and always another after a failure.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import sys
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from operator import length_hint
from typing import Final, TypeVar
from weakref import WeakValueDictionary

from .clock import SYSTEM_CLOCK, Clock
from .errors import (
    ConfigurationError,
    GeneratorClosed,
    InvalidTag,
    SegmentExhausted,
    SegmentRefused,
    SegmentUnavailable,
    TagPaused,
)
from .events import Emit, ignore
from .generator import HAS_GIL, MAX_BATCH, Generator, Watch, check_count, drop, walk
from .loader import Flag, Loader, PerProcess, is_prefork
from .pace import Growth, Pace
from .segment import (
    CHUNK,
    MAX_ID,
    NO_TABLES,
    Demand,
    Segment,
    check_tag,
    drained,
    joined,
    runs,
)
from .source import Source, TablesUnseen

T = TypeVar("T")
logger = logging.getLogger("django_idgen")
REFUSALS: Final = 3
"""Segments in a row that are refused before the load fails."""
FIRST_BACKOFF: Final = 0.01
LONGEST_BACKOFF: Final = 0.25
REFUSED_BACKOFF: Final = 0.02
"""Long enough not to keep the source busy, short enough to notice soon that a tag is resumed."""
STALE_AFTER: Final = 60.0
"""Seconds after which a load without an answer, and its late answer, are given up."""

REFUSED_ERRORS: Final = (TagPaused, SegmentRefused)
"""Refusals that an operator may lift at any time, but waiting does not."""
FINAL_ERRORS: Final = (
    SegmentExhausted,
    InvalidTag,
    ConfigurationError,
    TablesUnseen,
    *REFUSED_ERRORS,
)
"""Errors that waiting does not resolve: raised at once."""


class Load:
    """One fetch. A caller that has nothing left waits for ``done``."""

    __slots__ = (
        "answered",
        "at_least",
        "began",
        "done",
        "error",
        "floor",
        "given_back",
        "loops",
        "sent",
    )

    def __init__(self) -> None:
        self.at_least = 0
        """Ids that callers wait for."""
        self.began: float | None = None
        self.floor = MAX_ID
        """The lowest id that its answer may have, once it has begun."""
        self.done = Flag()
        self.answered = Flag()
        """Set once a load that has begun has used its answer or given it back."""
        self.error: BaseException | None = None
        self.sent = False
        """Whether the loader has got it."""
        self.given_back = False
        """Whether its answer goes back to the source."""
        self.loops: dict[asyncio.AbstractEventLoop, asyncio.Future[None]] = {}
        """Event loops with tasks that wait, and what is completed to wake all of one loop."""

    def need(self, count: int) -> None:
        """Add a caller that waits for ``count`` ids. Call it with the tag's lock held."""
        self.at_least = min(self.at_least + count, MAX_BATCH)

    def is_stale(self, now: float) -> bool:
        """Whether its answer is given up."""
        return self.began is not None and now - self.began > STALE_AFTER

    def finish(self) -> None:
        """Wake all waiters. May be called twice."""
        self.done.set()
        while self.loops:
            loop, woken = self.loops.popitem()
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(woken.set_result, None)

    async def done_within(self, seconds: float) -> bool:
        """As ``done.wait(seconds)``, for a task."""
        loop = asyncio.get_running_loop()
        woken = self.loops.setdefault(loop, loop.create_future())
        if not self.done.is_set():
            await asyncio.wait([woken], timeout=seconds)
        return self.done.is_set()


@dataclass(frozen=True, slots=True)
class SegmentStats:
    """The state and the counts of a generator in this process."""

    tag: str
    issued: int
    """Ids given out."""
    loads: int
    """Segments granted."""
    waits: int
    """Calls that found nothing left and had to wait for a load."""
    failures: int
    """Failed loads and refused segments."""
    remaining: int
    """Ids held and not yet given out."""
    floor: int
    """The exclusive end of the highest segment ever granted; 0 if none."""
    current: Segment | None
    """The segment that ids come from."""
    held: tuple[Segment, ...]
    """The current segment and the next one, as far as they are loaded."""
    ahead: int
    """Segments loaded behind the current one: 0 or 1."""
    times: int
    """The length of the next segment in steps of the row."""
    given_back: int
    """Ids that were given back to the source."""


_SHARE: Final = 8
"""While nothing is ahead, the rest is walked in parts, each 1/_SHARE of what is left, so
that a failed preload is tried again well before the end."""


class SegmentGenerator(Generator):
    """Rising ids of one tag. Safe to share between threads; the allocator makes it.

    Giving ids raises :class:`SegmentUnavailable` (no ids within the allocator's timeout; the
    cause is chained), and at once :class:`TagPaused`, :class:`SegmentExhausted`,
    :class:`InvalidTag`, :class:`ConfigurationError` or :class:`GeneratorClosed`.

    The lock guards all state, and is never held during I/O. An answer counts only
    if its load is still the pending one: a late answer is a lost segment.
    """

    next_id: Callable[[], int]
    """The next id, 1 to 2**63-1, higher than all before it. Made by :func:`walk`, to be kept."""

    __slots__ = dict.fromkeys((
        "__weakref__", "_ahead", "_asked_at", "_backoff", "_before_mark", "_closed", "_current",
        "_error", "_failures", "_floor", "_given_back", "_ids", "_loaded_past", "_loads", "_lock",
        "_opened", "_pace", "_past_mark", "_pending", "_rest", "_retry_at", "_seen", "_services",
        "_step", "_tables", "_tables_seen", "_waits", "is_dropped", "looked_at", "tag", "watch",
    )) | {"next_id": "next_id() -> int\n\nThe next id, 1 to 2**63-1, higher than all before it."}  # fmt: skip  # noqa: E501

    def __init__(self, tag: str, services: SegmentAllocator, floor: int = 0) -> None:
        # Exactly a str: a member of an enum would hold on to its class.
        self.tag = str.__str__(check_tag(tag))
        self._services = services
        self._floor = floor
        self._loaded_past = 0
        """The exclusive end of the ids that rows from elsewhere have."""
        self.watch: Watch | None = services.watch_of(self)
        """Who looks at the tables that get the ids; None if there are none."""
        self._tables = self._tables_seen = NO_TABLES
        """Those of ``_tables`` whose rows are below all ids that it may still give."""
        self._closed = False
        self.is_dropped = False
        """Whether the allocator has dropped it as unused."""
        self.looked_at = services.clock.stopwatch()
        """When the allocator last looked whether it is used."""
        self.next_id = self._walk()
        self._start_over()

    def _walk(self) -> Callable[[], int]:
        return walk(self._services.pop_opened, self, self._open_next)

    def _start_over(self) -> None:
        # Nothing inherited is touched: no thread may be left to release its locks.
        self._lock = threading.Lock()
        self._pending: Load | None = None
        self._loads = self._failures = self._given_back = self._step = 0
        self._opened = self._waits = self._seen = 0
        self._backoff = self._retry_at = 0.0
        self._asked_at = -math.inf
        """When a caller last opened a part, or found that there is none."""
        self._error: BaseException | None = None
        self._drop()

    def next_ids(self, n: int) -> list[int]:
        """``n`` ids (0 to 10,000,000), strictly rising, though not always consecutive.

        One fetch gets all that is missing. Raises :class:`TypeError` or
        :class:`ConfigurationError` (a :class:`ValueError`) for another ``n``.
        If it fails half-way, the ids that it has taken are lost.
        """
        ids = self._take(check_count(n))
        return ids if len(ids) == n else ids + self._take_slow(n - len(ids))

    def next_ranges(self, n: int) -> list[range]:
        """``n`` ids as rising ranges: :meth:`next_ids` without making each of them.

        Raises as :meth:`next_ids`.
        """
        if is_prefork():
            ids = self.next_ids(n)
            return list(runs(ids, 1)) if ids else []
        found: list[range] = []
        missing = check_count(n)
        if self.watch is not None and self.watch.is_due():
            self.watch.find()
        while missing:
            # Where one has to wait, it is for one id; the load gets all that are missing.
            found += self._take_ranges(missing) or [
                range(one, one + 1) for one in self._take_slow(1, need=missing)
            ]
            missing = n - sum(map(len, found))
        return joined(found)

    async def anext_id(self) -> int:
        """As :meth:`next_id`, for coroutines of asyncio. Never blocks the event loop.

        One load serves all the tasks that wait.
        """
        for value in self._ids:
            return value
        return (await self._take_in_loop(1))[0]

    async def anext_ids(self, n: int) -> list[int]:
        """As :meth:`next_ids`, for coroutines."""
        ids = self._take(check_count(n))
        return ids if len(ids) == n else ids + await self._take_in_loop(n - len(ids))

    def preload(self, timeout: float = 0.0) -> bool:
        """Begin to load the next segment, and return whether it is loaded.

        With a ``timeout`` (seconds) it waits for that, and raises :class:`SegmentUnavailable`
        instead of returning False. Also raises as :meth:`next_ids` does. Where loads run in
        the caller's thread, they do so here whatever the timeout.
        """
        return self._watched(lambda: self._preload(timeout))

    def _preload(self, timeout: float) -> bool:
        if is_prefork():
            return True  # nothing is held then
        deadline = self._services.clock.stopwatch() + timeout
        while not self._load_ahead(deadline):
            if self._services.clock.stopwatch() >= deadline:
                ahead = self._ahead is not None
                if timeout and not ahead:
                    raise self._unavailable(timeout) from self._error
                return ahead
        return True

    def clear(self) -> int:
        """Give back all ids that are held, and return how many. The next id needs a new fetch."""
        self._services.check_process()
        with self._lock:
            load = self._detach()
            ranges = self._take_back()
        if load is not None:
            load.finish()
        self._services.give_back(self.tag, ranges)
        return sum(map(len, ranges))

    def go_past(self, top: int) -> None:
        """Give no id up to ``top`` from now on: rows from elsewhere have them.

        Gives back the ids above ``top`` that are held, unless all of them are above it.
        """
        self._services.check_process()
        with self._lock:
            late = self._pending is not None and self._pending.floor <= top
            if top < self._lowest_to_give() and not late:
                return
            self._loaded_past = max(self._loaded_past, top + 1)
            load = self._detach()
            ranges = [ids[bisect_right(ids, top) :] for ids in self._take_back()]
        if load is not None:
            load.finish()
        self._services.give_back(self.tag, [ids for ids in ranges if ids])

    @property
    def tables_seen(self) -> frozenset[str]:
        """Tables whose rows are below all ids that it may still give."""
        return self._tables_seen

    def expect(self, tables: frozenset[str]) -> frozenset[str]:
        """Give only ids above the rows of ``tables``, each named by a key.

        Returns those that come too late: ids are held, or under way, which were taken without
        regard to them. Look at them, and call :meth:`pass_rows`, before an id is used there.
        """
        with self._lock:
            new = tables - self._tables
            if self._remaining() or self._pending is not None:
                return new
            self._tables |= new
            return NO_TABLES

    def pass_rows(self, tables: frozenset[str], top: int, *, for_all: bool = True) -> None:
        """Give no id up to ``top``, the highest in the rows of ``tables``.

        ``for_all``: whether other processes would find no higher one. The source stores it then.
        """
        self.go_past(top)
        with self._lock:
            if for_all:
                self._tables |= tables
                self._tables_seen |= tables
            else:
                self._tables -= tables

    def stats(self) -> SegmentStats:
        """The state and the counts; exact while no other call runs."""
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
                held=tuple(filter(None, (self._current, self._ahead))),
                ahead=0 if self._ahead is None else 1,
                times=self._pace.times,
                given_back=self._given_back,
            )

    @property
    def floor(self) -> int:
        """The exclusive end of the highest segment ever granted; 0 if none."""
        return self._floor

    @property
    def seconds_unused(self) -> float:
        """How long no caller has opened a part or found nothing left; infinite if none ever did.

        Ids of the open part may have been taken since.
        """
        return self._services.clock.stopwatch() - self._asked_at

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Refuse all further calls, including those that wait, and give back what is left.

        May be called twice.
        """
        self.leave()

    def leave(self) -> Load | None:
        """Close, and return the load under way, if any. Its answer will go back."""
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

        The answer of a load under way is ignored. Not thread-safe.
        """
        drop(self._ids)  # next_id may be on it
        self._start_over()

    # --- for the allocator ---------------------------------------------------------

    def tail_if_idle(self) -> list[range] | None:
        """The ids that it held, if none was taken since the last look; else ``None``.

        A caller that kept an idle generator can still use it: that fetches anew.
        """
        with self._lock:
            # A caller may wait for what was just loaded.
            used = self._issued() + self._loads
            if used != self._seen or self._pending is not None:
                self._seen = used
                return None
            self.is_dropped = True
            return self._take_back()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of tag {self.tag!r}>"

    # --- the open part of the current segment, which ends at the preload mark, and the rest ---

    def _drop(self) -> None:
        self._ids: Iterator[int] = iter(range(0))
        self._rest = range(0)
        self._before_mark = 0
        self._past_mark = True
        """Whether the current segment is past its preload mark, or there is none."""
        self._current: Segment | None = None
        self._ahead: Segment | None = None
        """The next segment, once it is loaded."""
        self._pace = Pace()

    def _take(self, count: int) -> list[int]:
        return list(islice(self._ids, count))

    def _take_ranges(self, count: int) -> list[range]:
        """Up to ``count`` ids from the open part, the rest and the next segment."""
        self._services.check_process()
        now = self._services.clock.stopwatch()
        with self._lock:
            self._refuse_if_closed()
            self._asked_at = now
            ids = list(islice(self._ids, count))
            delta = 1 if self._current is None else self._current.delta
            found = list(runs(ids, delta)) if ids else []
            missing = count - len(ids)
            while missing and (self._rest or self._open_segment(now)):
                found.append(self._rest[:missing])
                self._rest = self._rest[missing:]
                self._opened += len(found[-1])
                self._before_mark = max(0, self._before_mark - len(found[-1]))
                self._past_mark = not self._before_mark
                missing -= len(found[-1])
            load = self._arm_preload(now)
        if load is not None and load.began is None and not load.sent:
            self._submit(load, urgent=False)
        return found

    # --- with the lock held ----------------------------------------------------

    def _issued(self) -> int:
        return self._opened - length_hint(self._ids)

    def _remaining(self) -> int:
        ahead = range(0) if self._ahead is None else self._ahead.ids()
        return length_hint(self._ids) + len(self._rest) + len(ahead)

    def _lowest_to_give(self) -> int:
        """A lower bound of the next id."""
        if length_hint(self._ids) or self._rest:
            return 0 if self._current is None else self._current.start
        return self.lowest if self._ahead is None else self._ahead.start

    def _refuse_if_closed(self) -> None:
        if self._closed or self._services.closed:
            raise GeneratorClosed(f"The generator of tag {self.tag!r} is closed. Make a new one.")

    def _open_part(self, now: float) -> bool:
        """Open the next part if the open one is used up; whether there are ids to take."""
        self._refuse_if_closed()
        self._asked_at = now
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
        self._pace.use_up(now, self._services.growth)
        segment = self._ahead
        if segment is None:
            self._past_mark = True
            return False
        self._pace.open(segment, now)
        ids = segment.ids()
        mark = self._services.preload_mark(len(ids))
        # As in _accept().
        self._ahead, self._current, self._rest = None, segment, ids
        self._before_mark, self._past_mark = mark, False
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
            self._pace.wait(self._step, self._services.growth)
        # A caller past its deadline takes what is there, and starts no load.
        return self._arm(now) if in_time else None

    def _take_back(self) -> list[range]:
        """Take all held ids away from callers. Returns rising ranges."""
        delta = 1 if self._current is None else self._current.delta
        open_part = drained(self._ids, delta)
        self._opened -= sum(map(len, open_part))
        ahead = range(0) if self._ahead is None else self._ahead.ids()
        held = joined([*open_part, self._rest, ahead])
        self._drop()
        self._given_back += sum(map(len, held))
        return held

    # --- taking more than the open part has, and waiting for it --------------------------------

    def _open_next(self) -> int:
        """At the end of a part: the next id, or StopIteration for the part that is open now."""
        watch = self.watch
        may_open = watch is None or not watch.is_due()
        if length_hint(self._ids) or (may_open and self._opens_part()):
            self._services.opened[self] = self._ids
            raise StopIteration
        return self._take_slow(1)[0]

    def _opens_part(self) -> bool:
        """Open the next part, if it is loaded, and start the load that is due then."""
        self._services.check_process()
        now = self._services.clock.stopwatch()
        with self._lock:
            ready = self._open_part(now)
            load = self._arm_preload(now) if ready else None
        if load is not None and not load.sent:
            self._submit(load, urgent=False)
        return ready

    def _take_slow(self, count: int, need: int = 0) -> list[int]:
        """``count`` ids, in the calling thread. ``need``: how many to load, if more."""
        try:
            return self._watched(lambda: self._take_here(count, need))
        finally:
            if is_prefork():
                self.clear()

    def _take_here(self, count: int, need: int) -> list[int]:
        call = _Call(self, count, need)
        try:
            while call.lacks_ids():
                call.waited(self._pause(call.load, call.seconds()))
        finally:
            call.end()
        return call.ids

    def _watched(self, take: Callable[[], T]) -> T:
        """``take()``, after a look at the tables that get the ids, where that is due."""
        watch = self.watch
        if watch is None:
            return take()
        if watch.is_due():
            watch.find()
        while True:
            try:
                return take()
            except TablesUnseen as error:
                watch.look(error.tables)

    async def _take_in_loop(self, count: int) -> list[int]:
        """As :meth:`_take_slow`, without blocking the event loop."""
        watch = self.watch
        if is_prefork():
            return self._take_slow(count)
        if watch is None:
            return await self._take_there(count)
        if watch.is_due():
            await watch.in_thread(watch.find)
        while True:
            try:
                return await self._take_there(count)
            except TablesUnseen as error:
                await watch.in_thread(partial(watch.look, error.tables))

    async def _take_there(self, count: int) -> list[int]:
        call = _Call(self, count)
        try:
            while call.lacks_ids():
                call.waited(await self._pause_in_loop(call.load, call.seconds()))
        finally:
            call.end()
        return call.ids

    # --- shared by threads and coroutines ------------------------------------------

    def _advance(
        self, count: int, deadline: float, counted: Load | None, need: int
    ) -> tuple[list[int], Load | None]:
        """Up to ``count`` ids, and the load that will bring the others.

        Without ids and load, the caller must back off, or its deadline is past.
        ``counted``: the load that already counts this caller's need.
        """
        while True:
            self._services.check_process()
            now = self._services.clock.stopwatch()
            with self._lock:
                ready = self._open_part(now)
                load = self._load_due(ready, now, now < deadline)
                missing = max(count, need) - self._remaining() if load is not None else 0
                if load is not None and load is not counted and missing > 0:
                    load.need(missing)
                    counted = load
            if load is not None and ready and not load.sent:
                self._submit(load, urgent=False)
            ids = self._take(count)
            if ids or not ready:
                return ids, counted if ready else load

    def _patience(self) -> float:
        """Seconds that a caller waits: fewer once a load has failed."""
        services = self._services
        # The first load opens a connection and makes the tag, maybe also our tables.
        first = not self._loads and self._error is None and not services.troubled
        return services.first_timeout if first else services.timeout

    def _unavailable(self, seconds: float) -> SegmentUnavailable:
        error = self._error
        reason = "the load is still under way" if error is None else f"the last failure: {error}"
        # A larger step helps with a slow source only.
        step = " raise the tag's step so that segments last longer," if error is None else ""
        return SegmentUnavailable(
            f"No segment of tag {self.tag!r} arrived within {seconds:g} s "
            f"({reason}). Check that the segment source answers,{step} or raise the timeout. "
            f"The next call tries again."
        )

    def _has_ids(self) -> bool:
        with self._lock:
            return self._open_part(self._services.clock.stopwatch())

    def _report_wait(self, seconds: float) -> None:
        with self._lock:
            self._waits += 1
        self._services.on_event("segment_waited", tag=self.tag, seconds=seconds)

    # --- loads, with the lock held -------------------------------------------------

    @property
    def lowest(self) -> int:
        """The lowest id that it may be granted."""
        return max(self._floor, self._loaded_past)

    def _demand(self, load: Load) -> Demand:
        demand = self._pace.demand(load.at_least, self._step, self._services.growth)
        granted = self._floor if self._floor < self._loaded_past else None
        if granted is None and not self._tables:
            return demand
        return replace(demand, granted=granted, tables=self._tables, seen=self._tables_seen)

    def _arm(self, now: float) -> Load | None:
        """The load under way or a new one; None while backing off."""
        load = self._pending
        # A load that was interrupted at its end has its answer, and told no waiter.
        if load is not None and (load.answered.is_set() or load.is_stale(now)):
            self._pending = None
            load.finish()  # its waiters look again
            load = None
        if load is None and now >= self._retry_at:
            load = self._pending = Load()
        return load

    def _arm_preload(self, now: float) -> Load | None:
        """A load, if one is due and the loader has a thread."""
        wanted = self._services.loader.background and self._is_short()
        return self._arm(now) if wanted else None

    def _is_short(self) -> bool:
        """Whether to load the next segment."""
        return self._past_mark and self._ahead is None

    def _detach(self) -> Load | None:
        """Detach the load under way: its answer goes back. Finish it after releasing the lock."""
        load, self._pending = self._pending, None
        if load is not None:
            load.given_back = True
        return load

    # --- loads, without the lock -----------------------------------------------------

    def _submit(self, load: Load, *, urgent: bool) -> None:
        """Run ``load`` in the loader. Only the first of several calls counts."""
        self._services.loader.submit(partial(self._run, load), urgent=urgent)
        load.sent = True

    def _run(self, load: Load) -> None:
        stopwatch = self._services.clock.stopwatch
        began: float | None = None
        try:
            with self._lock:
                if load.began is not None or load is not self._pending:
                    return
                load.began = began = stopwatch()
                floor, demand = self.lowest, self._demand(load)
                load.floor = floor
            segment = self._fetch(floor, demand)
            if demand.tables:  # all that it may still get is above their rows
                with self._lock:
                    self._tables_seen |= demand.tables
            self._loaded(load, segment, began)
        except BaseException as error:  # perhaps an interrupt of this thread
            self._failed(load, error)
            if not isinstance(error, Exception):
                raise
        finally:
            if began is not None:
                load.answered.set()

    def _fetch(self, floor: int, demand: Demand) -> Segment:
        if demand.unseen and not self._services.source.knows_tables:
            raise TablesUnseen(self.tag, demand.unseen)
        for attempt in range(1, REFUSALS + 1):
            segment = self._services.source.fetch(self.tag, floor=floor, demand=demand)
            if segment.start >= floor and segment.tag == self.tag:
                break
            error = SegmentUnavailable(
                f"The source answered with segment [{segment.start}, {segment.stop}) of tag "
                f"{segment.tag!r}, but {floor} is the lowest id that this process may still get "
                f"of {self.tag!r}. The segment was refused, because its ids could repeat. Check "
                f"whether the source was flushed or restored, and raise its max_id past {floor}."
            )
            if attempt == REFUSALS:
                raise error
            self._report_failure(error)
        return segment

    def _loaded(self, load: Load, segment: Segment, began: float) -> None:
        now = self._services.clock.stopwatch()
        following = None
        with self._lock:
            pending = load is self._pending
            # A segment below the floor may have been granted again since.
            unwanted = not pending and load.given_back and segment.start >= self.lowest
            if pending:
                self._accept(segment)
                self._services.troubled = False
                following = self._arm_preload(now)
            elif unwanted:
                self._floor = segment.stop
                self._given_back += len(segment.ids())
        load.finish()
        if unwanted:
            self._services.give_back(self.tag, [segment.ids()])
        if pending:
            self._services.on_event(
                "segment_loaded", tag=self.tag, segment=segment, seconds=now - began
            )
            self._services.granted(self)
        if following is not None:
            self._submit(following, urgent=False)

    def _accept(self, segment: Segment) -> None:
        floor = max(self._floor, segment.stop)
        # From here on without a call, after which an interrupt could leave it half done.
        self._pending = None
        self._ahead, self._floor = segment, floor
        self._step = segment.step
        self._loads += 1
        self._backoff = self._retry_at = 0.0
        self._error = None

    def _failed(self, load: Load, error: BaseException) -> None:
        with self._lock:
            pending = load is self._pending
            known = isinstance(self._error, TagPaused)
            if pending:
                self._pending = None
                load.error = error
                if not isinstance(error, TablesUnseen):  # which is no failure
                    self._error = error
                    self._back_off_after(error)
        load.finish()
        if isinstance(error, TablesUnseen):
            return
        if pending and isinstance(error, TagPaused):
            # A pause is no failure, and is signalled once.
            if not known:
                self._services.on_event("segment_paused", tag=self.tag)
        elif pending:
            self._services.troubled = True
            self._report_failure(error)

    def _back_off_after(self, error: BaseException) -> None:
        # At most half the timeout, so that each waiting caller sees an attempt.
        longest = min(LONGEST_BACKOFF, self._services.timeout / 2)
        if isinstance(error, REFUSED_ERRORS):
            self._backoff = min(REFUSED_BACKOFF, longest)
        elif not isinstance(error, FINAL_ERRORS):
            self._backoff = min(self._backoff * 2 or FIRST_BACKOFF, longest)
        else:
            return
        self._retry_at = self._services.clock.stopwatch() + self._backoff

    def _report_failure(self, error: BaseException) -> None:
        with self._lock:
            self._failures += 1
        self._services.on_event("segment_load_failed", tag=self.tag, error=error)

    # --- threads -------------------------------------------------------------------

    def _pause(self, load: Load | None, seconds: float) -> bool:
        """Wait for ``load``, ``seconds`` at most; whether it is done."""
        if load is None:
            self._services.clock.sleep(seconds)
            return False
        self._ask_for(load)
        return load.done.wait(seconds)

    def _ask_for(self, load: Load) -> None:
        # Each waiter submits it again: it may be queued behind preloads of other tags, or the
        # thread that armed it was interrupted before submitting.
        if load.began is None:
            self._submit(load, urgent=True)

    def _load_ahead(self, deadline: float) -> bool:
        """Begin to load the next segment; whether it is loaded."""
        self._services.check_process()
        now = self._services.clock.stopwatch()
        with self._lock:
            self._refuse_if_closed()
            if self._ahead is not None:
                return True
            load = self._arm(now)
        if load is not None and load.began is None:
            self._submit(load, urgent=now < deadline)
        seconds = max(deadline - self._services.clock.stopwatch(), 0.0)
        if load is None:
            self._services.clock.sleep(min(seconds, max(self._retry_at - now, 0.0)))
        elif load.done.wait(seconds) and isinstance(load.error, FINAL_ERRORS):
            raise load.error
        return False

    # --- coroutines ----------------------------------------------------------------

    async def _pause_in_loop(self, load: Load | None, seconds: float) -> bool:
        """As :meth:`_pause`, without blocking the event loop."""
        if load is None:
            await asyncio.sleep(seconds)
            return False
        if self._services.loader.background:
            self._ask_for(load)
        elif not load.sent:  # only the first of many tasks
            # Not awaited: this task may be cancelled while others wait for the load.
            asyncio.get_running_loop().run_in_executor(None, self._ask_for, load)
            load.sent = True
        return await load.done_within(seconds)


class _Call:
    """A call for ``count`` ids, which are not all there. ``need``: how many to load, if more."""

    __slots__ = (
        "_began",
        "_count",
        "_deadline",
        "_generator",
        "_has_waited",
        "_is_last",
        "_need",
        "_since",
        "ids",
        "load",
    )

    def __init__(self, generator: SegmentGenerator, count: int, need: int = 0) -> None:
        self._generator = generator
        self._count = count
        self._need = need
        self._began = self._since = self._now()
        self._deadline = 0.0
        self._has_waited = self._is_last = False
        self.ids: list[int] = []
        self.load: Load | None = None
        """The load that will bring ids; None while the generator backs off after a failure."""

    def _now(self) -> float:
        return self._generator._services.clock.stopwatch()

    def lacks_ids(self) -> bool:
        """Take what is there. True: wait ``seconds()`` for ``load``, then call ``waited()``."""
        while len(self.ids) < self._count:
            self._deadline = self._since + self._generator._patience()
            taken, self.load = self._generator._advance(
                self._count - len(self.ids), self._deadline, self.load, self._need
            )
            if not taken:
                self._has_waited = True
                return True
            self.ids += taken
            self._since = self._now()
        return False

    def seconds(self) -> float:
        now = self._now()
        left = max(self._deadline - now, 0.0)
        if self.load is None:
            self._is_last = not left
            return min(left, max(self._generator._retry_at - now, 0.0))
        # Another tag's load may fail meanwhile, which shortens the wait.
        seconds = min(left, self._generator._services.timeout)
        self._is_last = seconds == left
        return seconds

    def waited(self, done: bool) -> None:
        """Raise if there are no ids, and no reason to wait on. ``done``: whether the load is."""
        generator = self._generator
        error = self.load.error if done and self.load else None
        if not isinstance(error, FINAL_ERRORS) and (done or not self._is_last):
            return
        if generator._has_ids():
            return
        if error is not None:
            raise error
        generator._services.troubled = True
        # It may have waited longer: for a first load that took seconds to fail.
        waited = max(self._deadline - self._since, int(self._now() - self._since))
        raise generator._unavailable(waited) from generator._error

    def end(self) -> None:
        """Report the wait, if there was one."""
        if self._has_waited:
            self._generator._report_wait(self._now() - self._began)


class LockedSegmentGenerator(SegmentGenerator):
    """For Python without the GIL, where two threads could get one value of an iterator."""

    __slots__ = ()

    def _walk(self) -> Callable[[], int]:
        return lambda: (self._take(1) or self._take_slow(1))[0]

    async def anext_id(self) -> int:
        ids = self._take(1)
        return (ids or await self._take_in_loop(1))[0]

    def _take(self, count: int) -> list[int]:
        self._services.check_process()
        with self._lock:
            return super()._take(count)


_GENERATOR = SegmentGenerator if HAS_GIL else LockedSegmentGenerator


# --- all tags of a source ----------------------------------------------------------------


class Segments(dict[str, SegmentGenerator]):
    """The generators by tag, each made once, on first use. Safe to share between threads.

    ``segments[tag]`` is one dictionary look-up for a known tag. It raises :class:`InvalidTag`.

    A tag never has two generators that can give ids. A dropped generator that a caller kept
    is found again. The floor of a generator that is gone stays known. So the ids of a tag keep
    rising.
    """

    def __init__(self, services: SegmentAllocator) -> None:
        super().__init__()
        self._services = services
        self._dropped: WeakValueDictionary[str, SegmentGenerator] = WeakValueDictionary()
        self._floors: dict[str, int] = {}
        self._in_turn: deque[SegmentGenerator] = deque()
        """All generators, in the order in which the allocator looked at them."""
        self._renew_lock()

    def _renew_lock(self) -> None:
        # Re-entrant: an object that is garbage-collected meanwhile may ask for an id.
        self._lock = threading.RLock()

    def __missing__(self, tag: str) -> SegmentGenerator:
        self._services.check_process()  # or no thread is left to release the lock
        with self._lock:
            found = self.get(tag)
            return self._add(self._known_or_new(tag)) if found is None else found

    def _known_or_new(self, tag: str) -> SegmentGenerator:
        known = self._dropped.get(tag)
        if known is None:
            return _GENERATOR(tag, self._services, self._floors.pop(tag, 0))
        if known.closed:
            return _GENERATOR(tag, self._services, known.lowest)
        return known

    def _add(self, generator: SegmentGenerator) -> SegmentGenerator:
        generator.is_dropped = False
        generator.looked_at = self._services.clock.stopwatch()
        self[generator.tag] = generator
        self._in_turn.append(generator)
        return generator

    def adopt(self, generator: SegmentGenerator) -> None:
        """Take back a dropped generator that a caller still uses."""
        with self._lock:
            if generator.is_dropped and generator.tag not in self:
                self._add(generator)

    def has_unseen(self, since: float) -> bool:
        """Whether some generator was not looked at after ``since``."""
        try:
            return self._in_turn[0].looked_at <= since
        except IndexError:
            return False

    def look(self, since: float, now: float) -> tuple[SegmentGenerator, list[range] | None] | None:
        """Look at the next generator, and drop it if it was not used since the last look.

        Returns it, with the ids that it held if it was dropped. ``None``: all were looked at.
        """
        with self._lock:
            if not self.has_unseen(since):
                return None
            generator = self._in_turn.popleft()
            tail = generator.tail_if_idle()
            if tail is None:
                generator.looked_at = now
                self._in_turn.append(generator)
            else:
                self._drop(generator)
            return generator, tail

    def _drop(self, generator: SegmentGenerator) -> None:
        tag = generator.tag
        self._dropped[tag] = generator
        if generator.lowest:
            self._floors[tag] = generator.lowest
        if self.get(tag) is generator:
            del self[tag]  # last: a fork in between finds it twice, but never loses it

    def forget(self) -> None:
        """Start over in the child of a fork."""
        self._renew_lock()
        self._in_turn = deque(self.values())
        for generator in self.known():
            generator.forget()

    def known(self) -> list[SegmentGenerator]:
        """All generators that may give ids, also those that were dropped and are kept."""
        return [*self.values(), *self._dropped.values()]


IDLE_AFTER: Final = 900.0
"""Seconds without use after which a tag gives its ids back."""
LEAVE_WITHIN: Final = 2.0
"""Most seconds that closing spends on giving back. Ids that are left then are a gap."""
LOOKS: Final = 64
"""Tags to look at between two loads: at most a hundredth of a second."""


class SegmentAllocator(PerProcess):
    """Gives out the ids of all tags of one source. Safe to share between threads.

    ``timeout``: seconds that a caller with nothing left waits for a load.
    ``first_timeout``: the same for the first load of a tag, while the source has not
    failed; ``None``: ``timeout``.
    ``preload_at``: the part of a segment, above 0 and below 1, after which the next one
    is loaded, if the loader has its own thread; else it is loaded when the
    segment is used up. ``growth``: how segments follow the consumption.
    ``idle_after``: seconds after which an unused tag gives its ids back and is
    dropped from ``segments`` (by the next load of any tag, or by :meth:`sweep`).
    ``on_drop`` is then called with the tag and its generator. ``watch_of``: what looks at the
    tables whose rows get the ids of a generator.

    ``on_event`` is called with ``segment_loaded`` (tag, segment, seconds),
    ``segment_load_failed`` (tag, error), ``segment_paused`` (tag), ``segment_waited`` (tag,
    seconds) and ``segment_given_back`` (tag, ids). It runs in the thread of the event, without
    a lock, and must not raise.

    Raises :class:`ConfigurationError`.
    """

    def __init__(
        self,
        source: Source,
        loader: Loader,
        *,
        timeout: float = 0.5,
        first_timeout: float | None = None,
        preload_at: float = 0.10,
        growth: Growth | None = None,
        idle_after: float = IDLE_AFTER,
        clock: Clock = SYSTEM_CLOCK,
        on_event: Emit = ignore,
        on_drop: Callable[[str, SegmentGenerator], None] | None = None,
        watch_of: Callable[[SegmentGenerator], Watch | None] = lambda _generator: None,
    ) -> None:
        first_timeout = timeout if first_timeout is None else first_timeout
        for name, seconds in (
            ("A timeout", timeout),
            ("first_timeout", first_timeout),
            ("idle_after", idle_after),
        ):
            if not 0 < seconds < math.inf:
                raise ConfigurationError(f"{name} must be a number of seconds, not {seconds!r}.")
        if not 0 < preload_at < 1:
            raise ConfigurationError(f"preload_at must be between 0 and 1, not {preload_at!r}.")
        self.source = source
        self.loader = loader
        self.timeout = timeout
        self.first_timeout = first_timeout
        self.preload_at = preload_at
        self.growth = growth or Growth()
        self.idle_after = idle_after
        self.clock = clock
        self.on_event = on_event
        self.on_drop = on_drop
        self.watch_of = watch_of
        self.closed = False
        self.opened: dict[SegmentGenerator, Iterator[int]] = {}
        """Where the generators lay what their ``next_id`` is to walk next."""
        self.pop_opened = self.opened.pop
        self.segments = Segments(self)
        self._leave_by = math.inf
        self._start_over()

    def _start_over(self) -> None:
        self.troubled = False
        self._sweep_again_at = -math.inf
        self._pid = os.getpid()

    def generator(self, tag: str) -> SegmentGenerator:
        """The generator of ``tag``, the same one while it is used or kept.

        Raises :class:`InvalidTag`.
        """
        return self.segments[tag]

    def preload(self, tags: Iterable[str], timeout: float = 0.0) -> bool:
        """Load ahead for all ``tags`` at once. Returns whether everything is loaded.

        See :meth:`.SegmentGenerator.preload`.
        """
        deadline = self.clock.stopwatch() + timeout
        chosen = [self.generator(tag) for tag in tags]
        ready = [generator.preload() for generator in chosen]
        if all(ready) or not timeout:
            return all(ready)
        return all(
            generator.preload(max(deadline - self.clock.stopwatch(), 0.001)) for generator in chosen
        )

    def preload_mark(self, length: int) -> int:
        """How many of a segment's ``length`` ids to give before the next load starts."""
        return max(1, int(length * self.preload_at)) if self.loader.background else length

    # --- idle tags -----------------------------------------------------------------

    def granted(self, generator: SegmentGenerator) -> None:
        """After each load: look for idle tags."""
        if generator.is_dropped:
            self.segments.adopt(generator)
        now = self.clock.stopwatch()
        if self.segments.has_unseen(now - self.idle_after) and now >= self._sweep_again_at:
            self._sweep_again_at = now + 1.0
            if self.loader.background:
                self.loader.submit(self._sweep_on)
            else:
                self.sweep(LOOKS)

    def _sweep_on(self) -> None:
        # A few at a time, so that loads in the queue don't wait for all.
        if self.sweep(LOOKS):
            self._sweep_again_at = self.clock.stopwatch() + 1.0
            self.loader.submit(self._sweep_on)

    def sweep(self, most: int = sys.maxsize) -> bool:
        """Look at up to ``most`` tags and drop the idle ones; whether there are more to look at."""
        now = self.clock.stopwatch()
        since = now - self.idle_after
        for _ in range(most):
            looked = self.segments.look(since, now)
            if looked is None:
                return False
            generator, tail = looked
            if tail is None:
                continue
            if self.on_drop is not None:
                self.on_drop(generator.tag, generator)
            self.give_back(generator.tag, tail)
        return self.segments.has_unseen(since)

    def give_back(self, tag: str, ranges: Sequence[range]) -> None:
        """Give unused ids back to the source. Never raises."""
        if not ranges or self.clock.stopwatch() > self._leave_by:
            return
        try:
            self.source.give_back(tag, ranges)
        except Exception:
            logger.exception(
                "Ids of tag %r could not be given back. They are never given out.", tag
            )
            return
        self.on_event("segment_given_back", tag=tag, ids=sum(map(len, ranges)))

    # --- forks and the end -----------------------------------------------------------

    def forget(self) -> None:
        """Drop what the child of a fork inherited, including the source's connections.

        Called in the child, before other threads use the allocator. The loader drops its threads.
        """
        self.segments.forget()
        self.source.abandon()
        self._start_over()

    def close(self) -> None:
        """Close all generators and the source, giving back what is left. May be called twice.

        Takes :data:`LEAVE_WITHIN` seconds at most, plus the rest of the source's call under way.
        """
        self.check_process()
        self.closed = True
        self._leave_by = min(self._leave_by, self.clock.stopwatch() + LEAVE_WITHIN)
        busy = [generator.leave() for generator in self.segments.known()]
        if self.loader.background:
            self._await_answers([load for load in busy if load is not None])
        self.source.close()

    def _await_answers(self, loads: Iterable[Load]) -> None:
        """Wait for the loads under way: their ids go back, too."""
        for load in loads:
            load.answered.wait(max(self._leave_by - self.clock.stopwatch(), 0.0))
