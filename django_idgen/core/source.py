"""The base class of segment sources: what grants segments, and what can be asked of it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from .loader import AnyLoader, InlineLoader
from .segment import STEP, Demand, Segment

__all__ = ["Source", "Stock"]


@dataclass(frozen=True, slots=True)
class Stock:
    """What lies in the pool of one tag. Frozen."""

    ids: int = 0
    ranges: int = 0
    highest: int = 0
    """The end of the highest range that was ever here."""
    ready: int = 0
    """Ids above the floor of every process that has asked: what lies below is for newcomers."""
    life: str = ""
    """A word that is new whenever the pool begins or is cleared; "" if it has not begun."""
    taken_by: str = ""
    """The holder of what was taken out last; "" if nothing was since it began."""
    taken_us: int = 0
    """When that was, in microseconds since 1970, by the holder's clock."""
    taken_ids: int = 0


class Source(ABC):
    """Something shared that hands out segments. Safe to use from several threads.

    A source of your own implements :meth:`fetch`. The other methods have defaults that
    are right for a source without a database, a pool or a history. Each may raise
    :class:`SegmentUnavailable` where what it asks does not answer.
    """

    nested: ClassVar[tuple[str, ...]] = ()
    """The options that describe sources which this one takes from: ``{"BACKEND": ...}``."""
    wired: ClassVar[tuple[str, ...]] = ()
    """The arguments that the settings give it: ``default_step``, ``measures``."""
    can_be_pooled: ClassVar[bool] = False
    """Whether :meth:`owner` says whose the ids are, so that a pool may keep them."""
    keeps_rows: ClassVar[bool] = False
    """Whether its tags are rows of ``LeafAlloc`` in :meth:`databases`."""
    is_pool: ClassVar[bool] = False
    """Whether it keeps a stock: whether :meth:`refill` puts anything in."""
    history: bool = False
    """Whether each fetch leaves a row that says who has which range."""
    failover_skip: int = 1
    """How many of the longest fetches are skipped where a server may have missed some."""
    is_routed: bool = False
    """Whether a function says where tags are, so that :meth:`databases` are all there are."""

    # --- giving out ids ---------------------------------------------------------------

    @abstractmethod
    def fetch(self, tag: str, *, floor: int = 0, demand: Demand = STEP) -> Segment:
        """Take the next segment of ``tag``; the tag is made if it is not there.

        It has ``demand.length(step)`` ids, or fewer at the very end of the ids.
        ``floor`` is the end (exclusive) of the highest segment of this tag that the
        process was ever granted, or of the ids that it loaded from elsewhere: the new
        one lies wholly at or above it, so that a flushed or restored table can't give
        a range again.

        A fetch whose answer was lost is a lost segment: it is never sent again. It
        never runs inside the caller's transaction.

        Raises :class:`SegmentUnavailable` (with the cause chained), :class:`TagPaused`,
        :class:`SegmentExhausted` or :class:`InvalidTag`.
        """

    @property
    def loader(self) -> AnyLoader:
        """Where fetches run: the caller's thread, unless the source has to wait for I/O."""
        return InlineLoader()

    def give_back(self, tag: str, ranges: Sequence[range]) -> None:
        """Take back ids of ``tag`` that were fetched here and will not be given out.

        Each range is one that no other call ever gave back. By default they are a gap.
        Never raises.
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
        """A text that no other source of ids for ``tag`` has, in any project.

        As it was up to ``max_age`` seconds ago. "" if the ids are this process' alone.
        """
        return ""

    def owners(self) -> Mapping[str, str]:
        """The owners that are known, each by the alias of its database."""
        return {}

    def databases(self) -> Sequence[str]:
        """Every alias of ``DATABASES`` that may have rows of its tags."""
        return ()

    def route(self, tag: str) -> Sequence[str]:
        """The aliases that share ``tag``; raises as :meth:`fetch` for one that can't be."""
        return ()

    def is_new(self, tag: str) -> bool:
        """Whether no id of ``tag`` was handed out; False where that can't be known."""
        return False

    def is_paused(self, tag: str) -> bool:
        """Whether :meth:`fetch` would refuse ``tag`` as paused."""
        return False

    def probes(self) -> Mapping[str, Callable[[], None]]:
        """By name, what raises unless it answers. Ids can be had if one of them does."""
        return {}

    # --- keeping tags and a pool --------------------------------------------------------

    def agree(self, tag: str) -> None:
        """Have the databases that share ``tag`` know of each other, before a row is made."""

    def record_rate(self, tag: str, used: int, now: datetime) -> float:
        """Measure ``tag``: the fleet had used the ids below ``used`` at ``now``.

        Returns the smoothed ids a second; 0.0 where no rates are kept.
        """
        return 0.0

    def stocks(self, tags: Iterable[str]) -> Mapping[str, Stock]:
        """What lies in the pool of each of ``tags``; nothing where there is no pool."""
        return {}

    def refill(self, tag: str, ids_wanted: int) -> int:
        """Fetch ids of ``tag`` until ``ids_wanted`` lie in the pool; how many were put in."""
        return 0

    def clear(self, tags: Iterable[str], *, keep_highest: bool = False) -> None:
        """Throw away what lies in the pool of ``tags``: a gap.

        Nothing gets in that was fetched before. ``keep_highest``: what is fetched for them
        from then on lies above all that was ever there.
        """

    def drain_history(self) -> int:
        """Move what the pool has noted into the history's rows; how many were written."""
        return 0
