"""Worker ids lent by a database server: PostgreSQL, MySQL, MariaDB and their like.

Every operation is one transaction on a connection of our own, which locks the
namespace's record first: so the operations of a namespace happen one after the
other, whichever process they come from.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TypeVar

from django.conf import settings
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import BigIntegerField, F, Max, QuerySet, Value
from django.db.models.functions import Greatest, Least
from django.utils.timezone import make_naive

from ..core.clock import SYSTEM_CLOCK, Clock, Reading
from ..core.errors import LeaseLost, RegistryUnavailable
from ..core.lease import (
    OLD_CLIENTS,
    PROTOCOL_VERSION,
    Grant,
    Lease,
    Mark,
    Namespace,
    extend_window,
    grant_window,
    new_token,
    soon,
)
from ..db import dialects
from ..db.connection import SOCKET_TIMEOUT, OwnConnection, own_connection
from ..db.row_writes import insert_row, update_row
from ..db.transactions import Rerun, Transactions
from ..models import NamespaceRecord, WorkerLease
from . import history as lease_history
from .namespace_record import NamespaceOpening, Opened
from .server_oversight import ServerOversight
from .worker_choice import WorkerChoice, mark_of

__all__ = ["ServerLeases"]

T = TypeVar("T")

MODELS = ("Installation", "NamespaceRecord", "WorkerLease")
HISTORY = ("LeaseHistory",)
HOLDER_LENGTH = 200
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_US = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)


class _Unused(Exception):
    """No worker id of the namespace was ever lent: what was opened for it is rolled back."""


class ServerLeases:
    """A lease registry in the tables of database ``alias``. Thread-safe.

    ``timeout`` (seconds) bounds each operation. ``server_identity=False`` turns
    off the check whether another server has taken over, as is right where a
    balancer spreads connections over servers that commit in step (Galera).
    ``read_now`` reads the registry's clock (µs since 1970), by default the
    database's own. With ``history`` each acquire leaves a row that says who was lent
    which worker id.

    Raises what :class:`~django_idgen.core.lease.LeaseRegistry` says.
    """

    def __init__(
        self,
        namespace: Namespace,
        *,
        alias: str,
        timeout: float = 10.0,
        clock: Clock = SYSTEM_CLOCK,
        server_identity: bool = True,
        history: bool = True,
        read_now: Callable[[BaseDatabaseWrapper], int] | None = None,
        own: OwnConnection | None = None,
    ) -> None:
        self.namespace = namespace
        self.alias = alias
        self._own = own or own_connection(alias)
        self._clock = clock
        self._history = history
        self._lends_on = False
        self._transactions = Transactions(
            self._own,
            timeout=timeout,
            models=(*MODELS, *HISTORY) if history else MODELS,
            unavailable=RegistryUnavailable,
            # All of a fleet that starts at once stand in line for the namespace's row.
            lock_timeout=max(1, min(int(timeout), SOCKET_TIMEOUT - 2)),
        )
        self._opening = NamespaceOpening(
            namespace,
            alias,
            clock=clock,
            read_now=read_now or dialects.now_us,
            server_identity=server_identity,
        )

    def acquire(self, *, holder: str, not_before: int = 0, avoid: int | None = None) -> Grant:
        label = holder[:HOLDER_LENGTH]
        return self._operate(lambda opened: self._acquire(opened, label, not_before, avoid))

    def renew(self, lease: Lease, *, last_tick: int) -> Grant:
        # Not raised inside: that would roll back a generation just opened.
        grant = self._operate(lambda opened: self._renew(opened, lease, last_tick))
        if grant is None:
            raise LeaseLost(
                f"Database {self.alias!r} no longer knows the lease of worker id {lease.worker} "
                f"of namespace {self.namespace.name!r}. Acquire a new one."
            )
        return grant

    def release(self, lease: Lease, *, last_tick: int | None) -> bool:
        # Without the namespace's lock, for which a fleet that ends at once would stand in
        # line. A loss that nobody has noticed yet is noticed by the next one to acquire.
        return self._transactions.run(partial(self._release, lease, last_tick))

    def held_by(self, holder: str) -> list[Lease]:
        """The leases that stand in ``holder``'s name, lapsed or not; the earliest first."""
        return self._transactions.run(lambda _connection: self._held_by(holder[:HOLDER_LENGTH]))

    def rename_holders(self, rename: Callable[[str], str | None]) -> int:
        """See :meth:`DatabaseLeases.rename_holders`."""
        return self._transactions.run(lambda _connection: self._rename_holders(rename))

    def renew_seen(self, *, idle_after: float) -> int:
        try:
            return self._operate(lambda opened: self._renew_seen(opened, idle_after))
        except _Unused:
            return 0

    def lend_on(self) -> None:
        """From now on whoever asks does so for another: this host's clock is not the holder's."""
        self._lends_on = True

    def oversight(self) -> ServerOversight:
        """For those who look into it, and after it."""
        return ServerOversight(self._transactions, self._opening)

    def ping(self) -> None:
        """Raise :class:`RegistryUnavailable` unless the server answers."""
        self._transactions.run(lambda _connection: None)

    def abandon(self) -> None:
        self._own.reset()

    def close(self) -> None:
        """Nothing to free: the connection closes by itself when there is nothing to do."""

    def _operate(self, work: Callable[[Opened], T]) -> T:
        thorough = False

        def body(connection: BaseDatabaseWrapper) -> T:
            nonlocal thorough
            try:
                return work(self._opening.open(connection, thorough=thorough))
            except Rerun:
                thorough = True
                raise

        return self._transactions.run(body)

    def _acquire(self, opened: Opened, holder: str, not_before: int, avoid: int | None) -> Grant:
        record, rows = opened.record, self._opening.workers()
        by = soon(self.namespace, now=opened.now, fence=record.fence, not_before=not_before)
        choice = WorkerChoice(self.namespace, rows, opened.now, record.generation, avoid, by)
        worker, row = choice.choose(holder)
        self.namespace.check_worker(worker)
        if row is None and not opened.thorough and rows.count() < record.workers_made:
            raise Rerun  # it may have been lent, and its row deleted
        start, until = grant_window(
            self.namespace,
            mark_of(row, record.generation) if row else None,
            now=opened.now,
            fence=record.fence,
            highest=record.highest_until,
            not_before=not_before,
        )
        lease = Lease(self.namespace.name, worker, new_token(), start, until, record.generation)
        self._store(opened, lease, holder, is_new=row is None)
        return Grant(lease, opened.reading)

    def _store(self, opened: Opened, lease: Lease, holder: str, *, is_new: bool) -> None:
        moment = _moment(opened.reading.registry_us)
        row = WorkerLease(
            id=WorkerLease.key_of(lease.namespace, lease.worker),
            namespace=lease.namespace,
            worker=lease.worker,
            token=lease.token,
            start=lease.start,
            until=lease.until,
            generation=lease.generation,
            holder=holder,
            acquired_at=moment,
            seen_at=moment,
            clock_offset_us=self._offset_us(opened.reading),
            protocol=PROTOCOL_VERSION,
        )
        (insert_row if is_new else update_row)(row, self.alias)
        if self._history:
            lease_history.note(row, self.alias, is_new=is_new)
        opened.record.workers_made += is_new
        self._raise_highest(opened.record, lease.until)

    def _offset_us(self, reading: Reading) -> int | None:
        return None if self._lends_on else self._clock.ahead_of_us(reading)

    def _raise_highest(self, record: NamespaceRecord, until: int) -> None:
        NamespaceRecord.objects.using(self.alias).filter(pk=record.pk).update(
            highest_until=max(record.highest_until, until), workers_made=record.workers_made
        )

    def _renew(self, opened: Opened, lease: Lease, last_tick: int) -> Grant | None:
        row = self._held_row(lease, opened.record.generation)
        if row is None:
            return None
        mark = Mark(row.worker, row.token, row.start, row.until, row.generation, row.holder)
        row.until = extend_window(self.namespace, mark, now=opened.now, last_tick=last_tick)
        row.seen_at = _moment(opened.reading.registry_us)
        row.clock_offset_us = self._offset_us(opened.reading)
        update_row(row, self.alias, "until", "seen_at", "clock_offset_us")
        self._raise_highest(opened.record, row.until)
        renewed = Lease(row.namespace, row.worker, row.token, row.start, row.until, row.generation)
        return Grant(renewed, opened.reading)

    def _renew_seen(self, opened: Opened, idle_after: float) -> int:
        now, record = opened.now, opened.record
        if not record.workers_made:
            # Nor may its settings be final just because a scheduler came by.
            raise _Unused
        since = _moment(opened.reading.registry_us - int(idle_after * 1e6))
        held = self._opening.workers().filter(generation=record.generation, until__gt=now)
        seen = held.filter(seen_at__gte=since).exclude(token="")
        seen = seen.exclude(holder__startswith=OLD_CLIENTS)
        # The rule of core.lease.extend_window, in SQL.
        latest = Greatest(F("start"), Value(now, BigIntegerField()))
        limit = Value(self.namespace.max_ticks, BigIntegerField())
        end = Least(latest + self.namespace.window_ticks, limit)
        count = seen.update(until=Greatest(F("until"), end))
        if count:
            self._raise_highest(record, seen.aggregate(until=Max("until", default=0))["until"])
        return count

    def _release(
        self, lease: Lease, last_tick: int | None, connection: BaseDatabaseWrapper
    ) -> bool:
        # Looked up apart: as a part of the UPDATE it would wait for the lock on MySQL.
        if not lease.token or not self._opening.records(lease.generation).exists():
            return False
        seen_at = _moment(self._opening.read(connection).registry_us)
        # The rule of core.lease.final_mark, in SQL: of what is stored, not of what was sent.
        loaded = -1 if last_tick is None else max(-1, min(last_tick, self.namespace.max_ticks))
        used = Greatest(F("start"), Value(loaded + 1, BigIntegerField()))
        until = Least(F("until"), used)
        return bool(self._rows_of(lease).update(token="", until=until, seen_at=seen_at))

    def _held_row(self, lease: Lease, generation: int) -> WorkerLease | None:
        """The row of ``lease``, if the lease still stands in this generation."""
        if not lease.token or lease.generation != generation:
            return None
        return self._rows_of(lease).first()

    def _held_by(self, holder: str) -> list[Lease]:
        record = NamespaceRecord.objects.using(self.alias).filter(pk=self.namespace.name).first()
        if record is None:
            return []
        rows = self._opening.workers().filter(holder=holder, generation=record.generation)
        return [
            Lease(row.namespace, row.worker, row.token, row.start, row.until, row.generation)
            for row in rows.exclude(token="").order_by("acquired_at", "worker")
            if row.holder == holder  # MariaDB takes "A" for "a"
        ]

    def _rename_holders(self, rename: Callable[[str], str | None]) -> int:
        count, rows = 0, self._opening.workers()
        held = rows.exclude(token="").values_list("pk", "token", "holder")
        for key, token, holder in list(held):
            label = rename(holder)
            if label:
                count += rows.filter(pk=key, token=token).update(holder=label)
        return count

    def _rows_of(self, lease: Lease) -> QuerySet[WorkerLease]:
        key = WorkerLease.key_of(self.namespace.name, lease.worker)
        rows = WorkerLease.objects.using(self.alias)
        rows = rows.filter(pk=key, token=lease.token, generation=lease.generation)
        return rows.filter(start=lease.start)


def _moment(unix_us: int) -> datetime:
    """The registry's time as the datetime fields want it."""
    moment = _EPOCH + timedelta(microseconds=min(max(unix_us, 0), _LAST_US))
    return moment if settings.USE_TZ else make_naive(moment)
