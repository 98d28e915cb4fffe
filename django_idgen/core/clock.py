"""Three clocks, and moments as whole microseconds.

* The *stopwatch* is cheap, and only answers whether a tick is over.
* *Elapsed* time is monotonic. Where the system has such a clock, it includes suspension.
* The *wall* clock is the host's date. The package compares it and never trusts it: ids are
  stamped with the registry's time.

The import binds the functions, to clocks that freezegun and time-machine leave alone (the wall
clock under time-machine on Linux only), so that ids go on in tests that freeze the clock.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial

from .errors import TimeOutOfRange


def _elapsed_source() -> Callable[[], int]:
    # Neither freezegun nor time-machine replaces clock_gettime. CLOCK_BOOTTIME also runs while
    # a virtual machine is suspended.
    for name in ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC"):
        if hasattr(time, name):
            return partial(time.clock_gettime_ns, getattr(time, name))
    return partial(time.monotonic_ns)


_COARSE_REALTIME = 5
"""Linux' number for the wall clock as of the last timer interrupt; Python has no name for it."""
_COARSENESS_NS = 50_000_000
"""More than the longest pause between two timer interrupts (10 ms)."""


def _wall_source() -> Callable[[], int]:
    if not hasattr(time, "CLOCK_REALTIME"):
        return partial(time.time_ns)
    exact = partial(time.clock_gettime_ns, time.CLOCK_REALTIME)
    if sys.platform != "linux":
        return exact
    return _unless_faked(exact, partial(time.clock_gettime_ns, _COARSE_REALTIME))


def _unless_faked(exact: Callable[[], int], coarse: Callable[[], int]) -> Callable[[], int]:
    # time-machine replaces the exact reader inside the interpreter, so binding it early does not
    # help. It leaves the coarse one alone. An exact time far from the coarse one is false.
    def wall_ns() -> int:
        rough, fine = coarse(), exact()
        return fine if 0 <= fine - rough < _COARSENESS_NS else rough

    return wall_ns


@dataclass(frozen=True, slots=True)
class Clock:
    """The clocks and the sleep that a generator uses. Thread-safe.

    A test passes one whose functions it controls.
    """

    stopwatch: Callable[[], float]
    """Seconds since an arbitrary moment; the fastest clock."""
    elapsed_ns: Callable[[], int]
    """Nanoseconds since an arbitrary moment, with suspension where possible."""
    wall_ns: Callable[[], int]
    """Nanoseconds since 1970, according to this host."""
    sleep: Callable[[float], None]

    def ahead_of_us(self, reading: Reading) -> int:
        """How far (µs) the wall clock is ahead of the registry's clock; below 0: behind.

        The error is at most half of the reading's round trip.
        """
        since_us = (self.elapsed_ns() - reading.at_ns) // 1000
        return self.wall_ns() // 1000 - reading.registry_us - since_us


# An instance's attribute, not a module's: freezegun replaces the latter.
SYSTEM_CLOCK = Clock(
    stopwatch=time.perf_counter,
    elapsed_ns=_elapsed_source(),
    wall_ns=_wall_source(),
    sleep=time.sleep,
)


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading of the registry's clock, and its round trip."""

    registry_us: int
    """Microseconds since 1970 on the registry's clock."""
    sent_ns: int
    """``Clock.elapsed_ns`` before the request."""
    received_ns: int
    """``Clock.elapsed_ns`` after the answer."""

    @property
    def round_trip_us(self) -> int:
        return max(0, self.received_ns - self.sent_ns) // 1000

    @property
    def at_ns(self) -> int:
        """The assumed moment of the reading, on the elapsed clock."""
        return (self.sent_ns + self.received_ns) // 2


class AnchoredClock:
    """The registry's time: its last reading plus this process' elapsed time.

    A stepped wall clock changes nothing. A reading replaces the anchor only if it differs by
    more than its own round trip; less is noise. It refuses a reading that is further off than
    ``skew_limit_us``, because then one of the two clocks was stepped, and it can't know which.

    Not thread-safe: the keeper calls it under its lock.
    """

    __slots__ = ("_anchor", "_elapsed_ns", "_lag_ns", "skew_limit_us")

    def __init__(self, clock: Clock, skew_limit_us: int) -> None:
        self._elapsed_ns = clock.elapsed_ns
        self._anchor: Reading | None = None
        self._lag_ns = 0
        """The registry's time minus elapsed time; stored, since each new tick needs it."""
        self.skew_limit_us = skew_limit_us

    def now_us(self) -> int:
        """Microseconds since 1970 on the registry's clock. Needs an anchor."""
        if self._anchor is None:
            raise RuntimeError("The registry's clock was never read.")
        return (self._elapsed_ns() + self._lag_ns) // 1000

    def observe(self, reading: Reading, *, restart: bool = False) -> int | None:
        """Compare ``reading`` with the expected time, and correct that if necessary.

        Returns how far off (µs) the reading is if it is past the skew limit, and so refused;
        else None. ``restart`` accepts any reading: a new lease starts on the registry's time.
        """
        if self._anchor is None or restart:
            self._drop_anchor_at(reading)
            return None
        expected = (reading.at_ns + self._lag_ns) // 1000
        offset = reading.registry_us - expected
        if abs(offset) > max(self.skew_limit_us, reading.round_trip_us):
            return offset
        if abs(offset) > reading.round_trip_us:
            self._drop_anchor_at(reading)
        return None

    def _drop_anchor_at(self, reading: Reading) -> None:
        self._anchor = reading
        self._lag_ns = reading.registry_us * 1000 - reading.at_ns


# --- moments: whole microseconds since 1970, without floats ---------------------------

_MICROSECOND = timedelta(microseconds=1)
_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAX_UNIX_US = (datetime.max.replace(tzinfo=UTC) - _UNIX_EPOCH) // _MICROSECOND
"""The last microsecond (since 1970) that a ``datetime`` can express: the end of 9999."""
_DAY_US = 86_400_000_000


def moment(us: int) -> datetime:
    """The aware UTC datetime of ``us`` microseconds since 1970, at most ``MAX_UNIX_US``."""
    return _UNIX_EPOCH + us * _MICROSECOND


def unix_us(aware: datetime) -> int:
    """Microseconds from 1970 to an aware datetime; negative before."""
    return (aware - _UNIX_EPOCH) // _MICROSECOND


def is_aware(value: object) -> bool:
    return isinstance(value, datetime) and value.utcoffset() is not None


def aware_us(value: datetime) -> int:
    """:func:`unix_us`, or :class:`TimeOutOfRange` if ``value`` is not aware."""
    if not is_aware(value):
        raise TimeOutOfRange(
            f"{value!r} is not a moment: a datetime with a time zone is needed, "
            f"such as datetime(2025, 1, 1, tzinfo=UTC)."
        )
    return unix_us(value)


def in_zone(aware: datetime, zone: tzinfo) -> datetime:
    """``aware`` in ``zone``; in UTC where it has no date there, at the end of the year 9999."""
    try:
        return aware.astimezone(zone)
    except (OverflowError, ValueError):
        return aware.astimezone(UTC)


def duration(us: int) -> str:
    """``1 ms``, ``10 s`` or ``1500 µs``: the largest unit that stays whole."""
    for unit, size in (("s", 1_000_000), ("ms", 1000)):
        if us % size == 0:
            return f"{us // size} {unit}"
    return f"{us} µs"


def brief_date(us: int) -> str:
    """The date alone if the moment is midnight, UTC, else the moment in full."""
    whole = moment(us)
    return whole.date().isoformat() if us % _DAY_US == 0 else whole.isoformat()
