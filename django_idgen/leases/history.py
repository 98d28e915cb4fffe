"""Who was lent which worker id: the rows that each acquire leaves in its database."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from itertools import groupby, islice
from operator import itemgetter
from random import SystemRandom

from django.db import DatabaseError, connections, transaction
from django.db.models import Count, QuerySet

from ..db import dialects
from ..db.connection import home_of
from ..db.tables import delete_rows, insert_row, missing_tables
from ..models import LeaseHistory, WorkerLease

MOST = 100
"""Rows that are kept of a worker id, about, without pruning."""
ONE_IN = 10
"""One in so many acquires checks for more rows: a fleet may wait behind each acquire."""
BATCH = 5000
WORKERS = 100
"""Worker ids whose rows are compared at once."""
_random = SystemRandom()
logger = logging.getLogger("django_idgen")


def note(lease: WorkerLease, alias: str, *, is_new: bool) -> None:
    """Write that ``lease`` was acquired, in the transaction of the calling thread.

    ``is_new``: its worker id was never lent before, and has no older rows. If the user has no
    right on this table, which is the newest one, the transaction continues without the row, with
    a warning. Raises the database's error if the table is missing or the transaction is lost.
    """
    row = LeaseHistory(
        namespace=lease.namespace,
        worker=lease.worker,
        start=lease.start,
        holder=lease.holder,
        acquired_at=lease.acquired_at,
    )
    who = f"worker id {lease.namespace}/{lease.worker}"
    written = _tried(lambda: insert_row(row, alias), alias, f"The holder of {who} was not recorded")
    if written and not is_new and _random.randrange(ONE_IN) == 0:
        older = _rows(alias, row.namespace, row.worker)
        _tried(
            lambda: _drop_oldest(older, alias),
            alias,
            f"The old holders of {who} were not deleted",
        )


def _tried(job: Callable[[], None], alias: str, failure: str) -> bool:
    """Whether ``job`` succeeded. The transaction continues in any case."""
    connection = connections[alias]
    try:
        # A savepoint, since PostgreSQL aborts a transaction in which a statement failed.
        with transaction.atomic(using=alias):
            job()
    except DatabaseError as error:
        if connection.needs_rollback or dialects.is_conflict(error):
            raise
        # MySQL hides a table from users without rights on it.
        if not dialects.is_denied(error) and missing_tables(connection, ["LeaseHistory"]):
            raise
        logger.warning("%s: %s", failure, " ".join(str(error).split()))
        return False
    return True


def _drop_oldest(rows: QuerySet[LeaseHistory], alias: str) -> None:
    # Keys first: on MySQL any other DELETE locks all rows that it reads, even those that acquires
    # of other namespaces are writing.
    keys = rows.order_by("-start", "-pk").values_list("pk", flat=True)[MOST : MOST + BATCH]
    delete_rows(LeaseHistory, alias, keys)


def last_before(alias: str, namespace: str, worker: int, tick: int) -> LeaseHistory | None:
    """The last row whose window starts at ``tick`` or before it."""
    # Of two with the same start, the first stamped nothing.
    rows = _rows(alias, namespace, worker).filter(start__lte=tick)
    return rows.order_by("-start", "-id").first()


def prune_leases(before: datetime, *, database: str = "default", batch: int = BATCH) -> int:
    """Delete the rows whose worker id was lent again before ``before``; how many.

    So the last row of a worker id stays, however long its holder lives. Each ``batch`` is a
    transaction of its own. May be interrupted, and run twice at once.
    """
    deleted = 0
    for keys in _in_parts(_lent_on(before, database), batch):
        with transaction.atomic(using=home_of(database)):
            deleted += delete_rows(LeaseHistory, database, keys)
    return deleted


def _lent_on(before: datetime, alias: str) -> Iterator[int]:
    """The keys of all rows from before ``before``, without the last one of each worker id."""
    # Compared here, in parts: with a subquery MariaDB compares all rows with all.
    old = LeaseHistory.objects.using(alias).filter(acquired_at__lt=before)
    workers = old.values_list("namespace", "worker").annotate(rows=Count("pk"))
    several = list(workers.filter(rows__gt=1).order_by("namespace", "worker"))
    for namespace, group in groupby(several, key=itemgetter(0)):
        for part in _in_parts((worker for _, worker, _ in group), WORKERS):
            rows = old.filter(namespace=namespace, worker__in=part)
            last = None
            for worker, key in rows.order_by("worker", "-start", "-pk").values_list("worker", "pk"):
                if worker == last:
                    yield key
                last = worker


def _in_parts(things: Iterable[int], size: int) -> Iterator[list[int]]:
    left = iter(things)
    while part := list(islice(left, size)):
        yield part


def _rows(alias: str, namespace: str, worker: int) -> QuerySet[LeaseHistory]:
    return LeaseHistory.objects.using(alias).filter(namespace=namespace, worker=worker)
