"""How many ids of a tag are used: of late by the hour, day or month, and how fast just now.

The history says what was taken. The database counts its rows, by minutes or quarters of an
hour; days are put together here, as people have them: from midnight to midnight, in the
current time zone. What lies in the pool is not taken yet: one row says that it was put in,
and another one who took it out again. So the former count against what was fetched.

The rate of just now is in the tag's rows on a server; elsewhere the history tells it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Literal

from django.conf import settings
from django.db import DatabaseError, connections
from django.db.models import BigIntegerField, Case, F, Sum, Value, When
from django.db.models.functions import Cast
from django.utils import timezone

from ...core.errors import ConfigurationError, SegmentUnavailable
from ...core.segment import check_tag
from ...db.connection import home_connection
from ...db.dialects import SecondsOf
from ...db.tables import missing_tables
from ...models import LeafAlloc, SegmentHistory
from ...process.tags import source_behind_pool

__all__ = ["SPANS", "Bucket", "Span", "Usage", "rates_of", "usage"]

Span = Literal["hour", "day", "month"]
MINUTE, QUARTER, DAY = 60, 900, 86_400
SPANS: dict[str, tuple[int, int]] = {
    "hour": (60, MINUTE),
    "day": (96, QUARTER),
    "month": (30, DAY),
}
"""How many buckets, and how long one is."""
POOL = "pool"
"""The holder of what lies in the pool: see :mod:`...sources.pool.scripts`."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A stretch of time. Frozen."""

    start: datetime
    """Aware, in the current time zone (naive where the project has no time zones)."""
    seconds: float
    """Of a month's days one may have 23 hours, and another one 25."""
    ids: int
    """How many were taken in it, by processes: those that lie in the pool are not."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The consumption of a tag. Frozen."""

    recorded: bool
    """Whether there is a history; without one all buckets are empty."""
    buckets: Sequence[Bucket]
    """The oldest first. The last one is not over yet."""


def usage(tag: str, span: Span, *, now: datetime | None = None) -> Usage:
    """What was taken of ``tag``, in all of its databases, in the ``span`` up to ``now``.

    An hour has 60 buckets of a minute, a day 96 of 15 minutes, a month 30 of a day. What
    came back into the pool counts where it is taken next.

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
    counts = _settled([taken[place] for place in range(len(edges) - 1)])
    recorded = source.history or bool(taken)
    return Usage(recorded, [_bucket(edges, place, ids) for place, ids in enumerate(counts)])


def _bucket(edges: Sequence[datetime], place: int, ids: int) -> Bucket:
    start, end = edges[place], edges[place + 1]
    return Bucket(_shown(start), (end - start).total_seconds(), ids)


def _settled(counts: list[int]) -> list[int]:
    """Without what is below 0: more came back into the pool then than was fetched.

    It was fetched before, and not used.
    """
    settled, owed = [], 0
    for count in reversed(counts):
        settled.append(max(count + owed, 0))
        owed = min(count + owed, 0)
    return settled[::-1]


# --- time ---------------------------------------------------------------------------------


def _edges(span: str, now: datetime) -> list[datetime]:
    """Where the buckets begin, and the end of the last one; in UTC."""
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
    return (timezone.make_aware(moment) if timezone.is_naive(moment) else moment).astimezone(UTC)


def _shown(moment: datetime) -> datetime:
    local = moment.astimezone(_zone())
    return local if settings.USE_TZ else local.replace(tzinfo=None)


def _stored(moment: datetime) -> datetime:
    """``moment`` as a query is given it."""
    return moment if settings.USE_TZ else _shown(moment)


# --- the database -------------------------------------------------------------------------


def _taken(alias: str, tag: str, edges: Sequence[datetime], unit: int) -> Counter[int]:
    """By the place of the bucket: how many ids, less those that came back into the pool."""
    rows = SegmentHistory.objects.using(alias).filter(
        tag=tag, taken_at__gte=_stored(edges[0]), taken_at__lt=_stored(edges[-1])
    )
    seconds = SecondsOf("taken_at")
    grouped = (
        rows.order_by()
        .annotate(unit=seconds - seconds % unit)
        .values("unit", "delta")
        .annotate(taken=_net_ids())
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
        if _has_no_table(alias):
            return Counter()
        raise SegmentUnavailable(f"Database {alias!r} can't be asked: {error}") from error
    return found


def _zone_of(alias: str) -> tzinfo:
    """The zone that the database's own times are in, as it counts their seconds."""
    connection = connections[alias]
    if connection.vendor == "postgresql":
        return UTC
    return connection.timezone or timezone.get_default_timezone()


def _has_no_table(alias: str) -> bool:
    try:
        return bool(missing_tables(home_connection(alias), ["SegmentHistory"]))
    except DatabaseError:
        return False


def _net_ids() -> Sum:
    """The sum over rows of one ``delta``, as ``delta`` times the number of ids.

    A multiple of it, so that no database has to divide.
    """
    # MySQL's unsigned numbers know no difference below 0.
    delta: Any = Cast("delta", BigIntegerField())
    beyond = F("stop") - F("start") + delta - Value(1, BigIntegerField())
    whole = beyond - beyond % delta
    put_in = whole * Value(-1, BigIntegerField())
    return Sum(Case(When(holder=POOL, then=put_in), default=whole, output_field=BigIntegerField()))


# --- rates --------------------------------------------------------------------------------


def rates_of(rows: Sequence[LeafAlloc]) -> dict[str, float]:
    """Ids a second, by tag, as ``rows`` have them; 0.0 where that is not known."""
    now = timezone.now()
    return {row.pk: _of_row(row, now) for row in rows}


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
