"""Which tags are in use, and how far their databases have come with them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from ...core.errors import IdgenError, SegmentUnavailable
from ...db.connection import Place, own_connection, place_of
from ...db.transactions import Transactions
from ...models import LeafAlloc

__all__ = ["Consumption", "read_consumption"]

RECENT = timedelta(hours=1)
"""A tag that was fetched from within it is looked at."""
LOWEST_RATE = 1e-4
"""Ids a second. Less than an id in an hour is what is left of an old rate."""
TIMEOUT = 5.0
KEYS_AT_ONCE = 500
_COLUMNS = ("biz_tag", "max_id", "delta", "rate", "measured_at", "measured_used", "paused")

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Consumption:
    """One tag, over all of its databases. Frozen."""

    tag: str
    databases: Sequence[str]
    heights: Sequence[int]
    """``max_id`` in each database that could be read."""
    delta: int
    rate: float
    """Ids a second, as measured last."""
    measured_at: datetime | None = None
    measured_used: int = 0
    paused: bool = False
    """In one of its databases at least."""

    def less(self, stock: int) -> int:
        """How far the ids are used, if ``stock`` of those handed out lie unused.

        Summed up over the databases, so that it rises by ``delta`` for each id.
        """
        return sum(self.heights) - stock * self.delta

    def is_idle(self, stock: int) -> bool:
        """Whether a measurement would say nothing new."""
        unchanged = self.measured_at is not None and self.less(stock) == self.measured_used
        return unchanged and self.rate < LOWEST_RATE


@dataclass
class _Rows:
    """The rows of the tags in use, by database; and why a database could not be read."""

    of: dict[str, dict[str, Row]] = field(default_factory=lambda: defaultdict(dict))
    failures: dict[str, IdgenError] = field(default_factory=dict)

    def read(self, alias: str, chosen: Q) -> None:
        if alias in self.failures:
            return
        try:
            found = _read(alias, chosen)
        except SegmentUnavailable as error:
            self.failures[alias] = error
            return
        self.of[alias] |= {str(row["biz_tag"]): row for row in found}


def read_consumption(source: Any) -> tuple[dict[str, Consumption], dict[str, IdgenError]]:
    """The tags of ``source`` in use, and the databases that could not be read, with the cause.

    Only those on a database server: a SQLite file keeps no rates.
    """
    rows = _Rows()
    for alias in _servers(source.databases()):
        rows.read(alias, _in_use())
    routes = {
        tag: route
        for alias, found in list(rows.of.items())
        for tag in found
        # Where the router has led elsewhere since, the row says nothing any more.
        if alias in (route := source.route(tag))
    }
    _complete(rows, routes)
    used = {tag: _consumption(tag, route, rows) for tag, route in routes.items()}
    return used, rows.failures


def _complete(rows: _Rows, routes: dict[str, Sequence[str]]) -> None:
    """Read the rows of shared tags in those databases, too, where they look idle."""
    missing: dict[str, list[str]] = defaultdict(list)
    for tag, route in routes.items():
        for alias in route:
            if tag not in rows.of.get(alias, {}):
                missing[alias].append(tag)
    for alias, tags in missing.items():
        for start in range(0, len(tags), KEYS_AT_ONCE):
            rows.read(alias, Q(pk__in=tags[start : start + KEYS_AT_ONCE]))


def _consumption(tag: str, route: Sequence[str], rows: _Rows) -> Consumption:
    found = [rows.of[alias][tag] for alias in route if tag in rows.of.get(alias, {})]
    # It is in the first one's row that rates are kept.
    first = found[0]
    return Consumption(
        tag,
        route,
        [int(row["max_id"]) for row in found],
        max(int(first["delta"]), 1),
        float(first["rate"]),
        first["measured_at"],
        int(first["measured_used"]),
        any(row["paused"] for row in found),
    )


def _servers(aliases: Iterable[str]) -> list[str]:
    return [alias for alias in aliases if place_of(alias) is Place.SERVER]


def _in_use() -> Q:
    recent = timezone.now() - RECENT
    # What is taken out of the pool does not touch the row.
    popped = Q(measured_at__isnull=False, max_id__gt=F("measured_used"))
    # A paused one, too: its pool has to be shut.
    return Q(rate__gte=LOWEST_RATE) | Q(update_time__gte=recent) | popped | Q(paused=True)


def _read(alias: str, chosen: Q) -> list[Row]:
    transactions = Transactions(
        own_connection(alias),
        timeout=TIMEOUT,
        models=("LeafAlloc",),
        unavailable=SegmentUnavailable,
    )
    return transactions.run(partial(_rows, alias, chosen))


def _rows(alias: str, chosen: Q, _connection: BaseDatabaseWrapper) -> list[Row]:
    rows: QuerySet[LeafAlloc, Any] = LeafAlloc.objects.using(alias).filter(chosen)
    return [dict(row) for row in rows.values(*_COLUMNS)]
