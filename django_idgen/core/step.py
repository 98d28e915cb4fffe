"""How long a segment should be: the rules that follow consumption, as pure functions.

Leaf's rules: a segment aims at 15 minutes. Used up in less, the next one is twice as
long, unless that passes a million ids; in 15 to 30 minutes, as long; in more, half as
long, though never shorter than the row's step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from .errors import ConfigurationError
from .segment import LONGEST_STEP

__all__ = ["LONGEST_CHAIN", "SEGMENT_DURATION", "Growth"]

SEGMENT_DURATION: Final = 900.0
"""Seconds that a segment aims at."""
LONGEST_CHAIN: Final = 8
"""Segments kept ahead at most, unless told."""
_MOST_AHEAD: Final = 64


@dataclass(frozen=True, slots=True)
class Growth:
    """How far a tag's segments and its chain may grow. Frozen, freely shared.

    A length is told as a multiple of the row's step, a power of two, so that an edit
    of the row counts from the next fetch on. Raises :class:`ConfigurationError`.
    """

    duration: float = SEGMENT_DURATION
    """Seconds, above 0, that a segment aims at."""
    longest_step: int = LONGEST_STEP
    """Ids, 1 to 1,000,000: no segment grows past it, and 1 keeps all to the row's step."""
    longest_chain: int = LONGEST_CHAIN
    """Segments, 1 to 64, that are kept loaded behind the current one at most."""

    def __post_init__(self) -> None:
        if not 0 < self.duration < math.inf:
            raise ConfigurationError(
                f"segment_duration must be a number of seconds above 0, not {self.duration!r}."
            )
        _check_whole("longest_step", self.longest_step, LONGEST_STEP)
        _check_whole("longest_chain", self.longest_chain, _MOST_AHEAD)

    def doubled(self, times: int, step: int) -> int:
        """Twice ``times``, unless segments of ``step`` would be too long then."""
        return times * 2 if step * times * 2 <= self.longest_step else times

    def fitted(self, times: int, step: int) -> int:
        """``times``, halved for as long as it makes too much of a ``step`` that was raised."""
        while times > 1 and step * times > self.longest_step:
            times //= 2
        return times

    def after(self, times: int, step: int, seconds: float) -> int:
        """What follows ``times`` when a segment was used up in ``seconds``."""
        if seconds < self.duration:
            return self.doubled(times, step)
        if seconds <= 2 * self.duration:
            return times
        return max(1, times // 2)


def _check_whole(name: str, value: object, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ConfigurationError(f"{name} must be a whole number of 1 to {most}, not {value!r}.")
