"""Keeps one generator's lease: acquires it, renews it, gives it back.

The generator asks three things: which lease holds now, what time it is, and, when a window
runs out, for more. A daemon thread renews at a third of the window; the generator's slow path
does it where that thread is missing or stuck. A renewal that fails is tried again until the
window is over, whatever the error.

The thread's pauses are random, within bounds. Otherwise processes that started together, or that
waited for the same outage to end, would ask the registry in the same seconds of each minute.
"""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import SystemRandom
from typing import NoReturn

from .clock import SYSTEM_CLOCK, AnchoredClock, Clock
from .errors import ClockSkewed, IdgenError, LeaseError, LeaseExpired, LeaseLost
from .events import Outbox, ignore
from .lease import Grant, Lease, process_label
from .loader import RepeatingThread, Turn
from .registry import Registry

IO_PATIENCE = 10.0
"""Seconds that a caller waits for another thread's call to the registry to end."""
RETRY_SECONDS = 1.0
"""Shortest pause between two attempts to renew after one that failed."""
SPREAD, STEADY = (0.1, 1.0), (0.9, 1.0)
# Forked processes must not all choose the same pauses.
_random = SystemRandom()


def pause_until_renewal(third: float, *, spread: bool) -> float:
    """A random pause of at most ``third`` (of the window), in the same unit.

    ``spread``: after an acquire or a late renewal, when others may have called in the same second.
    """
    return third * _random.uniform(*(SPREAD if spread else STEADY))


class LeaseKeeper:
    """Keeps one lease of ``registry``. Thread-safe.

    ``holder`` labels this process. ``skew_limit_us`` bounds how far the clocks of the registry
    and of this host may differ before the keeper signals ``clock_skewed`` (or, with
    ``refuse_skew``, raises :class:`ClockSkewed`). ``background`` is False where it may not
    start a thread.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        holder: str,
        skew_limit_us: int,
        refuse_skew: bool = False,
        background: bool = True,
        clock: Clock = SYSTEM_CLOCK,
        outbox: Outbox | None = None,
    ) -> None:
        self.registry = registry
        self.namespace = registry.namespace
        self.holder = holder
        self._is_labelled_by_default = holder == process_label()
        self.refuse_skew = refuse_skew
        self.background = background
        self.last_tick = -1
        """The last tick that the generator loaded. Only the generator writes it."""
        self._clock = clock
        self._skew_limit_us = skew_limit_us
        self._outbox = outbox or Outbox(ignore)
        self._third = self.namespace.window_ticks * self.namespace.tick_us / 3e6
        # Not after each attempt: callers would stand still while the registry times out.
        self._retry = min(self._third, max(RETRY_SECONDS, self._third / 10))
        self._start_over()

    def _start_over(self) -> None:
        self.lease: Lease | None = None
        self.lost = False
        self.offset = 0
        """How many ticks past now may be stamped, since the lease had to start later.

        Each lease sets it; the generator lowers it as it falls back in line.
        """
        self.renewals = self.failures = 0
        self.refusals = 0
        """How many times a request for a lease failed."""
        self.trouble: IdgenError | None = None
        """Why the last request for a lease failed; None since one was acquired or renewed."""
        self._refusal: LeaseError | ClockSkewed | None = None
        self._turn = Turn()
        """Of the calls to the registry."""
        self._state = threading.Lock()
        self._time = AnchoredClock(self._clock, self._skew_limit_us)
        self._thread = RepeatingThread()
        self._renewed_ns = self._tried_ns = self._troubled_ns = 0
        self._pause = self._third
        """Seconds from the last renewal to the next."""

    # --- time ---------------------------------------------------------------

    def now_us(self) -> int:
        """The registry's time, µs since 1970. Needs a lease to have been held."""
        return self._time.now_us()

    def now_tick(self) -> int:
        """The tick that the registry's time lies in."""
        return self.namespace.tick_at(self._time.now_us())

    # --- state ----------------------------------------------------------------

    @property
    def seconds_left(self) -> float:
        """Seconds left of the window, by the registry's time; 0.0 without a lease."""
        lease = self.lease
        if lease is None:
            return 0.0
        end_us = self.namespace.epoch_us + self.registry.end_of(lease) * self.namespace.tick_us
        return max(0.0, (end_us - self._time.now_us()) / 1e6)

    @property
    def skewed_by_us(self) -> int | None:
        """How far this host's clock is off the registry's, if ``refuse_skew`` forbids that."""
        if self.lease is None or not self.refuse_skew:
            return None
        offset_us = self._clock.wall_ns() // 1000 - self._time.now_us()
        return offset_us if abs(offset_us) > self._skew_limit_us else None

    @property
    def renewal_failed(self) -> bool:
        """Whether the last attempt to renew failed."""
        return self._tried_ns > self._renewed_ns

    @property
    def seconds_since_trouble(self) -> float:
        """How long ago a request for a lease failed last; only with :attr:`trouble`."""
        return (self._clock.elapsed_ns() - self._troubled_ns) / 1e9

    @property
    def seconds_unused(self) -> float:
        """Seconds since an id was asked for, as loaded ticks and failed requests tell.

        Infinite if none was.
        """
        unused = math.inf if self.trouble is None else self.seconds_since_trouble
        if self.lease is not None and self.last_tick >= 0:
            ended_us = self.namespace.epoch_us + (self.last_tick + 1) * self.namespace.tick_us
            unused = min(unused, max(0.0, (self._time.now_us() - ended_us) / 1e6))
        return unused

    # --- getting and extending a lease ---------------------------------------

    def acquire(self, *, avoid: int | None = None, refusals: int | None = None) -> Lease:
        """Acquire a new lease, whose first tick lies after the last one loaded.

        Gives the old lease back. ``refusals`` is what :attr:`refusals` was before the caller
        began to wait for its turn: if a request failed meanwhile, that failure is raised.
        Raises what :meth:`Registry.acquire` raises, :class:`ClockSkewed`, or
        :class:`LeaseExpired` if another thread's call to the registry does not end.
        """

        def call() -> Lease:
            with self._sharing_failures(refusals):
                return self._acquire(avoid)

        return self._turn.run(call, timeout=IO_PATIENCE, late=self._give_up)

    def _give_up(self) -> NoReturn:
        raise LeaseExpired(
            f"The registry of namespace {self.namespace.name!r} did not answer another "
            f"thread's call for {IO_PATIENCE:g} s. Check that the registry can be reached, "
            "and that its timeouts are shorter. The next call tries again."
        )

    @contextmanager
    def _sharing_failures(self, refusals: int | None) -> Iterator[None]:
        """Let one failure answer for all callers that waited behind it.

        Otherwise each of them would ask a registry that times out after seconds, and the last
        one would wait for all.
        """
        if self._refusal is not None and refusals not in (None, self.refusals):
            raise self._refusal.with_traceback(None)
        try:
            yield
        except IdgenError as error:
            self.trouble, self._troubled_ns = error, self._clock.elapsed_ns()
            if isinstance(error, (LeaseError, ClockSkewed)):
                self._refusal = error
                self.refusals += 1
            raise

    def _acquire(self, avoid: int | None) -> Lease:
        previous = self.lease
        try:
            grant = self.registry.acquire(
                holder=self.holder, not_before=self.last_tick + 1, avoid=avoid
            )
        except ClockSkewed as error:
            self._outbox.put("clock_skewed", offset_us=error.offset_us, source="holders")
            raise
        self._check_skew(grant)
        with self._state:
            self._time.observe(grant.reading, restart=True)
            self.lease, self.lost, self.trouble = grant.lease, False, None
            granted_at = self.namespace.tick_at(grant.reading.registry_us)
            self.offset = ahead = max(0, grant.lease.start - granted_at)
            self._renewed_ns = self._tried_ns = self._clock.elapsed_ns()
            self._pause = pause_until_renewal(self._third, spread=True)
        if previous is not None and not self._is_over(previous):
            self._hand_back(previous, self.last_tick)
        self._outbox.put("lease_acquired", lease=grant.lease, holder=self.holder, ahead_ticks=ahead)
        self.keep_renewing()
        return grant.lease

    def extend(self, tick: int, *, refusals: int | None = None) -> Lease:
        """Get a window for ``tick``, the next one to stamp.

        Renews the lease if the registry still knows it, else acquires a new one. Raises
        :class:`LeaseExpired` with the cause chained, else as :meth:`acquire`.
        """

        def call() -> Lease:
            lease = self.lease
            if lease is not None and tick < lease.until:
                return lease  # the renewal thread was quicker
            with self._sharing_failures(refusals):
                try:
                    return self._renew(tick) or self._acquire(None)
                except LeaseError as error:
                    raise self._expired(error) from error

        return self._turn.run(call, timeout=IO_PATIENCE, late=self._give_up)

    def keep_renewing(self) -> None:
        """Start the renewal thread if it does not run; it ends when the process forks."""
        if not self.background or self._thread.is_alive():
            return
        with self._state:
            if self.lease is not None:
                since = (self._clock.elapsed_ns() - self._renewed_ns) / 1e9
                pause = max(0.0, self._pause - since)
                name = f"idgen-{self.namespace.name}"
                self._thread.start(self.renew_in_background, pause=pause, name=name)

    def renew_on_path(self) -> None:
        """Renew from the generator's slow path if the renewal is overdue.

        Cheap otherwise. Never raises, and waits for no other thread.
        """
        self.keep_renewing()
        if self._is_overdue():
            self._turn.run(self._renew_quietly, timeout=0.0, late=lambda: False)

    def _is_overdue(self) -> bool:
        lease = self.lease
        if lease is None or self.lost:
            return False
        now = self._clock.elapsed_ns()
        if now - self._renewed_ns < 1e9 * self._third:
            return False
        # A thread that runs tries in time. If it did not even try, it is stuck.
        if self._thread.is_alive() and now - self._tried_ns < 2e9 * self._third:
            return False
        # Past the window extend() asks anyway: do not ask a dead registry twice.
        return now - self._tried_ns >= 1e9 * self._retry and not self._is_over(lease)

    def renew_in_background(self) -> float:
        """One turn of the renewal thread; returns the seconds until the next."""
        ok = self._turn.run(self._renew_quietly, timeout=math.inf, late=self._renew_quietly)
        self._outbox.send()
        if ok:
            return self._pause
        return _random.uniform(self._retry, max(self._retry, self._third / 2))

    def _renew_quietly(self) -> bool:
        try:
            self._renew(-1)
        except Exception as error:  # noqa: BLE001 - renewal outlives every error
            self.failures += 1
            self._outbox.put("renewal_failed", lease=self.lease, error=error)
            return False
        return True

    def _renew(self, tick: int) -> Lease | None:
        """Renew; None if the registry no longer knows this lease."""
        lease = self.lease
        if lease is None or self.lost:
            return None
        try:
            # The latest tick that could be stamped now: so the mark keeps rising even
            # after the registry's own clock was put back.
            latest = max(self.last_tick, self.now_tick(), lease.start, tick)
            grant = self.registry.renew(lease, last_tick=latest)
        except LeaseLost as error:
            self._mark_lost(lease, error)
            return None
        finally:
            self._tried_ns = self._clock.elapsed_ns()
        return self._take_renewal(lease, grant)

    def _take_renewal(self, asked: Lease, grant: Grant) -> Lease | None:
        with self._state:
            # A late answer counts only for the lease that is still held.
            if self.lease is None or self.lease.token != asked.token:
                return None
            refused_us = self._time.observe(grant.reading)
            self.lease = replace(self.lease, until=max(self.lease.until, grant.lease.until))
            since_ns, self._renewed_ns = self._renewed_ns, self._clock.elapsed_ns()
            is_late = self._renewed_ns - since_ns > 1e9 * self._third
            self._pause = pause_until_renewal(self._third, spread=is_late)
            self.renewals += 1
            self.trouble = None
            renewed = self.lease
        if refused_us is not None:
            self._outbox.put("clock_skewed", offset_us=refused_us, source="registry")
        self._outbox.put("lease_renewed", lease=renewed)
        return renewed

    def _mark_lost(self, lease: Lease, error: LeaseLost) -> None:
        with self._state:
            if self.lease is None or self.lease.token != lease.token:
                return
            self.lost = True
        self._outbox.put("lease_lost", lease=lease, error=error)

    # --- giving it back -------------------------------------------------------

    def release(self) -> None:
        """Give the lease back. The generator has stopped loading ticks.

        Never raises: a lease that it can't give back expires.
        """
        with self._state:
            self._thread.stop()
            lease, self.lease = self.lease, None

        def hand_back() -> None:
            if lease is not None:
                self._hand_back(lease, self.last_tick)

        # With a limit: a renewal that comes after the release finds no such token.
        self._turn.run(hand_back, timeout=IO_PATIENCE, late=hand_back)

    def _hand_back(self, lease: Lease, last_tick: int) -> None:
        try:
            known = self.registry.release(lease, last_tick=last_tick if last_tick >= 0 else None)
        except Exception as error:  # noqa: BLE001 - the lease expires
            self._outbox.put("release_failed", lease=lease, error=error)
        else:
            self._outbox.put("lease_released", lease=lease, known=known)

    def forget(self) -> None:
        """After a fork: drop the parent's lease, thread, locks and label."""
        if self._is_labelled_by_default:
            self.holder = process_label()
        self._start_over()
        self._outbox.clear()
        self.registry.abandon()

    # --- checks ---------------------------------------------------------------

    def _check_skew(self, grant: Grant) -> None:
        offset_us = self._clock.wall_ns() // 1000 - grant.reading.registry_us
        if abs(offset_us) <= self._skew_limit_us + grant.reading.round_trip_us:
            return
        self._outbox.put("clock_skewed", offset_us=offset_us, source="wall")
        if self.refuse_skew:
            self._hand_back(grant.lease, -1)
            raise ClockSkewed(
                f"This host's clock is {offset_us / 1e6:+.3f} s off the registry's; the limit is "
                f"{self._skew_limit_us / 1e6:g} s. Correct the clock (NTP), raise 'skew_limit', "
                "or turn 'refuse_skew' off: ids stay unique without it.",
                offset_us,
            )

    def _is_over(self, lease: Lease) -> bool:
        return self.now_tick() >= lease.until

    def _expired(self, error: Exception) -> LeaseExpired:
        lease = self.lease
        held = f"worker {lease.worker} until tick {lease.until}" if lease else "none"
        return LeaseExpired(
            f"No lease of namespace {self.namespace.name!r} could be renewed or acquired "
            f"(held: {held}): {error} No id is issued outside a lease; the next call tries again."
        )

    def __del__(self) -> None:
        if hasattr(self, "_thread"):
            self._thread.stop()
        if getattr(self, "lease", None) is not None:
            warnings.warn(
                f"A generator of namespace {self.namespace.name!r} was dropped without close(): "
                "its worker id stays held until the window is over.",
                ResourceWarning,
                stacklevel=2,
            )
