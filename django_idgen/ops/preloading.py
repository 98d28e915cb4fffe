"""Segments fetched ahead of need: an outage of the database is not felt.

For each tag in use the rate of its consumption is measured (``max_id`` less what lies in the
pool, over time), and the pool filled up to what that rate takes in the outage that is to be
survived. What lies in the pool is not used yet: so filling it counts for nothing, and a tag
that is not used gets nothing.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import Error as DatabaseFailure
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from ..core.clock import SYSTEM_CLOCK
from ..core.errors import (
    ConfigurationError,
    IdgenError,
    SegmentUnavailable,
    TagPaused,
    UpkeepFailed,
)
from ..core.source import Source, Stock
from ..db.connection import Place, own_connection, place_of
from ..db.transactions import Transactions
from ..models import LeafAlloc
from ..process.tags import source_in_use
from ..settings.config import read_settings

__all__ = ["Consumption", "Forecast", "Preloading", "check_outage", "preload_segments"]

BUDGET = 40.0
"""Seconds after which a run begins nothing new; the next one goes on."""
MEASURED_EVERY = 10.0
"""Seconds. A shorter measurement says little: processes fetch in lumps."""

Done = dict[str, Any]
LONGEST_OUTAGE = 86_400.0
RECENT = timedelta(hours=1)
"""A tag that was fetched from within it is looked at."""
LOWEST_RATE = 1e-4
"""Ids a second. Less than an id in an hour is what is left of an old rate."""
TIMEOUT = 5.0
KEYS_AT_ONCE = 500
_COLUMNS = ("biz_tag", "max_id", "delta", "rate", "measured_at", "measured_used", "paused")

Row = dict[str, Any]


def preload_segments(outage: float | None = None) -> Done:
    """Keep enough ids of each tag in use in the pool to last ``outage`` seconds.

    ``outage`` (0 to 86400) is that of ``IDGEN["SEGMENTS"]["OPTIONS"]`` unless given, 1200
    by default. No more than the pool's ``max_ids`` lie there of a tag.

    Returns ``{"pool": True, "outage": …, "tags": {tag: {"rate", "wanted", "before",
    "after"}}, "left": how many tags it did not come to}``, with ``"paused": True`` for a tag
    that was passed over as it is paused; with history on also "history": how many rows it
    wrote of who took what from the pool; or ``{"pool": False, "tags": {}}`` where no pool is
    configured. Raises :class:`UpkeepFailed`, after all that could be done was, with
    ``errors`` by database or tag; and :class:`SegmentUnavailable` if the
    pool can't be asked.
    """
    settings = read_settings().segments
    seconds = check_outage(settings.outage if outage is None else outage)
    pool = source_in_use()
    if not pool.is_pool:
        return {"pool": False, "tags": {}}
    return Preloading(pool, seconds).run()


class Preloading:
    """One run: measure, forecast, refill. May be doubled, late or killed: at worst a gap."""

    def __init__(self, pool: Source, outage: float, *, budget: float = BUDGET) -> None:
        self.pool = pool
        self.outage = outage
        self._deadline = SYSTEM_CLOCK.stopwatch() + budget
        self._away: set[str] = set()
        """Databases that failed: each of their tags would wait for the same timeout."""
        self._errors: dict[str, Exception] = {}
        self._done: dict[str, Done] = {}
        self._left = 0

    def run(self) -> Done:
        """What :func:`preload_segments` returns, and raises."""
        used = self._read()
        stocks = self.pool.stocks(sorted(used)) if used else {}
        paused = [tag for tag, each in used.items() if each.paused and stocks[tag].ids]
        if paused:  # by hand, or while Redis did not answer
            self.pool.clear(paused, keep_highest=True)
            stocks = {**stocks, **self.pool.stocks(paused)}
        forecasts = [self._forecast(each, stocks[tag]) for tag, each in used.items()]
        # Those that would run dry first come first.
        for forecast in sorted(forecasts, key=lambda each: (each.lasts, each.tag)):
            if used[forecast.tag].paused:
                self._note(forecast)["paused"] = True
            elif forecast.wanted(self.outage):
                self._refill(forecast, used[forecast.tag].databases)
        history = self._drain_history()
        result = {"pool": True, "outage": self.outage, "tags": self._done, "left": self._left}
        result |= history
        if self._errors:
            result["errors"] = {
                name: f"{type(error).__name__}: {error}" for name, error in self._errors.items()
            }
            cause = next(iter(self._errors.values()))
            raise UpkeepFailed("Segments were not all preloaded", result) from cause
        return result

    def _read(self) -> dict[str, Consumption]:
        used, failures = read_consumption(self.pool.behind)
        self._away |= set(failures)
        self._errors |= failures
        return used

    def _forecast(self, used: Consumption, stock: Stock) -> Forecast:
        now = timezone.now()
        whole = not self._away.intersection(used.databases)
        due = used.measured_at is None or abs(now - used.measured_at) >= timedelta(
            seconds=MEASURED_EVERY
        )
        rate = used.rate
        if whole and due and not self._is_late() and not used.is_idle(stock.ids):
            try:
                rate = self.pool.behind.record_rate(used.tag, used.less(stock.ids), now)
            except IdgenError as error:
                self._failed(used.tag, used.databases, error)
        return Forecast(used.tag, rate, stock.ready)

    def _refill(self, forecast: Forecast, databases: Sequence[str]) -> None:
        done = self._note(forecast)
        if not forecast.lacks(self.outage):
            return
        # Where several databases share a tag, one is enough.
        if self._is_late() or self._away.issuperset(databases):
            self._left += 1
            return
        try:
            done["after"] += self.pool.refill(forecast.tag, done["wanted"])
        except TagPaused:  # since we looked
            done["paused"] = True
        except IdgenError as error:
            self._failed(forecast.tag, databases, error)
            self._left += 1

    def _note(self, forecast: Forecast) -> Done:
        done = self._done[forecast.tag] = {
            "rate": round(forecast.rate, 3),
            "wanted": forecast.wanted(self.outage),
            "before": forecast.stock,
            "after": forecast.stock,
        }
        return done

    def _drain_history(self) -> Done:
        """Whatever became of the tags: what Redis has noted it does not keep for ever."""
        if self._away or not self.pool.history:
            return {}
        try:
            return {"history": self.pool.drain_history()}
        except (IdgenError, DatabaseFailure) as error:
            self._errors["history"] = error
            return {}

    def _failed(self, tag: str, databases: Sequence[str], error: IdgenError) -> None:
        self._errors[tag] = error
        if isinstance(error, SegmentUnavailable):
            self._away |= set(databases)

    def _is_late(self) -> bool:
        return SYSTEM_CLOCK.stopwatch() > self._deadline


# --- how much is wanted -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a tag's ids are used at, and what lies ready. Frozen."""

    tag: str
    rate: float
    """Ids a second, of the whole fleet; 0.0 if it is not known, or none are used."""
    stock: int
    """Ids that lie ready."""

    def wanted(self, outage: float) -> int:
        """How many ids are to lie ready to last ``outage`` seconds; 0 for an idle tag.

        A rate dies away rather than becoming 0: less than one id is none.
        """
        ids = self.rate * outage
        return math.ceil(ids) if ids >= 1 else 0

    def lacks(self, outage: float) -> int:
        """How many ids have to be fetched; never less than 0."""
        return max(0, self.wanted(outage) - self.stock)

    @property
    def lasts(self) -> float:
        """For how many seconds the stock suffices."""
        return self.stock / self.rate if self.rate > 0 else math.inf


def check_outage(outage: object) -> float:
    """Return ``outage`` (seconds) if it can be one, else raise :class:`ConfigurationError`."""
    number = isinstance(outage, (int, float)) and not isinstance(outage, bool)
    if not number or not 0 <= outage <= LONGEST_OUTAGE:  # type: ignore[operator]
        raise ConfigurationError(
            f"An outage must be 0 to {LONGEST_OUTAGE:g} seconds, not {outage!r}."
        )
    return float(outage)  # type: ignore[arg-type]


# --- how much is used ---------------------------------------------------------------------


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

    A database in this process' memory keeps no rates.
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
    # A paused one, too: its pool has to be cleared.
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
