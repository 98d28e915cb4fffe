"""The snowflake generator: a layout, walked inside the window of a lease.

Giving out an id is taking the next integer of the current tick's ``range``,
after one look at a stopwatch to see that the tick is not over. Everything else
(the lease, the registry's clock, waiting, borrowing, changing the worker id)
happens when that range ends or its tick is over, under a lock: :mod:`.tick_walk`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from itertools import islice
from operator import length_hint
from types import TracebackType

from .clock import SYSTEM_CLOCK, Clock
from .counts import check_count
from .events import Emit, Outbox, ignore
from .keeper import LeaseKeeper
from .layout import BitLayout, IdParts
from .lease import LeaseRegistry
from .loader import process_lock
from .moments import MAX_UNIX_US, moment
from .snowflake_options import (
    check_fit,
    check_holder,
    check_sequence_start,
    check_wait_limit,
    seconds,
    switch,
    whole_ticks,
)
from .snowflake_stats import SnowflakeStats
from .tick_walk import NEVER, TickWalk

__all__ = ["SnowflakeGenerator", "SnowflakeStats"]


def _next_id_by(stopwatch: Callable[[], float]) -> Callable[[SnowflakeGenerator], int]:
    # In a closure, the fastest place for it, and one that freezegun does not reach.
    def next_id(self: SnowflakeGenerator) -> int:
        """The next id. Strictly greater than any that a finished call returned.

        Raises :class:`LeaseExpired`, :class:`NoFreeWorker`, :class:`ClockMovedBackwards`,
        :class:`TimeExhausted`, :class:`GeneratorClosed` or what the registry raised.
        """
        if stopwatch() < self._fresh:
            # One C call, atomic under the GIL: two threads can't get one id.
            for value in self._block:
                return value
        return self._next_ids_slowly(1, [])[0]

    return next_id


class SnowflakeGenerator(TickWalk):
    """Unique, rising ids of ``layout``, stamped inside leases of ``registry``.

    * ``max_ahead`` (seconds): how much of the future may be borrowed when the
      current tick is used up; 0 waits for the next tick instead. Where a lease
      had to start later than now by more than that, ids begin there and flow at
      the layout's rate; each pause brings them nearer to the time, for good.
    * ``sequence_start``: 0, or ``n`` to start each tick at a random sequence
      below ``n``, so that rarely issued ids still spread over shards.
    * ``wait_limit`` (seconds, longer than a tick): how long a caller waits for a
      clock that is behind, before another worker id is taken.
    * ``holder`` labels this process in the registry.
    * ``skew_limit`` (seconds): how far clocks may differ before it is told.

    Thread-safe. After a fork, a child starts without a lease; where Python's fork
    hooks don't run, from the end of the tick at the latest that was open at the fork.
    Raises :class:`ConfigurationError` for values that can't work; its methods
    raise :class:`LeaseError` or :class:`ClockError`, never return a non-id.
    """

    __slots__ = ("__weakref__",)

    def __init__(
        self,
        layout: BitLayout,
        registry: LeaseRegistry,
        *,
        max_ahead: float = 0.0,
        sequence_start: int = 0,
        wait_limit: float | None = None,
        holder: str = "",
        skew_limit: float = 10.0,
        refuse_skew: bool = False,
        background: bool = True,
        clock: Clock = SYSTEM_CLOCK,
        emit: Emit = ignore,
    ) -> None:
        check_fit(layout, registry.namespace)
        tick = layout.tick_us / 1e6
        self.layout = layout
        self._ahead = whole_ticks(seconds("max_ahead", max_ahead), tick)
        self._sequence_start = check_sequence_start(layout, sequence_start)
        self._wait_limit = check_wait_limit(wait_limit, tick)
        self._clock = clock
        self._outbox = Outbox(emit)
        self.keeper = LeaseKeeper(
            registry,
            holder=check_holder(holder),
            skew_limit_us=int(seconds("skew_limit", skew_limit) * 1e6),
            refuse_skew=switch("refuse_skew", refuse_skew),
            background=background,
            clock=clock,
            outbox=self._outbox,
        )
        self._closed = False
        self._start_over()
        self._pid = os.getpid()

    # --- ids ---------------------------------------------------------------------

    next_id = _next_id_by(SYSTEM_CLOCK.stopwatch)

    def next_ids(self, count: int) -> list[int]:
        """``count`` ids, strictly rising. If it fails half-way, those taken are lost.

        Raises :class:`TypeError` for a count that is no int, :class:`ConfigurationError`
        for one outside 0 to 10,000,000, else as :meth:`next_id`.
        """
        ids = self._take_fresh(check_count(count))
        return ids if len(ids) == count else self._next_ids_slowly(count, ids)

    async def anext_id(self) -> int:
        """As :meth:`next_id`, for coroutines: the event loop is never held up.

        Whatever may wait or do I/O runs in a thread of asyncio's default executor.
        """
        return (await self.anext_ids(1))[0]

    async def anext_ids(self, count: int) -> list[int]:
        """As :meth:`next_ids`, for coroutines."""
        ids = self._take_fresh(check_count(count))
        if len(ids) == count:
            return ids
        return await asyncio.to_thread(self._next_ids_slowly, count, ids)

    def _take_fresh(self, count: int) -> list[int]:
        """What there is of ``count`` ids without waiting, if the tick is not over."""
        self._check_process()
        return list(islice(self._block, count)) if self._clock.stopwatch() < self._fresh else []

    def _next_ids_slowly(self, count: int, ids: list[int]) -> list[int]:
        self._check_process()
        refusals = self.keeper.refusals
        try:
            while len(ids) < count:
                # A tick at a time, so that others don't wait for a whole batch.
                with self._lock:
                    self._refusals = refusals
                    ids.extend(islice(self._usable_block(), count - len(ids)))
                if len(ids) < count:
                    SYSTEM_CLOCK.sleep(0)
        finally:
            self._outbox.send()
        return ids

    def _check_process(self) -> None:
        # Servers that fork without running Python's fork hooks (uWSGI).
        if os.getpid() != self._pid:
            with process_lock():
                if os.getpid() != self._pid:
                    self.forget()

    # --- the rest of the protocol ------------------------------------------------

    def decode(self, value: int) -> IdParts:
        """Take an id of this generator apart.

        Raises :class:`InvalidId` for what can't be one of its ids, such as one
        that claims to be made in the future.
        """
        keeper = self.keeper
        now_us = self._clock.wall_ns() // 1000
        if keeper.lease is not None:
            now_us = max(now_us, keeper.now_us())
        ticks = self._lead() + keeper.namespace.skew_ticks + 1
        loaded_us = self.layout.epoch_us + (keeper.last_tick + 1) * self.layout.tick_us
        latest_us = max(now_us + ticks * self.layout.tick_us, loaded_us)
        return self.layout.unpack(value, not_after=moment(min(latest_us, MAX_UNIX_US)))

    def stats(self) -> SnowflakeStats:
        """Counts since the generator was made, or since the fork. Thread-safe."""
        self._check_process()
        counts = self._counts
        return SnowflakeStats(
            issued=counts.loaded - counts.discarded - length_hint(self._block),
            ticks=counts.ticks,
            waits=counts.waits,
            waited=counts.waited,
            borrowed=counts.borrowed,
            backwards=counts.backwards,
            worker_changes=counts.worker_changes,
            renewals=self.keeper.renewals,
            renewal_failures=self.keeper.failures,
            lease=self.keeper.lease,
        )

    def close(self) -> None:
        """Stop issuing, then give the worker id back. May be called twice.

        Never raises: a worker id that can't be given back lapses by itself.
        """
        # A child must not give back what its parent goes on using.
        self._check_process()
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._counts.discarded += length_hint(self._block)
            self._block = iter(())
            self._fresh = NEVER
        self.keeper.release()
        self._outbox.send()

    def forget(self) -> None:
        """After a fork: drop the parent's lease and ids, and start afresh.

        Not to be called while other threads use the generator.
        """
        self._start_over()
        self.keeper.forget()
        self._pid = os.getpid()  # last: whoever reads it finds the rest done

    def __enter__(self) -> SnowflakeGenerator:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def locked_next_id(self: SnowflakeGenerator) -> int:
    """``next_id`` where there is no GIL: an iterator's step is not atomic there."""
    return self._next_ids_slowly(1, [])[0]


def locked_next_ids(self: SnowflakeGenerator, count: int) -> list[int]:
    """``next_ids`` where there is no GIL: every id is taken under the lock."""
    return self._next_ids_slowly(check_count(count), [])


def take_none(self: SnowflakeGenerator, count: int) -> list[int]:  # noqa: ARG001
    """``_take_fresh`` where there is no GIL: for coroutines, too, the lock is needed."""
    return []


if not getattr(sys, "_is_gil_enabled", lambda: True)():  # pragma: no cover - free-threaded builds
    SnowflakeGenerator.next_id = locked_next_id
    SnowflakeGenerator.next_ids = locked_next_ids  # type: ignore[method-assign]
    SnowflakeGenerator._take_fresh = take_none  # type: ignore[method-assign]
