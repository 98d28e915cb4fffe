"""How fast tags are used just now, as far as their rows, or the history, tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from django.db import DatabaseError
from django.db.models import Count, Max, Min
from django.utils import timezone

from ...core.errors import SegmentUnavailable
from ...db.connection import Place, place_of
from ...db.stores import catch_up
from ...models import LeafAlloc, SegmentHistory
from .ids_taken import net_ids
from .rows import source_behind_pool

__all__ = ["rates_of"]

LOOKED_BACK = timedelta(hours=1)
"""The time that the history is asked about."""


def rates_of(rows: Sequence[LeafAlloc], database: str) -> dict[str, float]:
    """Ids a second, by tag, of ``rows`` of ``database``; 0.0 where that is not known.

    On a server the rows say it. A SQLite database keeps no rates: there the history does,
    in one query, if it is on.
    """
    now = timezone.now()
    if place_of(database) is Place.SERVER:
        return {row.pk: _of_row(row, now) for row in rows}
    found = _of_history([row.pk for row in rows], database, now)
    return {row.pk: found.get(row.pk, 0.0) for row in rows}


def _of_row(row: LeafAlloc, now: datetime) -> float:
    """The rate that was measured last, or less, if fewer ids than that were fetched since."""
    if row.measured_at is None:
        return row.rate
    seconds = (now - row.measured_at).total_seconds()
    fetched = row.max_id - row.measured_used
    # Negative where what was used is counted over several databases.
    if seconds <= 0 or fetched < 0:
        return row.rate
    return min(row.rate, fetched / max(row.delta, 1) / seconds)


def _of_history(tags: Sequence[str], database: str, now: datetime) -> Mapping[str, float]:
    if not tags or not source_behind_pool().history:
        return {}
    catch_up(database)
    rows = SegmentHistory.objects.using(database)
    recent = rows.filter(tag__in=tags, taken_at__gte=now - LOOKED_BACK).order_by()
    grouped = recent.values("tag", "delta").annotate(
        count=Count("pk"), first=Min("taken_at"), last=Max("taken_at"), taken=net_ids()
    )
    try:
        return {
            each["tag"]: _rate(
                each["taken"] / each["delta"], each["count"], each["first"], each["last"], now
            )
            for each in grouped
        }
    except DatabaseError as error:
        raise SegmentUnavailable(f"Database {database!r} can't be asked: {error}") from error


def _rate(ids: float, fetches: int, first: datetime, last: datetime, now: datetime) -> float:
    """What was used between the first and the last fetch: all but about the last segment."""
    seconds = (last - first).total_seconds()
    if seconds <= 0:
        return 0.0
    used = ids * (fetches - 1) / fetches
    return max(min(used / seconds, ids / (now - first).total_seconds()), 0.0)
