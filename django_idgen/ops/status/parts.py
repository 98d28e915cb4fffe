"""What is asked for a status, part by part; each returns what JSON can hold."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from time import perf_counter
from typing import Any

from django.db import connections
from django.db.models import QuerySet, Sum
from django.utils.timezone import make_aware

from ...core.errors import NotSeenFromHere
from ...core.moments import is_aware
from ...db.tables import missing_columns, missing_tables
from ...models import LeafAlloc
from ...process import handlers
from ...settings.config import DEFAULT_ALIAS, GeneratorSettings
from ..tags.outlook import TagOutlook, outlooks
from ..tags.rows import is_row_of, source_behind_pool
from ..worker_map import WorkerEntry, WorkerState, worker_map

__all__ = [
    "ask_database",
    "ask_pool",
    "ask_tags",
    "ask_workers",
    "databases_in_use",
    "generator_entry",
    "pool_alias",
    "tag_databases_in_use",
]

Document = dict[str, Any]
IN_USE = (WorkerState.HELD, WorkerState.LAPSING, WorkerState.LAPSED)


# --- what there is ------------------------------------------------------------------


def tag_databases_in_use() -> list[str]:
    """The aliases of the databases that tags are fetched from; none if they are elsewhere."""
    return list(source_behind_pool().databases())


def databases_in_use() -> list[str]:
    """The aliases of all databases that ids depend on, of those in ``DATABASES``."""
    found = dict.fromkeys(tag_databases_in_use())
    for entry in handlers.current_settings().generators.values():
        found |= dict.fromkeys(_databases_of(entry.leases.options))
    return [alias for alias in found if alias in connections.settings]


def _databases_of(options: Mapping[str, Any]) -> list[str]:
    nested = [each.get("OPTIONS", {}) for each in options.values() if isinstance(each, Mapping)]
    if not nested:
        return [str(options.get("database", DEFAULT_ALIAS))]
    return [alias for each in nested for alias in _databases_of(each)]


def pool_alias() -> str | None:
    """The alias in ``CACHES`` of the pool; None where there is none."""
    source: Any = handlers.segments.allocator().source
    return str(source.alias) if source.is_pool else None


# --- generators ---------------------------------------------------------------------


def generator_entry(settings: GeneratorSettings) -> Document:
    """What settings say of a generator. Asks nobody."""
    layout = settings.layout
    epoch = datetime.fromtimestamp(layout.epoch_us / 1e6, UTC)
    return {
        "alias": settings.alias,
        "namespace": settings.namespace,
        "layout": str(layout),
        "epoch": epoch.isoformat(),
        "exhausted_at": layout.exhausted_at.isoformat(),
        "exhausted_in": (layout.exhausted_at - datetime.now(UTC)).total_seconds(),
        "registry": str(getattr(settings.leases.load(), "kind", settings.leases.path)),
        "window": settings.window,
        "workers": None,
        "holders": [],
        "unseen": [],
        "seen": True,
        "error": None,
    }


def ask_workers(alias: str) -> Document:
    """What the registry of a generator says of its worker ids."""
    try:
        found = worker_map(alias)
    except NotSeenFromHere:
        return {"seen": False}
    states = {state.value: count for state, count in found.counts().items()}
    return {
        "workers": {"total": len(found.workers), **states},
        "holders": [_holder(each) for each in found.entries.values() if each.state in IN_USE],
        "unseen": [
            {"first": part.start, "last": part.stop - 1, "why": why}
            for part, why in found.unseen.items()
        ],
    }


def _holder(entry: WorkerEntry) -> Document:
    return {
        "worker": entry.worker,
        "state": entry.state.value,
        "holder": entry.holder,
        "acquired_at": _iso(entry.acquired_at),
        "seen_at": _iso(entry.seen_at),
        "until": _iso(entry.until),
        "window_left": entry.window_left,
        "clock_offset": entry.clock_offset,
    }


# --- tags ---------------------------------------------------------------------------


def ask_tags(alias: str, chosen: Collection[str] | None, most: int | None) -> Document:
    """The tags of a database, those first that are used the most."""
    if missing_tables(connections[alias], ["LeafAlloc"]):
        return {"total": 0, "fetch_rate": 0.0, "list": []}
    every: QuerySet[LeafAlloc] = LeafAlloc.objects.using(alias)
    if chosen is not None:
        every = every.filter(pk__in=chosen)
    rows = [row for row in every.order_by("-rate", "biz_tag")[:most] if is_row_of(row.pk, alias)]
    found = sorted(outlooks(rows, alias).values(), key=lambda one: (-one.rate, one.tag))
    counted = every.aggregate(rate=Sum("rate"))
    return {
        "total": every.count(),
        "fetch_rate": max(counted["rate"] or 0.0, sum(one.rate for one in found)),
        "list": [_tag(one) for one in found],
    }


def _tag(one: TagOutlook) -> Document:
    known = asdict(one)
    known["fetch_rate"] = known.pop("rate")
    return {**known, "fetched_at": _iso(one.fetched_at)}


# --- places -------------------------------------------------------------------------


def ask_database(alias: str) -> Document:
    """Whether it answers, how fast, and what of our tables it lacks."""
    connection = connections[alias]
    began = perf_counter()
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        cursor.fetchone()
    return {"seconds": perf_counter() - began, "behind": _behind(alias)}


def _behind(alias: str) -> list[str]:
    """Columns that a migration has yet to add. A table that is missing is made on first use."""
    return missing_columns(connections[alias])


def ask_pool() -> Document:
    """How much memory the pool's Redis uses (bytes)."""
    source: Any = handlers.segments.allocator().source
    return {"memory": source.memory()}


def _iso(moment: datetime | None) -> str | None:
    if moment is None:
        return None
    # Without time zones a row has the project's time.
    return (moment if is_aware(moment) else make_aware(moment)).astimezone(UTC).isoformat()
