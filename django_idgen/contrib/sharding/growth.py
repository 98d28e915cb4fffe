"""Adds databases to those that share their tags, under load.

Changing the list in the settings, process by process, would repeat ids: old and new processes
would divide the ids differently. So the division is in the rows, which every fetch reads:

1. In each old database all rows, and the installation's row, get the new ``delta``, in one
   transaction. From then on the database gives out only its part of the new division, also to
   processes with the old settings.
2. The ids that were given out under the old division are now below the old databases'
   ``max_id``. The new databases get their rows at the highest of these. After that their
   installation's row shows that they belong to the group, which admits processes with the new
   settings.
3. When all processes have the new settings, processes with the old ones are refused
   (:meth:`Growth.finish`).

After an interruption, run all steps again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Greatest

from ...core.errors import ConfigurationError
from ...core.segment import ALONE, MAX_DELTA, Shard
from ...db import dialects
from ...db.sqlite import refuse_sqlite
from ...db.tables import missing_columns, missing_tables, update_row
from ...models import Installation, LeafAlloc

LOCK_TIMEOUT = 30
"""Seconds to wait for a row that another transaction has locked."""
BATCH = 1000
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _State:
    """What one database stores about its shard."""

    shard: Shard
    growing: bool
    tags: int
    """How many tags it has given out ids of."""


class Growth:
    """Lets all of ``databases``, in this order, share the tags that some of them share now.

    Uses the calling thread's connections, outside of any transaction. Raises
    :class:`ConfigurationError` if that would repeat ids, and the databases' errors.
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
        states = self._states()
        old = self._old(states)
        if not old:
            return []
        steps = [
            f"{alias!r}: its tags ({states[alias].tags}) go from {states[alias].shard} to {shard}, "
            f"in one transaction"
            for alias, shard in self._shards(old)
            if states[alias].shard != shard
        ]
        new = self.databases[len(old) :]
        return steps + [
            f"{alias!r}: a row for each tag above the highest of {', '.join(map(repr, old))}"
            for alias in new
        ]

    def run(self, report: Report = lambda _line: None) -> None:
        """Do steps 1 and 2. May be repeated, and run under load."""
        old = self._old(self._states())
        if not old:
            return
        for alias, shard in self._shards(old):
            count = self._divide(alias, shard, of=len(old))
            report(f"{alias!r}: tags that now have {shard}: {count}")
        for alias, shard in self._shards(self.databases)[len(old) :]:
            count = self._settle(alias, shard, old)
            report(f"{alias!r}: tags that have rows with {shard}: {count}")

    def finish(self) -> None:
        """Do step 3: refuse processes whose settings name fewer databases."""
        for alias, state in self._states().items():
            shard = Shard(len(self.databases), self.databases.index(alias))
            if state.shard != shard:
                raise ConfigurationError(
                    f"Database {alias!r} has {state.shard}, not {shard}: steps are missing. Run "
                    f"'manage.py idgen_grow' without --finish first."
                )
        for alias in self.databases:
            Installation.objects.using(alias).update(growing=False)

    # --- looking -----------------------------------------------------------------

    def _states(self) -> dict[str, _State]:
        return {alias: _state_of(alias) for alias in self.databases}

    def _shards(self, aliases: Sequence[str]) -> list[tuple[str, Shard]]:
        return [(alias, Shard(len(self.databases), n)) for n, alias in enumerate(aliases)]

    def _old(self, states: dict[str, _State]) -> list[str]:
        """The databases that have given out ids, in order; none if there is nothing to do."""
        shards = dict(self._shards(self.databases))
        done = {alias for alias, state in states.items() if state.shard == shards[alias]}
        if len(done) == len(states) or not any(state.tags for state in states.values()):
            return []
        old = [
            alias
            for alias, state in states.items()
            if state.growing or (alias not in done and state.shard != ALONE) or _is_used(state)
        ]
        if old != self.databases[: len(old)] or len(self.databases) % len(old):
            raise ConfigurationError(
                f"The databases in use ({', '.join(map(repr, old))}) must come first, in their "
                f"order. The number of all databases, {len(self.databases)}, must be a multiple "
                "of the number of these."
            )
        if old == self.databases:
            raise ConfigurationError(
                f"All of {', '.join(map(repr, old))} are in use already. Name new databases, too."
            )
        for number, alias in enumerate(old):
            if alias not in done and states[alias].shard != Shard(len(old), number):
                raise ConfigurationError(
                    f"Database {alias!r} has {states[alias].shard}; as number {number} of "
                    f"{len(old)} it must have {Shard(len(old), number)}."
                )
        return old

    # --- doing ---------------------------------------------------------------------

    def _divide(self, alias: str, shard: Shard, *, of: int) -> int:
        """Give the rows of an old database their part of the new division."""
        before, times = Shard(of, shard.remainder), shard.delta // of
        with _transaction(alias):
            installation = _locked(alias)
            stored = Shard(installation.delta, installation.remainder)
            if stored == before:
                rows = _rows(alias)
                _refuse_others(alias, rows, before)
                rows.filter(delta=of).update(
                    delta=shard.delta,
                    remainder=shard.remainder,
                    # A length in max_id, of which a fetch now takes more.
                    largest_step=F("largest_step") * times,
                )
                installation.largest_step *= times
            elif stored != shard:
                raise ConfigurationError(
                    f"Database {alias!r} has changed to {stored} meanwhile. Run this again."
                )
            installation.delta, installation.remainder = shard.delta, shard.remainder
            installation.growing = True
            update_row(installation, alias, "delta", "remainder", "growing", "largest_step")
            return _rows(alias).count()

    def _settle(self, alias: str, shard: Shard, old: Sequence[str]) -> int:
        """Make the rows of a new database, and admit it to the group."""
        tops = _tops(old)
        known = [Installation.objects.using(each).get(pk=1) for each in old]
        with _transaction(alias) as connection:
            installation = _locked(alias)
            if Shard(installation.delta, installation.remainder) != shard:
                _refuse_others(alias, _rows(alias).filter(_USED), shard)
            server = dialects.server_identity(connection)
            _write_rows(alias, shard, tops, server)
            installation.delta, installation.remainder = shard.delta, shard.remainder
            installation.server = installation.server or server
            installation.first_id = max(installation.first_id, *(row.first_id for row in known))
            installation.largest_step = max(
                installation.largest_step, *(row.largest_step for row in known)
            )
            names = ("delta", "remainder", "server", "first_id", "largest_step")
            update_row(installation, alias, *names)
        return len(tops)


_USED = Q(max_id__gt=1) | Q(largest_step__gt=0)


def _rows(alias: str) -> QuerySet[LeafAlloc]:
    return LeafAlloc.objects.using(alias)


def _is_used(state: _State) -> bool:
    return state.tags > 0 and state.shard == ALONE


def _state_of(alias: str) -> _State:
    connection = connections[alias]
    refuse_sqlite(alias)
    columns = missing_tables(connection) or missing_columns(connection)
    if columns:
        raise ConfigurationError(
            f"Database {alias!r} lacks {', '.join(columns)}. Run 'manage.py migrate django_idgen "
            f"--database {alias}' first."
        )
    row = Installation.objects.using(alias).get(pk=1)
    used = _rows(alias).filter(_USED)
    return _State(Shard(row.delta, row.remainder), row.growing, used.count())


def _tops(old: Sequence[str]) -> dict[str, LeafAlloc]:
    """For each tag, a row with the highest values of all databases."""
    tops: dict[str, LeafAlloc] = {}
    for alias in old:
        for row in _rows(alias).iterator(chunk_size=BATCH):
            top = tops.setdefault(row.pk, row)
            top.max_id = max(top.max_id, row.max_id)
            top.step = max(top.step, row.step)
            top.largest_step = max(top.largest_step, row.largest_step)
            top.paused = top.paused or row.paused
    return tops


def _write_rows(alias: str, shard: Shard, tops: dict[str, LeafAlloc], server: str) -> None:
    there = dict(_rows(alias).values_list("pk", "max_id"))
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
    LeafAlloc._base_manager.using(alias).bulk_create(missing, batch_size=BATCH)
    for tag in there.keys() & tops.keys():
        _rows(alias).filter(pk=tag).update(
            max_id=Greatest(F("max_id"), tops[tag].max_id),
            largest_step=Greatest(F("largest_step"), tops[tag].largest_step),
            delta=shard.delta,
            remainder=shard.remainder,
            paused=tops[tag].paused,
        )


def _refuse_others(alias: str, rows: QuerySet[LeafAlloc], shard: Shard) -> None:
    """Raise :class:`ConfigurationError` if one of ``rows`` that is in use has another shard."""
    others = rows.filter(_USED).exclude(delta=shard.delta, remainder=shard.remainder)
    row = others.first()
    if row is not None:
        raise ConfigurationError(
            f"Tag {row.pk!r} has {Shard(row.delta, row.remainder)} in database {alias!r} instead "
            f"of {shard}: it may repeat another database's ids. Find out where the row comes "
            f"from; a new database must not have given out ids."
        )


def _locked(alias: str) -> Installation:
    return Installation.objects.using(alias).select_for_update().get(pk=1)


@contextmanager
def _transaction(alias: str) -> Iterator[BaseDatabaseWrapper]:
    with transaction.atomic(using=alias, durable=True):
        dialects.begin(connections[alias], lock_timeout=LOCK_TIMEOUT)
        yield connections[alias]
