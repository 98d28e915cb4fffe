"""What generators did since somebody looked last; and which tags have figures of their own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final
from weakref import WeakKeyDictionary

__all__ = ["OTHER", "Smoothed", "TagNames", "Tally"]

OTHER: Final = "other"
"""The tag that stands for all those without a name of their own."""
SMOOTHING: Final = 60.0
"""Seconds after which an old rate counts for 1/e."""


class Tally:
    """The counts of generators that were told already. Not thread-safe.

    A generator's own counts may be read at a moment when they are a little short, so
    that the next reading is the lower one: what was told once is never taken back.
    """

    def __init__(self) -> None:
        self._told: WeakKeyDictionary[Any, tuple[float, ...]] = WeakKeyDictionary()

    def since(self, generator: object, counts: Sequence[float]) -> tuple[float, ...]:
        """What ``counts`` of ``generator`` have grown by; never less than 0."""
        told = self._told.get(generator)
        if told is None:
            told = (0,) * len(counts)
        self._told[generator] = tuple(map(max, told, counts))
        return tuple(max(now - before, 0) for now, before in zip(counts, told, strict=True))


class TagNames:
    """Which tags go by their names: ``most`` of them. Not thread-safe.

    Of those that are new at a look, the busiest ones come first. With ``for_good`` a name
    once given is never taken away (where a series can't be removed).
    """

    def __init__(self, most: int, *, for_good: bool) -> None:
        self.most = most
        self.named: set[str] = set()
        self._for_good = for_good

    def name_of(self, tag: str) -> str:
        """The tag's own name, or :data:`OTHER`."""
        return tag if tag in self.named else OTHER

    def admit(self, used: Mapping[str, float]) -> AbstractSet[str]:
        """Name new ones among the tags that are ``used`` so much; returns who had to go.

        Only tags that are not in use any more (not in ``used``) make room.
        """
        new = sorted((tag for tag in used if tag not in self.named), key=lambda t: -used[t])
        new = new[: self.most]
        lacking = len(self.named) + len(new) - self.most
        gone: set[str] = set()
        if lacking > 0 and not self._for_good:
            gone = set(sorted(self.named - used.keys())[:lacking])
            self.named -= gone
        self.named.update(new[: max(self.most - len(self.named), 0)])
        return gone


class Smoothed:
    """A rate that forgets. Not thread-safe."""

    __slots__ = ("a_second",)

    def __init__(self) -> None:
        self.a_second = math.nan

    def update(self, count: float, seconds: float) -> float:
        """The rate after ``count`` more in so many seconds (more than 0)."""
        sample = count / seconds
        if math.isnan(self.a_second):
            self.a_second = sample
        else:
            self.a_second += (sample - self.a_second) * (1 - math.exp(-seconds / SMOOTHING))
        return self.a_second
