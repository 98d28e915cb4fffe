"""How everything stands, as one document: ``manage.py idgen_status``, and the metrics.

Nothing here takes an id or a worker id. Databases, Redis and registries are asked in
threads of their own, and what doesn't answer in time is said to be so; the rest goes on.

::

    {"version": 1, "at": "2026-11-22T01:02:03+00:00",
     "generators": [
       {"alias", "namespace", "layout", "epoch", "exhausted_at", "exhausted_in": seconds,
        "registry", "window": seconds,
        "seen": whether worker ids can be seen from here,
        "workers": {"total", "free", "held", "lapsing", "lapsed", "reserved", "unknown"} or null,
        "holders": [{"worker", "state", "holder", "acquired_at", "seen_at", "until",
                     "window_left": seconds, "clock_offset": seconds}],
        "unseen": [{"first", "last", "why"}],
        "error": why it could not be asked, or null}],
     "tags": [
       {"database", "total": tags there, "fetch_rate": ids a second of all of them,
        "list": [{"tag", "database", "max_id", "step", "paused", "fetch_rate", "holder",
                  "fetched_at", "fetched_ids", "segment_left": seconds, "ids_left",
                  "range_left": seconds, "pooled": ids, "pool_left": seconds}],
        "error"}],
     "pool": null or {"alias", "memory": bytes, "error"},
     "databases": [{"alias", "vendor", "seconds": to answer, "behind": [missing columns],
                    "error"}]}

What is not known is null. Moments are in ISO 8601, UTC. Names may be added, and none will
change its meaning as long as ``version`` is the same.
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
from django.utils.timezone import make_aware

from ..core.clock import is_aware
from ..core.errors import NotSeenFromHere, SegmentUnavailable
from ..db.connection import home_connection, place_of
from ..db.tables import missing_columns, missing_tables
from ..models import LeafAlloc
from ..process import handlers
from ..process.factory import registry_kind
from ..process.tags import is_row_of, source_behind_pool, source_in_use
from ..settings.config import DEFAULT_ALIAS, GeneratorSettings
from .readiness import Ask, Outcome, Probes
from .tags.outlook import TagOutlook, outlooks
from .worker_map import WorkerEntry, WorkerState, worker_map

__all__ = ["MOST_TAGS", "VERSION", "WITHIN", "status"]

VERSION = 1
MOST_TAGS = 50
WITHIN = 5.0
"""Seconds."""
UNKNOWN_TAGS: dict[str, Any] = {"total": None, "fetch_rate": None, "list": []}
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

    ``generators``: aliases, all unless given; ``tags``: those alone. ``most_tags`` bounds
    the list of each database (None: all). What is shared is waited for ``within``
    seconds in all. With your own ``probes``, answers up to ``max_age`` seconds old
    are used again, and one that hangs is not asked a second time.

    Raises :class:`SettingsError`, and nothing where something does not answer.
    """
    settings = handlers.current_settings()
    for alias in generators or ():
        handlers.generator_settings(alias)
    aliases = [alias for alias in settings.generators if generators is None or alias in generators]
    pool = _pool_alias()
    wanted: dict[str, Ask] = {
        **{f"generator {alias}": partial(_ask_workers, alias) for alias in aliases},
        **{
            f"tags {alias}": partial(_ask_tags, alias, tags, most_tags)
            for alias in _tag_databases_in_use()
        },
        **{f"database {alias}": partial(_ask_database, alias) for alias in _databases_in_use()},
        **({} if pool is None else {"pool": _ask_pool}),
    }
    answers = _answers(wanted, probes or Probes(), max_age=max_age, within=within)
    return {
        "version": VERSION,
        "at": datetime.now(UTC).isoformat(),
        "generators": [
            _with(_generator_entry(settings.generators[each]), answers[f"generator {each}"])
            for each in aliases
        ],
        "tags": [
            _with({"database": each, **UNKNOWN_TAGS}, answers[f"tags {each}"])
            for each in _tag_databases_in_use()
        ],
        "pool": None if pool is None else _with({"alias": pool, "memory": None}, answers["pool"]),
        "databases": [
            _with(_database(each), answers[f"database {each}"]) for each in _databases_in_use()
        ],
    }


def _database(alias: str) -> Document:
    return {"alias": alias, "vendor": connections[alias].vendor, "seconds": None, "behind": []}


def _with(entry: Document, answer: Outcome) -> Document:
    return {**entry, **(answer.value or {}), "error": answer.error}


# --- what there is ------------------------------------------------------------------


def _tag_databases_in_use() -> list[str]:
    """The aliases of the databases that tags are fetched from; none if they are elsewhere."""
    return list(source_behind_pool().databases())


def _databases_in_use() -> list[str]:
    """The aliases of all databases that ids depend on, of those in ``DATABASES``."""
    found = dict.fromkeys(_tag_databases_in_use())
    for entry in handlers.current_settings().generators.values():
        found |= dict.fromkeys(_databases_of(entry.leases.options))
    return [alias for alias in found if alias in connections.settings]


def _databases_of(options: Mapping[str, Any]) -> list[str]:
    nested = [each.get("OPTIONS", {}) for each in options.values() if isinstance(each, Mapping)]
    if not nested:
        return [str(options.get("database", DEFAULT_ALIAS))]
    return [alias for each in nested for alias in _databases_of(each)]


def _pool_alias() -> str | None:
    """The alias in ``CACHES`` of the pool; None where there is none."""
    source: Any = source_in_use()
    return str(source.alias) if source.is_pool else None


# --- generators ---------------------------------------------------------------------


def _generator_entry(settings: GeneratorSettings) -> Document:
    """What settings say of a generator. Asks nothing."""
    layout = settings.layout
    epoch = datetime.fromtimestamp(layout.epoch_us / 1e6, UTC)
    return {
        "alias": settings.alias,
        "namespace": settings.namespace,
        "layout": str(layout),
        "epoch": epoch.isoformat(),
        "exhausted_at": layout.exhausted_at.isoformat(),
        "exhausted_in": (layout.exhausted_at - datetime.now(UTC)).total_seconds(),
        "registry": registry_kind(settings.leases),
        "window": settings.window,
        "workers": None,
        "holders": [],
        "unseen": [],
        "seen": True,
        "error": None,
    }


def _ask_workers(alias: str) -> Document:
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


def _ask_tags(alias: str, chosen: Collection[str] | None, most: int | None) -> Document:
    """The tags of a database, those first that are used the most."""
    if missing_tables(home_connection(alias), ["LeafAlloc"]):
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


def _ask_database(alias: str) -> Document:
    """Whether it answers, how fast, and what of our tables it lacks."""
    connection = connections[alias]
    began = perf_counter()
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        cursor.fetchone()
    return {"seconds": perf_counter() - began, "behind": _behind(alias)}


def _behind(alias: str) -> list[str]:
    """Columns that a migration has yet to add."""
    return missing_columns(home_connection(alias))


def _ask_pool() -> Document:
    """How much memory the pool's Redis uses (bytes)."""
    source: Any = source_in_use()
    return {"memory": source.memory()}


def _iso(moment: datetime | None) -> str | None:
    if moment is None:
        return None
    # Without time zones a row has the project's time.
    return (moment if is_aware(moment) else make_aware(moment)).astimezone(UTC).isoformat()


# --- asking ---------------------------------------------------------------------------


def _answers(
    wanted: Mapping[str, Ask], probes: Probes, *, max_age: float, within: float
) -> dict[str, Outcome]:
    if not _must_be_asked_here(set(_databases_in_use())):
        apart = {name: partial(_asked_apart, ask) for name, ask in wanted.items()}
        return probes.outcomes(apart, max_age=max_age, within=within)
    return {name: _asked_here(ask) for name, ask in wanted.items()}


def _must_be_asked_here(aliases: set[str]) -> bool:
    """Whether another thread would see other databases than the calling one does.

    So it is in a transaction, as tests have around them, and with a database in memory.
    """
    return any(connections[each].in_atomic_block or place_of(each).in_process for each in aliases)


def _asked_apart(ask: Ask) -> Any:
    try:
        return _asked(ask)
    finally:
        connections.close_all()  # those of this thread


def _asked_here(ask: Ask) -> Outcome:
    try:
        return Outcome(value=_asked(ask))
    except Exception as error:  # noqa: BLE001 - as in a thread of :class:`Probes`
        return Outcome(str(error))


def _asked(ask: Ask) -> Any:
    """What it returns; a database's error says what to do."""
    try:
        return ask()
    except DatabaseError as error:
        raise SegmentUnavailable(
            f"{' '.join(str(error).split())} If a table or a column is missing, run 'manage.py "
            f"migrate django_idgen'."
        ) from error
