"""A segment generator at one moment."""

from __future__ import annotations

from dataclasses import dataclass

from .segment import Segment

__all__ = ["SegmentStats"]


@dataclass(frozen=True, slots=True)
class SegmentStats:
    """A generator at one moment. Its counts are those of this process."""

    tag: str
    issued: int
    """Ids given out."""
    loads: int
    """Segments granted."""
    waits: int
    """Calls that found nothing left and had to wait for a load."""
    failures: int
    """Loads that failed, and segments that were refused."""
    remaining: int
    """Ids held and not given out yet."""
    floor: int
    """End, exclusive, of the highest segment ever granted; 0 if there was none."""
    current: Segment | None
    """The segment that ids are taken from."""
    held: tuple[Segment, ...]
    """The current one, and those loaded behind it."""
    ahead: int
    """Segments loaded behind the current one."""
    distance: int
    """How many there are to be: more after callers had to wait."""
    times: int
    """How often the row's step the next segment will be."""
    hungers: int
    """How often it ran dry with callers waiting, though it had been in use."""
    given_back: int
    """Ids that went back to the source: cleared, or left over."""
