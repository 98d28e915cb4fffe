"""The state of everything, as one document: for ``manage.py idgen_status`` and the metrics.

Takes no id and no worker id. Databases, Redis and registries are asked in threads of their own.
If one does not answer in time, its entry says so, and the rest is complete.

::

    {"version": 1, "at": "2026-11-22T01:02:03+00:00",
     "generators": [
       {"alias", "namespace", "layout", "epoch", "exhausted_at", "exhausted_in": seconds,
        "registry", "window": seconds,
        "seen": whether this project can see the worker ids,
        "workers": {"total", "free", "held", "lapsing", "lapsed", "used", "reserved"} or null,
        "holders": [{"worker", "state", "holder", "acquired_at", "seen_at", "until",
                     "window_left": seconds, "clock_offset": seconds}],
        "error": why the registry did not answer, or null}],
     "tags": [
       {"database", "total": tags there, "paused": how many of them are paused,
        "fetch_rate": ids a second of all of them,
        "list": [{"tag", "database", "state": "in use", "idle", "unused" or "paused", "max_id",
                  "step", "paused", "fetch_rate", "holder",
                  "fetched_at", "fetched_ids", "segment_left": seconds, "ids_left",
                  "range_left": seconds, "pooled": ids, "pool_left": seconds}],
        "error"}],
     "pool": null or {"alias", "memory": bytes, "error"},
     "databases": [{"alias", "vendor", "seconds": to answer, "installation": its name,
                    "unmade": [missing tables], "behind": [missing columns], "error"}]}

Unknown values are null. Times are in ISO 8601, UTC. Names may be added, and none changes its
meaning as long as ``version`` is the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from time import perf_counter
from typing import Any

from django.db import DatabaseError, connections
from django.db.models import QuerySet, Sum

from ..core.errors import NotSeenFromHere, SegmentUnavailable
from ..core.inspection import WorkerEntry, WorkerState
from ..db.connection import home_connection, place_of
from ..db.dialects import aware_moment
from ..db.installation import DatabaseOwner
from ..db.tables import is_missing, missing_columns, missing_tables, with_way_out
from ..models import LeafAlloc
from ..process import maps
from ..process.factory import lease_databases, registry_kind
from ..process.tags import is_row_of, source_behind_pool, source_in_use
from ..settings.config import GeneratorSettings
from .probes import Outcome, Probe, Probes
from .tags.outlook import TagOutlook, outlooks, state
from .workers import worker_map

VERSION = 1
MOST_TAGS = 50
WITHIN = 5.0
"""Seconds."""
Document = dict[str, Any]
IN_USE = (WorkerState.HELD, WorkerState.OVERDUE, WorkerState.EXPIRED)


def status(
    *,
    generators: Collection[str] | None = None,
    tags: Collection[str] | None = None,
    most_tags: int | None = MOST_TAGS,
    within: float = WITHIN,
    max_age: float = 0.0,
    probes: Probes | None = None,
) -> Document:
    """The document above. Thread-safe.

    ``generators`` and ``tags``: only these. ``most_tags`` bounds the list of each database
    (None: all). ``within``: seconds to wait for all answers together. With your own ``probes``,
    answers up to ``max_age`` seconds old are used again, and one that hangs is not asked a
    second time.

    Raises :class:`SettingsError`.
    """
    settings = maps.current_settings()
    for alias in generators or ():
        maps.generator_settings(alias)  # raises for an unknown one
    entries = [
        each
        for alias, each in settings.generators.items()
        if generators is None or alias in generators
    ]
    of_tags = list(source_behind_pool().databases())
    databases = _databases_in_use(of_tags)
    pool: Any = source_in_use()
    wanted: dict[str, Probe] = {
        **{f"generator {each.alias}": partial(_read_workers, each.alias) for each in entries},
        **{f"tags {alias}": partial(_read_tags, alias, tags, most_tags) for alias in of_tags},
        **{f"database {alias}": partial(_read_database, alias) for alias in databases},
        **({"pool": lambda: {"memory": pool.memory()}} if pool.is_pool else {}),
    }
    answers = _run(wanted, databases, probes or Probes(), max_age=max_age, within=within)

    def with_answer(name: str, entry: Document) -> Document:
        return {**entry, **(answers[name].value or {}), "error": answers[name].error}

    no_tags: Document = {"total": None, "paused": None, "fetch_rate": None, "list": []}
    return {
        "version": VERSION,
        "at": datetime.now(UTC).isoformat(),
        "generators": [
            with_answer(f"generator {each.alias}", _generator(each)) for each in entries
        ],
        "tags": [with_answer(f"tags {each}", {"database": each, **no_tags}) for each in of_tags],
        "pool": with_answer("pool", {"alias": str(pool.alias), "memory": None})
        if pool.is_pool
        else None,
        "databases": [
            with_answer(
                f"database {alias}",
                {
                    "alias": alias,
                    "vendor": connections[alias].vendor,
                    "seconds": None,
                    "installation": "",
                    "unmade": [],
                    "behind": [],
                },
            )
            for alias in databases
        ],
    }


def _databases_in_use(of_tags: Collection[str]) -> list[str]:
    """The aliases in ``DATABASES`` of all databases that ids depend on."""
    found = dict.fromkeys([*of_tags, *lease_databases()])
    return [alias for alias in found if alias in connections.settings]


# --- generators ---------------------------------------------------------------------


def _generator(settings: GeneratorSettings) -> Document:
    """The entry of a generator as the settings have it."""
    layout = settings.layout
    return {
        "alias": settings.alias,
        "namespace": settings.namespace,
        "layout": str(layout),
        "epoch": datetime.fromtimestamp(layout.epoch_us / 1e6, UTC).isoformat(),
        "exhausted_at": layout.exhausted_at.isoformat(),
        "exhausted_in": (layout.exhausted_at - datetime.now(UTC)).total_seconds(),
        "registry": registry_kind(settings.leases),
        "window": settings.window,
        "workers": None,
        "holders": [],
        "seen": True,
    }


def _read_workers(alias: str) -> Document:
    try:
        found = worker_map(alias)
    except NotSeenFromHere:
        return {"seen": False}
    states = {state.value: count for state, count in found.counts().items()}
    return {
        "workers": {"total": len(found.workers), **states},
        "holders": [_holder(each) for each in found.entries.values() if each.state in IN_USE],
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


# --- tags and databases ---------------------------------------------------------------


def _read_tags(alias: str, chosen: Collection[str] | None, most: int | None) -> Document:
    """The tags of a database: paused ones first, then the busiest."""
    if is_missing("LeafAlloc", alias):
        return {"total": 0, "paused": 0, "fetch_rate": 0.0, "list": []}
    every: QuerySet[LeafAlloc] = LeafAlloc.objects.using(alias)
    if chosen is not None:
        every = every.filter(pk__in=chosen)
    ranked = every.order_by("-paused", "-rate", "biz_tag")[:most]
    rows = [row for row in ranked if is_row_of(row.pk, alias)]
    found = outlooks(rows, alias).values()
    # A stored rate may be an old one.
    others = (every.aggregate(rate=Sum("rate"))["rate"] or 0.0) - sum(row.rate for row in rows)
    return {
        "total": every.count(),
        "paused": every.filter(paused=True).count(),
        "fetch_rate": sum(one.rate for one in found) + max(others, 0.0),
        "list": [_tag(one) for one in sorted(found, key=_rank)],
    }


def _rank(one: TagOutlook) -> tuple[bool, float, str]:
    return (not one.paused, -one.rate, one.tag)


def _tag(one: TagOutlook) -> Document:
    known = asdict(one)
    known["fetch_rate"] = known.pop("rate")
    return {**known, "state": state(one), "fetched_at": _iso(one.fetched_at)}


def _read_database(alias: str) -> Document:
    connection = connections[alias]
    began = perf_counter()
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        cursor.fetchone()
    seconds, home = perf_counter() - began, home_connection(alias)
    is_made = not missing_tables(home, ["Installation"])
    return {
        "seconds": seconds,
        # As clients of a service name it.
        "installation": DatabaseOwner(alias).current() if is_made else "",
        # The file beside a SQLite database is made on first use.
        "unmade": [] if connection.vendor == "sqlite" else missing_tables(home),
        "behind": missing_columns(home),
    }


def _iso(moment: datetime | None) -> str | None:
    if moment is None:
        return None
    return aware_moment(moment).astimezone(UTC).isoformat()


# --- asking ---------------------------------------------------------------------------


def _run(
    wanted: Mapping[str, Probe],
    databases: Collection[str],
    probes: Probes,
    *,
    max_age: float,
    within: float,
) -> dict[str, Outcome]:
    # In a transaction (of a test, say), or with a database in memory, another thread would
    # see other data than the caller.
    if any(connections[each].in_atomic_block or place_of(each).in_process for each in databases):
        return {name: _outcome_here(probe) for name, probe in wanted.items()}
    apart = {name: partial(_call_and_close, probe) for name, probe in wanted.items()}
    return probes.outcomes(apart, max_age=max_age, within=within)


def _outcome_here(probe: Probe) -> Outcome:
    try:
        return Outcome(value=_call(probe))
    except Exception as error:  # noqa: BLE001 - as in the threads of :class:`Probes`
        return Outcome(str(error))


def _call_and_close(probe: Probe) -> Any:
    try:
        return _call(probe)
    finally:
        connections.close_all()  # those of this thread


def _call(probe: Probe) -> Any:
    try:
        return probe()
    except DatabaseError as error:
        raise SegmentUnavailable(with_way_out(error)) from error
