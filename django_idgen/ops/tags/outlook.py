"""The state of a tag, and how long its ids last: those of its last segment, the pool, and all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from django.utils import timezone

from ...core.clock import moment
from ...core.errors import ConfigurationError, SegmentUnavailable
from ...core.segment import MAX_ID, Shard
from ...core.source import POOL
from ...db.dialects import stored_moment
from ...models import LeafAlloc
from ...process.tags import is_fetched_from, known_tag, source_in_use

if TYPE_CHECKING:
    from ...core.source import Stock


IN_USE = timedelta(days=1)
"""A tag counts as in use for so long after a process last got ids."""


@dataclass(frozen=True, slots=True)
class TagOutlook:
    """A tag in one database, and a forecast. Durations are in seconds."""

    tag: str
    database: str
    max_id: int
    """The first id that was not handed out yet."""
    step: int
    paused: bool
    rate: float
    """Ids a second that the fleet uses of this database; 0.0 if unknown."""
    holder: str
    """The process that last got ids, by a fetch or from the pool; "pool" if only that got some."""
    fetched_at: datetime | None
    fetched_ids: int
    """How many ids it got."""
    segment_left: float | None
    """Seconds more that these last at that rate, if a single process used them.

    None if the tag is paused, or only the pool got ids.
    """
    ids_left: int
    """Ids up to the last one, 2**63-1."""
    range_left: float | None
    """How long those last."""
    pooled: int | None
    """Ids in the pool; None without a pool, or if it does not answer."""
    pool_left: float | None
    """How long those last."""


def state(tag: LeafAlloc | TagOutlook) -> str:
    """Whether it is "paused", "unused", "idle" or "in use": filling its pool is no use."""
    if tag.paused:
        return "paused"
    if tag.fetched_at is None and tag.max_id == 1:
        return "unused"
    lately = tag.fetched_at is not None and timezone.now() - tag.fetched_at <= IN_USE
    return "in use" if lately and (tag.holder != POOL or tag.rate) else "idle"


def outlook(tag: str) -> TagOutlook:
    """The outlook of a tag over all of its databases.

    Raises :class:`.TagUnknown` and :class:`SegmentUnavailable`.
    """
    known = known_tag(tag)
    each = [outlooks([row], alias)[known.name] for alias, row in known.rows.items()]
    first = each[0]
    if len(each) == 1:
        return first
    last = max(each, key=lambda one: (one.fetched_at is not None, one.fetched_at))
    rate = sum(one.rate for one in each)
    left = sum(one.ids_left for one in each)
    return replace(
        first,
        max_id=known.max_id,
        paused=any(one.paused for one in each),
        rate=rate,
        holder=last.holder,
        fetched_at=last.fetched_at,
        fetched_ids=last.fetched_ids,
        segment_left=(
            None
            if all(one.paused for one in each)
            else _segment_left(last.fetched_ids, last.fetched_at, rate)
        ),
        ids_left=left,
        range_left=_lasts(left, rate),
        pool_left=_lasts(first.pooled, rate),
    )


def outlooks(rows: Iterable[LeafAlloc], database: str) -> dict[str, TagOutlook]:
    """The outlooks of ``rows`` of ``database`` (an alias), by tag.

    One call to Redis for all of them, bounded by the pool's timeout. An unreachable pool raises
    nothing.
    """
    chosen = {row.pk: row for row in rows}
    stocks = _stocks([tag for tag in chosen if _is_fetched_from(tag, database)])
    return {tag: _outlook(row, database, stocks.get(tag)) for tag, row in chosen.items()}


def _outlook(row: LeafAlloc, database: str, stock: Stock | None) -> TagOutlook:
    rate = _rate(row, stock)
    shard = Shard(row.delta, row.remainder)
    first = shard.first(max(row.max_id, 1)) if shard.sound else MAX_ID
    left = len(range(first, MAX_ID, max(row.delta, 1)))
    pooled = None if stock is None else int(stock.ids)
    holder, fetched_at, fetched_ids = _last_taken(row, stock)
    return TagOutlook(
        tag=row.pk,
        database=database,
        max_id=row.max_id,
        step=row.step,
        paused=row.paused,
        rate=rate,
        holder=holder,
        fetched_at=fetched_at,
        fetched_ids=fetched_ids,
        segment_left=(
            None if row.paused or holder == POOL else _segment_left(fetched_ids, fetched_at, rate)
        ),
        ids_left=left,
        range_left=_lasts(left, rate),
        pooled=pooled,
        pool_left=_lasts(pooled, rate),
    )


def _rate(row: LeafAlloc, stock: Stock | None) -> float:
    """The last measured rate, or less if fewer ids than that were used since."""
    if row.measured_at is None:
        return row.rate
    delta = max(row.delta, 1)
    seconds = (timezone.now() - row.measured_at).total_seconds()
    # As it was measured: ids in the pool are not used yet.
    used = (row.max_id - row.measured_used) / delta - (stock.ids if stock else 0)
    # Negative if ids went back to the pool, or the measurement is a sum over several databases.
    if seconds <= 0 or (used < 0 and delta > 1):
        return row.rate
    return min(row.rate, max(used, 0.0) / seconds)


def _last_taken(row: LeafAlloc, stock: Stock | None) -> tuple[str, datetime | None, int]:
    """Holder, time and number of the ids that a process last fetched, or took from the pool.

    Of the last fetch, for the pool, if no process has taken ids from it.
    """
    fetched = row.holder, row.fetched_at, row.fetched_ids
    if stock is None or not stock.taken_by:
        return fetched
    taken_at = stored_moment(moment(stock.taken_us))
    if row.holder != POOL and row.fetched_at is not None and taken_at <= row.fetched_at:
        return fetched
    return stock.taken_by, taken_at, stock.taken_ids


def _segment_left(ids: int, since: datetime | None, rate: float) -> float | None:
    if since is None or rate <= 0:
        return None
    return max(ids / rate - (timezone.now() - since).total_seconds(), 0.0)


def _lasts(ids: int | None, rate: float) -> float | None:
    return None if ids is None or rate <= 0 else ids / rate


def _is_fetched_from(tag: str, database: str) -> bool:
    try:
        return is_fetched_from(tag, database)
    except ConfigurationError:  # a router that does not know this tag
        return False


def _stocks(tags: Sequence[str]) -> Mapping[str, Stock]:
    try:
        return source_in_use().stocks(tags) if tags else {}
    except (SegmentUnavailable, ConfigurationError):
        return {}
