"""Segments: ranges of integers that one process may use alone."""

from __future__ import annotations

from dataclasses import dataclass, field

from .errors import ConfigurationError, InvalidTag

__all__ = [
    "LONGEST_STEP",
    "MAX_ID",
    "MAX_TAG_LENGTH",
    "STEP",
    "Demand",
    "Segment",
    "check_step",
    "check_tag",
]

MAX_ID = 2**63 - 1
MAX_TAG_LENGTH = 128
MAX_STEP = 1_000_000_000
"""A step past this would use up the 63 bits in a human lifetime's worth of restarts."""

LONGEST_STEP = 1_000_000
"""Ids. What follows consumption does not grow past it; a row's own step may (as in Leaf)."""


@dataclass(frozen=True, slots=True)
class Demand:
    """How long a segment a process wants, as a multiple of the row's step. Frozen.

    The row's step is read in the fetch, so that an edit of it counts from the next one on.
    """

    times: int = 1
    """How often the row's step fits the consumption; 0 for ``at_least`` ids exactly."""
    at_least: int = 1
    """Ids that a caller is waiting for, at once."""
    granted: int | None = field(default=None, compare=False)
    """The end of what the process was granted, where the floor of the fetch lies above that.

    Then the ids in between were loaded from elsewhere, and the source did not lose them.
    """

    def length(self, step: int) -> int:
        """How many ids to take where the row says ``step``."""
        return max(self.at_least, min(step * self.times, max(step, LONGEST_STEP)))


STEP = Demand()
"""Just the row's step."""


@dataclass(frozen=True, slots=True)
class Segment:
    """The integers of ``range(start, stop, delta)`` of ``tag``. Frozen, freely shared."""

    tag: str
    start: int
    stop: int
    step: int
    """The row's step when it was fetched."""
    delta: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.start < self.stop <= MAX_ID + 1 or self.delta < 1:
            raise ConfigurationError(
                f"Segment [{self.start}, {self.stop}) by {self.delta} of tag {self.tag!r} is "
                f"empty or not within 1..2**63-1."
            )

    def ids(self) -> range:
        return range(self.start, self.stop, self.delta)


def check_tag(tag: object) -> str:
    """Return ``tag`` if it can name a segment row, else raise :class:`InvalidTag`."""
    if not isinstance(tag, str):
        raise InvalidTag(tag, "it must be a string")
    if not tag or tag != tag.strip():
        raise InvalidTag(tag, "it must not be empty, nor begin or end with white space")
    if len(tag) > MAX_TAG_LENGTH:
        raise InvalidTag(tag, f"it has {len(tag)} characters; the most is {MAX_TAG_LENGTH}")
    if not tag.isprintable():
        raise InvalidTag(tag, "it has a character that can't be printed")
    return tag


def check_step(step: object) -> int:
    """Return ``step`` if a segment can be so long, else raise :class:`ConfigurationError`."""
    if isinstance(step, bool) or not isinstance(step, int) or not 1 <= step <= MAX_STEP:
        raise ConfigurationError(f"A step must be a whole number of 1 to {MAX_STEP}, not {step!r}.")
    return step
