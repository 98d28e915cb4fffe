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

from collections.abc import Callable, Collection
from datetime import UTC, datetime
from functools import partial
from typing import Any

from django.db import connections

from ...db.stores import catch_up
from ...process import handlers
from .asking import Answer, Questions, asked, must_be_asked_here
from .parts import (
    ask_database,
    ask_pool,
    ask_tags,
    ask_workers,
    databases_in_use,
    generator_entry,
    pool_alias,
    tag_databases_in_use,
)

__all__ = ["MOST_TAGS", "VERSION", "WITHIN", "Questions", "status"]

VERSION = 1
MOST_TAGS = 50
WITHIN = 5.0
"""Seconds."""
UNKNOWN_TAGS: dict[str, Any] = {"total": None, "fetch_rate": None, "list": []}

Document = dict[str, Any]


def status(
    *,
    generators: Collection[str] | None = None,
    tags: Collection[str] | None = None,
    most_tags: int | None = MOST_TAGS,
    within: float = WITHIN,
    max_age: float = 0.0,
    questions: Questions | None = None,
) -> Document:
    """The document above. Thread-safe.

    ``generators``: aliases, all unless given; ``tags``: those alone. ``most_tags`` bounds
    the list of each database (None: all). What is shared is waited for ``within``
    seconds in all. With ``questions`` of one's own, answers up to ``max_age`` seconds old
    are used again, and one that hangs is not asked a second time.

    Raises :class:`~django_idgen.settings.config.SettingsError`, and for nothing that is away.
    """
    settings = handlers.current_settings()
    for alias in generators or ():
        handlers.generator_settings(alias)
    aliases = [alias for alias in settings.generators if generators is None or alias in generators]
    for alias in tag_databases_in_use():
        catch_up(alias)  # here, where it can be told whether the caller has the file in use
    pool = pool_alias()
    wanted: dict[str, Callable[[], Any]] = {
        **{f"generator {alias}": partial(ask_workers, alias) for alias in aliases},
        **{
            f"tags {alias}": partial(ask_tags, alias, tags, most_tags)
            for alias in tag_databases_in_use()
        },
        **{f"database {alias}": partial(ask_database, alias) for alias in databases_in_use()},
        **({} if pool is None else {"pool": ask_pool}),
    }
    answers = _answers(wanted, questions or Questions(), max_age=max_age, within=within)
    return {
        "version": VERSION,
        "at": datetime.now(UTC).isoformat(),
        "generators": [
            _with(generator_entry(settings.generators[each]), answers[f"generator {each}"])
            for each in aliases
        ],
        "tags": [
            _with({"database": each, **UNKNOWN_TAGS}, answers[f"tags {each}"])
            for each in tag_databases_in_use()
        ],
        "pool": None if pool is None else _with({"alias": pool, "memory": None}, answers["pool"]),
        "databases": [
            _with(_database(each), answers[f"database {each}"]) for each in databases_in_use()
        ],
    }


def _database(alias: str) -> Document:
    return {"alias": alias, "vendor": connections[alias].vendor, "seconds": None, "behind": []}


def _with(entry: Document, answer: Answer) -> Document:
    return {**entry, **(answer.value or {}), "error": answer.error}


def _answers(
    wanted: dict[str, Callable[[], Any]], questions: Questions, *, max_age: float, within: float
) -> dict[str, Answer]:
    if not must_be_asked_here(set(databases_in_use())):
        return questions.ask(wanted, max_age=max_age, within=within)
    return {name: _asked_here(question) for name, question in wanted.items()}


def _asked_here(question: Callable[[], Any]) -> Answer:
    try:
        return Answer(asked(question), None)
    except Exception as error:  # noqa: BLE001 - as a thread of ours would
        return Answer(None, str(error))
