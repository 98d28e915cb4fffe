"""The keeper of one generator's lease: gets it, keeps it going, gives it back.

The generator asks three things of it: which lease holds now, what time it is,
and, when a window runs out, for more. Renewal runs in a daemon thread at a third of
the window, and on the generator's slow path where that thread is missing or stuck.
One that fails is tried again until the window is over: nothing can end it.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from .clock import SYSTEM_CLOCK, AnchoredClock, Clock
from .errors import ClockSkewed, IdgenError, LeaseError, LeaseExpired, LeaseLost
from .generator import Outbox, ignore
from .lease import Grant, Lease, process_label
from .loader import RepeatingThread
from .registry import Registry

__all__ = ["LeaseKeeper", "RegistryCalls"]


IO_PATIENCE = 10.0
"""Seconds that a caller waits for another thread's call to the registry to end."""


class RegistryCalls:
    """The calls of one process to the registry of ``namespace``. Thread-safe."""

    __slots__ = ("_clock", "_namespace", "_refusal", "_troubled_ns", "lock", "refusals", "trouble")

    def __init__(self, namespace: str, clock: Clock) -> None:
        self._namespace = namespace
        self._clock = clock
        self.lock = threading.Lock()
        """Held during a call."""
        self.refusals = 0
        """How many times no lease was to be had."""
        self._refusal: LeaseError | ClockSkewed | None = None
        self.trouble: IdgenError | None = None
        """Why the last call for a lease got none; ``None`` since one was had, or renewed."""
        self._troubled_ns = 0

    @property
    def seconds_since_trouble(self) -> float:
        """How long ago a lease was last asked for in vain; only with :attr:`trouble`."""
        return (self._clock.elapsed_ns() - self._troubled_ns) / 1e9

    @contextmanager
    def one_at_a_time(self) -> Iterator[None]:
        """Wait for another thread's call, but not for ever.

        Raises :class:`LeaseExpired` if that does not end.
        """
        if not self.lock.acquire(timeout=IO_PATIENCE):
            raise LeaseExpired(
                f"The registry of namespace {self._namespace!r} did not answer another "
                f"thread's call for {IO_PATIENCE:g} s. Check that it can be reached, and that "
                f"its timeouts are shorter; the next call tries again."
            )
        try:
            yield
        finally:
            self.lock.release()

    @contextmanager
    def answering_for_all(self, refusals: int | None) -> Iterator[None]:
        """Let one failure answer for those who stood in line behind it.

        ``refusals`` is what :attr:`refusals` was before the caller stood in line. A
        registry that times out after seconds would else be asked by each caller in
        turn, and the last one wait for all of them.
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


RETRY_SECONDS = 1.0
"""Shortest pause between two attempts to renew after one that failed."""


class LeaseKeeper:
    """Keeps one lease of ``registry``. Thread-safe.

    ``holder`` labels this process. ``skew_limit_us`` bounds how far the clocks
    of the registry and of this host may differ before ``clock_skewed`` is told
    (or, with ``refuse_skew``, :class:`ClockSkewed` is raised). ``background``
    is False where no thread may be started.
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
        """The last tick that the generator loaded; it writes this, we read it."""
        self._clock = clock
        self._skew_limit_us = skew_limit_us
        self._outbox = outbox or Outbox(ignore)
        self._window_ns = self.namespace.window_ticks * self.namespace.tick_us * 1000
        self._third = self._window_ns / 3e9
        # Not after each attempt: callers would stand still while the registry times out.
        self._retry = min(self._third, max(RETRY_SECONDS, self._third / 10))
        self._start_over()

    def _start_over(self) -> None:
        self.lease: Lease | None = None
        self.lost = False
        self.offset = 0
        """How many ticks past now may be stamped since the lease had to start later.

        Set anew by each lease; the generator lowers it as it falls back in line.
        """
        self.renewals = self.failures = 0
        self._calls = RegistryCalls(self.namespace.name, self._clock)
        self._state = threading.Lock()
        self._time = AnchoredClock(self._clock, self._skew_limit_us)
        self._thread = RepeatingThread()
        self._renewed_ns = self._tried_ns = 0

    # --- time ---------------------------------------------------------------

    def now_us(self) -> int:
        """The registry's time, µs since 1970. Needs a lease to have been held."""
        return self._time.now_us()

    def now_tick(self) -> int:
        """The tick that the registry's time lies in."""
        return self.namespace.tick_at(self._time.now_us())

    # --- how it stands --------------------------------------------------------

    @property
    def seconds_left(self) -> float:
        """Of the window that is held, by the registry's time; 0.0 if it is over, or none is."""
        lease = self.lease
        if lease is None:
            return 0.0
        end_us = self.namespace.epoch_us + self.registry.end_of(lease) * self.namespace.tick_us
        return max(0.0, (end_us - self._time.now_us()) / 1e6)

    @property
    def renewal_failed(self) -> bool:
        """Whether the last attempt to renew came to nothing."""
        return self._tried_ns > self._renewed_ns

    @property
    def refusals(self) -> int:
        """How many times no lease was to be had; a caller notes it before it stands in line."""
        return self._calls.refusals

    @property
    def trouble(self) -> IdgenError | None:
        """Why the last call for a lease got none; ``None`` since one was had, or renewed."""
        return self._calls.trouble

    @property
    def seconds_since_trouble(self) -> float:
        """How long ago a lease was last asked for in vain; only with :attr:`trouble`."""
        return self._calls.seconds_since_trouble

    # --- getting and extending a lease ---------------------------------------

    def acquire(self, *, avoid: int | None = None, refusals: int | None = None) -> Lease:
        """Take a new lease, whose first tick lies after the last one loaded.

        The one held before is given back. ``refusals`` is what :attr:`refusals` was
        before the caller stood in line: who came before and got none answers for it.
        Raises what :meth:`Registry.acquire`
        raises, :class:`ClockSkewed`, or :class:`LeaseExpired` if another thread's
        call to the registry does not end.
        """
        with self._calls.one_at_a_time(), self._calls.answering_for_all(refusals):
            return self._acquire(avoid)

    def _acquire(self, avoid: int | None) -> Lease:
        previous = self.lease
        grant = self.registry.acquire(
            holder=self.holder, not_before=self.last_tick + 1, avoid=avoid
        )
        self._check_skew(grant)
        with self._state:
            self._time.observe(grant.reading, restart=True)
            self.lease, self.lost, self._calls.trouble = grant.lease, False, None
            granted_at = self.namespace.tick_at(grant.reading.registry_us)
            self.offset = ahead = max(0, grant.lease.start - granted_at)
            self._renewed_ns = self._tried_ns = self._clock.elapsed_ns()
        if previous is not None and not self._is_over(previous):
            self._hand_back(previous, self.last_tick)
        self._outbox.put("lease_acquired", lease=grant.lease, ahead_ticks=ahead)
        self.keep_renewing()
        return grant.lease

    def extend(self, tick: int, *, refusals: int | None = None) -> Lease:
        """Get a window that ``tick`` lies in or before: the next one to be stamped.

        By renewal if the lease is still known, else by a new lease. Raises
        :class:`LeaseExpired` with the cause chained, else as :meth:`acquire`.
        """
        with self._calls.one_at_a_time():
            lease = self.lease
            if lease is not None and tick < lease.until:
                return lease  # the renewal thread was quicker
            with self._calls.answering_for_all(refusals):
                try:
                    return self._renew(tick) or self._acquire(None)
                except LeaseError as error:
                    raise LeaseExpired(self._words_of_expiry(error)) from error

    def keep_renewing(self) -> None:
        """Start the renewal thread, unless it runs, as it does until the process forks."""
        if not self.background or self._thread.is_alive():
            return
        with self._state:
            if self.lease is not None:
                since = (self._clock.elapsed_ns() - self._renewed_ns) / 1e9
                pause = max(0.0, self._third - since)
                name = f"idgen-{self.namespace.name}"
                self._thread.start(self.renew_in_background, pause=pause, name=name)

    def renew_on_path(self) -> None:
        """Renew from the generator's slow path, if it is overdue.

        Cheap when nothing is due. Never raises, and waits for no other thread.
        """
        self.keep_renewing()
        if not self._is_due() or not self._calls.lock.acquire(blocking=False):
            return
        try:
            self._renew_quietly()
        finally:
            self._calls.lock.release()

    def _is_due(self) -> bool:
        lease = self.lease
        if lease is None or self.lost:
            return False
        now = self._clock.elapsed_ns()
        if now - self._renewed_ns < 1e9 * self._third:
            return False
        # A living thread tries in time. If it did not even try, it is stuck.
        if self._thread.is_alive() and now - self._tried_ns < 2e9 * self._third:
            return False
        # Past the window extend() comes anyway: a dead registry is not asked twice.
        return now - self._tried_ns >= 1e9 * self._retry and not self._is_over(lease)

    def renew_in_background(self) -> float:
        """One turn of the renewal thread; returns the seconds until the next."""
        with self._calls.lock:
            ok = self._renew_quietly()
        self._outbox.send()
        return self._third if ok else self._retry

    def _renew_quietly(self) -> bool:
        try:
            self._renew(-1)
        except Exception as error:  # noqa: BLE001 - renewal outlives every error
            self.failures += 1
            self._outbox.put("renewal_failed", lease=self.lease, error=error)
            return False
        return True

    def _renew(self, tick: int) -> Lease | None:
        """Renew; ``None`` if there is no lease that the registry still knows."""
        lease = self.lease
        if lease is None or self.lost:
            return None
        try:
            # The latest tick we could stamp now: so the mark goes on rising with
            # us even after the registry's own clock was put back.
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
            # A late answer counts only for the lease that we still hold.
            if self.lease is None or self.lease.token != asked.token:
                return None
            refused_us = self._time.observe(grant.reading)
            self.lease = replace(self.lease, until=max(self.lease.until, grant.lease.until))
            self._renewed_ns = self._clock.elapsed_ns()
            self.renewals += 1
            self._calls.trouble = None
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
        """Give the lease back. The generator has stopped loading ticks before.

        Never raises: a lease that could not be given back expires.
        """
        with self._state:
            self._thread.stop()
            lease, self.lease = self.lease, None
        # Not for ever: a renewal that comes after the release finds no such token.
        waited = self._calls.lock.acquire(timeout=IO_PATIENCE)
        try:
            if lease is not None:
                self._hand_back(lease, self.last_tick)
        finally:
            if waited:
                self._calls.lock.release()

    def _hand_back(self, lease: Lease, last_tick: int) -> None:
        try:
            known = self.registry.release(lease, last_tick=last_tick if last_tick >= 0 else None)
        except Exception as error:  # noqa: BLE001 - what isn't given back expires
            self._outbox.put("release_failed", lease=lease, error=error)
        else:
            self._outbox.put("lease_released", lease=lease, known=known)

    def forget(self) -> None:
        """After a fork: the lease, the thread, the locks and the label are the parent's."""
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
                f"{self._skew_limit_us / 1e6:g} s. Mend the clock (NTP), raise 'skew_limit', or "
                f"turn 'refuse_skew' off: uniqueness does not depend on it."
            )

    def _is_over(self, lease: Lease) -> bool:
        return self.now_tick() >= lease.until

    def _words_of_expiry(self, error: Exception) -> str:
        lease = self.lease
        held = f"worker {lease.worker} until tick {lease.until}" if lease else "none"
        return (
            f"No lease of namespace {self.namespace.name!r} could be renewed or acquired "
            f"(held: {held}): {error} No id is issued outside a lease; the next call tries again."
        )

    def __del__(self) -> None:
        if hasattr(self, "_thread"):
            self._thread.stop()
        if getattr(self, "lease", None) is not None:
            warnings.warn(
                f"A generator of namespace {self.namespace.name!r} was dropped without close(): "
                f"its worker id stays taken until the window is over.",
                ResourceWarning,
                stacklevel=2,
            )
