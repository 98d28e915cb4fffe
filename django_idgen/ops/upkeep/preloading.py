"""Segments fetched ahead of need: a database that is away for a while is not felt.

For each tag in use the rate of its consumption is measured (``max_id`` less what lies
in the pool, over time), and the pool filled up to what that rate takes in the outage
that is to be survived. What lies in the pool is not used yet: so filling it counts for
nothing, and a tag that nobody uses gets nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.db import Error as DatabaseFailure
from django.utils import timezone

from ...core.clock import SYSTEM_CLOCK
from ...core.errors import IdgenError, SegmentUnavailable, TagPaused, UpkeepFailed
from ...core.source import Source, Stock
from ...process import handlers
from ...settings.config import read_settings
from .consumption import Consumption, read_consumption
from .forecast import Forecast, check_outage

__all__ = ["Preloading", "preload_segments"]

BUDGET = 40.0
"""Seconds after which a run begins nothing new; the next one goes on."""
MEASURED_EVERY = 10.0
"""Seconds. A shorter measurement says little: processes fetch in lumps."""

Done = dict[str, Any]


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
        self._shut([tag for tag, each in used.items() if each.paused and not stocks[tag].shut])
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

    def _shut(self, tags: Sequence[str]) -> None:
        """The pool of paused tags, where Redis has forgotten that, or could not be told."""
        if tags:
            self.pool.shut(tags)

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
    source: Any = handlers.segments.allocator().source
    if not source.is_pool:
        return {"pool": False, "tags": {}}
    return Preloading(source, seconds).run()
