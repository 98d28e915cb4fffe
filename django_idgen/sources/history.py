"""Who was given which ids: the rows that a source with ``history=True`` leaves.

Each fetch leaves one, in its own transaction: a range that was given out is in the
table, and one that is in the table may have been given out (a lost answer).
"""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from ..core.lease import process_label
from ..core.segment import Segment
from ..db.connection import home_of
from ..db.row_writes import insert_row
from ..models import SegmentHistory

__all__ = ["holder", "prune_history", "record", "who_issued"]

BATCH = 5000


def holder() -> str:
    """This process, as a label: ``host:pid name``."""
    return process_label()


def record(segment: Segment, alias: str, taken_at: datetime) -> None:
    """Write that this process takes ``segment`` of the database ``alias``."""
    insert_row(
        SegmentHistory(
            tag=segment.tag,
            start=segment.start,
            stop=segment.stop,
            delta=segment.delta,
            holder=holder(),
            taken_at=taken_at,
        ),
        alias,
    )


def who_issued(tag: str, number: int, *, database: str = "default") -> list[SegmentHistory]:
    """The rows of ``database`` whose range has the id ``number`` of ``tag``; latest first.

    There is one for an id that was given out while history was on, and none for
    another. More than one would be a repeat: a table that was restored to an
    earlier state; but for a pool, with which the latest row is of who had the id
    last ("pool": nobody since). Where several databases share the tag, ask each of them.
    """
    rows = SegmentHistory.objects.using(database).filter(
        tag=tag, start__lte=number, stop__gt=number
    )
    return [row for row in rows if (number - row.start) % row.delta == 0]


def prune_history(before: datetime, *, database: str = "default", batch: int = BATCH) -> int:
    """Delete the rows taken before ``before``; returns how many there were.

    Each ``batch`` of them is a transaction of its own, so that no fetch waits for
    long; what was deleted stays so if it is interrupted. May run twice at once.
    """
    rows = SegmentHistory.objects.using(database).filter(taken_at__lt=before).order_by("pk")
    deleted = 0
    while keys := list(rows.values_list("pk", flat=True)[:batch]):
        with transaction.atomic(using=home_of(database)):
            deleted += SegmentHistory.objects.using(database).filter(pk__in=keys).delete()[0]
    return deleted
