"""How long segments are: they follow the consumption of a tag."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from .errors import ConfigurationError
from .options import check_whole
from .segment import LONGEST_STEP, Demand, Segment

SEGMENT_DURATION: Final = 900.0
"""Seconds that a segment aims at."""


@dataclass(frozen=True, slots=True)
class Growth:
    """How far a tag's segments may grow. Frozen.

    Lengths are multiples of the row's step, powers of two, so that an edit of the row counts
    from the next fetch on. Raises :class:`ConfigurationError`.
    """

    duration: float = SEGMENT_DURATION
    """Seconds, above 0, that a segment aims at."""
    longest_step: int = LONGEST_STEP
    """Ids, 1 to 1,000,000: no segment grows past it. 1 keeps all segments at the row's step."""

    def __post_init__(self) -> None:
        if not 0 < self.duration < math.inf:
            raise ConfigurationError(
                f"segment_duration must be a number of seconds above 0, not {self.duration!r}."
            )
        check_whole("longest_step", self.longest_step, least=1, most=LONGEST_STEP)

    def doubled(self, times: int, step: int) -> int:
        """Twice ``times``, unless segments of ``step`` would be too long."""
        return times * 2 if step * times * 2 <= self.longest_step else times

    def fitted(self, times: int, step: int) -> int:
        """``times``, halved until segments of a raised ``step`` are not too long."""
        while times > 1 and step * times > self.longest_step:
            times //= 2
        return times

    def after(self, times: int, step: int, seconds: float) -> int:
        """The next ``times`` after a segment was used up in ``seconds``."""
        if seconds < self.duration:
            return self.doubled(times, step)
        if seconds <= 2 * self.duration:
            return times
        return max(1, times // 2)


class Pace:
    """How fast a tag uses up its segments, and so how long the next one is.

    Times are seconds of one stopwatch. Not thread-safe: its owner has a lock.
    """

    __slots__ = ("_dry", "_opened", "_opened_at", "times")

    def __init__(self) -> None:
        self.times = 1
        """The length of the next segment in steps of the row: a power of two."""
        self._opened: Segment | None = None
        self._opened_at = 0.0
        self._dry = 0  # `times` when the last segment ended; 0 once the next is open or waited for

    def open(self, segment: Segment, now: float) -> None:
        """``segment`` is the current one from now on."""
        self._opened, self._opened_at = segment, now
        self._dry = 0

    def use_up(self, now: float, growth: Growth) -> None:
        """Adapt to the consumption when the current segment is used up. May be called twice."""
        used, self._opened = self._opened, None
        if used is None:
            return
        self._dry = self.times
        if self._tells(used, now - self._opened_at, growth):
            self.times = growth.after(self.times, used.step, now - self._opened_at)

    def _tells(self, used: Segment, seconds: float, growth: Growth) -> bool:
        # A segment far shorter or longer than the next one says nothing of the next one's length.
        times = len(used.ids()) / used.step
        return times * 2 >= self.times if seconds < growth.duration else times <= self.times * 2

    def wait(self, step: int, growth: Growth) -> None:
        """A caller waits: double the length at once, but only once for all who wait."""
        if self._dry:
            # use_up() may just have doubled it for the same reason.
            self.times = max(self.times, growth.doubled(self._dry, step))
            self._dry = 0

    def demand(self, at_least: int, step: int, growth: Growth) -> Demand:
        """The next demand, for a row whose last known step is ``step`` (0: unknown)."""
        self.times = growth.fitted(self.times, step)
        return Demand(self.times, max(at_least, 1))
