"""Adds databases to those that share their tags, in one step, for a fleet that is stopped.

Changing the list in the settings, process by process, would repeat ids: old and new processes
would divide the ids differently. So the division is in the rows, which every fetch reads:

1. Each new database notes that it is about to join. One that was emptied has no such note.
2. In each old database all rows, and the installation's row, get the new ``delta``, in one
   transaction. From then on it gives out only its part of the new division, and refuses
   processes with the old list.
3. The ids that were given out under the old division are now below the old databases'
   ``max_id``. The new databases get their rows at the highest of these.

No id repeats if a process goes on meanwhile: it uses up what it holds, and its next fetch is
refused. After an interruption, run it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from django.db import Error, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Count, F, Q, QuerySet
from django.db.models.functions import Greatest

from ...core.errors import ConfigurationError, SegmentUnavailable, one_line
from ...core.segment import ALONE, MAX_DELTA, Shard
from ...db import dialects
from ...db.dialects import Now
from ...db.rows import read, read_aggregate, read_first, read_values, rows_of, update_row
from ...db.sqlite import refuse_sqlite
from ...db.tables import missing_columns, missing_tables
from ...models import Installation, LeafAlloc
from ...process.tags import source_in_use

LOCK_TIMEOUT = 30
"""Seconds to wait for a row that another transaction has locked."""
QUIET = 60
"""Seconds without a fetch after which a fleet counts as stopped."""
BATCH = 1000


@dataclass(frozen=True, slots=True)
class _Member:
    """What a database stores about its shard."""

    alias: str
    shard: Shard
    wanted: Shard
    joins: bool
    """Whether it notes that it is about to join the others."""
    tags: int
    """How many tags it has given out ids of."""

    @property
    def is_done(self) -> bool:
        return self.shard == self.wanted

    @property
    def is_empty(self) -> bool:
        return self.shard == ALONE and not self.tags


class Growth:
    """Lets all of ``databases``, in this order, share the tags that some of them share now.

    Uses the calling thread's connections, outside of any transaction. Raises
    :class:`ConfigurationError` if that would repeat ids, :class:`SegmentUnavailable` for a database
    that does not answer, and the databases' errors.
    """

    def __init__(self, databases: Sequence[str]) -> None:
        unknown = [alias for alias in databases if alias not in connections.settings]
        if unknown or not 2 <= len(set(databases)) == len(databases) <= MAX_DELTA:
            known = ", ".join(map(repr, connections.settings))
            raise ConfigurationError(
                f"Name 2 to {MAX_DELTA} different aliases of DATABASES ({known}), as in the "
                f"option 'databases', not {list(databases)}."
            )
        self.databases = list(databases)

    def plan(self) -> list[str]:
        """A line for each change to make; none if all is done. Changes nothing."""
        old, new = self._look()
        return [
            f"{each.alias!r}: its tags ({each.tags}) go from {each.shard} to {each.wanted}, in "
            f"one transaction"
            for each in old
        ] + [f"{each.alias!r}: a row for each tag above the highest of the others" for each in new]

    def run(self) -> None:
        """Make these changes. May be repeated. Call :func:`refuse_use` first."""
        old, new = self._look()
        for each in new:
            _expect(each.alias)
        for each in old:
            _divide(each.alias, each.shard, each.wanted)
        joining = [each.alias for each in new]
        # Read after all are divided: nothing is given out under the old division any more.
        top = _top([alias for alias in self.databases if alias not in joining])
        for each in new:
            _settle(each.alias, each.wanted, top)

    def _look(self) -> tuple[list[_Member], list[_Member]]:
        """The databases to divide, and those to join them; none if there is nothing to do."""
        members = [
            _member(alias, Shard(len(self.databases), place))
            for place, alias in enumerate(self.databases)
        ]
        left = [each for each in members if not each.is_done]
        old = [each for each in left if not each.is_empty]
        new = [each for each in left if each.is_empty]
        if old:
            _check_order(members, old[0].shard.delta)
        elif not any(each.tags for each in members):
            return [], []  # the first use divides the ids
        unexpected = [each.alias for each in new if not each.joins]
        if unexpected and len(left) < len(members):
            raise _emptied(unexpected[0])
        return old, new


def _check_order(members: Sequence[_Member], in_use: int) -> None:
    if len(members) % in_use:
        raise ConfigurationError(
            f"The number of databases, {len(members)}, must be a multiple of the number in use, "
            f"{in_use}."
        )
    for place, each in enumerate(members):
        fits = each.shard == Shard(in_use, place) if place < in_use else each.is_empty
        if not fits and not each.is_done:
            raise ConfigurationError(
                f"Database {each.alias!r} has {each.shard}, and can't get {each.wanted}. Name the "
                f"databases in use first ({in_use}), in their order, and then databases that have "
                f"given out no ids."
            )


def _emptied(alias: str) -> ConfigurationError:
    return ConfigurationError(
        f"Database {alias!r} has no rows of the tags that it shares with the others: it was "
        f"emptied, and would repeat ids. Restore its rows, then run 'manage.py idgen_skip --all'."
    )


# --- a fleet that is not stopped -----------------------------------------------------


def refuse_use(databases: Sequence[str]) -> None:
    """Raise :class:`ConfigurationError` if processes use the tags of ``databases``.

    They would get errors from then on. Raises :class:`SegmentUnavailable` if the pool does not
    answer, and the databases' errors.
    """
    tags = set()
    for alias in databases:
        with _transaction(alias):
            # A time far in the future comes from another clock.
            lately = (Now() - timedelta(seconds=QUIET), Now() + timedelta(seconds=QUIET))
            fetched = read_first(_rows(alias).filter(fetched_at__range=lately))
            tags |= {tag for (tag,) in read_values(_rows(alias), "pk")}
        if fetched is not None:
            raise ConfigurationError(
                f"Tag {fetched.pk!r} was fetched from database {alias!r} by {fetched.holder} in "
                f"the last {QUIET} seconds. Stop all processes that take ids, wait, and run this "
                f"again."
            )
    pool = source_in_use()
    if not pool.is_pool:
        return
    ours = [tag for tag in sorted(tags) if set(pool.behind.route(tag)) & set(databases)]
    pooled = [tag for tag, stock in pool.stocks(ours).items() if stock.ids]
    if pooled:
        raise ConfigurationError(
            f"The pool has ids of tags: {len(pooled)}, such as {pooled[0]!r}. Throw them away with "
            f"'segments.allocator().source.clear([...])' in 'manage.py shell', and run this again."
        )


# --- one database --------------------------------------------------------------------


_USED = Q(max_id__gt=1) | Q(largest_step__gt=0)


def _rows(alias: str) -> QuerySet[LeafAlloc]:
    return rows_of(LeafAlloc, alias).order_by("pk")


def _member(alias: str, wanted: Shard) -> _Member:
    connection = connections[alias]
    refuse_sqlite(alias)
    try:
        columns = missing_tables(connection) or missing_columns(connection)
    except Error as error:
        raise SegmentUnavailable(
            f"Database {alias!r} does not answer: {one_line(error)}"
        ) from error
    if columns:
        raise ConfigurationError(
            f"Database {alias!r} lacks {', '.join(columns)}. Run 'manage.py migrate django_idgen "
            f"--database {alias}' first."
        )
    row = read_first(rows_of(Installation, alias).filter(pk=1))
    if row is None:
        raise _emptied(alias)
    used = _rows(alias).filter(_USED)
    return _Member(
        alias,
        Shard(row.delta, row.remainder),
        wanted,
        row.growing,
        read_aggregate(used, Count("pk")),
    )


def _expect(alias: str) -> None:
    """Note in a new database that it is about to join, before any ids are divided."""
    with _transaction(alias):
        installation = _locked(alias)
        installation.growing = True
        update_row(installation, alias, "growing")


def _divide(alias: str, before: Shard, shard: Shard) -> None:
    """Give the rows of an old database their part of the new division."""
    times = shard.delta // before.delta
    with _transaction(alias):
        installation = _locked(alias)
        stored = Shard(installation.delta, installation.remainder)
        if stored != before:
            raise ConfigurationError(
                f"Database {alias!r} has changed to {stored} meanwhile. Run this again."
            )
        _refuse_others(alias, before)
        _rows(alias).filter(delta=before.delta).update(
            delta=shard.delta,
            remainder=shard.remainder,
            # A length in max_id, of which a fetch now takes more.
            largest_step=F("largest_step") * times,
        )
        installation.largest_step *= times
        installation.delta, installation.remainder = shard.delta, shard.remainder
        update_row(installation, alias, "delta", "remainder", "largest_step")


@dataclass(slots=True)
class _Top:
    """The highest values of several databases."""

    rows: dict[str, LeafAlloc] = field(default_factory=dict)
    """By tag."""
    first_id: int = 1
    largest_step: int = 0


def _top(aliases: Sequence[str]) -> _Top:
    top = _Top()
    for alias in aliases:
        with _transaction(alias):
            installation = _locked(alias)
            top.first_id = max(top.first_id, installation.first_id)
            top.largest_step = max(top.largest_step, installation.largest_step)
            for row in read(_locked_rows(alias)):
                known = top.rows.setdefault(row.pk, row)
                known.max_id = max(known.max_id, row.max_id)
                known.step = max(known.step, row.step)
                known.largest_step = max(known.largest_step, row.largest_step)
                known.paused = known.paused or row.paused
    return top


def _settle(alias: str, shard: Shard, top: _Top) -> None:
    """Make the rows of a new database above ``top``, and let it give out their ids."""
    with _transaction(alias) as connection:
        installation = _locked(alias)
        if Shard(installation.delta, installation.remainder) != shard:
            _refuse_others(alias, shard)
        server = dialects.server_identity(connection)
        _write_rows(alias, shard, top.rows, server)
        installation.delta, installation.remainder = shard.delta, shard.remainder
        installation.growing = False
        installation.server = installation.server or server
        installation.first_id = max(installation.first_id, top.first_id)
        installation.largest_step = max(installation.largest_step, top.largest_step)
        names = ("delta", "remainder", "growing", "server", "first_id", "largest_step")
        update_row(installation, alias, *names)


def _write_rows(alias: str, shard: Shard, tops: dict[str, LeafAlloc], server: str) -> None:
    there = dict(read_values(_rows(alias), "pk", "max_id"))
    missing = [
        LeafAlloc(
            biz_tag=tag,
            max_id=top.max_id,
            step=top.step,
            description=top.description or "",
            delta=shard.delta,
            remainder=shard.remainder,
            largest_step=top.largest_step,
            server=server,
            paused=top.paused,
        )
        for tag, top in tops.items()
        if tag not in there
    ]
    _rows(alias).bulk_create(missing, batch_size=BATCH)
    for tag in there.keys() & tops.keys():
        _rows(alias).filter(pk=tag).update(
            max_id=Greatest(F("max_id"), tops[tag].max_id),
            largest_step=Greatest(F("largest_step"), tops[tag].largest_step),
            delta=shard.delta,
            remainder=shard.remainder,
            paused=tops[tag].paused,
        )


def _refuse_others(alias: str, shard: Shard) -> None:
    """Raise :class:`ConfigurationError` if a row that is in use has another shard."""
    used = _locked_rows(alias).filter(_USED)
    row = read_first(used.exclude(delta=shard.delta, remainder=shard.remainder))
    if row is not None:
        raise ConfigurationError(
            f"Tag {row.pk!r} has {Shard(row.delta, row.remainder)} in database {alias!r} instead "
            f"of {shard}: it may repeat another database's ids. Find out where the row comes "
            f"from; a new database must not have given out ids."
        )


def _locked(alias: str) -> Installation:
    (row,) = read(rows_of(Installation, alias).filter(pk=1).select_for_update())
    return row


def _locked_rows(alias: str) -> QuerySet[LeafAlloc]:
    return _rows(alias).select_for_update()


@contextmanager
def _transaction(alias: str) -> Iterator[BaseDatabaseWrapper]:
    with transaction.atomic(using=alias, durable=True):
        dialects.begin(connections[alias], lock_timeout=LOCK_TIMEOUT)
        yield connections[alias]
