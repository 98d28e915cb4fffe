"""How many ids of a tag were fetched in the last hour, day or month, by the history.

The database sums up its rows by minutes or quarters of an hour. Days are put together here,
from midnight to midnight in the current time zone. Ids for the pool count when they are put in.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise
from typing import Any, Literal

from django.conf import settings
from django.db import DatabaseError, connections
from django.db.models import BigIntegerField, F, Sum, Value
from django.db.models.functions import Cast
from django.utils import timezone

from ...core.errors import ConfigurationError, SegmentUnavailable
from ...core.segment import check_tag
from ...db.dialects import SecondsOf, aware_moment, stored_moment
from ...models import SegmentHistory
from ...process.tags import source_behind_pool, table_is_missing

Span = Literal["hour", "day", "month"]
MINUTE, QUARTER, DAY = 60, 900, 86_400
SPANS: dict[str, tuple[int, int]] = {
    "hour": (60, MINUTE),
    "day": (96, QUARTER),
    "month": (30, DAY),
}
"""How many buckets, and the seconds of one."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A span of time."""

    start: datetime
    """Aware, in the current time zone (naive where the project has no time zones)."""
    seconds: float
    """A day may have 23 or 25 hours."""
    ids: int
    """How many ids were fetched in it, by processes or for the pool."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The consumption of a tag."""

    recorded: bool
    """Whether there is a history; without one all buckets are empty."""
    buckets: Sequence[Bucket]
    """Oldest first. The last one is not over yet."""


def usage(tag: str, span: Span, *, now: datetime | None = None) -> Usage:
    """The ids of ``tag`` fetched in the ``span`` up to ``now``, from all of its databases.

    An hour has 60 buckets of a minute, a day 96 of 15 minutes, a month 30 of a day.

    Raises :class:`ConfigurationError` for another span,
    :class:`InvalidTag`, and :class:`SegmentUnavailable` if a
    database can't be asked.
    """
    check_tag(tag)
    if span not in SPANS:
        raise ConfigurationError(f"A span is one of {', '.join(SPANS)}, not {span!r}.")
    edges = _edges(span, now or timezone.now())
    source = source_behind_pool()
    taken: Counter[int] = Counter()
    for alias in source.route(tag):
        taken.update(_taken(alias, tag, edges, MINUTE if span == "hour" else QUARTER))
    recorded = source.history or bool(taken)
    buckets = [
        Bucket(_local(start), (end - start).total_seconds(), taken[place])
        for place, (start, end) in enumerate(pairwise(edges))
    ]
    return Usage(recorded, buckets)


# --- time ---------------------------------------------------------------------------------


def _edges(span: str, now: datetime) -> list[datetime]:
    """The start of each bucket, and the end of the last one; in UTC."""
    number, seconds = SPANS[span]
    if seconds == DAY:
        return _midnights(number, now)
    end = int(_utc(now).timestamp()) // seconds * seconds + seconds
    return [datetime.fromtimestamp(end - back * seconds, UTC) for back in range(number, -1, -1)]


def _midnights(number: int, now: datetime) -> list[datetime]:
    today = _utc(now).astimezone(_zone()).date()
    days = [today - timedelta(days=back) for back in range(number - 1, -2, -1)]
    return [datetime(day.year, day.month, day.day, tzinfo=_zone()).astimezone(UTC) for day in days]


def _zone() -> tzinfo:
    return timezone.get_current_timezone() if settings.USE_TZ else timezone.get_default_timezone()


def _utc(moment: datetime) -> datetime:
    return aware_moment(moment).astimezone(UTC)


def _local(moment: datetime) -> datetime:
    local = moment.astimezone(_zone())
    return local if settings.USE_TZ else local.replace(tzinfo=None)


# --- the database -------------------------------------------------------------------------


def _taken(alias: str, tag: str, edges: Sequence[datetime], unit: int) -> Counter[int]:
    """How many ids each bucket has, by its index."""
    rows = SegmentHistory.objects.using(alias).filter(
        tag=tag, taken_at__gte=stored_moment(edges[0]), taken_at__lt=stored_moment(edges[-1])
    )
    seconds = SecondsOf("taken_at")
    grouped = (
        rows.order_by()
        .annotate(unit=seconds - seconds % unit)
        .values("unit", "delta")
        .annotate(taken=_ids())
        .values_list("unit", "delta", "taken")
    )
    found: Counter[int] = Counter()
    zone = _zone_of(alias)
    try:
        for number, delta, taken in grouped:
            moment = datetime.fromtimestamp(int(number), UTC).replace(tzinfo=zone).astimezone(UTC)
            place = bisect_right(edges, moment) - 1
            found[min(max(place, 0), len(edges) - 2)] += int(taken) // max(delta, 1)
    except DatabaseError as error:
        if table_is_missing(alias, "SegmentHistory"):
            return Counter()
        raise SegmentUnavailable(f"Database {alias!r} can't be queried: {error}") from error
    return found


def _zone_of(alias: str) -> tzinfo:
    """The time zone in which the database counts the seconds of its times."""
    connection = connections[alias]
    if connection.vendor == "postgresql":
        return UTC
    return connection.timezone or timezone.get_default_timezone()


def _ids() -> Sum:
    """The sum over rows of one ``delta``, as ``delta`` times the number of ids.

    So no database has to divide.
    """
    delta: Any = Cast("delta", BigIntegerField())
    beyond = F("stop") - F("start") + delta - Value(1, BigIntegerField())
    return Sum(beyond - beyond % delta)
