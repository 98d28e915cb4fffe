"""Which ids of a tag a database gives out, where several of them share the tag.

Of ``delta`` databases, the one with ``remainder`` r gives out the ids that leave r
when divided by ``delta`` (Flickr's ticket servers, TinyID). Both stand in each row
and are read with each fetch, so that a fleet can't disagree on them; and in the
row of the installation, which says how rows of new tags are made.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ALONE", "MAX_DELTA", "Grid"]

MAX_DELTA = 1024
"""Databases that may share a tag."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The ids of one database: those that leave ``remainder`` when divided by ``delta``."""

    delta: int = 1
    remainder: int = 0

    @property
    def sound(self) -> bool:
        return 1 <= self.delta <= MAX_DELTA and 0 <= self.remainder < self.delta

    def first(self, base: int) -> int:
        """The lowest of its ids that is not below ``base``."""
        return base + (self.remainder - base) % self.delta

    def within(self, other: Grid) -> bool:
        """Whether every id of this one is one of ``other``, too."""
        return self.delta % other.delta == 0 and self.remainder % other.delta == other.remainder

    def __str__(self) -> str:
        return f"delta={self.delta}, remainder={self.remainder}"


ALONE = Grid()
