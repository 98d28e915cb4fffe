"""The snowflake generator: a layout, walked inside the window of a lease.

To give out an id, the generator looks at a stopwatch, and takes the next integer of the current
tick's ``range`` if the tick is not over. Everything else (the lease, the registry's clock,
waiting, borrowing, changing the worker id) happens when the range or the tick ends, under a
lock.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from operator import length_hint
from random import SystemRandom, randrange

from .clock import MAX_UNIX_US, SYSTEM_CLOCK, Clock, moment
from .errors import (
    ClockMovedBackwards,
    ConfigurationError,
    GeneratorClosed,
    LeaseError,
    LeaseExpired,
    TimeExhausted,
)
from .events import Emit, Outbox, ignore
from .generator import HAS_GIL, Generator, check_count
from .keeper import LeaseKeeper
from .layout import BitLayout, IdParts, is_int
from .lease import Lease, Namespace
from .loader import PerProcess, is_prefork
from .options import check_flag, check_seconds, check_text
from .registry import Registry

SEQUENCE_STARTS = {"spread": -1, "next": -2}
"""What stands for the words of ``sequence_start``."""
SHORTEST_WAIT_LIMIT = 0.1
"""Seconds; also the default for ticks of up to half as much."""


def check_fit(layout: BitLayout, space: Namespace) -> None:
    """Raise :class:`ConfigurationError` unless the marks of ``space`` are ticks of ``layout``."""
    if (space.tick_us, space.epoch_us, space.max_ticks) != (
        layout.tick_us, layout.epoch_us, layout.max_ticks,
    ):  # fmt: skip
        raise ConfigurationError(
            f"Namespace {space.name!r} keeps its marks in {space.max_ticks} ticks of "
            f"{space.tick_us} µs from {space.epoch_us} µs, which are not those of layout "
            f"{layout}. Make both from one layout."
        )
    if layout.batches > 1 and layout.batch_shift < layout.sequence_shift:
        raise ConfigurationError(
            f"'batch' stands below 'sequence' in {layout}, so ids would not rise. Put it above."
        )
    if space.workers.stop > len(layout.workers):
        raise ConfigurationError(
            f"Worker ids up to {space.workers.stop - 1} don't fit the "
            f"{len(layout.workers)} that {layout} has room for. Lower 'workers', or choose a "
            f"layout with more worker bits."
        )


def whole_ticks(duration: float, tick: float) -> int:
    """How many ticks fit into ``duration`` (both in seconds); 0.29 s are 29 of 0.01 s."""
    return int(duration / tick + 1e-6)


def check_sequence_start(layout: BitLayout, value: object) -> int:
    """Return ``value`` if a tick can begin below it; for a word, what stands for it."""
    if isinstance(value, str) and value in SEQUENCE_STARTS:
        return SEQUENCE_STARTS[value]
    if not is_int(value) or not 0 <= value <= layout.sequences:
        raise ConfigurationError(
            f"sequence_start must be 'spread', 'next', or a whole number of 0 to "
            f"{layout.sequences} (0: start each tick at 0; n: at a random sequence below n), "
            f"not {value!r}."
        )
    return value


def check_wait_limit(value: object, tick: float) -> float:
    """Return ``value`` (seconds) if it is longer than ``tick``; for None, a default."""
    if value is None:
        return max(SHORTEST_WAIT_LIMIT, 2 * tick)
    limit = check_seconds("wait_limit", value, least=0.0, most=1e9)
    if limit <= tick:
        raise ConfigurationError(
            f"wait_limit must be longer than a tick ({tick:g} s), not {value!r}: "
            f"when a tick is used up, a caller waits for the next."
        )
    return limit


@dataclass(frozen=True, slots=True)
class SnowflakeStats:
    """Counts of a generator. Exact while no other thread is inside a call."""

    issued: int
    ticks: int
    """Ticks loaded."""
    waits: int
    """Times that a caller slept until the next tick."""
    waited: float
    """Seconds of these waits."""
    borrowed: int
    """Ticks loaded before their time."""
    backwards: int
    """Times that the clock was behind the last tick."""
    worker_changes: int
    """Times that the worker id changed because the clock stayed behind."""
    degraded: int
    """Ids issued without a lease, which may repeat: see ``degraded_worker``."""
    renewals: int
    renewal_failures: int
    refusals: int
    """Times that no lease was available."""
    lease: Lease | None


class Counts:
    """The running counts, written under the generator's lock."""

    __slots__ = (
        "backwards", "borrowed", "degraded", "discarded", "loaded",
        "ticks", "waited", "waits", "worker_changes",
    )  # fmt: skip

    def __init__(self) -> None:
        self.loaded = self.discarded = 0
        """Ids of the ticks that were loaded, and those of them that no caller took."""
        self.ticks = self.waits = self.worker_changes = 0
        self.borrowed = self.backwards = self.degraded = 0
        self.waited = 0.0


# --- without a lease ------------------------------------------------------------------

RETRY = 10.0
"""Seconds until it tries again to get a lease: else each caller would wait for a hung registry."""


class DegradedIds:
    """Ids without a lease, as finger-mark's last resort. They may repeat: off by default.

    They come from one worker id that no registry lends, so that they never collide with an id of
    a lease. Two processes that are without a lease in the same tick may collide by chance: each
    draws random sequences, none of them twice. Not thread-safe.
    """

    def __init__(self, layout: BitLayout, worker: object, lent: range, clock: Clock) -> None:
        if not is_int(worker) or worker not in layout.workers or worker in lent:
            last = len(layout.workers) - 1
            raise ConfigurationError(
                f"degraded_worker must be a worker id of the layout (0 to {last}) that no registry "
                f"lends, not {worker!r}: {lent.start} to {lent.stop - 1} are lent. Leave one out "
                f"of 'workers' in the options of LEASES: [0, {last}] leaves out the last."
            )
        self.worker = worker
        self.retry_at = float("-inf")
        """The moment of the stopwatch at which to try again to get a lease."""
        self._layout = layout
        self._clock = clock
        self._random = SystemRandom()
        self._tick = -1
        self._used: set[int] = set()

    def take(self, count: int) -> list[int]:
        """``count`` ids of now, or of later ticks: a tick gives half of its sequences."""
        layout, ids = self._layout, list[int]()
        now_us = self._clock.wall_ns() // 1000 - layout.epoch_us
        now = max(0, now_us // layout.tick_us)
        while len(ids) < count:
            if now > self._tick or 2 * len(self._used) >= layout.sequences:
                self._tick, self._used = max(now, self._tick + 1), set()
            sequence = self._random.randrange(layout.sequences)
            if sequence not in self._used:
                self._used.add(sequence)
                # pack() checks: a clock that is far off must not make another worker's id.
                ids.append(layout.pack(self._tick, self.worker, sequence))
        return ids


# --- with a lease ---------------------------------------------------------------------

NEVER = float("-inf")
"""A moment of the stopwatch that is always past: no block is fresh."""


def _next_id_by(stopwatch: Callable[[], float]) -> Callable[[SnowflakeGenerator], int]:
    # A closure is the fastest place for the stopwatch, and freezegun does not reach it.
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


class SnowflakeGenerator(PerProcess, Generator):
    """Unique, rising ids of ``layout``, stamped inside leases of ``registry``.

    * ``max_ahead`` (seconds): how far ahead of the time ids may be stamped when the current tick
      is used up; with 0 a caller waits for the next tick. A lease may have to start further
      ahead: then ids begin there, at the layout's rate, and each pause brings them nearer to the
      time.
    * ``sequence_start``: where the sequence of a tick begins. ``"spread"``: at random in its lower
      half, so that ``id % n`` of a slow generator spreads evenly; at 0 if the last tick was used
      past its middle. ``"next"``: where the last tick stopped, or at 0 if that is past the middle.
      0, or ``n`` for a random sequence below ``n``: each tick at that, whatever the last one was.
    * ``wait_limit`` (seconds, longer than a tick): how long a caller waits for a clock that is
      behind, before the generator takes another worker id.
    * ``holder`` labels this process in the registry.
    * ``skew_limit`` (seconds): how far clocks may differ before the generator signals it.
    * ``degraded_worker``: a worker id that no registry lends. Without a lease the generator gives
      out ids with it instead of raising an error. **These ids may repeat.**

    Thread-safe. The child of a fork drops the lease at once. If C code forks without Python's fork
    hooks, the child drops it only when the open tick ends, and may repeat ids until then. (uWSGI's
    workers inherit nothing.) Raises :class:`ConfigurationError` for values that can't work; its
    methods raise :class:`LeaseError` or :class:`ClockError`.
    """

    __slots__ = (
        "__weakref__", "_ahead", "_block", "_clock", "_closed", "_counts", "_degraded", "_fresh",
        "_lock", "_outbox", "_pid", "_refusals", "_rest", "_sequence_start", "_wait_limit",
        "keeper", "layout",
    )  # fmt: skip
    has_parts = True
    keeper: LeaseKeeper

    def __init__(
        self,
        layout: BitLayout,
        registry: Registry,
        *,
        max_ahead: float = 0.0,
        sequence_start: int | str = "spread",
        wait_limit: float | None = None,
        holder: str = "",
        skew_limit: float = 10.0,
        refuse_skew: bool = False,
        degraded_worker: int | None = None,
        background: bool = True,
        clock: Clock = SYSTEM_CLOCK,
        emit: Emit = ignore,
    ) -> None:
        check_fit(layout, registry.namespace)
        self._degraded: DegradedIds | None = None
        if degraded_worker is not None:
            if registry.needs_workers:
                raise ConfigurationError(
                    "degraded_worker needs a registry that knows which worker ids are lent, and "
                    f"{registry.name()} knows only those of this host. Leave degraded_worker out."
                )
            lent = registry.namespace.workers
            self._degraded = DegradedIds(layout, degraded_worker, lent, clock)
        tick = layout.tick_us / 1e6
        self.layout = layout
        self._ahead = whole_ticks(check_seconds("max_ahead", max_ahead, least=0.0, most=1e9), tick)
        self._sequence_start = check_sequence_start(layout, sequence_start)
        self._wait_limit = check_wait_limit(wait_limit, tick)
        self._clock = clock
        self._outbox = Outbox(emit)
        self.keeper = LeaseKeeper(
            registry,
            holder=check_text("holder", holder),
            skew_limit_us=int(check_seconds("skew_limit", skew_limit, least=0.0, most=1e9) * 1e6),
            refuse_skew=check_flag("refuse_skew", refuse_skew),
            background=background,
            clock=clock,
            outbox=self._outbox,
        )
        self._closed = False
        self._start_over()
        self._pid = os.getpid()

    def _start_over(self) -> None:
        self._lock = threading.Lock()
        self._refusals = 0
        """``keeper.refusals`` before the caller that has the lock began to wait for it."""
        self._counts = Counts()
        self._block: Iterator[int] = iter(())
        """What is left of one batch of the tick ``keeper.last_tick``."""
        self._rest: list[range] = []
        """The ids of its further batches, the last one first."""
        self._fresh = NEVER
        """Until this moment of the stopwatch a caller may take ids of the block at once."""

    # --- ids ---------------------------------------------------------------------

    next_id = _next_id_by(SYSTEM_CLOCK.stopwatch)

    def next_ids(self, count: int) -> list[int]:
        """``count`` ids, strictly rising. If it fails half-way, the ids taken so far are lost.

        Raises :class:`TypeError` for a count that is not an int, :class:`ConfigurationError`
        for one outside 0 to 10,000,000, else as :meth:`next_id`.
        """
        ids = self._take_fresh(check_count(count))
        return ids if len(ids) == count else self._next_ids_slowly(count, ids)

    async def anext_id(self) -> int:
        """As :meth:`next_id`, for coroutines. Never blocks the event loop.

        What may wait or do I/O runs in a thread of asyncio's default executor.
        """
        return (await self.anext_ids(1))[0]

    async def anext_ids(self, count: int) -> list[int]:
        ids = self._take_fresh(check_count(count))
        if len(ids) == count:
            return ids
        if is_prefork():
            return self._next_ids_slowly(count, ids)
        return await asyncio.to_thread(self._next_ids_slowly, count, ids)

    def _take_fresh(self, count: int) -> list[int]:
        """Up to ``count`` ids of the current tick, if it is not over. Never waits."""
        self.check_process()
        return list(islice(self._block, count)) if self._clock.stopwatch() < self._fresh else []

    def _next_ids_slowly(self, count: int, ids: list[int]) -> list[int]:
        self.check_process()
        refusals = self.keeper.refusals
        degraded = self._degraded
        try:
            if (
                degraded is not None
                and not self._closed
                and self._clock.stopwatch() < degraded.retry_at
            ):
                return ids + self._degrade(degraded, count - len(ids))
            while len(ids) < count:
                # One tick at a time, so that other threads don't wait for a whole batch.
                with self._lock:
                    self._refusals = refusals
                    ids.extend(islice(self._usable_block(), count - len(ids)))
                if len(ids) < count:
                    SYSTEM_CLOCK.sleep(0)
        except (LeaseError, ClockMovedBackwards) as error:
            if degraded is None or self._closed:
                raise
            degraded.retry_at = self._clock.stopwatch() + RETRY
            return ids + self._degrade(degraded, count - len(ids), error)
        finally:
            self._hand_in_if_prefork()
            self._outbox.send()
        return ids

    def _hand_in_if_prefork(self) -> None:
        if is_prefork():
            with self._lock:
                self._discard()
            self.keeper.release()

    def _degrade(
        self, degraded: DegradedIds, count: int, error: Exception | None = None
    ) -> list[int]:
        with self._lock:
            ids = degraded.take(count)
            self._counts.degraded += count
        self._outbox.put(
            "ids_degraded",
            namespace=self.keeper.namespace.name,
            worker=degraded.worker,
            ids=count,
            error=error or self.keeper.trouble,
        )
        return ids

    # --- ticks, in rising order; under the lock -----------------------------------

    def _usable_block(self) -> Iterator[int]:
        """The ids of a tick that may be stamped now; may wait, renew or acquire."""
        waited = 0.0
        while True:
            lease = self._lease()
            # In this order, so that a block counts as fresh too briefly rather than too long.
            read_at = SYSTEM_CLOCK.stopwatch()
            now_us = self.keeper.now_us()
            now = self.keeper.namespace.tick_at(now_us)
            last = self.keeper.last_tick
            current = self._earliest(now, lease)
            if last >= current and (length_hint(self._block) or self._open_batch()):
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

    def _earliest(self, now: int, lease: Lease) -> int:
        """The first tick that may be stamped, whatever was stamped before."""
        return max(now, lease.start)

    def _lease(self) -> Lease:
        if self._closed:
            raise GeneratorClosed(
                f"The generator of namespace {self.keeper.namespace.name!r} is closed. Make a new "
                "one."
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
        # It does not borrow again what idle time won back, except max_ahead.
        self.keeper.offset = min(self.keeper.offset, max(tick - now, 0) + self._ahead)
        self._rest = self._batches_of(lease, tick, self._first_sequence())
        # Written before the block can be seen: a release that reads it later
        # covers every id that a thread may still take from the block.
        self.keeper.last_tick = tick
        self._open_batch()

    def _open_batch(self) -> bool:
        """Walk the next batch of the last tick; False if there is none."""
        if not self._rest:
            return False
        ids = self._rest.pop()
        self._block = iter(ids)
        # Last: a thread that reads the counts meanwhile finds too few ids issued, never too many.
        self._counts.loaded += len(ids)
        return True

    def _fresh_block(self, tick: int, read_at: float, now_us: int) -> Iterator[int]:
        """The block, fresh until ``tick`` ends; the time was ``now_us`` at ``read_at``."""
        # A clock that the caller gave is asked each time, on the slow path.
        if self._clock.stopwatch is SYSTEM_CLOCK.stopwatch:
            self._fresh = read_at + (self._begins_us(tick + 1) - now_us) / 1e6
        return self._block

    def _first_sequence(self) -> int:
        """Where the sequence of the next tick begins."""
        start = self._sequence_start
        if start < 0:
            half = self.layout.sequences // 2
            is_first = self._counts.ticks == 1
            used = 0 if is_first else self.layout.sequences - length_hint(self._block)
            # At least half of the tick is left.
            if used > half:
                return 0
            if start == SEQUENCE_STARTS["next"]:
                return used
            start = half
        return randrange(start) if start else 0  # nosec B311  # where ids of a tick begin is no secret

    def _batches_of(self, lease: Lease, tick: int, skipped: int = 0) -> list[range]:
        """The ids of ``tick``, a range for each batch, the last one first.

        As with pear-flower, a tick begins at a random batch of the first half, so that two
        processes that share a worker id by mistake are less likely to collide. It doesn't wrap
        round, because ids would not rise.
        """
        layout = self.layout
        unit = 1 << layout.sequence_shift
        base = layout.base(tick, lease.worker)
        start = randrange(layout.batches // 2) if layout.batches > 1 else 0  # nosec B311
        batches = []
        for batch in range(start, layout.batches):
            first = base | batch << layout.batch_shift
            batches.append(range(first, first + layout.sequences * unit, unit))
        batches[0] = batches[0][skipped:]
        if not batches[0][0]:
            batches[0] = batches[0][1:]  # never the id 0
        return batches[::-1]

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
                f"and there is no other worker id: {error} Correct the clock, raise 'wait_limit' "
                "or 'max_ahead', or wait: ids continue when the clock has caught up."
            ) from error
        if changed.start <= self.keeper.last_tick:
            # Asking again would not help, and this thread holds the lock.
            raise ClockMovedBackwards(
                f"The registry of namespace {changed.namespace!r} granted a window from tick "
                f"{changed.start}, not from tick {self.keeper.last_tick + 1} or later, so ids "
                f"would not rise. It must respect 'not_before'."
            )
        self._counts.worker_changes += 1
        self._outbox.put("worker_changed", lease=changed, behind_seconds=seconds)

    def _extend(self, tick: int) -> None:
        lease = self.keeper.extend(tick, refusals=self._refusals)
        # Computed anew: a new lease brings another time with it, and the request took time.
        tick = max(self.keeper.now_tick(), lease.start, self.keeper.last_tick + 1)
        if tick >= lease.until:
            raise LeaseExpired(
                f"The registry extended the window of worker id {lease.worker} of namespace "
                f"{lease.namespace!r} only to tick {lease.until}, but the next id needs tick "
                f"{tick}. Either the answer took longer than the window, or the registry may lend "
                "no further."
            )

    def _note_backwards(self, ticks: int) -> None:
        self._counts.backwards += 1
        self._outbox.put("clock_moved_backwards", behind_ticks=ticks)

    def _exhausted(self, tick: int) -> TimeExhausted:
        longer = self.layout.longer
        return TimeExhausted(
            f"Tick {tick} does not fit layout {self.layout}: its time bits ended at "
            f"{self.layout.exhausted_at.isoformat()}. Choose a later epoch, or a layout with more "
            f"time bits{longer and f', such as {longer}'}."
        )

    # --- the rest of the protocol ------------------------------------------------

    def decode(self, value: int) -> IdParts:
        """Take an id of this generator apart.

        Raises :class:`InvalidId` for what can't be one of its ids, such as one
        whose time is in the future.
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
        self.check_process()
        counts = self._counts
        return SnowflakeStats(
            issued=counts.loaded - counts.discarded - length_hint(self._block),
            ticks=counts.ticks,
            waits=counts.waits,
            waited=counts.waited,
            borrowed=counts.borrowed,
            backwards=counts.backwards,
            worker_changes=counts.worker_changes,
            degraded=counts.degraded,
            renewals=self.keeper.renewals,
            renewal_failures=self.keeper.failures,
            refusals=self.keeper.refusals,
            lease=self.keeper.lease,
        )

    def close(self) -> None:
        """Stop issuing, then give the worker id back. May be called twice.

        Never raises: a worker id that can't be given back expires.
        """
        # A child must not give back what its parent still uses.
        self.check_process()
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._discard()
        self.keeper.release()
        self._outbox.send()

    def _discard(self) -> None:
        self._counts.discarded += length_hint(self._block)
        self._block = iter(())
        self._rest = []
        self._fresh = NEVER

    def forget(self) -> None:
        """After a fork: drop the parent's lease and ids, and start afresh.

        Call it only while no other thread uses the generator.
        """
        self._start_over()
        self.keeper.forget()
        self._pid = os.getpid()


def locked_next_id(self: SnowflakeGenerator) -> int:
    """``next_id`` where there is no GIL: an iterator's step is not atomic there."""
    return self._next_ids_slowly(1, [])[0]


def locked_next_ids(self: SnowflakeGenerator, count: int) -> list[int]:
    """``next_ids`` where there is no GIL: every id is taken under the lock."""
    return self._next_ids_slowly(check_count(count), [])


def take_none(self: SnowflakeGenerator, count: int) -> list[int]:  # noqa: ARG001
    """``_take_fresh`` where there is no GIL: for coroutines, too, the lock is needed."""
    return []


if not HAS_GIL:  # pragma: no cover - free-threaded builds
    SnowflakeGenerator.next_id = locked_next_id
    SnowflakeGenerator.next_ids = locked_next_ids  # type: ignore[method-assign]
    SnowflakeGenerator._take_fresh = take_none  # type: ignore[method-assign]
