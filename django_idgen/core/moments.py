"""Moments as whole microseconds since 1970, and back: exactly, without floats."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

from .errors import TimeOutOfRange

__all__ = [
    "MAX_UNIX_US",
    "aware_us",
    "brief_date",
    "duration",
    "in_zone",
    "is_aware",
    "moment",
    "unix_us",
]

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
    """``aware`` as ``zone`` has it; in UTC where it has no date there: at the end of year 9999."""
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
