"""What a scheduler does for all processes: renew worker ids, fill the pool, prune the history.

**Worker ids.** A process renews its own lease. A blocked process (in a long call of C code, by
SIGSTOP, on a starved machine) can't, and would come back to a worker id that another process has
by then. A scheduler that calls :func:`renew_worker_leases` about three times a window keeps the
worker id for it, if the process was seen recently.

**The pool.** So that an outage of the database goes unnoticed, :func:`preload_segments` measures
the consumption of each tag in use (``max_id`` less the ids in the pool, over time), and fills the
pool with what that rate takes in the outage to survive. Ids in the pool are not used yet: filling
it counts for nothing, and an idle tag gets nothing.

The fourth job, :func:`~.native.extend_native`, is in :mod:`.native`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
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
from ..core.options import check_seconds
from ..core.source import Source, Stock
from ..db.connection import Place, own_connection, place_of
from ..db.tables import is_missing
from ..db.transactions import Transactions
from ..models import LeafAlloc
from ..process.maps import registries
from ..process.tags import source_behind_pool, source_in_use
from ..settings.config import GeneratorSettings, read_settings
from ..sources import history

Done = dict[str, Any]


class Results:
    """What a job did, by name; a failure does not stop the rest."""

    def __init__(self) -> None:
        self.done: dict[str, Done] = {}
        self.failures: list[Exception] = []

    def failed(self, name: str, error: Exception) -> None:
        self.failures.append(error)
        self.done[name] = {"error": describe_error(error)}

    def all(self, message: str) -> dict[str, Done]:
        """Everything that was done. Raises :class:`UpkeepFailed` if something failed."""
        if self.failures:
            raise UpkeepFailed(message, self.done) from self.failures[0]
        return self.done


def describe_error(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


# --- worker ids ---------------------------------------------------------------------------


def renew_worker_leases() -> dict[str, Done]:
    """Renew the worker ids of processes that were seen recently, but may be idle or blocked.

    Covers all of ``IDGEN["GENERATORS"]`` whose worker ids are shared. A holder that was not seen
    for the lease option ``idle_after`` (seconds; five windows by default) is left to expire.
    Takes no worker id, lowers no mark, revives no expired lease. May come late or run twice at
    once.

    Returns, by alias, ``{"renewed": how many}`` or ``{"skipped": why}``. Raises
    :class:`UpkeepFailed` for an alias that failed, after renewing all others.
    """
    results = Results()
    for alias, entry in read_settings().generators.items():
        try:
            results.done[alias] = _renew(entry)
        except IdgenError as error:
            results.failed(alias, error)
    return results.all("Worker leases were not all renewed")


def _renew(entry: GeneratorSettings) -> Done:
    if entry.leases.load().needs_workers:
        # Each host has worker ids of its own, which no other host can get.
        return {"skipped": "its worker ids are not shared"}
    return {"renewed": registries[entry.alias].renew_seen(idle_after=entry.idle_after)}


# --- history ------------------------------------------------------------------------------

KEPT_DAYS = 90.0
MOST_DAYS = 36_500.0


def prune_history(days: float = KEPT_DAYS) -> dict[str, Done]:
    """Delete the history of segments that is older than ``days`` (0 to 36500).

    Deletes in batches, each a transaction of its own. May come late, run twice at once, or be
    killed. Returns, by database, ``{"deleted": how many rows}``. Raises :class:`UpkeepFailed`
    for a database that failed, after pruning all others.
    """
    is_number = isinstance(days, (int, float)) and not isinstance(days, bool)
    if not is_number or not 0 <= days <= MOST_DAYS:
        raise ConfigurationError(f"'days' must be 0 to {MOST_DAYS:g}, not {days!r}.")
    before = timezone.now() - timedelta(days=days)
    results = Results()
    for alias in source_behind_pool().databases():
        try:
            if not is_missing("SegmentHistory", alias):
                deleted = history.prune_history(before, database=alias)
                results.done[alias] = {"deleted": deleted}
        except DatabaseFailure as error:
            results.failed(alias, error)
    return results.all("The history was not pruned everywhere")


# --- the pool -----------------------------------------------------------------------------

BUDGET = 40.0
"""Seconds after which a run starts nothing new; the next run continues."""
MEASURED_EVERY = 10.0
"""Seconds. A shorter measurement says little: processes fetch in lumps."""
LONGEST_OUTAGE = 86_400.0
RECENT = timedelta(hours=1)
"""A tag that was fetched within it counts as in use."""
LOWEST_RATE = 1e-4
"""Ids a second. Less than an id an hour is the remainder of an old rate."""
TIMEOUT = 5.0
KEYS_AT_ONCE = 500
_COLUMNS = ("biz_tag", "max_id", "delta", "rate", "measured_at", "measured_used", "paused")

Row = dict[str, Any]


def preload_segments(outage: float | None = None) -> Done:
    """Keep enough ids of each tag in use in the pool to last ``outage`` seconds.

    ``outage`` (0 to 86400) defaults to that of ``IDGEN["SEGMENTS"]["OPTIONS"]``, which is 1200 by
    default. The pool holds at most its ``max_ids`` of a tag.

    Returns ``{"pool": True, "outage": …, "tags": {tag: {"rate", "wanted", "before",
    "after"}}, "left": how many tags it did not get to}``, with ``"paused": True`` for a paused
    tag; or ``{"pool": False, "tags": {}}`` without a pool. Raises :class:`UpkeepFailed` with
    ``errors`` by database or tag, after doing what it could; and :class:`SegmentUnavailable` if
    the pool does not answer.
    """
    settings = read_settings().segments
    seconds = check_outage(settings.outage if outage is None else outage)
    pool = source_in_use()
    if not pool.is_pool:
        return {"pool": False, "tags": {}}
    return Preloading(pool, seconds).run()


def check_outage(outage: object) -> float:
    """Return ``outage`` as seconds, or raise :class:`ConfigurationError`."""
    return check_seconds("An outage", outage, least=0.0, most=LONGEST_OUTAGE)


class Preloading:
    """One run: measure, forecast, refill. Run twice, late or killed, it leaves a gap at worst."""

    def __init__(self, pool: Source, outage: float, *, budget: float = BUDGET) -> None:
        self.pool = pool
        self.outage = outage
        self._deadline = SYSTEM_CLOCK.stopwatch() + budget
        self._failed_databases: set[str] = set()
        """Each of their tags would wait for the same timeout."""
        self._errors: dict[str, Exception] = {}
        self._done: dict[str, Done] = {}
        self._left = 0

    def run(self) -> Done:
        """What :func:`preload_segments` returns and raises."""
        used, failures = read_consumption(self.pool.behind)
        self._failed_databases |= set(failures)
        self._errors |= failures
        stocks = self.pool.stocks(sorted(used)) if used else {}
        paused = [tag for tag, each in used.items() if each.paused and stocks[tag].ids]
        if paused:  # by hand, or while Redis did not answer
            self.pool.clear(paused, keep_highest=True)
            stocks = {**stocks, **self.pool.stocks(paused)}
        forecasts = [self._forecast(each, stocks[tag]) for tag, each in used.items()]
        # First the tags that run dry first.
        for forecast in sorted(forecasts, key=lambda each: (each.lasts, each.tag)):
            if used[forecast.tag].paused:
                self._note(forecast)["paused"] = True
            elif forecast.wanted(self.outage):
                self._refill(forecast, used[forecast.tag].databases)
        result = {"pool": True, "outage": self.outage, "tags": self._done, "left": self._left}
        if self._errors:
            result["errors"] = {name: describe_error(each) for name, each in self._errors.items()}
            cause = next(iter(self._errors.values()))
            raise UpkeepFailed("Segments were not all preloaded", result) from cause
        return result

    def _forecast(self, used: Consumption, stock: Stock) -> Forecast:
        now = timezone.now()
        complete = not self._failed_databases.intersection(used.databases)
        due = used.measured_at is None or abs(now - used.measured_at) >= timedelta(
            seconds=MEASURED_EVERY
        )
        rate = used.rate
        if complete and due and not self._is_late() and not used.is_idle(stock.ids):
            try:
                rate = self.pool.behind.record_rate(used.tag, used.less(stock.ids), now)
            except IdgenError as error:
                self._failed(used.tag, used.databases, error)
        return Forecast(used.tag, rate, stock.ready)

    def _refill(self, forecast: Forecast, databases: Sequence[str]) -> None:
        done = self._note(forecast)
        if not forecast.lacks(self.outage):
            return
        # One of the databases that share a tag is enough.
        if self._is_late() or self._failed_databases.issuperset(databases):
            self._left += 1
            return
        try:
            done["after"] += self.pool.refill(forecast.tag, done["wanted"])
        except TagPaused:  # since the rows were read
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

    def _failed(self, tag: str, databases: Sequence[str], error: IdgenError) -> None:
        self._errors[tag] = error
        if isinstance(error, SegmentUnavailable):
            self._failed_databases |= set(databases)

    def _is_late(self) -> bool:
        return SYSTEM_CLOCK.stopwatch() > self._deadline


@dataclass(frozen=True, slots=True)
class Forecast:
    """The rate at which a tag's ids are used, and its stock."""

    tag: str
    rate: float
    """Ids a second, of the whole fleet; 0.0 if unknown or idle."""
    stock: int
    """Ids ready in the pool."""

    def wanted(self, outage: float) -> int:
        """How many ids last for ``outage`` seconds; 0 for an idle tag.

        A rate dies away rather than becoming 0: less than one id is none.
        """
        ids = self.rate * outage
        return math.ceil(ids) if ids >= 1 else 0

    def lacks(self, outage: float) -> int:
        """How many ids have to be fetched."""
        return max(0, self.wanted(outage) - self.stock)

    @property
    def lasts(self) -> float:
        """For how many seconds the stock lasts."""
        return self.stock / self.rate if self.rate > 0 else math.inf


@dataclass(frozen=True, slots=True)
class Consumption:
    """The use of one tag, over all of its databases."""

    tag: str
    databases: Sequence[str]
    heights: Sequence[int]
    """``max_id`` in each database that could be read."""
    delta: int
    rate: float
    """Ids a second, at the last measurement."""
    measured_at: datetime | None = None
    measured_used: int = 0
    paused: bool = False
    """At least one of its databases has it paused."""

    def less(self, stock: int) -> int:
        """How far the ids are used, if ``stock`` of those handed out are unused.

        A sum over the databases, so that it rises by ``delta`` for each id.
        """
        return sum(self.heights) - stock * self.delta

    def is_idle(self, stock: int) -> bool:
        """Whether a measurement would change nothing."""
        unchanged = self.measured_at is not None and self.less(stock) == self.measured_used
        return unchanged and self.rate < LOWEST_RATE


def read_consumption(source: Any) -> tuple[dict[str, Consumption], dict[str, IdgenError]]:
    """The tags of ``source`` in use, and the error of each database that could not be read.

    A database in this process' memory keeps no rates.
    """
    rows: dict[str, dict[str, Row]] = defaultdict(dict)
    failures: dict[str, IdgenError] = {}

    def read(alias: str, chosen: Q) -> None:
        if alias in failures:
            return
        try:
            rows[alias] |= {str(row["biz_tag"]): row for row in _read_rows(alias, chosen)}
        except SegmentUnavailable as error:
            failures[alias] = error

    for alias in source.databases():
        if place_of(alias) is Place.SERVER:
            read(alias, _in_use())
    # If the router leads elsewhere by now, the row no longer counts.
    routes = {
        tag: route
        for alias, found in list(rows.items())
        for tag in found
        if alias in (route := source.route(tag))
    }
    # A shared tag may look idle in some of its databases.
    for alias in {alias for route in routes.values() for alias in route}:
        tags = [tag for tag in routes if alias in routes[tag] and tag not in rows[alias]]
        for start in range(0, len(tags), KEYS_AT_ONCE):
            read(alias, Q(pk__in=tags[start : start + KEYS_AT_ONCE]))
    used = {
        tag: _consumption(tag, route, [rows[alias][tag] for alias in route if tag in rows[alias]])
        for tag, route in routes.items()
    }
    return used, failures


def _consumption(tag: str, route: Sequence[str], rows: Sequence[Row]) -> Consumption:
    first = rows[0]  # the row that keeps the rate
    return Consumption(
        tag,
        route,
        [int(row["max_id"]) for row in rows],
        max(int(first["delta"]), 1),
        float(first["rate"]),
        first["measured_at"],
        int(first["measured_used"]),
        any(row["paused"] for row in rows),
    )


def _in_use() -> Q:
    recent = timezone.now() - RECENT
    # Taking ids out of the pool does not touch the row.
    popped = Q(measured_at__isnull=False, max_id__gt=F("measured_used"))
    # Paused tags, too: their pool has to be cleared.
    return Q(rate__gte=LOWEST_RATE) | Q(update_time__gte=recent) | popped | Q(paused=True)


def _read_rows(alias: str, chosen: Q) -> list[Row]:
    transactions = Transactions(
        own_connection(alias),
        timeout=TIMEOUT,
        models=("LeafAlloc",),
        unavailable=SegmentUnavailable,
    )
    return transactions.run(partial(_select, alias, chosen))


def _select(alias: str, chosen: Q, _connection: BaseDatabaseWrapper) -> list[Row]:
    rows: QuerySet[LeafAlloc, Any] = LeafAlloc.objects.using(alias).filter(chosen)
    return [dict(row) for row in rows.values(*_COLUMNS)]
