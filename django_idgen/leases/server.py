"""Worker ids lent by a database server: PostgreSQL, MySQL, MariaDB and their like.

Every operation is one transaction on our own connection. Operations that lend, renew or change
settings lock the namespace's record first. So those of a namespace run one after another,
whichever process they come from. Locks are taken in one order: the installation's row,
then the namespace's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from secrets import token_hex
from typing import Any, TypeVar

from django.db import Error as AnyDatabaseError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import BigIntegerField, Count, F, Max, Q, QuerySet, Value
from django.db.models.functions import Greatest, Least
from django.utils.functional import cached_property

from ..core.book import PREVIOUS_LIMIT, Book, LookCloser, Record
from ..core.clock import SYSTEM_CLOCK, Clock, Reading, unix_us
from ..core.errors import ConfigurationError, RegistryUnavailable
from ..core.inspection import InspectedMark
from ..core.lease import (
    OLD_CLIENTS,
    PROTOCOL_VERSION,
    Lease,
    Mark,
    Namespace,
    is_free_in,
    of_another_version,
)
from ..core.store import Store, read_clock
from ..core.stored import ALL, FAILOVERS, LOST, LOST_NAMES, SERVER
from ..db import dialects
from ..db.connection import SOCKET_TIMEOUT, OwnConnection, is_there
from ..db.installation import check_form
from ..db.rows import (
    insert_row,
    is_any,
    iterate_values,
    read_aggregate,
    read_first,
    read_values,
    rows_of,
    update_row,
    why_alike,
)
from ..db.tables import missing_tables
from ..db.transactions import Rerun, Transactions
from ..models import Installation, NamespaceRecord, WorkerLease

T = TypeVar("T")

MODELS = ("Installation", "NamespaceRecord", "WorkerLease")
ERAS = "eras"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_US = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
_MARK = ("worker", "token", "start", "until", "generation", "holder")
_GRANTED = (*_MARK, "protocol")
_INSPECTED = (*_GRANTED, "acquired_at", "seen_at", "clock_offset_us")
_OF_RECORD = tuple(
    name for name in Record.__dataclass_fields__ if name not in ("installation", "server")
)


class ServerStore(Store):
    """The tables of a database server, or of a SQLite file. Thread-safe.

    ``timeout`` (seconds) bounds each operation. ``server_identity=False`` turns off the check
    whether another server has taken over; use it where a balancer spreads connections over
    servers that commit in step (Galera). ``read_now`` reads the registry's clock (µs since
    1970), by default the database's own.
    """

    def __init__(
        self,
        namespace: str,
        own: OwnConnection,
        *,
        timeout: float = 10.0,
        clock: Clock = SYSTEM_CLOCK,
        server_identity: bool = True,
        read_now: Callable[[BaseDatabaseWrapper], int] | None = None,
    ) -> None:
        self.place = own.alias
        self.key = ("server", own.alias)
        self.described = f"database {own.alias!r}"
        self.namespace = namespace
        self.own = own
        self.clock = clock
        self.server_identity = server_identity
        self.read_now = read_now or dialects.now_us
        self.lends_on = False
        self._timeout = timeout
        self._transactions = Transactions(
            own,
            timeout=timeout,
            models=MODELS,
            unavailable=RegistryUnavailable,
            # A fleet that starts at once queues for the namespace's row.
            lock_timeout=max(1, min(int(timeout), SOCKET_TIMEOUT - 2)),
        )

    def run(self, job: Callable[[Book], T]) -> T:
        thorough = False

        def body(connection: BaseDatabaseWrapper) -> T:
            nonlocal thorough
            try:
                return job(OrmBook(self, connection, thorough=thorough))
            except LookCloser:
                thorough = True
                raise Rerun from None

        return self._transactions.run(body)

    def run_if_there(self, job: Callable[[Book], T]) -> T | None:
        if not is_there(self.place):
            return None
        return self._transactions.run(lambda connection: self._if_there(job, connection))

    def read(self, job: Callable[[Book], T]) -> T | None:
        # Without a transaction: the user may have no right to write.
        try:
            return self.own.run(
                lambda connection: self._if_there(job, connection), timeout=self._timeout
            )
        except (AnyDatabaseError, TimeoutError) as error:
            raise RegistryUnavailable(
                f"Database {self.place!r} can't be queried: {' '.join(str(error).split())}"
            ) from error

    def _if_there(self, job: Callable[[Book], T], connection: BaseDatabaseWrapper) -> T | None:
        # Checked first, since a query would make the tables.
        return None if missing_tables(connection, MODELS) else job(OrmBook(self, connection))

    def now_us(self) -> int:
        if not is_there(self.place):
            return self.clock.wall_ns() // 1000
        return self._transactions.run(self.read_now)

    def lend_on(self) -> None:
        self.lends_on = True

    def ping(self) -> None:
        self._transactions.run(lambda _connection: None)

    def abandon(self) -> None:
        self.own.reset()


class OrmBook(Book):
    """A book in the transaction of the calling thread.

    Only a ``thorough`` book locks the installation's row, which makes it safe to mend the record.
    """

    def __init__(
        self, store: ServerStore, connection: BaseDatabaseWrapper, *, thorough: bool = False
    ) -> None:
        self.thorough = thorough
        self._store = store
        self._connection = connection
        self._alias = connection.alias
        self._namespace = store.namespace
        self._found: Record | None = None
        """The record as it is stored."""

    # --- the record -----------------------------------------------------------------

    @cached_property
    def _look(self) -> tuple[str, str, Reading] | None:
        """The server, its installation and its clock where one statement can ask for all."""
        store = self._store
        if self.thorough or not store.server_identity or store.read_now is not dialects.now_us:
            return None
        sent = store.clock.elapsed_ns()
        found = dialects.look(self._connection)
        if found is None:
            return None
        server, now, installation, protocol = found
        check_form(Installation(protocol=protocol), self._alias)
        return server, installation, Reading(now, sent, store.clock.elapsed_ns())

    @cached_property
    def reading(self) -> Reading:
        # Only a look that was needed anyway: the clock alone is one statement, in no savepoint.
        look: tuple[str, str, Reading] | None = self.__dict__.get("_look")
        if look:
            return look[2]
        return read_clock(self._store.clock, lambda: self._store.read_now(self._connection))

    @cached_property
    def server(self) -> str:
        if not self._store.server_identity:
            return ""
        return self._look[0] if self._look else dialects.server_identity(self._connection)

    @cached_property
    def _row(self) -> Installation:
        """The installation's row; an unsaved one where there is none."""
        rows = rows_of(Installation, self._alias).filter(pk=1)
        found = read_first(rows.select_for_update() if self.thorough else rows)
        check_form(found, self._alias)
        return found or Installation(
            key=1,
            identity=token_hex(16) if self.thorough else "",
            protocol=PROTOCOL_VERSION,
            namespaces=LOST_NAMES,
        )

    @property
    def installation(self) -> str:
        return self._look[1] if self._look else self._row.identity

    def record(self) -> Record | None:
        return self._read(self._records())

    def locked_record(self) -> Record | None:
        if self.thorough:
            _ = self._row  # the first lock of two
        self._found = self._read(self._records().select_for_update())
        return self._found

    def _records(self) -> QuerySet[NamespaceRecord]:
        return rows_of(NamespaceRecord, self._alias).filter(pk=self._namespace)

    def _read(self, rows: QuerySet[NamespaceRecord]) -> Record | None:
        row = read_first(rows)
        if row is None:
            return None
        if row.protocol != PROTOCOL_VERSION:
            what = f"Namespace {self._namespace!r} in database {self._alias!r}"
            raise ConfigurationError(of_another_version(what, row.protocol))
        words = {name: getattr(row, name) for name in _OF_RECORD}
        return Record(**words, installation=row.installation, server=row.server)

    def save_record(self, record: Record) -> None:
        found, self._found = self._found, record
        words = {name: getattr(record, name) for name in Record.__dataclass_fields__}
        if found is None:
            self._insert(NamespaceRecord(name=self._namespace, protocol=PROTOCOL_VERSION, **words))
        elif changes := {
            name: value for name, value in words.items() if value != getattr(found, name)
        }:
            self._records().update(**changes)
        if self.thorough:
            self._remember(
                generation=record.generation,
                fence=record.fence,
                largest_window=record.largest_window,
            )

    def _insert(self, row: NamespaceRecord) -> None:
        if why := why_alike(row, self._alias):
            raise ConfigurationError(f"Namespace {row.name!r} can't be used: {why}.")
        insert_row(row, self._alias)

    # --- what the installation remembers of it --------------------------------------

    def _memory(self) -> dict[str, dict[str, Any]]:
        memory: dict[str, dict[str, Any]] = json.loads(self._row.namespaces)
        return memory

    def _remember(self, **words: object) -> None:
        memory = self._memory()
        of_all = self._of_all()
        server = self.server or of_all.get(SERVER, "")
        memory[ALL] = {**of_all, SERVER: server, FAILOVERS: self.failovers_us()}
        memory[self._namespace] = {**memory.get(self._namespace, {}), **words}
        before, self._row.namespaces = self._row.namespaces, json.dumps(memory, sort_keys=True)
        if self._row._state.adding:
            insert_row(self._row, self._alias)
            self._row._state.adding = False
        elif self._row.namespaces != before:
            update_row(self._row, self._alias, "namespaces")

    def _of_all(self) -> dict[str, Any]:
        memory = self._memory()
        # Earlier versions wrote an empty one into a row that they made anew, and else none.
        return memory.get(ALL) or ({LOST: True} if ALL in memory else {})

    def was_opened(self) -> bool:
        return self._namespace in self._memory() or LOST in self._of_all()

    def failovers_us(self) -> list[int]:
        """See :meth:`Book.failovers_us`. The first look at a new server is the time."""
        of_all = self._of_all()
        known: list[int] = of_all.get(FAILOVERS, [])
        if "" != of_all.get(SERVER, "") != self.server != "":
            known = [*known, self.reading.registry_us]
        return known[-10:]

    def recalled(self) -> Record:
        known = self._memory().get(self._namespace, {})
        return Record(
            "",
            generation=known.get("generation", 1),
            fence=known.get("fence", 0),
            largest_window=known.get("largest_window", 0),
            workers_made=0,
            highest_until=0,
        )

    def next_generation(self, after: int) -> int:
        left = read_aggregate(self._workers(), Max("generation", default=0))
        return max(after, int(left)) + 1

    def eras(self) -> object:
        return self._memory().get(self._namespace, {}).get(ERAS)

    def save_eras(self, words: Sequence[Mapping[str, Any]]) -> None:
        self._remember(**{ERAS: [*words]})

    # --- the marks: reading -----------------------------------------------------------

    def _workers(self) -> QuerySet[WorkerLease]:
        return rows_of(WorkerLease, self._alias).filter(namespace=self._namespace)

    def _of(self, worker: int) -> QuerySet[WorkerLease]:
        key = WorkerLease.key_of(self._namespace, worker)
        return rows_of(WorkerLease, self._alias).filter(pk=key)

    def _free(self, now: int, generation: int) -> QuerySet[WorkerLease]:
        # The rule of core.lease.is_free, in SQL; a mark of another generation is void.
        free = Q(token="") | Q(until__lte=now) | ~Q(generation=generation)
        return self._workers().filter(free)

    def count(self) -> int:
        return int(read_aggregate(self._workers(), Count("pk")))

    def highest_worker(self) -> int | None:
        highest: int | None = read_aggregate(self._workers(), Max("worker"))
        return highest

    def highest_until(self) -> int:
        return int(read_aggregate(self._workers(), Max("until", default=0)))

    def marks(self, workers: Collection[int]) -> Mapping[int, Mark]:
        keys = [WorkerLease.key_of(self._namespace, worker) for worker in workers]
        rows = read_values(rows_of(WorkerLease, self._alias).filter(pk__in=keys), *_GRANTED)
        return {mark.worker: mark for mark in map(_mark, rows)}

    def inspected(
        self, workers: Collection[int] | None = None, *, generation: int | None = None
    ) -> Iterable[InspectedMark]:
        rows = self._workers().order_by("worker")
        if workers is not None:
            rows = rows.filter(worker__in=workers)
        # Tuples are fast: a large layout may have a row for each of many worker ids.
        return self._inspected(iterate_values(rows, *_INSPECTED), generation)

    def _inspected(
        self, rows: Iterable[tuple[Any, ...]], generation: int | None = None
    ) -> Iterable[InspectedMark]:
        for *row, acquired_at, seen_at, offset_us in rows:
            mark = _mark(tuple(row))
            yield InspectedMark(
                mark,
                seen_us=_unix_us(seen_at),
                acquired_us=_unix_us(acquired_at),
                offset_us=offset_us,
                void=generation not in (None, mark.generation),
            )

    def had_by(self, who: str, free_at: tuple[int, int] | None = None) -> Sequence[InspectedMark]:
        rows = self._workers().filter(holder__startswith=who)
        found = read_values(rows[: PREVIOUS_LIMIT + 1], *_INSPECTED)
        if len(found) > PREVIOUS_LIMIT:
            # Only here: Django needs a third more calls for a lend that writes this statement.
            rows = self._workers() if free_at is None else self._free(*free_at)
            rows = rows.filter(Q(holder=who) | Q(holder__startswith=f"{who}:"))
            most = None if free_at is None else PREVIOUS_LIMIT
            found = read_values(rows.order_by("-seen_at", "worker")[:most], *_INSPECTED)
        own = [
            seen
            for seen in self._inspected(found)
            if seen.mark.holder == who or seen.mark.holder.startswith(f"{who}:")
            if free_at is None or is_free_in(seen.mark, *free_at)
        ]
        return sorted(own, key=lambda seen: (-(seen.seen_us or 0), seen.mark.worker))

    def earliest_free(
        self, workers: range, avoid: int | None, now: int, generation: int
    ) -> Mark | None:
        rows = self._free(now, generation).filter(
            worker__gte=workers.start, worker__lt=workers.stop
        )
        if avoid is not None:
            rows = rows.exclude(worker=avoid)
        found = read_values(rows.order_by("until", "worker")[:1], *_GRANTED)
        return _mark(found[0]) if found else None

    def lowest_missing(self, workers: range, avoid: int | None) -> int | None:
        rows = self._workers().filter(worker__gte=workers.start, worker__lt=workers.stop)
        wanted = workers.start
        for (worker,) in iterate_values(rows.order_by("worker"), "worker"):
            while wanted < worker:
                if wanted != avoid:
                    return wanted
                wanted += 1
            wanted = worker + 1
        if wanted == avoid:
            wanted += 1
        return wanted if wanted in workers else None

    # --- the marks: writing -----------------------------------------------------------

    def save_lent(self, mark: Mark, *, is_new: bool) -> None:
        now = self._now()
        row = WorkerLease(
            id=WorkerLease.key_of(self._namespace, mark.worker),
            namespace=self._namespace,
            worker=mark.worker,
            token=mark.token,
            start=mark.start,
            until=mark.until,
            generation=mark.generation,
            holder=mark.holder,
            acquired_at=now,
            seen_at=now,
            clock_offset_us=self._offset_us(),
            protocol=PROTOCOL_VERSION,
        )
        (insert_row if is_new else update_row)(row, self._alias)

    def save_renewed(self, mark: Mark) -> None:
        row = WorkerLease(
            id=WorkerLease.key_of(self._namespace, mark.worker),
            until=mark.until,
            seen_at=self._now(),
            clock_offset_us=self._offset_us(),
        )
        update_row(row, self._alias, "until", "seen_at", "clock_offset_us")

    def save_released(self, mark: Mark) -> None:
        self._of(mark.worker).update(token=mark.token, until=mark.until, seen_at=self._now())

    def save_end(self, mark: Mark) -> None:
        self._of(mark.worker).update(until=mark.until)

    def void(self, worker: int, token: str) -> bool:
        return bool(self._of(worker).filter(token=token).update(token=""))

    def restart_marks(self, workers: range, fence: int) -> None:
        rows = self._workers()
        rows.exclude(worker__gte=workers.start, worker__lt=workers.stop).delete()
        rows.update(token="", start=fence, until=fence)

    def lower_marks(self, fence: int) -> None:
        self._workers().update(
            token="", start=Least(F("start"), fence), until=Least(F("until"), fence)
        )

    def _offset_us(self) -> int | None:
        return None if self._store.lends_on else self._store.clock.ahead_of_us(self.reading)

    def _now(self) -> datetime:
        return _moment(self.reading.registry_us)

    # --- rules in one statement -------------------------------------------------------

    def extend_seen(
        self, namespace: Namespace, *, now: int, since_us: int, generation: int
    ) -> tuple[int, int]:
        """See :meth:`Book.extend_seen`; in one statement."""
        held = self._workers().filter(generation=generation, until__gt=now).exclude(token="")
        seen = held.filter(seen_at__gte=_moment(since_us))
        seen = seen.exclude(holder__startswith=OLD_CLIENTS)
        # The rule of core.lease.extend_window, in SQL.
        latest = Greatest(F("start"), Value(now, BigIntegerField()))
        limit = Value(namespace.max_ticks, BigIntegerField())
        end = Least(latest + namespace.window_ticks, limit)
        count = seen.update(until=Greatest(F("until"), end))
        return count, int(read_aggregate(seen, Max("until", default=0))) if count else 0

    def take_back(self, lease: Lease, *, last_tick: int | None) -> bool:
        """See :meth:`Book.take_back`; without a lock, so the mark may have moved since."""
        # A query of its own: inside the UPDATE, MySQL would wait for the record's lock.
        if not is_any(self._records().filter(generation=lease.generation)):
            return False
        rows = self._of(lease.worker).filter(token=lease.token, generation=lease.generation)
        # The rule of core.lease.final_mark, in SQL: computed from the row, not from what was sent.
        loaded = -1 if last_tick is None else max(-1, min(last_tick, _LAST_TICK))
        used = Greatest(F("start"), Value(loaded + 1, BigIntegerField()))
        until = Least(F("until"), used)
        return bool(
            rows.filter(start=lease.start).update(token="", until=until, seen_at=self._now())
        )


_LAST_TICK = 2**62
"""A limit that fits a column, even plus one. No tick comes near it."""


def _mark(row: tuple[Any, ...]) -> Mark:
    *words, protocol = row
    if protocol != PROTOCOL_VERSION:
        raise ConfigurationError(of_another_version(f"The row of worker id {words[0]}", protocol))
    return Mark(*words)


def _moment(at_us: int) -> datetime:
    """The registry's time as the datetime fields want it."""
    at = _EPOCH + timedelta(microseconds=min(max(at_us, 0), _LAST_US))
    return dialects.stored_moment(at)


def _unix_us(at: datetime) -> int:
    return unix_us(dialects.aware_moment(at))
