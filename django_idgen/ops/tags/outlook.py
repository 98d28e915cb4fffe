"""How a tag stands, and how long its ids last: in its last segment, in the pool, and at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from django.conf import settings
from django.utils import timezone

from ...core.clock import moment
from ...core.errors import ConfigurationError, SegmentUnavailable
from ...core.segment import MAX_ID, Shard
from ...core.source import Stock
from ...models import LeafAlloc
from ...process.tags import Tag, is_fetched_from, known_tag, source_in_use
from .usage import rates_of

__all__ = ["TagOutlook", "outlook", "outlooks"]


@dataclass(frozen=True, slots=True)
class TagOutlook:
    """A tag as one database has it, and a forecast. Frozen. Times are in seconds."""

    tag: str
    database: str
    max_id: int
    """The first id that was not handed out yet."""
    step: int
    paused: bool
    rate: float
    """Ids a second that the fleet uses of this database; 0.0 if that is not known."""
    holder: str
    """Who was given ids last: a process that fetched, or took from the pool."""
    fetched_at: datetime | None
    fetched_ids: int
    """How many that were."""
    segment_left: float | None
    """How much longer these last at that rate, if one process used them alone."""
    ids_left: int
    """Ids up to the end of all ids, at 2**63-1."""
    range_left: float | None
    """How long those last."""
    pooled: int | None
    """Ids that lie in the pool; None without a pool, or if it can't be asked just now."""
    pool_left: float | None
    """How long those last."""


def outlook(tag: str) -> TagOutlook:
    """The outlook of a tag over all of its databases.

    Raises :class:`.TagUnknown` and :class:`SegmentUnavailable`.
    """
    return _over_all(known_tag(tag))


def outlooks(rows: Iterable[LeafAlloc], database: str) -> dict[str, TagOutlook]:
    """The outlooks of ``rows`` of ``database`` (an alias), by tag.

    It takes one call to Redis for all of them, which ends within the pool's timeout. Raises
    nothing on account of a pool.
    """
    chosen = {row.pk: row for row in rows}
    rates = rates_of(list(chosen.values()))
    stocks = _stocks([tag for tag in chosen if _is_of(tag, database)])
    return {
        tag: _outlook(row, database, rates[tag], stocks.get(tag)) for tag, row in chosen.items()
    }


def _over_all(tag: Tag) -> TagOutlook:
    each = [outlooks([row], alias)[tag.name] for alias, row in tag.rows.items()]
    first = each[0]
    if len(each) == 1:
        return first
    last = max(each, key=lambda one: (one.fetched_at is not None, one.fetched_at))
    rate = sum(one.rate for one in each)
    left = sum(one.ids_left for one in each)
    return replace(
        first,
        max_id=tag.max_id,
        paused=any(one.paused for one in each),
        rate=rate,
        holder=last.holder,
        fetched_at=last.fetched_at,
        fetched_ids=last.fetched_ids,
        segment_left=_segment_left(last.fetched_ids, last.fetched_at, rate),
        ids_left=left,
        range_left=_lasts(left, rate),
        pool_left=_lasts(first.pooled, rate),
    )


def _outlook(row: LeafAlloc, database: str, rate: float, stock: Stock | None) -> TagOutlook:
    shard = Shard(row.delta, row.remainder)
    first = shard.first(max(row.max_id, 1)) if shard.sound else MAX_ID
    left = len(range(first, MAX_ID, max(row.delta, 1)))
    pooled = None if stock is None else int(stock.ids)
    last = _last_taken(row, stock)
    return TagOutlook(
        tag=row.pk,
        database=database,
        max_id=row.max_id,
        step=row.step,
        paused=row.paused,
        rate=rate,
        holder=last.holder,
        fetched_at=last.at,
        fetched_ids=last.ids,
        segment_left=_segment_left(last.ids, last.at, rate),
        ids_left=left,
        range_left=_lasts(left, rate),
        pooled=pooled,
        pool_left=_lasts(pooled, rate),
    )


class _Taken(NamedTuple):
    """Who was given ids last."""

    holder: str
    at: datetime | None
    ids: int


def _last_taken(row: LeafAlloc, stock: Stock | None) -> _Taken:
    """Who fetched last, or took from the pool, whichever was later.

    A fetch for the pool has the process that fills it as its holder.
    """
    fetched = _Taken(row.holder, row.fetched_at, row.fetched_ids)
    if stock is None or not stock.taken_by:
        return fetched
    popped = _Taken(stock.taken_by, _moment(stock.taken_us), stock.taken_ids)
    later = fetched.at is None or (popped.at is not None and popped.at > fetched.at)
    return popped if later else fetched


def _moment(us: int) -> datetime:
    """As the fields of our models have it."""
    aware = moment(us)
    return aware if settings.USE_TZ else timezone.make_naive(aware)


def _segment_left(ids: int, since: datetime | None, rate: float) -> float | None:
    if since is None or rate <= 0:
        return None
    return max(ids / rate - (timezone.now() - since).total_seconds(), 0.0)


def _lasts(ids: int | None, rate: float) -> float | None:
    return None if ids is None or rate <= 0 else ids / rate


def _is_of(tag: str, database: str) -> bool:
    """Whether the ids of ``tag`` come from there; a row may be another project's."""
    try:
        return is_fetched_from(tag, database)
    except ConfigurationError:  # a router that knows nothing of this tag
        return False


def _stocks(tags: Sequence[str]) -> Mapping[str, Stock]:
    try:
        return source_in_use().stocks(tags) if tags else {}
    except (SegmentUnavailable, ConfigurationError):
        return {}
