"""The base class of segment sources."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from .errors import IdgenError
from .loader import Loader, inline_loader
from .segment import STEP, Demand, Segment

POOL = "pool"
"""The holder of segments that were fetched for the pool."""


@dataclass(frozen=True, slots=True)
class Stock:
    """What is in the pool of one tag. Frozen."""

    ids: int = 0
    ranges: int = 0
    highest: int = 0
    """The end of the highest range that was ever in it."""
    ready: int = 0
    """Ids above the floor of every process that has asked. Only new processes can use others."""
    life: str = ""
    """A text that changes when the pool begins or is cleared; "" if it has not begun."""
    taken_by: str = ""
    """The last holder that took ids; "" if none did since the pool began."""
    taken_us: int = 0
    """When that was, in microseconds since 1970, by the holder's clock."""
    taken_ids: int = 0


class TablesUnseen(IdgenError):
    """A fetch is refused until the process has looked at the rows of ``tables``.

    They may be above the mark of ``tag``. The generator looks and fetches again.
    """

    def __init__(self, tag: str, tables: frozenset[str]) -> None:
        self.tag = tag
        self.tables = tables
        super().__init__(tag, tables)

    def __str__(self) -> str:
        return f"Tag {self.tag!r} may be below the rows of tables that get its ids."


class Source(ABC):
    """A shared source of segments. Thread-safe.

    Your own source implements :meth:`fetch`. The defaults of the other methods
    suit a source without a database, a pool or a history. Each method may raise
    :class:`SegmentUnavailable`, unless it says that it never raises.
    """

    nested: ClassVar[tuple[str, ...]] = ()
    """The options that describe wrapped sources: ``{"BACKEND": ...}``."""
    wired: ClassVar[tuple[str, ...]] = ()
    """The arguments that the settings give it: ``default_step``, ``measures``."""
    can_be_pooled: ClassVar[bool] = False
    """Whether :meth:`owner` identifies the ids, so that a pool may keep them."""
    keeps_rows: ClassVar[bool] = False
    """Whether its tags are rows of ``LeafAlloc`` in :meth:`databases`."""
    knows_tables: ClassVar[bool] = False
    """Whether it stores which tables were looked at, and raises :class:`TablesUnseen` itself.

    With any other source, each process looks.
    """
    is_pool: ClassVar[bool] = False
    """Whether it keeps a stock that :meth:`refill` fills."""
    history: bool = False
    """Whether each fetch leaves a history row."""
    failover_skip: int = 1
    """How many of the longest fetches are skipped after a failover."""
    is_routed: bool = False
    """Whether a router function says where tags are. :meth:`databases` then lists all aliases."""

    # --- giving out ids ---------------------------------------------------------------

    @abstractmethod
    def fetch(self, tag: str, *, floor: int = 0, demand: Demand = STEP) -> Segment:
        """Take the next segment of ``tag``. Makes the tag if it does not exist.

        The segment has ``demand.length(step)`` ids, or fewer at the very end of the ids.
        ``floor`` is the lowest id that the process may still get. It lies past every segment of
        this tag that the process was granted, and past the ids of rows that it wrote with
        ``loaddata``. The whole segment must be at or above it, so that a flushed or restored table
        can't grant a range again.

        A fetch whose answer is lost is a lost segment: it is never sent again. It
        never runs inside the caller's transaction.

        Raises :class:`SegmentUnavailable` (with the cause chained), :class:`TagPaused`,
        :class:`SegmentExhausted` or :class:`InvalidTag`; with :attr:`knows_tables` also
        :class:`TablesUnseen`.
        """

    @property
    def loader(self) -> Loader:
        """Where fetches run: in the caller's thread, unless the source waits for I/O."""
        return inline_loader()

    def give_back(self, tag: str, ranges: Sequence[range]) -> None:
        """Take back unused ids of ``tag`` that were fetched here. Never raises.

        No id is given back twice. By default the ids are a gap.
        """

    def abandon(self) -> None:
        """Drop what a forked child inherited, without touching sockets."""

    def close(self) -> None:
        """Free local resources. May be called twice."""

    # --- looking ----------------------------------------------------------------------

    @property
    def behind(self) -> Source:
        """The source behind a pool; the source itself where there is no pool."""
        return self

    def owner(self, tag: str, *, max_age: float = math.inf) -> str:
        """A text that identifies the ids of ``tag`` among all projects.

        It may be ``max_age`` seconds old. "" if only this process has the ids.
        """
        return ""

    def databases(self) -> Sequence[str]:
        """Every alias of ``DATABASES`` that may have rows of its tags."""
        return ()

    def route(self, tag: str) -> Sequence[str]:
        """The aliases that share ``tag``. Raises as :meth:`fetch` does for an invalid tag."""
        return ()

    def is_new(self, tag: str) -> bool:
        """Whether no id of ``tag`` has been given out; False where that is unknown."""
        return False

    def next_free_id(self, tag: str) -> int:
        """An id of ``tag`` above all that were granted. By default a segment becomes a gap.

        Raises as :meth:`fetch`, and :class:`ConfigurationError` where it can't be known.
        """
        return self.fetch(tag).start

    def is_paused(self, tag: str) -> bool:
        """Whether :meth:`fetch` would refuse ``tag`` as paused."""
        return False

    def check_access(self, tag: str) -> None:
        """Raise what :meth:`fetch` would if a service does not lend ``tag`` to this process.

        Takes no id. Sources without a service have nothing to check.
        """

    def probes(self) -> Mapping[str, Callable[[], None]]:
        """By name, functions that raise unless a server answers. One server is enough for ids."""
        return {}

    # --- keeping tags and a pool --------------------------------------------------------

    def agree(self, tag: str) -> None:
        """Record the shards of the databases that share ``tag``, before a row is made."""

    def record_rate(self, tag: str, used: int, now: datetime) -> float:
        """Measure ``tag``: the fleet had used the ids below ``used`` at ``now``.

        Returns the smoothed ids a second; 0.0 where no rates are kept.
        """
        return 0.0

    def stocks(self, tags: Iterable[str]) -> Mapping[str, Stock]:
        """The pool's stock of each of ``tags``; empty where there is no pool."""
        return {}

    def refill(self, tag: str, ids_wanted: int) -> int:
        """Fetch ids of ``tag`` until the pool has ``ids_wanted``; how many were added."""
        return 0

    def clear(self, tags: Iterable[str], *, keep_highest: bool = False, least: int = 0) -> None:
        """Throw away the pool's ids of ``tags``: a gap.

        Ids that were fetched before can't get in if the tag is paused, or if they are below
        ``least``. ``keep_highest``: later fetches are above all ids that were ever in it.
        """
