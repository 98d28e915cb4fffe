"""Looking into, and after, the worker ids that a database server lends."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from functools import partial

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import QuerySet
from django.utils.timezone import is_aware, make_aware

from ..core.lease import Mark
from ..core.moments import unix_us
from ..core.survey import Sight, Survey, Tenure, name_of
from ..db.tables import missing_tables
from ..db.transactions import Transactions
from ..models import NamespaceRecord, WorkerLease
from . import history as lease_history
from .namespace_record import NamespaceOpening

__all__ = ["ServerOversight"]

COLUMNS = (
    "worker",
    "token",
    "start",
    "until",
    "generation",
    "holder",
    "acquired_at",
    "seen_at",
    "clock_offset_us",
)


class ServerOversight:
    """An :class:`Overseen` of the rows of one namespace. Thread-safe.

    Asks on a connection of our own: the caller's transaction may be an old picture.
    """

    def __init__(self, transactions: Transactions, opening: NamespaceOpening) -> None:
        self._transactions = transactions
        self._opening = opening
        self._space = opening.namespace
        self._alias = opening.alias

    def survey(self, workers: Collection[int] | None = None) -> Sequence[Survey]:
        """See :meth:`Overseen.survey`."""
        return [self._transactions.run(partial(self._survey, workers))]

    def free(self, worker: int, lease: str | None = None) -> bool:
        """See :meth:`Overseen.free`."""
        return self._transactions.run(partial(self._free, worker, lease))

    def tenure(self, worker: int, tick: int) -> Tenure | None:
        """See :meth:`Overseen.tenure`."""
        return self._transactions.run(partial(self._tenure, worker, tick))

    def _survey(self, workers: Collection[int] | None, connection: BaseDatabaseWrapper) -> Survey:
        now_us = self._opening.read(connection).registry_us
        there = _has(connection, "NamespaceRecord", "WorkerLease")
        sights = list(self._sights(workers)) if there else []
        return Survey("database", self._space, now_us, sights, place=self._alias)

    def _sights(self, workers: Collection[int] | None) -> Iterable[Sight]:
        record = NamespaceRecord.objects.using(self._alias).filter(pk=self._space.name).first()
        wanted = self._opening.workers()
        if workers is not None:
            wanted = wanted.filter(worker__in=workers)
        # Tuples, since there may be a row for each worker id of a large layout.
        rows = wanted.values_list(*COLUMNS)
        for *mark, acquired_at, seen_at, offset_us in rows.iterator(chunk_size=2000):
            known = Mark(*mark)
            yield Sight(
                known,
                seen_us=_unix_us(seen_at),
                acquired_us=_unix_us(acquired_at),
                offset_us=offset_us,
                void=record is None or known.generation != record.generation,
            )

    def _free(self, worker: int, lease: str | None, connection: BaseDatabaseWrapper) -> bool:
        # Not under the namespace's lock, as any release: a renewal that is under way may
        # still raise the mark, and so its holder, too, stays below what the next one gets.
        if not _has(connection, "WorkerLease"):
            return False
        token = self._row(worker).values_list("token", flat=True).first()
        if not token or lease not in (None, name_of(token)):
            return False
        # Whoever is lent it meanwhile has another token.
        return bool(self._row(worker).filter(token=token).update(token=""))

    def _tenure(self, worker: int, tick: int, connection: BaseDatabaseWrapper) -> Tenure | None:
        if not _has(connection, "WorkerLease"):
            return None
        row = self._row(worker).first()
        if row is not None and tick >= row.until:
            return None  # promised to nobody yet
        if row is not None and tick >= row.start:
            return Tenure(row.holder, _aware(row.acquired_at), row.start)
        if not _has(connection, "LeaseHistory"):
            return None
        return tenure_in(self._alias, self._space.name, worker, tick)

    def _row(self, worker: int) -> QuerySet[WorkerLease]:
        key = WorkerLease.key_of(self._space.name, worker)
        return WorkerLease.objects.using(self._alias).filter(pk=key)


def tenure_in(alias: str, namespace: str, worker: int, tick: int) -> Tenure | None:
    """What the history in database ``alias`` says of a tick that was promised."""
    row = lease_history.last_before(alias, namespace, worker, tick)
    return None if row is None else Tenure(row.holder, _aware(row.acquired_at), row.start)


def _has(connection: BaseDatabaseWrapper, *models: str) -> bool:
    # Looked up first, or they would be made by asking.
    return not missing_tables(connection, models)


def _aware(at: datetime) -> datetime:
    return at if is_aware(at) else make_aware(at)


def _unix_us(at: datetime) -> int:
    return unix_us(_aware(at))
