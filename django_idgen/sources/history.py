"""Who got which ids: the rows of a source with ``history=True``.

Each fetch writes a row in its own transaction. A range that was given out is in the
table. A range in the table was given out, unless the answer was lost.
"""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from ..core.lease import process_label
from ..core.segment import Demand, Segment
from ..core.source import POOL
from ..db.connection import home_of
from ..db.rows import insert_row
from ..models import SegmentHistory

BATCH = 5000


def holder_of(demand: Demand) -> str:
    """Who gets the ids of a fetch: this process, or the pool."""
    return POOL if demand.for_pool else process_label()


def record(segment: Segment, alias: str, taken_at: datetime, *, holder: str) -> None:
    """Write that ``holder`` gets ``segment`` of the database ``alias``."""
    insert_row(
        SegmentHistory(
            tag=segment.tag,
            start=segment.start,
            stop=segment.stop,
            delta=segment.delta,
            holder=holder,
            taken_at=taken_at,
        ),
        alias,
    )


def who_issued(tag: str, number: int, *, database: str = "default") -> list[SegmentHistory]:
    """The rows of ``database`` whose range has the id ``number`` of ``tag``; latest first.

    An id that was given out while history was on has one row. Two rows are a repeat, after a
    table was restored to an earlier state. A row names who got the segment from the database. With
    a pool, another process may have issued the id: nothing says who takes ids from the pool
    (holder "pool"), or ids that a process gave back to it. Where databases share the tag, ask
    each.
    """
    rows = SegmentHistory.objects.using(database).filter(
        tag=tag, start__lte=number, stop__gt=number
    )
    return [row for row in rows if (number - row.start) % row.delta == 0]


def prune_history(before: datetime, *, database: str = "default", batch: int = BATCH) -> int:
    """Delete the rows from before ``before``; returns how many.

    Each ``batch`` is a transaction of its own, so that no fetch waits for
    long. May be interrupted, and run twice at once.
    """
    rows = SegmentHistory.objects.using(database).filter(taken_at__lt=before).order_by("pk")
    deleted = 0
    while keys := list(rows.values_list("pk", flat=True)[:batch]):
        with transaction.atomic(using=home_of(database)):
            deleted += SegmentHistory.objects.using(database).filter(pk__in=keys).delete()[0]
    return deleted
