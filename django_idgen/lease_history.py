"""Who was lent which worker id: the rows that each acquire leaves on a database server.

Those of a SQLite database stand with its marks: see :mod:`.sqlite.marks_terms`.
"""

from __future__ import annotations

from datetime import datetime
from random import SystemRandom

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from .core.moments import unix_us
from .models import LeaseHistory, WorkerLease
from .row_writes import insert_row
from .sqlite import marks_terms
from .stores import marks_of

__all__ = ["MOST", "last_before", "note", "prune_leases", "prune_terms"]

MOST = 100
"""Rows that are kept of a worker id, about, where nobody prunes."""
ONE_IN = 10
"""How often it is looked whether there are more: each acquire has a fleet waiting behind it."""
BATCH = 5000
_random = SystemRandom()


def note(lease: WorkerLease, alias: str, *, is_new: bool) -> None:
    """Write that ``lease`` was acquired, in the transaction of the calling thread.

    ``is_new``: its worker id was never lent before, so that there are no older rows.
    """
    row = LeaseHistory(
        namespace=lease.namespace,
        worker=lease.worker,
        start=lease.start,
        holder=lease.holder,
        acquired_at=lease.acquired_at,
    )
    insert_row(row, alias)
    if not is_new and _random.randrange(ONE_IN) == 0:
        _drop_oldest(_rows(alias, row.namespace, row.worker))


def _drop_oldest(rows: QuerySet[LeaseHistory]) -> None:
    starts = rows.order_by("-start").values_list("start", flat=True)
    oldest = starts[MOST : MOST + 1].first()
    if oldest is not None:
        rows.filter(start__lte=oldest).delete()


def last_before(alias: str, namespace: str, worker: int, tick: int) -> LeaseHistory | None:
    """The last row whose window starts at ``tick`` or before it."""
    # Of two that start alike the first stamped nothing.
    rows = _rows(alias, namespace, worker).filter(start__lte=tick)
    return rows.order_by("-start", "-id").first()


def prune_leases(before: datetime, *, database: str = "default", batch: int = BATCH) -> int:
    """Delete the rows of those whose worker id was lent on before ``before``; how many.

    So the last one stays, however long its holder lives. Each ``batch`` is a transaction
    of its own. May be interrupted, and run twice at once.
    """
    rows = LeaseHistory.objects.using(database)
    later = Q(start__gt=OuterRef("start")) | Q(start=OuterRef("start"), id__gt=OuterRef("id"))
    followed = rows.filter(
        later,
        namespace=OuterRef("namespace"),
        worker=OuterRef("worker"),
        acquired_at__lt=before,
    )
    old = rows.filter(Exists(followed), acquired_at__lt=before).order_by("pk")
    deleted = 0
    while keys := list(old.values_list("pk", flat=True)[:batch]):
        with transaction.atomic(using=database):
            deleted += rows.filter(pk__in=keys).delete()[0]
    return deleted


def prune_terms(before: datetime, *, database: str) -> int:
    """As :func:`prune_leases`, in the marks beside the SQLite database; in one transaction.

    Raises :class:`~.sqlite.marks.MarksError`.
    """
    marks = marks_of(database)
    if not marks.path.exists():
        return 0
    return marks.run(lambda db: marks_terms.drop_old(db, unix_us(before)))


def _rows(alias: str, namespace: str, worker: int) -> QuerySet[LeaseHistory]:
    return LeaseHistory.objects.using(alias).filter(namespace=namespace, worker=worker)
