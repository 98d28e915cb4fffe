"""The rules that the fields of a bit layout must keep, and the places they get."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from .errors import LayoutError
from .moments import MAX_UNIX_US

__all__ = [
    "FIELD_NAMES",
    "MAX_BITS",
    "MIN_TICK_US",
    "Pairs",
    "check_fields",
    "check_parts",
    "check_time",
    "is_int",
    "pairs",
    "places",
]

FIELD_NAMES = ("time", "worker", "sequence", "batch")
_REQUIRED = ("time", "worker", "sequence")
_BELOW_TIME = ("sequence", "batch")
MAX_BITS = 63
"""The 64th is the sign: with it an id would be negative."""
MIN_TICK_US = 1000

Pairs = tuple[tuple[str, int], ...]
"""Names and their numbers of bits, highest bits first."""


def is_int(value: object) -> bool:
    """Whether it is an int and no bool: ``True`` is a slip, not a 1."""
    return isinstance(value, int) and not isinstance(value, bool)


def pairs(what: str, value: Iterable[object]) -> Pairs:
    """``value`` as a tuple of tuples, each of a string and a number of bits from 0 to 63."""
    try:
        result = tuple((name, bits) for name, bits in cast("Pairs", value))
    except (TypeError, ValueError):
        raise LayoutError(
            f"{what} must be pairs of a name and a number of bits, such as "
            f"(('time', 41), ('worker', 10), ('sequence', 12)), not {value!r}."
        ) from None
    for name, bits in result:
        _check_bits(what, name, bits)
    _check_unique(what, [name for name, _ in result])
    return result


def check_fields(fields: Pairs) -> None:
    """Raise :class:`LayoutError` unless these fields make positive, rising 64-bit ids."""
    names = [name for name, _ in fields]
    for name in names:
        if name not in FIELD_NAMES:
            raise LayoutError(
                f"{name!r} is no field of a layout. There are {', '.join(FIELD_NAMES)}."
            )
    for name in _REQUIRED:
        if name not in names:
            raise LayoutError(
                f"The layout {dict(fields)!r} has no {name!r}. "
                f"Name {', '.join(_REQUIRED)}; worker and sequence may have 0 bits."
            )
    if dict(fields)["time"] < 1:
        raise LayoutError("'time' needs at least 1 bit, not 0.")
    _check_sum(fields)
    _check_order(names)


def check_parts(parts: Pairs, worker_bits: int) -> None:
    """Raise :class:`LayoutError` unless the parts, if there are any, make up the worker id."""
    for name, _ in parts:
        if not name.isidentifier():
            raise LayoutError(
                f"The worker part {name!r} needs a name such as 'datacenter': letters, digits "
                f"and underscores."
            )
    total = sum(bits for _, bits in parts)
    if parts and total != worker_bits:
        raise LayoutError(
            f"The worker parts {dict(parts)!r} have {total} bits, but worker has "
            f"{worker_bits}. They must be equal."
        )


def check_time(tick_us: int, epoch_us: int) -> None:
    """Raise :class:`LayoutError` unless tick and epoch (both in µs) are possible."""
    if not is_int(tick_us) or tick_us < MIN_TICK_US:
        raise LayoutError(
            f"A tick must be a whole number of microseconds, {MIN_TICK_US} (1 ms) or more, "
            f"not {tick_us!r}."
        )
    if not is_int(epoch_us) or epoch_us < 0:
        raise LayoutError(
            f"An epoch must be a whole number of microseconds since 1970, from 0 up, "
            f"not {epoch_us!r}."
        )
    # A datetime goes no further, and a layout of one tick could tell no time.
    if epoch_us + tick_us > MAX_UNIX_US:
        raise LayoutError(
            f"With an epoch of {epoch_us} µs since 1970 and ticks of {tick_us} µs, tick 1 would "
            f"begin past the year 9999. Choose a shorter tick or an earlier epoch."
        )


def places(fields: Pairs) -> dict[str, tuple[int, int]]:
    """For each of ``FIELD_NAMES`` its shift and its number of values; ``(0, 1)`` if absent."""
    result = dict.fromkeys(FIELD_NAMES, (0, 1))
    shift = 0
    for name, bits in reversed(fields):
        result[name] = (shift, 1 << bits)
        shift += bits
    return result


def _check_bits(what: str, name: object, bits: object) -> None:
    if not isinstance(name, str):
        raise LayoutError(f"A name in {what} must be a string, not {name!r}.")
    if isinstance(bits, bool) or not isinstance(bits, int) or not 0 <= bits <= MAX_BITS:
        raise LayoutError(
            f"{name!r} in {what} needs a whole number of bits, 0 to {MAX_BITS}, not {bits!r}."
        )


def _check_unique(what: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise LayoutError(f"{name!r} stands {names.count(name)} times in {what}. Name it once.")


def _check_sum(fields: Pairs) -> None:
    total = sum(bits for _, bits in fields)
    if total > MAX_BITS:
        raise LayoutError(
            f"The layout {dict(fields)!r} has {total} bits; the most is {MAX_BITS}, so that ids "
            f"stay positive in 64. Take {total - MAX_BITS} away."
        )


def _check_order(names: list[str]) -> None:
    for name in _BELOW_TIME:
        if name in names and names.index(name) < names.index("time"):
            raise LayoutError(
                f"{name!r} stands above 'time' in the layout ({' | '.join(names)}), so the ids "
                f"of one generator could not rise. Put 'time' before it."
            )
