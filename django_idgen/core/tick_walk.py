"""The slow path of a snowflake generator: which tick may be stamped now.

A walk goes up the ticks of a lease's window, one block of ids (a tick's whole
sequence) at a time. It stays on a tick while its ids last, also when the clock
went back; it waits, borrows, renews, or changes the worker id when they don't.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from operator import length_hint

from .clock import SYSTEM_CLOCK, Clock
from .errors import ClockMovedBackwards, GeneratorClosed, LeaseError, LeaseExpired, TimeExhausted
from .events import Outbox
from .keeper import LeaseKeeper
from .layout import BitLayout
from .lease import Lease
from .snowflake_stats import Counts

__all__ = ["NEVER", "TickWalk"]

NEVER = float("-inf")
"""A moment of the stopwatch that is always past: no block is fresh."""


class TickWalk:
    """The ticks of one generator, in rising order. All methods need its lock to be held."""

    __slots__ = (
        "_ahead",
        "_block",
        "_clock",
        "_closed",
        "_counts",
        "_fresh",
        "_lock",
        "_outbox",
        "_pid",
        "_refusals",
        "_sequence_start",
        "_wait_limit",
        "keeper",
        "layout",
    )

    _ahead: int
    """``max_ahead`` in ticks."""
    _clock: Clock
    _closed: bool
    _outbox: Outbox
    _refusals: int
    """``keeper.refusals`` before the caller who has the lock stood in line for it."""
    _sequence_start: int
    _wait_limit: float
    """Seconds."""
    keeper: LeaseKeeper
    layout: BitLayout

    def _start_over(self) -> None:
        self._lock = threading.Lock()
        self._counts = Counts()
        self._block: Iterator[int] = iter(())
        """The ids of the tick ``keeper.last_tick`` that nobody took yet."""
        self._fresh = NEVER
        """Until this moment of the stopwatch, ids of the block may be taken unasked."""

    def _usable_block(self) -> Iterator[int]:
        """The ids of a tick that may be stamped now; may wait, renew or acquire."""
        waited = 0.0
        while True:
            lease = self._lease()
            # In this order, so that a block is taken to be fresh too briefly at most.
            read_at = SYSTEM_CLOCK.stopwatch()
            now_us = self.keeper.now_us()
            now = self.keeper.namespace.tick_at(now_us)
            last = self.keeper.last_tick
            current = max(now, lease.start)
            if last >= current and length_hint(self._block):
                # Behind or within the last tick: its sequence is not used up.
                self._stay_on(last, now)
                return self._fresh_block(last, read_at, now_us)
            tick = max(current, last + 1)
            if tick >= self.layout.max_ticks:
                raise self._exhausted(tick)
            if tick > max(now + self._lead(), lease.start):
                waited = self._wait_for(tick, now, waited)
            elif tick >= lease.until:
                self._extend(tick)
            else:
                self._load(lease, tick, now)
                return self._fresh_block(tick, read_at, now_us)

    def _lease(self) -> Lease:
        if self._closed:
            raise GeneratorClosed(
                f"The generator of namespace {self.keeper.namespace.name!r} was closed; "
                f"make a new one."
            )
        lease = self.keeper.lease
        if lease is None:
            return self.keeper.acquire(refusals=self._refusals)
        self.keeper.renew_on_path()
        return self.keeper.lease or lease

    def _lead(self) -> int:
        """How many ticks past now may be loaded."""
        return max(self._ahead, self.keeper.offset)

    # --- one tick -------------------------------------------------------------

    def _stay_on(self, tick: int, now: int) -> None:
        if tick > now + self._lead():
            self._note_backwards(tick - now)

    def _load(self, lease: Lease, tick: int, now: int) -> None:
        self._count_load(tick, now)
        # What idle time won back is not borrowed again, but for max_ahead.
        self.keeper.offset = min(self.keeper.offset, max(tick - now, 0) + self._ahead)
        ids = self._ids_of(lease, tick)
        # Written before the block can be seen: a release that reads it later
        # covers every id that a thread may still take from the block.
        self.keeper.last_tick = tick
        self._block = iter(ids)
        # Last: who reads the counts meanwhile finds too few ids issued, and never too many.
        self._counts.loaded += len(ids)

    def _fresh_block(self, tick: int, read_at: float, now_us: int) -> Iterator[int]:
        """The block, to be used unasked until ``tick`` ends; it was ``now_us`` at ``read_at``."""
        # With a clock of the caller's the slow path looks at it each time.
        if self._clock.stopwatch is SYSTEM_CLOCK.stopwatch:
            self._fresh = read_at + (self._begins_us(tick + 1) - now_us) / 1e6
        return self._block

    def _ids_of(self, lease: Lease, tick: int) -> range:
        unit = 1 << self.layout.sequence_shift
        base = self.layout.base(tick, lease.worker)
        first = base
        if self._sequence_start:
            first += random.randrange(self._sequence_start) * unit  # nosec B311  # where ids of a tick begin is no secret
        # Never the id 0.
        return range(first or unit, base + self.layout.sequences * unit, unit)

    def _count_load(self, tick: int, now: int) -> None:
        self._counts.discarded += length_hint(self._block)
        self._counts.ticks += 1
        self._counts.borrowed += tick > now

    def _begins_us(self, tick: int) -> int:
        return self.layout.epoch_us + tick * self.layout.tick_us

    def _seconds_until(self, tick: int) -> float:
        return (self._begins_us(tick) - self.keeper.now_us()) / 1e6

    # --- between two ticks ------------------------------------------------------

    def _wait_for(self, tick: int, now: int, waited: float) -> float:
        """Sleep until ``tick`` may be stamped; returns the seconds waited in this call."""
        due = tick - self._lead()
        seconds = max(self._seconds_until(due), 0.0)
        if due > now + 1:
            self._note_backwards(due - now)
        if waited + seconds > self._wait_limit:
            self._change_worker(seconds)
            return 0.0
        self._counts.waits += 1
        self._counts.waited += seconds
        self._clock.sleep(seconds)
        return waited + seconds

    def _change_worker(self, seconds: float) -> None:
        lease = self.keeper.lease
        avoid = None if lease is None else lease.worker
        try:
            changed = self.keeper.acquire(avoid=avoid)
        except LeaseError as error:
            raise ClockMovedBackwards(
                f"The clock is {seconds:.3f} s behind the last id of namespace "
                f"{self.keeper.namespace.name!r}, more than wait_limit ({self._wait_limit:g} s), "
                f"and no other worker id could be had: {error} Mend the clock, raise "
                f"'wait_limit' or 'max_ahead', or wait: ids go on by themselves."
            ) from error
        if changed.start <= self.keeper.last_tick:
            # Asked again and again it would not do better, and we hold the lock.
            raise ClockMovedBackwards(
                f"The registry of namespace {changed.namespace!r} was asked for a window from "
                f"tick {self.keeper.last_tick + 1} on and lent one from tick {changed.start}, so "
                f"ids would not rise. It must respect 'not_before'."
            )
        self._counts.worker_changes += 1
        self._outbox.put("worker_changed", lease=changed, behind_seconds=seconds)

    def _extend(self, tick: int) -> None:
        lease = self.keeper.extend(tick, refusals=self._refusals)
        # Worked out anew: a new lease brings another time with it, and asking took time.
        tick = max(self.keeper.now_tick(), lease.start, self.keeper.last_tick + 1)
        if tick >= lease.until:
            raise LeaseExpired(
                f"The registry extended worker {lease.worker} of namespace {lease.namespace!r} "
                f"to tick {lease.until} only, and the next id needs tick {tick}. Either the answer "
                f"took longer than the window, or the registry's own right to lend ends there."
            )

    def _note_backwards(self, ticks: int) -> None:
        self._counts.backwards += 1
        self._outbox.put("clock_moved_backwards", behind_ticks=ticks)

    def _exhausted(self, tick: int) -> TimeExhausted:
        return TimeExhausted(
            f"Tick {tick} does not fit layout {self.layout}: its time bits ended at "
            f"{self.layout.exhausted_at.isoformat()}. Move to one with more time bits."
        )
