"""The segments loaded ahead of the current one, and how many there should be.

CosId's segment chain: one is kept ahead, and a caller who had to wait (hunger)
doubles that at once; it is halved again when nobody was hungry for a while.
"""

from __future__ import annotations

from typing import Final

from .segment import Demand, Segment
from .step import Growth

__all__ = ["CALM", "Chain"]

CALM: Final = 5.0
"""Seconds without hunger after which the distance is halved."""


class Chain:
    """What a tag has loaded, in order, and what it should load next.

    Moments are seconds of one stopwatch. Not thread-safe: its owner has a lock.
    """

    __slots__ = (
        "_calm_since",
        "_dry",
        "_opened",
        "_opened_at",
        "distance",
        "hungers",
        "segments",
        "times",
    )

    def __init__(self) -> None:
        self.hungers = 0
        """How often callers came to wait since nothing was ahead."""
        self.reset()

    def reset(self) -> None:
        """Start over as a tag that was never used, except for what was counted."""
        # A tuple, since most hold one: an empty deque takes more than all the rest.
        self.segments: tuple[Segment, ...] = ()
        self.distance = 1
        """Segments to keep ahead."""
        self.times = 1
        """How often the row's step a segment should be: a power of two."""
        self._opened: Segment | None = None
        self._opened_at = self._calm_since = 0.0
        self._dry = 0  # the `times` with which the chain ran dry, until someone is hungry

    def append(self, segment: Segment) -> None:
        self.segments = (*self.segments, segment)

    def open_next(self, now: float) -> Segment | None:
        """The next segment, the current one from now on."""
        if not self.segments:
            return None
        self._opened, *others = self.segments
        self.segments = tuple(others)
        self._opened_at = now
        self._dry = 0
        return self._opened

    def use_up(self, now: float, growth: Growth) -> None:
        """Follow the consumption: the current segment has no ids left. May be called twice."""
        used, self._opened = self._opened, None
        if used is None:
            return
        before = self.times
        if self._tells(used, now - self._opened_at, growth):
            self.times = growth.after(before, used.step, now - self._opened_at)
        if not self.segments:
            self._dry = before
        elif self.distance > 1 and now - self._calm_since >= CALM:
            self.distance //= 2
            self._calm_since = now

    def _tells(self, used: Segment, seconds: float, growth: Growth) -> bool:
        # Of several that were asked for alike, one is enough: the effect of what it
        # changed is to be seen first.
        times = len(used.ids()) / used.step
        return times * 2 >= self.times if seconds < growth.duration else times <= self.times * 2

    def hunger(self, now: float, step: int, growth: Growth) -> None:
        """Somebody waits: keep more ahead from now on. Once for each time it ran dry."""
        if self._dry:
            # Its pace may have doubled it just now: not twice for the same thing.
            self.times = max(self.times, growth.doubled(self._dry, step))
            self.distance = min(self.distance * 2, growth.longest_chain)
            self.hungers += 1
            self._calm_since = now
            self._dry = 0

    def is_short(self, *, past_mark: bool) -> bool:
        """Whether another one is to be loaded; with the current one's mark passed, one more."""
        ahead = self.distance if past_mark or self._opened is None else self.distance - 1
        return len(self.segments) < ahead

    def demand(self, at_least: int, step: int, growth: Growth) -> Demand:
        """What to ask for, where the row said ``step`` the last time (0: not known)."""
        self.times = growth.fitted(self.times, step)
        return Demand(self.times, max(at_least, 1))
