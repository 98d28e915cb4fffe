"""Segments out of ``LeafAlloc`` on a database server.

A fetch is one transaction on our own connection: one UPDATE moves the row's ``max_id`` up by
its ``step``, and keeps the row locked while we read the new value (Leaf's scheme). The UPDATE
skips a row that is missing or not as it should be. Then :class:`RowOpening` makes, mends or
refuses the row in a transaction of its own, and the fetch is tried again. It commits before use:

* the row of a new tag;
* the longest range that a fetch may take, so that a server that takes over knows
  how much may have been lost;
* that another server has taken over. It may have missed the last fetches. So
  ``failover_skip`` times the longest range is skipped, and new tags start past
  what a tag that was lost whole may have taken;
* that the row was put back or deleted while the process ran. The process knows how far its
  own grants went. Other processes may be as much further as a failover may lose, and that much
  is skipped.

Locks are taken in one order: the installation's row, then the tag's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from functools import lru_cache, partial
from secrets import token_hex
from typing import Any

from django.db import DatabaseError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import BigIntegerField, F, Max, Q, QuerySet, TextField, Value
from django.db.models.expressions import Combinable, RawSQL
from django.db.models.functions import Cast, Greatest, Least, Substr
from django.db.models.sql import UpdateQuery

from ..core.errors import (
    ConfigurationError,
    InvalidTag,
    SegmentExhausted,
    SegmentUnavailable,
    TagPaused,
)
from ..core.events import Emit
from ..core.lease import PROTOCOL_VERSION
from ..core.loader import Loader
from ..core.segment import (
    ALONE,
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
from ..core.source import Source, TablesUnseen
from ..core.stored import ALL, FAILOVERS, LOST_NAMES, SERVER
from ..db import dialects
from ..db.connection import OwnConnection, own_connection
from ..db.dialects import IDENTITY_LENGTH, Now
from ..db.installation import check_form
from ..db.rows import (
    insert_row,
    is_any,
    move_row,
    read_aggregate,
    read_first,
    read_values,
    rows_of,
    update_row,
    why_alike,
)
from ..db.transactions import Transactions
from ..models import DEFAULT_STEP, Installation, LeafAlloc
from ..signals import emit as emit_signal
from . import history

INTERVAL = 60.0
"""Seconds between two measurements of a tag."""
SMOOTHING = 600.0
"""Seconds after which an old rate counts for 1/e. A process fetches for minutes at a time."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A tag's consumption as measured. Frozen."""

    a_second: float = 0.0
    """Ids a second; 0 until the second measurement."""
    at: datetime | None = None
    """When it was last measured."""
    used: int = 0
    """``max_id`` at that time, minus what was in a pool."""

    def is_due(self, now: datetime) -> bool:
        # A time in the future comes from another clock.
        return self.at is None or not 0 <= (now - self.at).total_seconds() < INTERVAL

    def measured(self, used: int, now: datetime, *, delta: int = 1) -> Rate:
        """The rate after one more measurement. ``used`` may fall: ids go back into the pool."""
        seconds = (now - self.at).total_seconds() if self.at is not None else 0.0
        if seconds <= 0:
            return Rate(self.a_second, now, used)
        sample = max(0, used - self.used) / delta / seconds
        weight = 1 - math.exp(-seconds / SMOOTHING) if self.a_second else 1.0
        return Rate(self.a_second + (sample - self.a_second) * weight, now, used)


_LONGEST_MOVE = MAX_STEP * MAX_DELTA


_TAG, _HOLDER, _LOWEST = "<tag>", "<holder>", -1
"""Placeholders for the values of one fetch."""


def move(
    connection: BaseDatabaseWrapper,
    tag: str,
    lowest: int,
    demand: Demand,
    *names: str,
    identity: str,
    shared: bool,
    holder: str,
) -> dict[str, Any] | None:
    """Move ``max_id`` of ``tag`` up, and lock its row; its fields ``names`` as they are then.

    None if the row is not as it should be.

    It must not be paused; must have a sound step and shard; must record ranges twice as long
    as this one; must be at or above ``lowest`` and not near the end of the ids; and must record
    the server that the SQL expression ``identity`` returns (unless empty). A ``shared`` tag has
    a different ``max_id`` in each database, and may skip ids to reach ``lowest``. ``holder``: the
    process that gets the ids, or the pool.
    """
    if lowest > MAX_ID - _LONGEST_MOVE or demand.at_least > MAX_STEP:
        return None
    writes_utc = dialects.writes_utc(connection)
    sql, stand_ins = _statement(
        connection.alias, connection.vendor, writes_utc, identity, shared, demand
    )
    real = {_TAG: tag, _HOLDER: holder, _LOWEST: lowest}
    # A driver may have a type of its own for integers.
    parameters = [type(each)(real.get(each, each)) for each in stand_ins]
    rows = rows_of(LeafAlloc, connection.alias).filter(pk=tag)
    found = move_row(rows, (sql, parameters), *names)
    return None if found is None else dict(zip(names, found, strict=True))


@lru_cache(maxsize=64)
def _statement(
    alias: str,
    _vendor: str,
    _writes_utc: bool,
    identity: str,
    shared: bool,
    demand: Demand,
) -> tuple[str, Sequence[Any]]:
    """The UPDATE of :func:`move` and its parameters. Building it takes longer than running it."""
    ids = _length(demand)
    length = ids * Cast("delta", BigIntegerField())
    sound = rows_of(LeafAlloc, alias).filter(
        pk=_TAG,
        # In the UPDATE: no fetch is granted anything after a pause is committed.
        paused=False,
        step__range=(1, MAX_STEP),
        delta__range=(1, MAX_DELTA),
        remainder__lt=F("delta"),
        max_id__range=(1 if shared else _LOWEST, MAX_ID - _LONGEST_MOVE),
        # RowOpening has recorded it in the row and in the installation's. If the row were lost
        # with a longer fetch, nothing would show how far the tag came.
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
"""Longest fetches that a fleet may lose with a server: a few for each of its processes."""
QUESTION_TIMEOUT = 2.0
"""Seconds for a question ahead of a fetch."""
ATTEMPTS = 8
_READ = ("max_id", "step", "delta", "remainder", "update_time", "tables_seen")
_MEASURED = ("rate", "measured_at", "measured_used")


@dataclass(frozen=True, slots=True)
class _Taken:
    """The result of one transaction."""

    segment: Segment | None = None
    skips: Sequence[Skip] = ()


class ServerSource(Source):
    """A segment source in the ``leaf_alloc`` table of database ``alias``. Thread-safe.

    ``default_step`` (ids): the step of tags that are made on first use. ``timeout``
    (seconds) bounds each transaction that starts outside of ``loader``.
    ``shard``: the ids that the settings assign to this database; a row with another
    shard is refused. ``failover_skip``: how many of the longest fetches are
    skipped when another server has taken over. ``server_identity=False`` turns that
    off; use it where a balancer spreads connections over servers that commit
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
        """The SQL for the server's identity; None until it is found out."""
        self._form_known = False
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
        """Like :meth:`fetch`, with another ``timeout`` (seconds) for each transaction.

        A row below ``floor`` has lost fetches, unless ``floor`` is at most ``expected``:
        then nothing more is skipped, and no skip is signalled.
        """
        check_tag(tag)
        if floor >= MAX_ID:
            raise self._exhausted(tag)
        lowest = max(floor, 1)  # whatever the row says
        had = demand.had(lowest)
        asked = Floor(lowest, had if had > expected else 0)
        for number in range(ATTEMPTS):
            take = self._take_carefully if number % 2 else self._take
            try:
                taken = self._run(partial(take, tag, asked, demand), timeout)
            except TablesUnseen as error:
                if error.tables <= demand.seen:
                    continue  # the careful one records them
                raise
            for skip in taken.skips:
                self._emit(
                    "segment_skipped",
                    tag=tag,
                    database=self.alias,
                    start=skip.start,
                    stop=skip.stop,
                    why=skip.why,
                )
            if taken.segment is not None:
                return taken.segment
        raise SegmentUnavailable(
            f"The row of tag {tag!r} in leaf_alloc of database {self.alias!r} changed during "
            "every attempt. Find out which other program writes to it."
        )

    def record_rate(self, tag: str, used: int, now: datetime) -> float:
        """Measure ``tag`` for a pool: the fleet had used the ids below ``used`` at ``now``.

        ``used`` is ``max_id`` minus the pool's stock. Use it on a source with
        ``measures=False``. Returns the smoothed ids a second; 0.0 at the first measurement
        and for an unknown tag.
        """

        def body(_connection: BaseDatabaseWrapper) -> float:
            row = read_first(self._rows(tag).select_for_update())
            if row is None:
                return 0.0
            known = Rate(row.rate, row.measured_at, row.measured_used)
            return self._store(tag, known.measured(used, now, delta=max(row.delta, 1)))

        return self._transactions.run(body)

    def share(self, *, write: bool) -> Sharing:
        """Give this database our shard: see :meth:`RowOpening.share`."""
        return self._transactions.run(lambda _connection: self._opening.share(write=write))

    def ping(self) -> None:
        """Check the connection. Raises :class:`SegmentUnavailable`."""
        self._transactions.run(lambda _connection: None)

    def is_paused(self, tag: str) -> bool:
        """Whether the row of ``tag`` is paused now."""
        return self._transactions.run(lambda _: is_any(self._rows(tag).filter(paused=True)))

    # --- marks in this process, of which a database with tables has none ------------------

    def open_tag(self, tag: str, *, step: int, max_id: int) -> bool:  # noqa: ARG002
        """See :meth:`.MemorySource.open_tag`. The row shows whether there is a tag."""
        return True

    def raise_mark(self, tag: str, to: int) -> None:
        """Nothing: the row is raised."""

    def set_paused(self, tag: str, *, paused: bool) -> None:
        """Nothing: the row says it."""

    def max_id(self, tag: str) -> int:  # noqa: ARG002
        """1: only the row knows."""
        return 1

    def abandon(self) -> None:
        self._own.reset()

    def _run(self, body: Callable[[BaseDatabaseWrapper], _Taken], timeout: float | None) -> _Taken:
        try:
            return self._transactions.run(body, timeout=timeout)
        except SegmentUnavailable as error:
            if isinstance(error.__cause__, DatabaseError):
                # Another server may have taken over, which needs other SQL.
                self._identity_sql = None if self._server_identity else ""
                self._form_known = False
            raise

    def _rows(self, tag: str) -> QuerySet[LeafAlloc]:
        return rows_of(LeafAlloc, self.alias).filter(pk=tag)

    # --- the ordinary fetch ----------------------------------------------------

    def _take(
        self, tag: str, floor: Floor, demand: Demand, connection: BaseDatabaseWrapper
    ) -> _Taken:
        row = move(
            connection,
            tag,
            floor.lowest,
            demand,
            *self._names,
            identity=self._identity(connection),
            shared=self._shared,
            holder=history.holder_of(demand),
        )
        if row is None:
            found = read_values(self._rows(tag), "paused")
            if not found:  # else it may have locked the row, which comes after the installation's
                return self._take_carefully(tag, floor, demand, connection)
            if found[0][0]:
                raise TagPaused(tag)
            return _Taken()
        shard = Shard(row["delta"], row["remainder"])
        self._opening.check(tag, shard)
        if unseen := demand.tables - frozenset(row["tables_seen"].split()):
            raise TablesUnseen(tag, unseen)  # which takes the move back
        base = row["max_id"] - demand.length(row["step"]) * shard.delta
        return _Taken(self._grant(tag, row, base, demand))

    def _identity(self, connection: BaseDatabaseWrapper) -> str:
        if not self._form_known:  # another version may have written the tables
            check_form(read_first(rows_of(Installation, self.alias).filter(pk=1)), self.alias)
            self._form_known = True
        if self._identity_sql is None:
            self._identity_sql = dialects.identity_sql(connection)
        return self._identity_sql

    @property
    def _shared(self) -> bool:
        return self.shard is not None and self.shard.delta > 1

    def _read(self, tag: str) -> dict[str, Any]:
        (found,) = read_values(self._rows(tag), *self._names)
        return dict(zip(self._names, found, strict=True))

    @property
    def _names(self) -> Sequence[str]:
        return (*_READ, *(_MEASURED if self._measures else ()))

    # --- the careful one ---------------------------------------------------------

    def _take_carefully(
        self, tag: str, floor: Floor, demand: Demand, connection: BaseDatabaseWrapper
    ) -> _Taken:
        """For a tag that is missing, near the end of the ids, below the floor or edited by hand."""
        opened = self._opening.open(connection, tag, floor, demand)
        if opened.records:
            return _Taken(skips=opened.skips)
        row = opened.row
        base = max(row.max_id, floor.lowest)
        # A BIGINT can't hold an exclusive end past it.
        stop = min(base + demand.length(row.step) * row.delta, MAX_ID)
        first = Shard(row.delta, row.remainder).first(base)
        if first >= stop:
            raise self._exhausted(tag)
        self._rows(tag).update(
            max_id=stop,
            update_time=Now(),
            holder=history.holder_of(demand),
            fetched_at=Now(),
            fetched_ids=len(range(first, stop, row.delta)),
        )
        return _Taken(self._grant(tag, self._read(tag), base, demand), opened.skips)

    # --- either ------------------------------------------------------------------

    def _grant(self, tag: str, row: dict[str, Any], base: int, demand: Demand) -> Segment:
        """The segment above ``base``. Writes the history row and the tag's rate."""
        shard = Shard(row["delta"], row["remainder"])
        segment = Segment(tag, shard.first(base), row["max_id"], row["step"], shard.delta)
        now = row["update_time"]
        if self.history:
            history.record(segment, self.alias, now, holder=history.holder_of(demand))
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

    def _exhausted(self, tag: str) -> SegmentExhausted:
        return SegmentExhausted(
            f"Tag {tag!r} of database {self.alias!r} has reached 2**63-1: there are no higher "
            "ids. Lower max_id in leaf_alloc if it was raised by mistake, or use another tag."
        )


def check_failover_skip(value: object) -> int:
    """Return ``value`` if it is a valid ``failover_skip``, else raise ConfigurationError."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1_000_000:
        raise ConfigurationError(
            f"failover_skip must be a whole number of 1 to 1000000, not {value!r}. "
            f"server_identity=False turns it off."
        )
    return value


# --- rows that are missing, or not as they should be ----------------------------------------


_FLOOR = "this process was granted ids up to there: the table was flushed or restored"
_TAKEN_OVER = "another server had taken over before this tag was made"


class Sharing(Enum):
    """Whether a database shares its tags with others."""

    NEW = "new"
    """It has given out nothing, and does not record its shard."""
    READY = "ready"
    """It records its shard, and has given out nothing."""
    USED = "used"
    """It gives out ids."""


class ShardUnknown(SegmentUnavailable):
    """A new tag in a database that does not record its shard."""


@dataclass(frozen=True, slots=True)
class Skip:
    """Ids of a tag that are skipped, since they may have been given out already."""

    start: int
    stop: int
    why: str


@dataclass(frozen=True, slots=True)
class Floor:
    """Where the ids of a fetch begin, and what the process was granted of the tag before."""

    lowest: int
    """The lowest id that it may be granted."""
    granted: int = 0
    """The end of what this table granted it. If the row is below, the table has lost a fetch."""


@dataclass(slots=True)
class Opened:
    """A tag whose rows this transaction has locked."""

    row: LeafAlloc
    records: bool = False
    """Whether it records a loss, another server or a longer range, and must be committed before
    ids are taken: if both were lost, nothing would show how far the tag came."""
    skips: list[Skip] = field(default_factory=list)


class RowOpening:
    """Opens rows of ``alias`` in the transaction of the calling thread. Thread-safe.

    ``shard``: the database's shard by the settings, if they say so.
    """

    def __init__(
        self,
        alias: str,
        *,
        default_step: int,
        shard: Shard | None,
        failover_skip: int,
        server_identity: bool,
    ) -> None:
        self.alias = alias
        self._default_step = default_step
        self._shard = shard
        self._server_identity = server_identity
        self._failover_skip = failover_skip

    def open(
        self, connection: BaseDatabaseWrapper, tag: str, floor: Floor, demand: Demand
    ) -> Opened:
        """Lock the rows, and mend what is wrong.

        Raises :class:`SegmentUnavailable`, :class:`TagPaused`, :class:`ConfigurationError`
        or :class:`ShardUnknown`; :class:`InvalidTag` where the database takes it for another tag.
        """
        installation = self._lock_installation()
        server = dialects.server_identity(connection) if self._server_identity else ""
        is_another = self._notice_server(installation, server)
        row = read_first(self._rows(tag).select_for_update())
        if row is not None and row.paused:
            raise TagPaused(tag)
        if row is None:
            opened = self._make(installation, tag, floor, demand, server)
        else:
            opened = self._mend(installation, row, floor, demand, server)
        opened.records |= is_another
        return opened

    def check(self, tag: str, shard: Shard) -> None:
        """Raise :class:`ConfigurationError` if the row's ``shard`` differs from the settings."""
        ours = self._shard
        if ours is None or shard == ours:
            return
        raise ConfigurationError(
            f"Tag {tag!r} has {shard} in leaf_alloc of database {self.alias!r}, but this process' "
            f"'databases' make it {ours}. Going on would repeat ids. Give all processes the "
            f"same list, in the same order; 'manage.py idgen_grow' moves the rows over to a "
            f"longer one."
        )

    def share(self, *, write: bool) -> Sharing:
        """Make new tags get our shard. Without ``write``, only check that they can.

        Raises :class:`ConfigurationError` where the database gives out ids of another shard.
        """
        installation = self._lock_installation()
        shard, ours = Shard(installation.delta, installation.remainder), self._shard or ALONE
        rows = rows_of(LeafAlloc, self.alias).order_by("pk")
        used = read_first(rows.filter(Q(max_id__gt=1) | Q(largest_step__gt=0)))
        tag = None if used is None else used.pk
        if shard == ours:
            return Sharing.READY if tag is None else Sharing.USED
        if shard != ALONE or tag is not None:
            raise self._other_shard("tags" if tag is None else f"tags (such as {tag!r})", shard)
        if write:
            installation.delta, installation.remainder = ours.delta, ours.remainder
            update_row(installation, self.alias, "delta", "remainder")
        return Sharing.NEW

    # --- the installation's row -------------------------------------------------------

    def _lock_installation(self) -> Installation:
        """The row, locked; recreated if it was deleted."""
        rows = rows_of(Installation, self.alias).filter(pk=1)
        found = read_first(rows.select_for_update())
        check_form(found, self.alias)
        return found or self._remade()

    def _remade(self) -> Installation:
        made = Installation(
            key=1,
            identity=token_hex(16),
            protocol=PROTOCOL_VERSION,
            namespaces=LOST_NAMES,
        )
        self._recall(made)
        insert_row(made, self.alias)
        return made

    def _recall(self, installation: Installation) -> None:
        """Copy into a recreated row what the tags' rows record, and assume a loss."""
        tags = rows_of(LeafAlloc, self.alias)
        largest = read_aggregate(tags, Max("largest_step", default=0))
        installation.largest_step = max(installation.largest_step, largest)
        installation.first_id = self._past_loss(installation.first_id, largest)
        delta = read_aggregate(tags, Max("delta", default=1))
        of_group = tags.filter(delta=delta).order_by("remainder").distinct()
        remainders = read_values(of_group[:2], "remainder")
        if len(remainders) == 1:
            installation.delta, (installation.remainder,) = delta, remainders[0]

    def _notice_server(self, installation: Installation, server: str) -> bool:
        """Record a ``server`` that took over from another; whether anything was written."""
        if not server or installation.server == server:
            return False
        if not installation.server and is_any(rows_of(LeafAlloc, self.alias).exclude(server="")):
            self._recall(installation)  # a lease registry recreated it
        elif installation.server or _may_lack_tags(installation, server):
            first = _longest(self._default_step * (self._shard or ALONE).delta)
            longest = installation.largest_step or first
            installation.first_id = self._past_loss(installation.first_id, longest)
        installation.server = server
        names = ("server", "first_id", "largest_step", "delta", "remainder")
        update_row(installation, self.alias, *names)
        return True

    def _past_loss(self, mark: int, longest: int) -> int:
        """A mark past what lost fetches of at most ``longest`` may have taken from ``mark`` on."""
        return min(mark + self._failover_skip * longest, MAX_ID)

    def _raise_longest(self, installation: Installation, wanted: int) -> bool:
        """Record ranges of up to ``wanted``; whether anything was written."""
        if installation.largest_step >= wanted:
            return False
        installation.largest_step = wanted
        update_row(installation, self.alias, "largest_step")
        return True

    # --- the tag's row ---------------------------------------------------------------

    def _rows(self, tag: str) -> QuerySet[LeafAlloc]:
        return rows_of(LeafAlloc, self.alias).filter(pk=tag)

    def _make(
        self, installation: Installation, tag: str, floor: Floor, demand: Demand, server: str
    ) -> Opened:
        if demand.unseen:
            raise TablesUnseen(tag, demand.unseen)
        shard = self._shard_of_new_rows(installation, tag)
        wanted = _longest(demand.length(self._default_step) * shard.delta)
        if self._raise_longest(installation, wanted):
            return Opened(LeafAlloc(biz_tag=tag), records=True)
        lost = self._has_lost(1, floor)
        past = self._past_rows(installation, floor, lost=lost)
        start = max(past, installation.first_id)
        row = LeafAlloc(
            biz_tag=tag,
            max_id=start,
            step=self._default_step,
            delta=shard.delta,
            remainder=shard.remainder,
            largest_step=wanted,
            server=server,
            tables_seen=_with_keys("", demand.tables),
        )
        if why := why_alike(row, self.alias):
            raise InvalidTag(tag, why)
        # Of two at once, the second one's whole transaction fails and is run again.
        # Continuing after the error would risk a deadlock on MySQL.
        insert_row(row, self.alias)
        opened = Opened(row)
        if lost:
            opened.skips.append(Skip(1, start, _FLOOR))
        elif installation.first_id >= start > 1:
            opened.skips.append(Skip(1, start, _TAKEN_OVER))
        opened.records = bool(opened.skips)
        return opened

    def _past_rows(self, installation: Installation, floor: Floor, *, lost: bool) -> int:
        """A mark past the floor; if the tag was lost, also past what processes may hold above it.

        If a server took over before, and the tag's table has rows, the tag may have been lost
        whole, with all ids above those rows.
        """
        if lost or (installation.first_id > 1 and floor.lowest > 1):
            return self._past_loss(floor.lowest, installation.largest_step)
        return floor.lowest

    def _has_lost(self, max_id: int, floor: Floor) -> bool:
        """Whether a row with this ``max_id`` has lost grants of this process."""
        # A shared tag has another mark in each database: the process may have been granted its
        # ids by another one.
        shared = self._shard is not None and self._shard.delta > 1
        return not shared and floor.granted > max_id

    def _mend(
        self, installation: Installation, row: LeafAlloc, floor: Floor, demand: Demand, server: str
    ) -> Opened:
        self._check_numbers(row)
        opened = Opened(row)
        changes = self._adopt(installation, row)
        self.check(row.biz_tag, Shard(row.delta, row.remainder))
        changes |= self._follow_server(installation, opened, server)
        is_recorded = row.largest_step > 0
        needed = _longest(demand.length(row.step) * row.delta)
        if row.largest_step < needed:
            row.largest_step = needed
            changes |= {"largest_step"}
        opened.records |= self._raise_longest(installation, row.largest_step)
        if self._has_lost(max(row.max_id, 1), floor):
            # A row without a record may have been made anew, and its former one lost with it.
            longest = row.largest_step if is_recorded else installation.largest_step
            past = self._past_loss(floor.lowest, longest)
            opened.skips.append(Skip(row.max_id, past, _FLOOR))
            row.max_id, row.measured_at = past, None
            changes |= {"max_id", "measured_at"}
        changes |= self._see_tables(installation, row, floor, demand)
        if changes:
            row.update_time = Now()
            update_row(row, self.alias, "update_time", *changes)
        opened.records |= bool(changes - {"tables_seen"})
        return opened

    def _see_tables(
        self, installation: Installation, row: LeafAlloc, floor: Floor, demand: Demand
    ) -> set[str]:
        """Record the tables that the process has looked at. Its floor is above their rows."""
        seen = frozenset(row.tables_seen.split())
        new = demand.tables - seen
        if unseen := new - demand.seen:
            raise TablesUnseen(row.biz_tag, unseen)
        if not new:
            return set()
        row.tables_seen = _with_keys(row.tables_seen, new)
        past = floor.lowest if seen else self._past_rows(installation, floor, lost=False)
        if past <= row.max_id:
            return {"tables_seen"}
        row.max_id, row.measured_at = past, None
        return {"tables_seen", "max_id", "measured_at"}

    def _adopt(self, installation: Installation, row: LeafAlloc) -> set[str]:
        """Give a row that Leaf or the admin made this database's shard."""
        shared = self._shard is not None and self._shard.delta > 1
        if row.largest_step or row.delta > 1 or not (shared or installation.delta > 1):
            return set()
        shard = self._shard_of_new_rows(installation, row.biz_tag)
        row.delta, row.remainder = shard.delta, shard.remainder
        return {"delta", "remainder"}

    def _follow_server(self, installation: Installation, opened: Opened, server: str) -> set[str]:
        row = opened.row
        if not server or row.server == server:
            return set()
        # A row that records no server may have lost its first fetch if servers have changed.
        if row.server or installation.first_id > 1:
            longest = row.largest_step or max(installation.largest_step, row.step)
            before, row.max_id = row.max_id, self._past_loss(max(row.max_id, 1), longest)
            row.measured_at = None  # what is skipped was not used
            why = f"server {row.server or '(unknown)'} was followed by {server}"
            opened.skips.append(Skip(before, row.max_id, why))
        row.server = server
        return {"server", "max_id", "measured_at"}

    def _shard_of_new_rows(self, installation: Installation, tag: str) -> Shard:
        stored = Shard(installation.delta, installation.remainder)
        ours = self._shard
        if ours is None or stored == ours:
            return stored
        if stored == ALONE:
            raise ShardUnknown(
                f"Database {self.alias!r} has never shared its tags, so tag {tag!r} can't be made "
                f"with {ours}. Use it through ShardedSource(databases=[...])."
            )
        raise self._other_shard("tags", stored)

    def _other_shard(self, what: str, stored: Shard) -> ConfigurationError:
        return ConfigurationError(
            f"Database {self.alias!r} has {what} with {stored}, but this process' 'databases' "
            f"make it {self._shard}. Going on would repeat ids. Give all processes the same list, "
            f"in the same order; 'manage.py idgen_grow' moves the rows over to a longer one."
        )

    def _check_numbers(self, row: LeafAlloc) -> None:
        if not 1 <= row.step <= MAX_STEP:
            raise SegmentUnavailable(
                f"Tag {row.biz_tag!r} has step {row.step} in leaf_alloc of database "
                f"{self.alias!r}; it must be 1 to {MAX_STEP}. Correct the row, in the admin for "
                f"example."
            )
        if not Shard(row.delta, row.remainder).sound:
            raise SegmentUnavailable(
                f"Tag {row.biz_tag!r} has delta={row.delta}, remainder={row.remainder} in "
                f"leaf_alloc of database {self.alias!r}; delta must be 1 to 1024, and the "
                f"remainder less than it. Correct the row."
            )


MOST_TABLES = 2000
"""Tables that a row remembers: the latest. Others are looked at again."""


def _with_keys(stored: str, new: Collection[str]) -> str:
    return " ".join([*stored.split(), *sorted(new)][-MOST_TABLES:])


def _may_lack_tags(installation: Installation, server: str) -> bool:
    """Whether another server may have made the first tags of all, which ``server`` lacks."""
    of_all = json.loads(installation.namespaces).get(ALL, {})
    return bool(of_all.get(FAILOVERS)) or of_all.get(SERVER, server) not in ("", server)


def _longest(moved: int) -> int:
    """The longest range to record: the next fetch may be twice as long, and be lost."""
    return min(2 * moved, MAX_ID)
