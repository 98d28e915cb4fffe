"""Ids prepared ahead, as uid-generator's cached generator has them: whole ticks in a buffer.

A thread keeps the buffer filled with ranges, one for each tick. A caller walks the open tick
without reading a clock: see :func:`.generator.walk`. The thread reads the clock for the callers:
it discards a tick that is too old, so that after a pause ids are of the present again.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from itertools import islice
from operator import length_hint
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from .clock import SYSTEM_CLOCK, Clock
from .errors import ConfigurationError
from .events import Emit, ignore
from .generator import HAS_GIL, drop, walk
from .layout import BitLayout, is_int
from .loader import RepeatingThread
from .options import check_seconds, check_whole
from .registry import Registry
from .snowflake import NEVER, SEQUENCE_STARTS, SnowflakeGenerator, SnowflakeStats

if TYPE_CHECKING:
    from collections.abc import Mapping


logger = logging.getLogger("django_idgen")

Policy = Callable[["BufferedGenerator"], object]
"""Called with the generator whose buffer is full or empty."""

MAX_BOOST = 16
RETRY = 1.0
"""Seconds until the thread tries again after it failed to fill the buffer."""


@dataclass(frozen=True, slots=True)
class BufferedStats(SnowflakeStats):
    """Counts of a snowflake generator and its buffer."""

    buffered: int
    """Ids prepared and not issued yet, those of the open tick included."""
    capacity: int
    """Ids of a full buffer."""
    dry: int
    """Times that a caller found the buffer empty and had to wait for the next tick."""
    outdated: int
    """Ids discarded because their ticks were too old."""


class BufferedGenerator(SnowflakeGenerator):
    """Snowflake ids out of a buffer of ``2**boost_power`` whole ticks, filled ahead.

    The idea is that of uid-generator's ``CachedUidGenerator``.

    * ``boost_power`` (0 to 16): an id's time lies at most ``2**boost_power`` ticks ahead of
      the registry's time, or behind it. (Further ahead where its lease had to start later.)
    * ``padding_factor`` (percent, 1 to 99): fill when fewer ids than this share are left.
    * ``schedule_interval`` (seconds): also fill that often. None: only as callers take ids.
    * ``on_full``, ``on_empty``: callables, or dotted paths to them, that get this generator.
      The filling thread calls ``on_full`` when the buffer is full. A caller calls ``on_empty``
      when the buffer is empty and the next tick may not be prepared yet. If ``on_empty`` does
      not raise, the caller waits for the tick, ``wait_limit`` seconds at most.

    The other arguments and the errors are those of :class:`SnowflakeGenerator`, except
    ``max_ahead``, ``degraded_worker`` and the words of ``sequence_start``. Thread-safe. After a
    long stop a process may issue ids of the tick that was open then, until its thread runs again.
    They are older, but inside its lease and unique.
    """

    next_id: Callable[[], int]
    """As :meth:`SnowflakeGenerator.next_id`. Made by :func:`walk`, to be kept."""

    __slots__ = dict.fromkeys((
        "_asleep", "_buffer", "_capacity", "_dry", "_fresh_until", "_ids", "_low", "_on_empty",
        "_on_full", "_opened", "_outdated", "_ready", "_schedule", "_short_lock", "_thread",
    )) | {"next_id": "next_id() -> int\n\nThe next id, higher than any before it."}  # fmt: skip

    def __init__(
        self,
        layout: BitLayout,
        registry: Registry,
        *,
        boost_power: int = 3,
        padding_factor: int = 50,
        schedule_interval: float | None = None,
        on_full: Policy | str | None = None,
        on_empty: Policy | str | None = None,
        sequence_start: int | str = 0,
        wait_limit: float | None = None,
        holder: str = "",
        skew_limit: float = 10.0,
        refuse_skew: bool = False,
        background: bool = True,
        clock: Clock = SYSTEM_CLOCK,
        emit: Emit = ignore,
    ) -> None:
        if layout.batches > 1:
            raise ConfigurationError(
                f"A BufferedGenerator takes no 'batch' bits, and {layout} has some. Give them to "
                f"'sequence', or use a SnowflakeGenerator with 'max_ahead'."
            )
        if isinstance(sequence_start, str) and sequence_start in SEQUENCE_STARTS:
            raise ConfigurationError(
                f"A BufferedGenerator fills whole ticks, so its sequence_start can't be "
                f"{sequence_start!r}. Give a number, or use a SnowflakeGenerator."
            )
        ticks = 1 << check_whole("boost_power", boost_power, least=0, most=MAX_BOOST)
        self._capacity = ticks * layout.sequences
        self._low = (
            self._capacity * check_whole("padding_factor", padding_factor, least=1, most=99) // 100
        )
        self._schedule = (
            None
            if schedule_interval is None
            else check_seconds("schedule_interval", schedule_interval, most=1e9)
        )
        self._on_full = _policy("on_full", on_full)
        self._on_empty = _policy("on_empty", on_empty)
        self._ids: Iterator[int] = iter(range(0))
        self._opened: dict[None, Iterator[int]] = {}
        self.next_id = walk(self._opened.pop, None, self._go_on) if HAS_GIL else self._next_slowly
        super().__init__(
            layout,
            registry,
            max_ahead=ticks * layout.tick_us / 1e6,
            sequence_start=sequence_start,
            wait_limit=wait_limit,
            holder=holder,
            skew_limit=skew_limit,
            refuse_skew=refuse_skew,
            background=background,
            clock=clock,
            emit=emit,
        )

    def _start_over(self) -> None:
        super()._start_over()
        drop(self._ids)  # next_id may be on it
        self._thread = RepeatingThread()
        self._short_lock = threading.Lock()
        """Guards what follows; never held while a thread waits. Taken after ``_lock``."""
        self._buffer: deque[tuple[int, range]] = deque()
        """Ticks with their ids, rising."""
        self._ready = self._dry = self._outdated = 0
        """Ids in the buffer without those of the open tick; the others as in the stats."""
        self._fresh_until = NEVER
        """Until this moment of the stopwatch the open tick is not too old."""
        self._asleep = False
        """Whether the thread waits to be woken."""
        self._ids = iter(range(0))

    @classmethod
    def reach(cls, layout: BitLayout, options: Mapping[str, Any]) -> float:
        power = options.get("boost_power", 3)
        fits = is_int(power) and 0 <= power <= MAX_BOOST
        return (1 << power) * layout.tick_us / 1e6 if fits else 0.0

    # --- taking ------------------------------------------------------------------

    def _next_slowly(self) -> int:
        return self._next_ids_slowly(1, [])[0]

    def _go_on(self) -> int:
        """The next id; StopIteration for the open tick, as long as a thread reads the clock."""
        if self._clock.stopwatch() < self._fresh_until:
            if self._thread.is_alive() and length_hint(self._ids):
                self._opened[None] = self._ids
                raise StopIteration
            for value in self._ids:
                return value
        return self._next_slowly()

    def _take_fresh(self, count: int) -> list[int]:
        self.check_process()
        fresh = HAS_GIL and self._clock.stopwatch() < self._fresh_until
        return list(islice(self._ids, count)) if fresh else []

    def _next_ids_slowly(self, count: int, ids: list[int]) -> list[int]:
        self.check_process()
        refusals = self.keeper.refusals
        try:
            while len(ids) < count:
                taken = self._take_prepared(count - len(ids))
                if not taken:
                    self._prepare(refusals)
                ids += taken
        finally:
            self._hand_in_if_prefork()
            self._outbox.send()
        return ids

    def _take_prepared(self, count: int) -> list[int]:
        """Up to ``count`` ids of one tick; none if the buffer is empty."""
        with self._short_lock:
            self._drop_old()
            if not length_hint(self._ids) and self._buffer:
                self._open_next()
            return list(islice(self._ids, count))

    def _open_next(self) -> None:
        tick, ids = self._buffer.popleft()
        self._ready -= len(ids)
        self._fresh_until = self._clock.stopwatch() + self._seconds_fresh(tick)
        self._ids = iter(ids)
        if self.keeper.background:
            name = f"idgen-filler-{self.keeper.namespace.name}"
            self._thread.start(self.fill_in_background, pause=0.0, name=name, before_fork=self.park)
        if self._asleep or self._ready < self._low:
            self._thread.wake()

    def _seconds_fresh(self, tick: int) -> float:
        """How long ids of ``tick`` may still be issued; negative if no longer."""
        return self._seconds_until(tick + 1 + self._ahead)

    def _drop_old(self) -> None:
        """Discard ticks that lie too far behind."""
        if self._clock.stopwatch() < self._fresh_until:
            return
        self._drop_open()
        while self._buffer and self._seconds_fresh(self._buffer[0][0]) <= 0:
            count = len(self._buffer.popleft()[1])
            self._ready -= count
            self._outdated += count

    def _drop_open(self) -> None:
        self._outdated += length_hint(self._ids)
        drop(self._ids)

    def park(self) -> None:
        """Leave no tick open before a fork, since for a while no thread reads the clock."""
        with self._short_lock:
            self._drop_open()

    # --- filling -----------------------------------------------------------------

    def _prepare(self, refusals: int) -> None:
        """Put ids into the buffer; may wait for a tick, renew or acquire."""
        if self._fill(refusals):
            return
        with self._short_lock:
            self._dry += 1
        if self._on_empty is not None:
            self._on_empty(self)
        self._fill(refusals, wait=True)

    def _fill(self, refusals: int | None = None, *, wait: bool = False) -> bool:
        """Prepare all ticks that may be prepared; returns whether the buffer has ids.

        ``wait``: prepare at least one, and wait for its time. One thread fills at a time.
        """
        with self._lock:
            self._refusals = self.keeper.refusals if refusals is None else refusals
            while self._ready < self._capacity and (
                self._may_prepare() or (wait and not self._ready)
            ):
                block = self._usable_block()
                self._block = iter(())
                self._put(self.keeper.last_tick, block)
            full = self._ready >= self._capacity
        if full and self._on_full is not None:
            try:
                self._on_full(self)
            except Exception:
                logger.exception("on_full of namespace %r failed.", self.keeper.namespace.name)
        return self._ready > 0

    def _may_prepare(self) -> bool:
        """Whether the next tick may be prepared without waiting."""
        keeper = self.keeper
        lease = keeper.lease
        if lease is None or self._closed:
            return True  # to acquire, or to be refused
        now = keeper.now_tick()
        tick = max(now, lease.start, keeper.last_tick + 1)
        return tick <= max(now + self._lead(), lease.start)

    def _put(self, tick: int, block: Iterator[int]) -> None:
        unit = 1 << self.layout.sequence_shift
        count = length_hint(block)
        first = next(block)
        with self._short_lock:
            self._buffer.append((tick, range(first, first + count * unit, unit)))
            self._ready += count

    def fill_in_background(self) -> float:
        """One turn of the filling thread; returns the seconds until the next. Never raises."""
        with self._short_lock:
            self._drop_old()
            # Without callers it prepares nothing new, except on a schedule.
            self._asleep = self._clock.stopwatch() >= self._fresh_until
        if not self._asleep or self._schedule is not None:
            try:
                self._fill()
            except Exception:  # noqa: BLE001 - signalled; the next caller gets it
                return RETRY
            finally:
                self._outbox.send()
        pauses = [self._fresh_until - self._clock.stopwatch(), self._schedule or 0.0]
        return min((each for each in pauses if each > 0.0), default=threading.TIMEOUT_MAX)

    # --- the rest of the protocol --------------------------------------------------

    def stats(self) -> BufferedStats:
        """Counts since the generator was made, or since the fork. Thread-safe."""
        known = super().stats()
        with self._short_lock:
            buffered = self._ready + length_hint(self._ids)
            counts = {each.name: getattr(known, each.name) for each in fields(known)}
            counts["issued"] -= buffered + self._outdated
            return BufferedStats(
                **counts,
                buffered=buffered,
                capacity=self._capacity,
                dry=self._dry,
                outdated=self._outdated,
            )

    def _discard(self) -> None:
        super()._discard()
        with self._short_lock:
            self._thread.stop()
            self._counts.discarded += self._ready + length_hint(self._ids)
            self._buffer.clear()
            self._ready = 0
            drop(self._ids)

    def __del__(self) -> None:
        if hasattr(self, "_thread"):
            self._thread.stop()


def _policy(name: str, value: object) -> Policy | None:
    found: Any = value
    if isinstance(value, str):
        try:
            found = resolve_name(value)
        except (ValueError, ImportError, AttributeError) as error:
            raise ConfigurationError(
                f"{name} is {value!r}, which can't be imported: {error}"
            ) from error
    if found is not None and not callable(found):
        raise ConfigurationError(
            f"{name} must be a callable, a dotted path to one, or None, not {value!r}."
        )
    policy: Policy | None = found
    return policy
