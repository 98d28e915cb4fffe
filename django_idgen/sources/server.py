"""Segments out of ``LeafAlloc`` on a database server.

A fetch is one transaction on a connection of our own: one UPDATE moves the
row's ``max_id`` up by its ``step``, and keeps the row locked while we read what
it moved it to (Leaf's scheme). Whatever that doesn't fit is left to
:mod:`.row_opening`, and tried again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache, partial
from typing import Any

from django.db import DatabaseError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import BigIntegerField, F, QuerySet, TextField, Value
from django.db.models.expressions import Combinable, RawSQL
from django.db.models.functions import Cast, Greatest, Least, Substr
from django.db.models.sql import UpdateQuery

from ..core.errors import ConfigurationError, SegmentExhausted, SegmentUnavailable, TagPaused
from ..core.generator import Emit
from ..core.loader import Loader
from ..core.segment import (
    LONGEST_STEP,
    MAX_DELTA,
    MAX_ID,
    MAX_STEP,
    STEP,
    Demand,
    Segment,
    Shard,
    check_step,
    check_tag,
)
from ..core.source import Source
from ..db import dialects
from ..db.connection import OwnConnection, own_connection
from ..db.dialects import IDENTITY_LENGTH, Now
from ..db.transactions import Transactions
from ..models import DEFAULT_STEP, LeafAlloc
from ..signals import emit as emit_signal
from . import history
from .row_opening import Floor, RowOpening, Sharing, Skip

__all__ = ["FAILOVER_SKIP", "INTERVAL", "SMOOTHING", "Rate", "ServerSource", "move"]

INTERVAL = 60.0
"""Seconds between two measurements of a tag."""
SMOOTHING = 600.0
"""Seconds after which an old rate counts for 1/e. Processes fetch in lumps of minutes."""


@dataclass(frozen=True, slots=True)
class Rate:
    """What is known of a tag's consumption. Frozen."""

    a_second: float = 0.0
    """Ids; 0 as long as it was not measured twice."""
    at: datetime | None = None
    """When it was measured last."""
    used: int = 0
    """``max_id`` at that time, less what lay in a pool."""

    def is_due(self, now: datetime) -> bool:
        # One in the future was written under another clock.
        return self.at is None or not 0 <= (now - self.at).total_seconds() < INTERVAL

    def measured(self, used: int, now: datetime, *, delta: int = 1) -> Rate:
        """The rate after one more measurement; ``used`` may have gone back (into the pool)."""
        seconds = (now - self.at).total_seconds() if self.at is not None else 0.0
        if seconds <= 0:
            return Rate(self.a_second, now, used)
        sample = max(0, used - self.used) / delta / seconds
        weight = 1 - math.exp(-seconds / SMOOTHING) if self.a_second else 1.0
        return Rate(self.a_second + (sample - self.a_second) * weight, now, used)


_LONGEST_MOVE = MAX_STEP * MAX_DELTA


_TAG, _HOLDER, _LOWEST = "<tag>", "<holder>", -1
"""Stand for what differs from one fetch to the next."""


def move(
    connection: BaseDatabaseWrapper,
    tag: str,
    lowest: int,
    demand: Demand,
    *,
    identity: str,
    shared: bool,
    holder: str,
) -> bool:
    """Move ``max_id`` of ``tag`` up, and lock its row; False if it is not as it should be.

    It should not be paused, have a sound step and shard, know of ranges twice as long as
    this one, stand at or above ``lowest`` and not near the end of the ids, and know the
    server, which the SQL expression ``identity`` names (unless empty). A ``shared`` tag
    stands at another height in each database, so that passing ids over is nothing to
    tell. ``holder``: who is given the ids.
    """
    if lowest > MAX_ID - _LONGEST_MOVE or demand.at_least > MAX_STEP:
        return False
    writes_utc = dialects.writes_utc(connection)
    sql, stand_ins = _statement(
        connection.alias, connection.vendor, writes_utc, identity, shared, demand
    )
    real = {_TAG: tag, _HOLDER: holder, _LOWEST: lowest}
    with connection.cursor() as cursor:
        # A driver may have a type of its own for integers.
        cursor.execute(sql, [type(each)(real.get(each, each)) for each in stand_ins])
        return bool(cursor.rowcount)


@lru_cache(maxsize=64)
def _statement(
    alias: str,
    _vendor: str,
    _writes_utc: bool,
    identity: str,
    shared: bool,
    demand: Demand,
) -> tuple[str, Sequence[Any]]:
    """The UPDATE of :func:`move`, and its parameters: to build it takes longer than to run it."""
    ids = _length(demand)
    length = ids * Cast("delta", BigIntegerField())
    sound = LeafAlloc.objects.using(alias).filter(
        pk=_TAG,
        # Here, so that no fetch is granted anything once a pause is committed.
        paused=False,
        step__range=(1, MAX_STEP),
        delta__range=(1, MAX_DELTA),
        remainder__lt=F("delta"),
        max_id__range=(1 if shared else _LOWEST, MAX_ID - _LONGEST_MOVE),
        # Both the row and the installation's know of it, by the careful way: were the row
        # lost with a fetch that had grown, nothing would tell how far the tag came.
        largest_step__gte=length * _big(2),
    )
    if identity:
        server = RawSQL(identity, (), TextField())  # noqa: S611  # nosec B611  # a constant
        sound = sound.filter(server=Substr(server, 1, IDENTITY_LENGTH))
    query: Any = sound.query.chain(UpdateQuery)
    query.add_update_values(
        {
            "max_id": (Greatest(F("max_id"), _big(_LOWEST)) if shared else F("max_id")) + length,
            "update_time": Now(),
            "holder": _HOLDER,
            "fetched_at": Now(),
            "fetched_ids": ids,
        }
    )
    sql, stand_ins = query.get_compiler(alias).as_sql()
    return sql, tuple(stand_ins)


def _length(demand: Demand) -> Combinable:
    """:meth:`Demand.length` of the row's step, in SQL."""
    step = Cast("step", BigIntegerField())
    if demand == STEP:
        return step
    most = Greatest(step, _big(LONGEST_STEP))
    return Greatest(_big(demand.at_least), Least(step * _big(demand.times), most))


def _big(value: int) -> Value:
    return Value(value, BigIntegerField())


FAILOVER_SKIP = 50
"""Fetches of the longest kind that a fleet may lose with a server: its processes, a few each."""
QUESTION_TIMEOUT = 2.0
"""Seconds for what is only asked, ahead of a fetch."""
ATTEMPTS = 8
_READ = ("max_id", "step", "delta", "remainder", "update_time")
_MEASURED = ("rate", "measured_at", "measured_used")


@dataclass(frozen=True, slots=True)
class _Taken:
    """What one transaction came to."""

    segment: Segment | None = None
    skips: Sequence[Skip] = ()


class ServerSource(Source):
    """A segment source in the ``leaf_alloc`` table of database ``alias``. Thread-safe.

    ``default_step`` (ids) is given to tags that are made on first use; ``timeout``
    (seconds) bounds each transaction that comes from outside of ``loader``.
    ``shard``: which ids the settings leave to this database; a row that says
    otherwise is refused. ``failover_skip``: how many of the longest fetches are
    skipped when another server has taken over; ``server_identity=False`` turns that
    off, as is right where a balancer spreads connections over servers that commit
    in step (Galera). ``history``: each fetch leaves a row. ``measures``: about once a
    minute a fetch writes the tag's rate into its row.

    Raises what :class:`Source` says.
    """

    def __init__(
        self,
        *,
        alias: str,
        default_step: int = DEFAULT_STEP,
        timeout: float = 5.0,
        shard: Shard | None = None,
        failover_skip: int = FAILOVER_SKIP,
        server_identity: bool = True,
        history: bool = False,
        measures: bool = True,
        own: OwnConnection | None = None,
        emit: Emit = emit_signal,
    ) -> None:
        self.alias = alias
        self.default_step = check_step(default_step)
        self.shard = shard
        self._own = own or own_connection(alias)
        self._server_identity = server_identity
        self.history = history
        self._measures = measures
        self._emit = emit
        self._identity_sql: str | None = None if server_identity else ""
        """How to ask who the server is; None if that has to be found out."""
        self._opening = RowOpening(
            alias,
            default_step=default_step,
            shard=shard,
            failover_skip=check_failover_skip(failover_skip),
            server_identity=server_identity,
        )
        models = ("LeafAlloc", "Installation", *(("SegmentHistory",) if history else ()))
        self._transactions = Transactions(
            self._own, timeout=timeout, models=models, unavailable=SegmentUnavailable
        )

    @property
    def loader(self) -> Loader:
        """The loader whose thread owns the connection; a fetch from its jobs runs inline."""
        return self._own.loader

    def fetch(self, tag: str, *, floor: int = 0, demand: Demand = STEP) -> Segment:
        """See :meth:`Source.fetch`."""
        return self.fetch_within(None, tag, floor=floor, demand=demand)

    def fetch_within(
        self,
        timeout: float | None,
        tag: str,
        *,
        floor: int = 0,
        demand: Demand = STEP,
        expected: int = 0,
    ) -> Segment:
        """As :meth:`fetch`, with a ``timeout`` (seconds) of its own for each transaction.

        A row below ``floor`` has lost fetches, unless ``floor`` is at most ``expected``:
        then nothing more is skipped, and nothing told.
        """
        check_tag(tag)
        if floor >= MAX_ID:
            raise self._exhausted(tag)
        # Whatever a row says, ids are positive.
        asked = Floor(max(floor, 1), expected, demand.granted)
        for number in range(ATTEMPTS):
            take = self._take_carefully if number % 2 else self._take
            taken = self._run(partial(take, tag, asked, demand), timeout)
            for skip in taken.skips:
                self._report(tag, skip)
            if taken.segment is not None:
                return taken.segment
        raise SegmentUnavailable(
            f"The row of tag {tag!r} in leaf_alloc of database {self.alias!r} changes all the "
            f"time. See who else writes to it."
        )

    def record_rate(self, tag: str, used: int, now: datetime) -> float:
        """Measure ``tag`` from outside: the fleet had used the ids below ``used`` at ``now``.

        For keeping a stock of segments: ``used`` is ``max_id`` less that. Give a
        source without ``measures`` then. Returns the smoothed ids a second; 0.0 at the
        first measurement, and for a tag that is not there.
        """

        def body(_connection: BaseDatabaseWrapper) -> float:
            row = self._rows(tag).select_for_update().first()
            if row is None:
                return 0.0
            known = Rate(row.rate, row.measured_at, row.measured_used)
            return self._store(tag, known.measured(used, now, delta=max(row.delta, 1)))

        return self._transactions.run(body)

    def share(self, *, write: bool) -> Sharing:
        """Make this database one of several, with our shard: see :meth:`RowOpening.share`."""
        return self._transactions.run(lambda _connection: self._opening.share(write=write))

    def ping(self) -> None:
        """Raise :class:`SegmentUnavailable` unless the server answers."""
        self._transactions.run(lambda _connection: None)

    def is_new(self, tag: str) -> bool:
        """Whether no id of ``tag`` was handed out yet."""
        used = self._rows(tag).filter(max_id__gt=1).values_list("pk", flat=True)
        # MariaDB takes "Orders" for "orders".
        return self._transactions.run(lambda _: tag not in used.all(), timeout=QUESTION_TIMEOUT)

    def is_paused(self, tag: str) -> bool:
        """Whether its row says so by now."""
        return self._transactions.run(lambda _: self._says_paused(tag))

    def abandon(self) -> None:
        self._own.reset()

    def _run(self, body: Callable[[BaseDatabaseWrapper], _Taken], timeout: float | None) -> _Taken:
        try:
            return self._transactions.run(body, timeout=timeout)
        except SegmentUnavailable as error:
            if isinstance(error.__cause__, DatabaseError) and self._server_identity:
                # Perhaps the server is another one by now, and wants to be asked otherwise.
                self._identity_sql = None
            raise

    def _rows(self, tag: str) -> QuerySet[LeafAlloc]:
        return LeafAlloc.objects.using(self.alias).filter(pk=tag)

    # --- the ordinary fetch ----------------------------------------------------

    def _take(
        self, tag: str, floor: Floor, demand: Demand, connection: BaseDatabaseWrapper
    ) -> _Taken:
        if not move(
            connection,
            tag,
            floor.lowest,
            demand,
            identity=self._identity(connection),
            shared=self._shared,
            holder=history.holder(),
        ):
            if self._says_paused(tag):
                raise TagPaused(tag)
            return _Taken()
        row = self._read(tag)
        shard = Shard(row["delta"], row["remainder"])
        self._opening.check(tag, shard)
        base = row["max_id"] - demand.length(row["step"]) * shard.delta
        return _Taken(self._grant(tag, row, base))

    def _says_paused(self, tag: str) -> bool:
        return self._rows(tag).filter(paused=True).exists()

    def _identity(self, connection: BaseDatabaseWrapper) -> str:
        if self._identity_sql is None:
            self._identity_sql = dialects.identity_sql(connection)
        return self._identity_sql

    @property
    def _shared(self) -> bool:
        return self.shard is not None and self.shard.delta > 1

    def _read(self, tag: str) -> dict[str, Any]:
        names = (*_READ, *(_MEASURED if self._measures else ()))
        return dict(self._rows(tag).values(*names).get())

    # --- the careful one ---------------------------------------------------------

    def _take_carefully(
        self, tag: str, floor: Floor, demand: Demand, connection: BaseDatabaseWrapper
    ) -> _Taken:
        """For a tag that is missing, near the end of the ids, below the floor, edited by hand."""
        opened = self._opening.open(connection, tag, floor, demand)
        if opened.changed:
            return _Taken(skips=opened.skips)
        row = opened.row
        base = max(row.max_id, floor.lowest)
        # The table's BIGINT holds no exclusive end past it.
        stop = min(base + demand.length(row.step) * row.delta, MAX_ID)
        first = Shard(row.delta, row.remainder).first(base)
        if first >= stop:
            raise self._exhausted(tag)
        self._rows(tag).update(
            max_id=stop,
            update_time=Now(),
            holder=history.holder(),
            fetched_at=Now(),
            fetched_ids=len(range(first, stop, row.delta)),
        )
        return _Taken(self._grant(tag, self._read(tag), base))

    # --- either ------------------------------------------------------------------

    def _grant(self, tag: str, row: dict[str, Any], base: int) -> Segment:
        """The segment above ``base``, with what is to be written about it."""
        shard = Shard(row["delta"], row["remainder"])
        segment = Segment(tag, shard.first(base), row["max_id"], row["step"], shard.delta)
        now = row["update_time"]
        if self.history:
            history.record(segment, self.alias, now)
        if self._measures:
            known = Rate(row["rate"], row["measured_at"], row["measured_used"])
            if known.is_due(now):
                self._store(tag, known.measured(base, now, delta=shard.delta))
        return segment

    def _store(self, tag: str, rate: Rate) -> float:
        self._rows(tag).update(
            rate=rate.a_second,
            measured_at=rate.at,
            measured_used=rate.used,
            update_time=F("update_time"),
        )
        return rate.a_second

    def _report(self, tag: str, skip: Skip) -> None:
        self._emit(
            "segment_skipped",
            tag=tag,
            database=self.alias,
            start=skip.start,
            stop=skip.stop,
            why=skip.why,
        )

    def _exhausted(self, tag: str) -> SegmentExhausted:
        return SegmentExhausted(
            f"Tag {tag!r} of database {self.alias!r} has come to 2**63-1: there are no higher "
            f"ids. Lower max_id in leaf_alloc if it was raised by mistake, or use another tag."
        )


def check_failover_skip(value: object) -> int:
    """Return ``value`` if it can be a ``failover_skip``, else raise ConfigurationError."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1_000_000:
        raise ConfigurationError(
            f"failover_skip must be a whole number of 1 to 1000000, not {value!r}. "
            f"server_identity=False turns it off."
        )
    return value
