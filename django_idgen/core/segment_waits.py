"""The slow path of a segment generator: for threads that may block, and for coroutines.

What is to be done is written once, as a generator that yields each wait: for a load
or, without one, for so many seconds. Whoever drives it waits in his own way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import closing, suppress
from functools import partial
from typing import TypeAlias

from .errors import SegmentUnavailable
from .segment_loads import FINAL_ERRORS, Load
from .segment_parts import TagParts

__all__ = ["TagWaits"]

Wait: TypeAlias = tuple[Load | None, float]
Taking: TypeAlias = Generator[Wait, bool, list[int]]


class TagWaits(TagParts):
    """Takes ids beyond those of the open part, waiting for them if need be."""

    __slots__ = ()

    def _take_slow(self, count: int) -> list[int]:
        """``count`` ids, in the thread that calls."""
        with closing(self._taking(count, self._submit)) as taking:
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

    def _taking(self, count: int, submit: Callable[..., None]) -> Taking:
        stopwatch = self._services.clock.stopwatch
        began = since = stopwatch()
        ids: list[int] = []
        load: Load | None = None
        waited = False
        try:
            while len(ids) < count:
                deadline = since + self._patience()
                taken, load = self._advance(count - len(ids), deadline, submit, load)
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
        self, count: int, deadline: float, submit: Callable[..., None], counted: Load | None
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
                missing = count - self._remaining() if load is not None else 0
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

    def _waiting(
        self, load: Load | None, since: float, deadline: float
    ) -> Generator[Wait, bool, None]:
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
