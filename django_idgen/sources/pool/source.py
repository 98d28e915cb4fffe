"""Segments kept ready in Redis, in front of the source that they come from.

What processes have left over, and what was fetched ahead of need, lies in the pool;
a process takes from there, else from the source behind it. So nothing is wasted by
restarts, and a database outage of some minutes is not felt.

Redis may forget all of it at any time: that is a gap. It must never bring anything
back: see :mod:`.scripts`. What was pushed or popped without an answer is given up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...core.clock import SYSTEM_CLOCK, Clock
from ...core.errors import ConfigurationError, SegmentUnavailable
from ...core.generator import Emit
from ...core.loader import AnyLoader
from ...core.segment import LONGEST_STEP, MAX_ID, STEP, Demand, Segment, check_tag, joined
from ...core.source import Source, Stock
from ...db.installation import NOBODY
from ...db.redis_client import OwnRedis
from ...signals import emit as emit_signal
from ..fetch_threads import FetchThreads
from .history import carry_over
from .link import PoolLink
from .scripts import MAX_RANGES, PoolScripts, Popped, Pushed

__all__ = ["MAX_IDS", "TIMEOUT", "PoolSource"]

TIMEOUT = 0.2
"""Seconds; well below the time that a caller with nothing left waits."""
MAX_IDS = 20_000_000
"""Ids of one tag: 20 minutes of 16,000 a second. So many are lost with the Redis."""
LARGEST_POOL = 1_000_000_000
TRIES = 3
"""Others may begin the pool, or have it cleared, at the same moment."""
OWNER_AGE = 60.0
"""Seconds after which a fetch looks whether its database is still the same one."""


@dataclass(frozen=True, slots=True)
class _Fetched:
    """What this process has had of a tag."""

    owner: str
    since: int
    """What lies below came from another owner; 0 if there was none."""
    step: int
    life: str
    """The pool's, before the last ids were had, or the tag was last found not to be paused."""


class PoolSource(Source):
    """A pool in the Redis of the cache ``alias`` (django-redis'), before ``source``. Thread-safe.

    ``timeout`` (seconds, 0.01 to 60) bounds each call to Redis; after a failure the pool
    is left alone for a minute, and ids come from ``source``. ``max_ids`` (1 to 1e9)
    bounds what lies ready there of each tag, and what is given back.

    An edited step counts from the next fetch of any process from ``source``.
    """

    nested = ("source",)
    is_pool = True

    def __init__(
        self,
        *,
        alias: str,
        source: Source,
        timeout: float = TIMEOUT,
        max_ids: int = MAX_IDS,
        clock: Clock = SYSTEM_CLOCK,
        emit: Emit = emit_signal,
        own: OwnRedis | None = None,
    ) -> None:
        if not source.can_be_pooled:
            raise ConfigurationError(
                f"'source' is a {type(source).__name__}, whose ids can't be pooled: it doesn't "
                f"say whose they are. Use 'django_idgen.sources.database.DatabaseSource'."
            )
        self.source = source
        self.alias = alias
        self.max_ids = _checked_max_ids(max_ids)
        self._loader = FetchThreads(lambda: source.loader.background)
        self._own = own or OwnRedis(alias, timeout=_checked_timeout(timeout))
        _ = self._own.client  # so that a wrong alias fails at once
        self.history = source.history
        """Whether it is written down who has which range."""
        self._scripts = PoolScripts(self._own, history=self.history)
        self._emit = emit
        self._link = PoolLink(alias, clock=clock, emit=emit)
        self._fetched: dict[str, _Fetched] = {}

    @property
    def loader(self) -> AnyLoader:
        """Some threads, where the source behind the pool has any."""
        return self._loader

    @property
    def behind(self) -> Source:
        """The source that the pool is filled from."""
        return self.source.behind

    def fetch(self, tag: str, *, floor: int = 0, demand: Demand = STEP) -> Segment:
        """The lowest ids of the pool at or above ``floor``; else a segment of the source.

        From the pool there may be fewer than ``demand`` asks for, but for ``at_least``.
        See :meth:`Source.fetch` for what it raises, and for
        :class:`ConfigurationError` :meth:`..PoolLink.ask`.
        """
        owner = self.source.owner(check_tag(tag))
        popped = self._pop(owner, tag, floor, demand)
        segment = popped.segment
        life = popped.life
        if segment is None:
            segment, life = self._behind(tag, floor, demand, popped)
            owner = self.source.owner(tag, max_age=OWNER_AGE)
        self._note(owner, segment, life)
        return segment

    def _behind(self, tag: str, floor: int, demand: Demand, popped: Popped) -> tuple[Segment, str]:
        """A segment of the source behind the pool, which has none; and the pool's life."""
        segment = self.source.fetch(tag, floor=max(floor, popped.highest), demand=demand)
        return segment, popped.life

    def give_back(self, tag: str, ranges: Sequence[range]) -> None:
        """Put ids into the pool that came from here and were not given out. Never raises."""
        known = self._fetched.get(tag)
        if known is None or not known.owner or self.source.owner(tag) != known.owner:
            return
        whole = joined(each for each in ranges if each and each[0] >= known.since)
        longest = sorted(whole, key=len, reverse=True)[:MAX_RANGES]
        # "Never raises": where it can't be told whether the tag is paused, they are a gap.
        with suppress(SegmentUnavailable, ConfigurationError):
            if longest and (pushed := self._put_in(known, tag, longest, max_ids=self.max_ids)).life:
                self._fetched[tag] = replace(self._fetched[tag], life=pushed.life)

    def _put_in(self, had: _Fetched, tag: str, ranges: Sequence[range], *, max_ids: int) -> Pushed:
        """Put ids into the pool, unless their tag is paused."""
        push = partial(self._push, had.owner, tag, ranges, step=had.step, max_ids=max_ids)
        pushed = push(life=had.life) if had.life else Pushed(refused=True)
        for _ in range(TRIES if pushed.refused else 0):
            # It was cleared or lost, or begins now. The life is read first: a pause that comes
            # in between ends it.
            found = self._link.demand(lambda: self._scripts.stock([(had.owner, tag)]))
            if self.source.is_paused(tag):
                return Pushed()
            pushed = push(life=found[0].life)
            if not pushed.refused:
                break
        return pushed

    # --- keeping a stock --------------------------------------------------------------

    def stock(self, tags: Iterable[str]) -> Mapping[str, int]:
        """How many ids of each of ``tags`` lie in the pool.

        Raises :class:`SegmentUnavailable` if Redis can't be asked.
        """
        return {tag: stock.ids for tag, stock in self.stocks(tags).items()}

    def stocks(self, tags: Iterable[str]) -> Mapping[str, Stock]:
        """As :meth:`stock`, with all that is known of it."""
        owners = [(self.source.owner(check_tag(tag)), tag) for tag in tags]
        pooled = [(owner, tag) for owner, tag in owners if owner]
        found = self._link.demand(lambda: self._scripts.stock(pooled)) if pooled else []
        stocks = {tag: Stock() for _, tag in owners}
        return stocks | {tag: stock for (_, tag), stock in zip(pooled, found, strict=True)}

    def clear(self, tags: Iterable[str], *, keep_highest: bool = False) -> None:
        """Throw away what lies in the pool of ``tags``: a gap. What was fetched before stays out.

        For tags that are paused; and for when the database was restored to an earlier state
        while the pool could not be asked, or ``max_id`` was lowered by hand. Raises
        :class:`SegmentUnavailable` if Redis can't be asked.
        """
        owners = [(self.source.owner(check_tag(tag)), tag) for tag in tags]
        pooled = [(owner, tag) for owner, tag in owners if owner]
        if pooled:
            self._link.demand(lambda: self._scripts.clear(pooled, keep_highest=keep_highest))

    def drain_history(self) -> int:
        """Move what Redis has noted on who popped which range into the history's rows.

        Returns how many rows were written. May come late, be doubled, or be killed; Redis
        keeps the last 50,000 notes of a database. Raises
        :class:`SegmentUnavailable` if Redis can't be asked, and what the
        database says.
        """
        if not self.history:
            return 0
        owners = self.source.owners().items()
        return sum(carry_over(self._link, self._scripts, owner, alias) for alias, owner in owners)

    def refill(self, tag: str, ids_wanted: int) -> int:
        """Fetch ids of ``tag`` until ``ids_wanted`` (at most ``max_ids``) lie ready in the pool.

        Those count that every process can use which has asked so far: what lies below the
        floor of one is for newcomers, and may be as much again.

        Returns how many were put in. Two at once put in too many, and repeat nothing; one
        that is killed leaves a gap of a fetch. Raises what :meth:`fetch` does, and
        :class:`SegmentUnavailable` if Redis can't be asked.
        """
        if not self.source.owner(check_tag(tag)):
            return 0
        stock = self.stocks([tag])[tag]
        wanted = min(ids_wanted, self.max_ids) - stock.ready
        wanted, put_in = min(wanted, 2 * self.max_ids - stock.ids), 0
        while wanted > put_in:
            taken = self._fetch_and_push(tag, stock, wanted - put_in)
            put_in += taken
            if not taken:
                break
        return put_in

    # --- looking ----------------------------------------------------------------------

    def probes(self) -> Mapping[str, Callable[[], None]]:
        """As of the source behind it, and of Redis: each can have ids while the other is down."""
        return {f"redis {self._own.alias}": self._ping, **self.source.probes()}

    def _ping(self) -> None:
        self._own.ask(lambda client: client.ping(), unavailable=SegmentUnavailable)

    def memory(self) -> int:
        """Bytes that the Redis uses, for whatever. Raises as :meth:`stock`."""
        info = self._own.ask(lambda client: client.info("memory"), unavailable=SegmentUnavailable)
        return int(info["used_memory"])

    # --- the process' life ----------------------------------------------------------

    def abandon(self) -> None:
        """Drop what a forked child inherited."""
        self._link.reset()
        self._own.reset()
        self._loader.reset()
        self.source.abandon()

    def close(self) -> None:
        """Close the connections. May be called twice."""
        self.source.close()
        self._own.close()

    # ----------------------------------------------------------------------------------

    def _pop(self, owner: str, tag: str, floor: int, demand: Demand) -> Popped:
        if owner == NOBODY or floor > MAX_ID:
            return Popped()
        popped = self._link.ask(lambda: self._scripts.pop(owner, tag, floor=floor, demand=demand))
        if popped is None:
            return Popped()
        self._tell_dropped(tag, popped.dropped)
        return popped

    def _push(self, owner: str, tag: str, ranges: Sequence[range], **options: Any) -> Pushed:
        """See :meth:`..PoolScripts.push`; if Redis can't be asked, all are a gap."""
        try:
            pushed = self._link.ask(lambda: self._scripts.push(owner, tag, ranges, **options))
        except ConfigurationError as error:
            self._emit("pool_unavailable", alias=self._link.alias, error=error)
            return Pushed()
        if pushed is None:
            return Pushed()
        self._tell_dropped(tag, pushed.dropped)
        return pushed

    def _fetch_and_push(self, tag: str, stock: Stock, missing: int) -> int:
        demand = Demand(at_least=min(missing, LONGEST_STEP))
        segment = self.source.fetch(tag, floor=stock.highest, demand=demand)
        owner = self.source.owner(tag, max_age=OWNER_AGE)
        if not owner:
            return 0
        ids = segment.ids()
        # A step is taken whole, though less may have been missing.
        room = 2 * self.max_ids + len(ids)
        had = _Fetched(owner, 0, segment.step, stock.life)
        return self._put_in(had, tag, [ids], max_ids=room).taken

    def _note(self, owner: str, segment: Segment, life: str) -> None:
        known = self._fetched.get(segment.tag)
        since = known.since if known else 0
        if known and known.owner != owner:
            since = segment.start
        self._fetched[segment.tag] = _Fetched(owner, since, segment.step, life)

    def _tell_dropped(self, tag: str, ids: int) -> None:
        if ids:
            self._emit("pool_dropped", tag=tag, ids=ids)


def _checked_timeout(value: object) -> float:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0.01 <= value <= 60:  # type: ignore[operator]
        raise ConfigurationError(f"'timeout' must be 0.01 to 60 seconds, not {value!r}.")
    return float(value)  # type: ignore[arg-type]


def _checked_max_ids(value: object) -> int:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not 1 <= value <= LARGEST_POOL:  # type: ignore[operator]
        raise ConfigurationError(
            f"'max_ids' must be a whole number of 1 to {LARGEST_POOL}, not {value!r}."
        )
    return value  # type: ignore[return-value]
