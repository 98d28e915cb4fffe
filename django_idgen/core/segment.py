"""Segments: ranges of integers that one process may use alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from .errors import ConfigurationError, InvalidTag
from .options import check_whole

MAX_DELTA = 1024
"""Most databases that may share a tag."""


@dataclass(frozen=True, slots=True)
class Shard:
    """The ids of one of ``delta`` databases that share a tag.

    They leave ``remainder`` when divided by ``delta`` (Flickr's ticket servers, TinyID). Each row
    stores both and each fetch reads them, so that a fleet can't disagree. The installation's row
    stores them for new tags.
    """

    delta: int = 1
    remainder: int = 0

    @property
    def sound(self) -> bool:
        return 1 <= self.delta <= MAX_DELTA and 0 <= self.remainder < self.delta

    def first(self, base: int) -> int:
        """Its lowest id at or above ``base``."""
        return base + (self.remainder - base) % self.delta

    def __str__(self) -> str:
        return f"delta={self.delta}, remainder={self.remainder}"


ALONE = Shard()


MAX_ID = 2**63 - 1
MAX_TAG_LENGTH = 128
MAX_STEP = 1_000_000_000
"""A larger step would use up the 63 bits within a lifetime of restarts."""
HIGHEST = MAX_ID - MAX_STEP
"""A tag is moved past the ids of its rows up to here. Hardly any ids are left above."""

LONGEST_STEP = 1_000_000
"""Ids. Growth stops here. A row's own step may be larger (as in Leaf)."""


NO_TABLES: Final[frozenset[str]] = frozenset()
"""One for all: each empty set takes 216 B."""


@dataclass(frozen=True, slots=True)
class Demand:
    """How long a segment a process wants, as a multiple of the row's step. Frozen.

    The row's step is read in the fetch, so that an edit of it counts from the next one on.
    """

    times: int = 1
    """Steps of the row that fit the consumption; 0 for exactly ``at_least`` ids."""
    at_least: int = 1
    """Ids that callers wait for."""
    granted: int | None = field(default=None, compare=False)
    """The end of what the process was granted, if that is below the floor of the fetch.

    The ids in between belong to loaded rows: the source did not lose them.
    """
    for_pool: bool = field(default=False, compare=False)
    """Whether the ids go into the pool, so that the history names no process."""
    tables: frozenset[str] = field(default=NO_TABLES, compare=False)
    """Keys of the tables whose rows get the ids, which must be above all rows there are."""
    seen: frozenset[str] = field(default=NO_TABLES, compare=False)
    """Those of ``tables`` whose rows are below the floor of the fetch."""

    @property
    def unseen(self) -> frozenset[str]:
        """The tables that may have rows above the floor of the fetch."""
        return self.tables - self.seen

    def had(self, floor: int) -> int:
        """The end of what the process was granted, for a fetch from ``floor`` on."""
        return floor if self.granted is None else self.granted

    def length(self, step: int) -> int:
        """How many ids to take from a row with ``step``."""
        return max(self.at_least, min(step * self.times, max(step, LONGEST_STEP)))


STEP = Demand()
"""The row's step."""


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
    """Return ``tag`` if it is a valid tag, else raise :class:`InvalidTag`."""
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
    """Return ``step`` if it is a valid step, else raise :class:`ConfigurationError`."""
    return check_whole("A step", step, least=1, most=MAX_STEP)


CHUNK: Final = 65_536


def drained(ids: Iterator[int], delta: int) -> list[range]:
    """Take all that is left of ``ids``, as ranges by ``delta``.

    Another thread may take from the same iterator. Each value comes out once: either into a
    range or to that thread.
    """
    found: list[range] = []
    while chunk := list(islice(ids, CHUNK)):
        found += runs(chunk, delta)
    return found


def runs(values: list[int], delta: int) -> Iterator[range]:
    """Rising ``values`` as ranges by ``delta``, split where values are missing."""
    first = 0
    if values[-1] - values[0] != (len(values) - 1) * delta:  # seldom: another thread took some
        for index in range(1, len(values)):
            if values[index] - values[index - 1] != delta:
                yield range(values[first], values[index - 1] + 1, delta)
                first = index
    yield range(values[first], values[-1] + 1, delta)


def joined(ranges: Iterable[range]) -> list[range]:
    """Rising ``ranges``, with adjacent ranges joined and empty ones removed."""
    found: list[range] = []
    for each in ranges:
        if not each:
            continue
        last = found[-1] if found else None
        if last is not None and last.step == each.step and last[-1] + last.step == each[0]:
            found[-1] = range(last.start, each.stop, last.step)
        else:
            found.append(each)
    return found
