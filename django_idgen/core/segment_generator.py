"""Ids out of segments: rising integers of a tag, most of them without asking anyone.

A generator walks the segment it holds as a few iterators: the first 10 %, whose
end starts the load of the next segment, then the rest. Taking an id is one C
call on a range iterator, which is atomic under the GIL: ``next_id`` is an attribute,
set anew for each of them. All else is the slow path, which runs when one ends.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterator
from collections.abc import Generator as Steps
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from operator import length_hint
from typing import Final, TypeAlias

from .errors import GeneratorClosed, SegmentUnavailable
from .generator import Generator, check_count, drop, walk
from .segment import CHUNK, Segment, drained, joined, runs
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
    held: tuple[Segment, ...]
    """The current one, and those loaded behind it."""
    ahead: int
    """Segments loaded behind the current one."""
    distance: int
    """How many there are to be: more after callers had to wait."""
    times: int
    """How often the row's step the next segment will be."""
    hungers: int
    """How often it ran dry with callers waiting, though it had been in use."""
    given_back: int
    """Ids that went back to the source: cleared, or left over."""


_SHARE: Final = 8
"""While too little is ahead, the rest is walked in such shares of what is left of it, so
that a preload that failed is tried again well before the end."""


Wait: TypeAlias = tuple[Load | None, float]
Taking: TypeAlias = Steps[Wait, bool, list[int]]


class SegmentGenerator(TagLoads, Generator):
    """Rising ids of one tag. Safe to share between threads; the allocator makes it.

    Giving ids raises :class:`SegmentUnavailable` (none could be had within
    the allocator's timeout; the cause is chained), and at once
    :class:`TagPaused`, :class:`SegmentExhausted`, :class:`InvalidTag`,
    :class:`ConfigurationError` or :class:`GeneratorClosed`.
    """

    next_id: Callable[[], int]
    """The next id, 1 to 2**63-1, higher than all before it. An attribute: see :func:`walk`."""

    __slots__ = dict.fromkeys((
        "__weakref__", "_before_mark", "_closed", "_current", "_ids", "_opened", "_rest",
        "_seen", "_waits", "has_left", "looked_at",
    )) | {"next_id": "next_id() -> int\n\nThe next id, 1 to 2**63-1, higher than all before it."}  # fmt: skip  # noqa: E501

    def __init__(self, tag: str, services: Services, floor: int = 0) -> None:
        super().__init__(tag, services, floor)
        self._closed = False
        self._drop()
        self._opened = self._waits = self._seen = 0
        self.has_left = False
        """Whether the allocator has dropped it as unused."""
        self.looked_at = services.clock.stopwatch()
        """When the allocator last looked whether it is used."""

    def next_ids(self, n: int) -> list[int]:
        """``n`` ids (0 to 10,000,000), strictly rising, though not always consecutive.

        What is missing is asked for in one fetch. Raises :class:`TypeError` or
        :class:`ConfigurationError` (a :class:`ValueError`) for another ``n``.
        When it fails half-way, the ids that it had taken are lost.
        """
        ids = self._take(check_count(n))
        return ids if len(ids) == n else ids + self._take_slow(n - len(ids))

    def next_ranges(self, n: int) -> list[range]:
        """``n`` ids as rising ranges: :meth:`next_ids` without making each of them.

        Raises as :meth:`next_ids`.
        """
        found: list[range] = []
        missing = check_count(n)
        while missing:
            found += self._take_ranges(missing) or self._first_of(missing)
            missing = n - sum(map(len, found))
        return joined(found)

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
        drop(self._ids)  # a caller may hold it, in an older next_id
        self._drop()
        self._opened = self._waits = self._seen = 0

    # --- for the allocator, which knows when to look -----------------------------

    def tail_if_idle(self) -> list[range] | None:
        """What it held, if no id was taken since the last look; else ``None``.

        It then counts as left: a caller that still has it may go on, by a new fetch.
        """
        with self._lock:
            # What was just loaded is what somebody waits for, but has not taken yet.
            used = self._issued() + self._loads
            if used != self._seen or self._pending is not None:
                self._seen = used
                return None
            self.has_left = True
            return self._take_back()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of tag {self.tag!r}>"

    # --- the open part of the current segment, which ends at the preload mark, and the rest ---

    def _drop(self) -> None:
        self._ids: Iterator[int] = iter(range(0))
        self.next_id = self._next_slowly
        self._rest = range(0)
        self._before_mark = 0
        self._current: Segment | None = None

    def _take(self, count: int) -> list[int]:
        return list(islice(self._ids, count))

    def _take_ranges(self, count: int) -> list[range]:
        """What is held of ``count`` ids: of the open part, of the rest, of what is loaded."""
        self._services.check_process()
        now = self._services.clock.stopwatch()
        with self._lock:
            self._refuse_if_closed()
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

    def _first_of(self, count: int) -> list[range]:
        """One id, when there are some again; the others of ``count`` are asked for, too."""
        return [range(one, one + 1) for one in self._take_slow(1, need=count)]

    # --- with the lock held ----------------------------------------------------

    def _open(self, ids: range) -> None:
        self._ids = iter(ids)
        self.next_id = walk(self._ids, self._next_slowly)

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
        self._open(self._rest[:part])
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

    # --- taking more than the open part has, waiting if need be ------------------------------

    def _next_slowly(self) -> int:
        # A caller that kept an older next_id comes here each time.
        for value in self._ids:
            return value
        return self._take_slow(1)[0]

    def _take_slow(self, count: int, need: int = 0) -> list[int]:
        """``count`` ids, in the thread that calls; ``need``: how many to load, if more."""
        with closing(self._taking(count, self._submit, need)) as taking:
            return _driven(taking, self._pause)

    async def _take_in_loop(self, count: int) -> list[int]:
        """``count`` ids, while the event loop goes on."""
        loop = asyncio.get_running_loop()
        with closing(self._taking(count, partial(self._submit_from, loop))) as taking:
            try:
                wait = next(taking)
                while True:
                    wait = taking.send(await _pause_in(loop, *wait))
            except StopIteration as end:
                ids: list[int] = end.value
                return ids

    # --- what both do ------------------------------------------------------------

    def _taking(self, count: int, submit: Callable[..., None], need: int = 0) -> Taking:
        stopwatch = self._services.clock.stopwatch
        began = since = stopwatch()
        ids: list[int] = []
        load: Load | None = None
        waited = False
        try:
            while len(ids) < count:
                deadline = since + self._patience()
                taken, load = self._advance(count - len(ids), deadline, submit, load, need)
                if taken:
                    ids += taken
                    since = stopwatch()
                    continue
                waited = True
                yield from self._waiting(load, since, deadline)
        finally:
            if waited:
                self._report_wait(stopwatch() - began)
        return ids

    def _advance(
        self,
        count: int,
        deadline: float,
        submit: Callable[..., None],
        counted: Load | None,
        need: int,
    ) -> tuple[list[int], Load | None]:
        """What is at hand of ``count`` ids, and the load that was asked for them all.

        Without ids and without a load there is a pause to keep, or the deadline is past.
        ``counted``: the load that knows of this caller's need already.
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
            # Each that waits submits it again: it may stand behind the preloads of
            # other tags, or the one who armed it was interrupted before submitting.
            if load is not None and load.began is None and not (ready and load.sent):
                submit(load, urgent=not ready)
            ids = self._take(count)
            if ids or not ready:
                return ids, counted if ready else load

    def _patience(self) -> float:
        """Seconds that a caller waits, as things are: less once a load has failed."""
        services = self._services
        # The first one opens a connection and makes the tag, the first of all our tables, too.
        first = not self._loads and self._error is None and not services.troubled
        return services.first_timeout if first else services.timeout

    def _waiting(self, load: Load | None, since: float, deadline: float) -> Steps[Wait, bool, None]:
        now = self._services.clock.stopwatch()
        left = max(deadline - now, 0.0)
        # Meanwhile another tag's load may fail, and with that leave less to wait for.
        pause = min(left, self._services.timeout)
        if load is None and left:
            yield None, min(left, max(self._retry_at - now, 0.0))
        elif load is not None and (yield load, pause):
            if isinstance(load.error, FINAL_ERRORS) and not self._has_ids():
                raise load.error
        elif pause == left and not self._has_ids():
            self._services.troubled = True
            # Longer than it should: a first load that took seconds to fail.
            waited = int(self._services.clock.stopwatch() - since)
            raise self._unavailable(max(deadline - since, waited)) from self._error

    def _unavailable(self, seconds: float) -> SegmentUnavailable:
        error = self._error
        reason = "the load is still under way" if error is None else f"the last failure: {error}"
        # A larger step helps against a slow source, and against nothing that a failure names.
        step = " raise the tag's step so that segments last longer," if error is None else ""
        return SegmentUnavailable(
            f"No segment of tag {self.tag!r} could be had within {seconds:g} s "
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

    # --- threads -------------------------------------------------------------------

    def _pause(self, load: Load | None, seconds: float) -> bool:
        """Wait for ``load`` for so many seconds at most: whether it is done."""
        if load is not None:
            return load.done.wait(seconds)
        self._services.clock.sleep(seconds)
        return False

    def _load_ahead(self, deadline: float) -> bool:
        """One step towards what is to be ahead: whether all of it is there."""
        self._services.check_process()
        now = self._services.clock.stopwatch()
        with self._lock:
            self._refuse_if_closed()
            if not self._chain.is_short(past_mark=True):
                return True
            load = self._arm(now)
        if load is not None and load.began is None:
            self._submit(load, urgent=now < deadline)
        seconds = max(deadline - self._services.clock.stopwatch(), 0.0)
        if load is None:
            self._pause(None, min(seconds, max(self._retry_at - now, 0.0)))
        elif self._pause(load, seconds) and isinstance(load.error, FINAL_ERRORS):
            raise load.error
        return False

    def _is_ahead(self) -> bool:
        with self._lock:
            return not self._chain.is_short(past_mark=True)

    # --- coroutines ----------------------------------------------------------------

    def _submit_from(self, loop: asyncio.AbstractEventLoop, load: Load, *, urgent: bool) -> None:
        """Have ``load`` run without holding up ``loop``."""
        if self._services.loader.background:
            self._submit(load, urgent=urgent)
        elif not load.sent:  # of a thousand tasks, the first one
            # Not awaited: the task that asked may be cancelled, and others wait for it.
            loop.run_in_executor(None, partial(self._submit, load, urgent=urgent))
            load.sent = True


def _driven(taking: Taking, pause: Callable[[Load | None, float], bool]) -> list[int]:
    try:
        wait = next(taking)
        while True:
            wait = taking.send(pause(*wait))
    except StopIteration as end:
        ids: list[int] = end.value
        return ids


async def _pause_in(loop: asyncio.AbstractEventLoop, load: Load | None, seconds: float) -> bool:
    """As ``_pause``, for the coroutine alone: everything else in ``loop`` goes on."""
    if load is None:
        await asyncio.sleep(seconds)
        return False
    done: asyncio.Future[None] = loop.create_future()
    listener = partial(_wake, loop, done)
    load.listen(listener)
    try:
        await asyncio.wait([done], timeout=seconds)
    finally:
        load.ignore(listener)
    return load.done.is_set()


def _wake(loop: asyncio.AbstractEventLoop, done: asyncio.Future[None]) -> None:
    with suppress(RuntimeError):  # the loop was closed: no one waits any more
        loop.call_soon_threadsafe(_complete, done)


def _complete(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


class LockedSegmentGenerator(SegmentGenerator):
    """The same where there is no GIL: two threads could read one value of an iterator."""

    __slots__ = ()

    def _open(self, ids: range) -> None:
        self._ids = iter(ids)

    def _next_slowly(self) -> int:
        ids = self._take(1)
        return ids[0] if ids else self._take_slow(1)[0]

    async def anext_id(self) -> int:
        ids = self._take(1)
        return (ids or await self._take_in_loop(1))[0]

    def _take(self, count: int) -> list[int]:
        self._services.check_process()
        with self._lock:
            return super()._take(count)
