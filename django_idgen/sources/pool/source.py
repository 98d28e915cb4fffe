"""Segments kept ready in Redis, in front of another source.

The pool has ids that processes gave back, and ids that were fetched ahead.
A process takes ids from the pool, else from the source behind it. So restarts waste
nothing, and processes get through a database outage of some minutes.

Redis may lose all of it at any time: that is a gap. It must never bring back ids:
see :mod:`.scripts`. A push or pop without an answer is given up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from ...core.clock import SYSTEM_CLOCK, Clock
from ...core.errors import ConfigurationError, SegmentUnavailable
from ...core.events import Emit
from ...core.loader import SEVERAL, Loader
from ...core.options import check_seconds, check_whole
from ...core.segment import LONGEST_STEP, MAX_ID, STEP, Demand, Segment, check_tag, joined
from ...core.source import Source, Stock
from ...db.connection import close_after_jobs
from ...db.installation import NO_OWNER
from ...db.redis_client import OwnRedis
from ...signals import emit as emit_signal
from .scripts import MAX_RANGES, PoolScripts, Popped, Pushed

TIMEOUT = 0.2
"""Seconds; well below the time that a caller with nothing left waits."""
MAX_IDS = 20_000_000
"""Ids of one tag: 20 minutes at 16,000 a second. The most that is lost with the Redis."""
LARGEST_POOL = 1_000_000_000
TRIES = 3
"""Attempts to push: another process may begin or clear the pool at the same moment."""
OWNER_AGE = 60.0
"""Seconds after which a fetch checks whether its database is still the same one."""


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Fetched:
    """What this process last fetched of a tag."""

    owner: str
    since: int
    """Ids below came from another owner; 0 if none did."""
    step: int
    life: str
    """The pool's life before the last fetch, or before the last check that it is not paused."""


class PoolSource(Source):
    """A pool in the Redis of the cache ``alias``, in front of ``source``. Thread-safe.

    ``timeout`` (seconds, 0.01 to 60) bounds each call to Redis. After a failure the pool
    is not used for a minute, and ids come from ``source``. ``max_ids`` (1 to 1e9)
    bounds the ids of each tag in the pool, and those that are given back.

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
                f"'source' is a {type(source).__name__}, whose segments can't be pooled: they "
                "don't show which server granted them. Use "
                "'django_idgen.sources.database.DatabaseSource'."
            )
        self.source = source
        self.alias = alias
        self.max_ids = check_whole("'max_ids'", max_ids, least=1, most=LARGEST_POOL)
        self._loader = Loader(
            "idgen-fetch",
            threads=SEVERAL,
            inline=lambda: not source.loader.background,
            on_idle=close_after_jobs,
        )
        self._own = own or OwnRedis(
            alias, timeout=check_seconds("'timeout'", timeout, least=0.01, most=60)
        )
        _ = self._own.client  # so that a wrong alias fails at once
        self._scripts = PoolScripts(self._own)
        self._emit = emit
        self._link = PoolLink(alias, clock=clock, emit=emit)
        self._fetched: dict[str, _Fetched] = {}

    @property
    def loader(self) -> Loader:
        """Several threads, if the source behind the pool has one."""
        return self._loader

    @property
    def behind(self) -> Source:
        """The source behind the pool."""
        return self.source.behind

    def fetch(self, tag: str, *, floor: int = 0, demand: Demand = STEP) -> Segment:
        """The lowest ids of the pool at or above ``floor``; else a segment of the source.

        A segment from the pool may be shorter than ``demand`` asks for, but has ``at_least``.
        Raises as :meth:`Source.fetch` and :meth:`PoolLink.ask` do.
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
        """A segment of the source behind an empty pool, and the pool's life."""
        return self._fetch_past(tag, floor, demand, popped.highest), popped.life

    def _fetch_past(self, tag: str, floor: int, demand: Demand, highest: int) -> Segment:
        """A segment of the source behind, past ``floor`` and all that was ever in the pool."""
        granted = max(highest, demand.had(floor))
        demand = replace(demand, granted=granted)
        return self.source.fetch(tag, floor=max(floor, highest), demand=demand)

    def give_back(self, tag: str, ranges: Sequence[range]) -> None:
        """Put unused ids that were fetched here into the pool. Never raises."""
        known = self._fetched.get(tag)
        if known is None or not known.owner or self.source.owner(tag) != known.owner:
            return
        whole = joined(each for each in ranges if each and each[0] >= known.since)
        longest = sorted(whole, key=len, reverse=True)[:MAX_RANGES]
        # A gap, if it is unknown whether the tag is paused.
        with suppress(SegmentUnavailable, ConfigurationError):
            if longest and (pushed := self._put_in(known, tag, longest, max_ids=self.max_ids)).life:
                self._fetched[tag] = replace(self._fetched[tag], life=pushed.life)

    def _put_in(self, had: _Fetched, tag: str, ranges: Sequence[range], *, max_ids: int) -> Pushed:
        """Push ids, unless their tag is paused."""
        push = partial(self._push, had.owner, tag, ranges, step=had.step, max_ids=max_ids)
        pushed = push(life=had.life) if had.life else Pushed(refused=True)
        for _ in range(TRIES if pushed.refused else 0):
            # The pool was cleared or lost, or begins now. Its life is read first: a pause in
            # between ends that life.
            found = self._link.demand(lambda: self._scripts.stock([(had.owner, tag)]))
            if self.source.is_paused(tag):
                return Pushed()
            pushed = push(life=found[0].life)
            if not pushed.refused:
                break
        return pushed

    # --- keeping a stock --------------------------------------------------------------

    def stocks(self, tags: Iterable[str]) -> Mapping[str, Stock]:
        """The stock of each of ``tags``.

        Raises :class:`SegmentUnavailable` if Redis does not answer.
        """
        owners = [(self.source.owner(check_tag(tag)), tag) for tag in tags]
        pooled = [(owner, tag) for owner, tag in owners if owner]
        found = self._link.demand(lambda: self._scripts.stock(pooled)) if pooled else []
        stocks = {tag: Stock() for _, tag in owners}
        return stocks | {tag: stock for (_, tag), stock in zip(pooled, found, strict=True)}

    def clear(self, tags: Iterable[str], *, keep_highest: bool = False, least: int = 0) -> None:
        """See :meth:`Source.clear`.

        For paused tags; for tags that skipped ahead; and after the database was restored to an
        earlier state while Redis was down, or ``max_id`` was lowered by hand. Raises
        :class:`SegmentUnavailable` if Redis does not answer.
        """
        owners = [(self.source.owner(check_tag(tag)), tag) for tag in tags]
        pooled = [(owner, tag) for owner, tag in owners if owner]
        if pooled:
            self._link.demand(
                lambda: self._scripts.clear(pooled, keep_highest=keep_highest, least=least)
            )

    def refill(self, tag: str, ids_wanted: int) -> int:
        """Fetch ids of ``tag`` until the pool has ``ids_wanted`` (at most ``max_ids``).

        Counts the ids that every process which has asked so far can use. Ids below the floor of
        one of them are for new processes, and may be as many again.

        Returns how many were added. Two at once add too many, but repeat nothing. One
        that is killed leaves a gap of a fetch. Raises as :meth:`fetch` does, and
        :class:`SegmentUnavailable` if Redis does not answer.
        """
        return self._refill(tag, ids_wanted, 0, STEP)

    def _refill(self, tag: str, ids_wanted: int, floor: int, caller: Demand) -> int:
        """As :meth:`refill`, for a ``caller`` that may be granted ids from ``floor`` on."""
        if not self.source.owner(check_tag(tag)):
            return 0
        stock = self.stocks([tag])[tag]
        wanted = min(ids_wanted, self.max_ids) - stock.ready
        wanted, put_in = min(wanted, 2 * self.max_ids - stock.ids), 0
        while wanted > put_in:
            taken = self._fetch_and_push(tag, stock, wanted - put_in, floor, caller)
            put_in += taken
            if not taken:
                break
        return put_in

    # --- looking ----------------------------------------------------------------------

    def probes(self) -> Mapping[str, Callable[[], None]]:
        """Redis, and the probes of the source behind it. One of them is enough for ids."""
        return {f"redis {self._own.alias}": self._ping, **self.source.probes()}

    def _ping(self) -> None:
        self._own.ask(lambda client: client.ping(), unavailable=SegmentUnavailable)

    def memory(self) -> int:
        """The bytes that the Redis uses in all. Raises as :meth:`stocks`."""
        info = self._own.ask(lambda client: client.info("memory"), unavailable=SegmentUnavailable)
        return int(info["used_memory"])

    # --- the process' life ----------------------------------------------------------

    def abandon(self) -> None:
        """Drop what a forked child inherited."""
        self._link.reset()
        self._own.reset()
        self._loader.forget()
        self.source.abandon()

    def close(self) -> None:
        """Close the connections. May be called twice."""
        self.source.close()
        self._own.close()

    # ----------------------------------------------------------------------------------

    def _pop(self, owner: str, tag: str, floor: int, demand: Demand) -> Popped:
        if owner == NO_OWNER or floor > MAX_ID:
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

    def _fetch_and_push(
        self, tag: str, stock: Stock, missing: int, floor: int, caller: Demand
    ) -> int:
        demand = Demand(at_least=min(missing, LONGEST_STEP), granted=caller.granted, for_pool=True)
        segment = self._fetch_past(tag, floor, demand, stock.highest)
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


RETRY_AFTER = 60.0
"""Seconds for which a Redis that did not answer is left alone."""


class PoolLink:
    """Calls Redis, one call at a time, and not for :data:`RETRY_AFTER` after a failure.

    So an unreachable Redis costs a process one timeout a minute. Thread-safe.
    It emits ``pool_unavailable`` and ``pool_available``.
    """

    def __init__(self, alias: str, *, clock: Clock, emit: Emit) -> None:
        self.alias = alias
        self._clock = clock
        self._emit = emit
        self._answered = False
        self._failure: Exception | None = None
        self.reset()

    def reset(self) -> None:
        """Replace the parent's lock after a fork."""
        self._lock = threading.Lock()
        self._retry_at = 0.0

    def ask(self, call: Callable[[], T]) -> T | None:
        """Return ``call()``; ``None`` while Redis is down.

        Raises :class:`ConfigurationError` for a server that refuses its first call. Once it has
        answered, ids go on without it.
        """
        with self._lock:
            if self._failure is not None and self._clock.stopwatch() < self._retry_at:
                return None
            before = self._failure
            answer = self._tried(call)
            after = self._failure
        if after is not None:
            self._emit("pool_unavailable", alias=self.alias, error=after)
        elif before is not None:
            self._emit("pool_available", alias=self.alias)
        return answer

    def _tried(self, call: Callable[[], T]) -> T | None:
        self._failure = None
        try:
            answer = call()
        except (SegmentUnavailable, ConfigurationError) as error:
            if isinstance(error, ConfigurationError) and not self._answered:
                raise
            self._failure = error
            self._retry_at = self._clock.stopwatch() + RETRY_AFTER
            return None
        self._answered = True
        return answer

    def demand(self, call: Callable[[], T]) -> T:
        """Like :meth:`ask`, but raises :class:`SegmentUnavailable` while Redis is down."""
        answer = self.ask(call)
        if answer is None:
            failure = self._failure
            raise SegmentUnavailable(
                f"The pool in the Redis of CACHES[{self.alias!r}] does not answer. The next try "
                f"is {RETRY_AFTER:g} s after the last failure."
            ) from failure
        return answer
