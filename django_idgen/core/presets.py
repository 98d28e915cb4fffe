"""Layouts as people write them: a preset's name, or a mapping of bits; and an epoch.

Strict: what is not understood is refused, with the value and what is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType

from .errors import LayoutError
from .layout import MIN_TICK_US, BitLayout, Pairs, pairs
from .moments import MAX_UNIX_US, is_aware, unix_us

__all__ = ["DEFAULT_EPOCH", "DEFAULT_TICK_US", "PRESETS", "parse_layout"]

DEFAULT_EPOCH = "2025-01-01T00:00:00Z"
DEFAULT_TICK_US = 1000

PRESETS: Mapping[str, tuple[Pairs, int]] = MappingProxyType(
    {
        # Twitter, Leaf, finger-mark.
        "standard": ((("time", 41), ("worker", 10), ("sequence", 12)), 1000),
        # 53 bits: every id is exact in a JavaScript number.
        "js_safe": ((("time", 38), ("worker", 7), ("sequence", 8)), 10_000),
        # Sony calls the worker the machine.
        "sonyflake": ((("time", 39), ("sequence", 8), ("worker", 16)), 10_000),
        # Baidu's uid-generator.
        "uid": ((("time", 28), ("worker", 22), ("sequence", 13)), 1_000_000),
        # The article's; the code of Bee has batch 9 and sequence 13.
        "pear_flower": (
            (("time", 31), ("batch", 3), ("worker", 10), ("sequence", 19)),
            1_000_000,
        ),
    }
)
"""Name: fields (highest bits first) and the length of a tick in microseconds."""

_KEYS = ("time", "batch", "worker", "sequence", "tick")
_SHORTEST = Decimal(MIN_TICK_US) / 1_000_000
_LONGEST = Decimal(MAX_UNIX_US) / 1_000_000


def parse_layout(spec: object, *, epoch: object = None) -> BitLayout:
    """The layout that a setting describes.

    ``spec`` is the name of one of ``PRESETS``, or a mapping of field names to bits
    whose order gives the order of the bits, highest first, such as
    ``{"time": 41, "worker": {"datacenter": 5, "machine": 5}, "sequence": 12, "tick": 0.001}``.
    ``batch``, if there is one, divides the ids of a tick.
    ``tick`` is in seconds (int, float or ``Decimal``), a whole number of microseconds,
    and 1 ms if left out. ``epoch`` is an ISO 8601 string with a time zone, an aware
    datetime, or None for ``DEFAULT_EPOCH``. Whether it lies in the past is for
    :meth:`BitLayout.check_epoch` to say.

    Raises :class:`LayoutError`.
    """
    epoch_us = _epoch_us(DEFAULT_EPOCH if epoch is None else epoch)
    if isinstance(spec, str):
        fields, tick_us = _preset(spec)
        return BitLayout(fields, tick_us=tick_us, epoch_us=epoch_us, name=spec)
    if isinstance(spec, Mapping):
        return _custom(spec, epoch_us)
    raise LayoutError(
        f"A layout is one of {_preset_names()}, or a mapping such as "
        f"{{'time': 41, 'worker': 10, 'sequence': 12, 'tick': 0.001}}, not {spec!r}."
    )


def _preset(name: str) -> tuple[Pairs, int]:
    try:
        return PRESETS[name]
    except KeyError:
        raise LayoutError(
            f"There is no layout {name!r}. There are {_preset_names()}; "
            f"or give a mapping of {', '.join(_KEYS)}."
        ) from None


def _custom(spec: Mapping[object, object], epoch_us: int) -> BitLayout:
    for key in spec:
        if key not in _KEYS:
            raise LayoutError(f"{key!r} is no key of a layout. There are {', '.join(_KEYS)}.")
    parts = _worker_parts(spec.get("worker"))
    bits = {key: value for key, value in spec.items() if key != "tick"}
    if parts:
        bits["worker"] = sum(count for _, count in parts)
    fields = pairs("the layout", bits.items())
    tick_us = _tick_us(spec["tick"]) if "tick" in spec else DEFAULT_TICK_US
    return BitLayout(fields, tick_us=tick_us, epoch_us=epoch_us, worker_parts=parts)


def _worker_parts(worker: object) -> Pairs:
    if not isinstance(worker, Mapping):
        return ()
    if not worker:
        raise LayoutError(
            "'worker' is empty. Give it a number of bits, or parts such as "
            "{'datacenter': 5, 'machine': 5}."
        )
    return pairs("worker", worker.items())


def _tick_us(tick: object) -> int:
    if isinstance(tick, bool) or not isinstance(tick, int | float | Decimal):
        raise _bad_tick(tick)
    # By way of its text: 0.001 is meant as a decimal, not as the nearest binary fraction.
    seconds = Decimal(str(tick)) if isinstance(tick, float) else Decimal(tick)
    # The bounds come first: the exact fraction of 1e999999999 would fill the memory.
    if not seconds.is_finite() or not _SHORTEST <= seconds <= _LONGEST:
        raise _bad_tick(tick)
    micros = Fraction(seconds) * 1_000_000
    if micros.denominator != 1:
        raise _bad_tick(tick)
    return int(micros)


def _bad_tick(tick: object) -> LayoutError:
    return LayoutError(
        f"'tick' must be a number of seconds, 0.001 or more, in whole microseconds, not {tick!r}."
    )


def _epoch_us(epoch: object) -> int:
    value = epoch
    if isinstance(epoch, str):
        try:
            value = datetime.fromisoformat(epoch)
        except ValueError:
            value = None
    if not isinstance(value, datetime) or not is_aware(value):
        raise LayoutError(
            f"An epoch must be an ISO 8601 string with a time zone, such as {DEFAULT_EPOCH!r}, "
            f"or an aware datetime, not {epoch!r}."
        )
    micros = unix_us(value)
    if micros < 0:
        raise LayoutError(f"An epoch must be 1970-01-01T00:00:00Z or later, not {str(epoch)!r}.")
    return micros


def _preset_names() -> str:
    return ", ".join(repr(name) for name in PRESETS)
