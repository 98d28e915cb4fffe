"""The options of a snowflake generator, checked when it is made."""

from __future__ import annotations

from .errors import ConfigurationError
from .layout import BitLayout
from .lease import Namespace

__all__ = [
    "check_fit",
    "check_holder",
    "check_sequence_start",
    "check_wait_limit",
    "seconds",
    "switch",
    "whole_ticks",
]

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
    if space.workers.stop > len(layout.workers):
        raise ConfigurationError(
            f"Worker ids up to {space.workers.stop - 1} don't fit the "
            f"{len(layout.workers)} that {layout} has room for. Lower 'workers', or choose a "
            f"layout with more worker bits."
        )


def seconds(name: str, value: object) -> float:
    """``value`` as seconds, 0 or more. Raises :class:`ConfigurationError`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise ConfigurationError(f"{name} must be a number of seconds from 0 up, not {value!r}.")
    return float(value)


def switch(name: str, value: object) -> bool:
    """``value`` if it is True or False. Raises :class:`ConfigurationError`."""
    if not isinstance(value, bool):
        raise ConfigurationError(f"{name} must be True or False, not {value!r}.")
    return value


def check_holder(value: object) -> str:
    """``value`` if it is a text. Raises :class:`ConfigurationError`."""
    if not isinstance(value, str):
        raise ConfigurationError(f"holder must be a string, not {value!r}.")
    return value


def whole_ticks(duration: float, tick: float) -> int:
    """How many ticks fit into ``duration`` (both in seconds); 0.29 s are 29 of 0.01 s."""
    return int(duration / tick + 1e-6)


def check_sequence_start(layout: BitLayout, value: object) -> int:
    """Return ``value`` if a tick's first sequence can be below it."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= layout.sequences:
        raise ConfigurationError(
            f"sequence_start must be a whole number of 0 to {layout.sequences} (0: start each "
            f"tick at 0; n: at a random sequence below n), not {value!r}."
        )
    return value


def check_wait_limit(value: object, tick: float) -> float:
    """Return ``value`` (seconds) if it is longer than ``tick``; for None, a default."""
    if value is None:
        return max(SHORTEST_WAIT_LIMIT, 2 * tick)
    limit = seconds("wait_limit", value)
    if limit <= tick:
        raise ConfigurationError(
            f"wait_limit must be longer than a tick ({tick:g} s), not {value!r}: "
            f"waiting for the next tick is what a full one asks for."
        )
    return limit
