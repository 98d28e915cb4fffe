"""The rows of ``LeafAlloc`` in an in-memory SQLite database.

The marks of such a database stand in this process' memory. Its rows are looked at
for a step or a ``max_id`` set there, and written when ``migrate`` is done: a test
runner may hand a copy of the database to other processes, which have to go on
where the migrations left off. They are written when a request has ended, too, to be
looked at; but what a ``TestCase`` used is rolled back with it, and shows up in no other.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.conf import settings
from django.core.signals import request_finished
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.models.signals import post_migrate
from django.utils.timezone import get_default_timezone, make_naive

from .connection import Place, place_of

__all__ = ["FetchedRow", "Row", "catch_up", "changed", "now", "row_of", "watch"]

_changed: dict[str, dict[str, FetchedRow]] = {}


class Row(NamedTuple):
    """What a row of ``leaf_alloc`` asks for."""

    max_id: int
    step: int
    paused: bool = False


class FetchedRow(NamedTuple):
    """What a row of ``leaf_alloc`` is to say: its mark, and this process' last fetch."""

    tag: str
    max_id: int
    step: int
    holder: str
    fetched_at: str
    fetched_ids: int


def row_of(alias: str, tag: str) -> Row | None:
    """What the row of ``tag`` asks for, if the calling thread has the database open."""
    raw = connections[alias].connection
    if not isinstance(raw, sqlite3.Connection):
        return None
    try:
        # All columns, since "paused" is not there before the migration.
        cursor = raw.execute("SELECT * FROM leaf_alloc WHERE biz_tag = ?", (tag,))
        found = cursor.fetchone()
    except sqlite3.Error:
        return None  # no table yet, or another thread is about to change it
    if found is None:
        return None
    values = dict(zip([column[0] for column in cursor.description], found, strict=True))
    cursor.close()
    return Row(int(values["max_id"]), int(values["step"]), bool(values.get("paused")))


def changed(alias: str, row: FetchedRow) -> None:
    """The row of a tag is to be brought up to its mark by :func:`catch_up`."""
    # Told by name: production code must not import the test frameworks.
    blocks = getattr(connections[alias], "atomic_blocks", ())
    if any(getattr(block, "_from_testcase", False) for block in blocks):
        return  # it is rolled back when the test ends
    _changed.setdefault(_name(alias), {})[row.tag] = row


def catch_up(alias: str) -> None:
    """Write what has changed, unless the calling thread is in a transaction."""
    rows = _changed.get(_name(alias))
    if not rows or place_of(alias) is not Place.MEMORY:
        return
    raw = connections[alias].connection
    if not isinstance(raw, sqlite3.Connection) or raw.in_transaction:
        return
    try:
        _write(raw, list(rows.values()))
    except sqlite3.Error:
        return  # no table: nothing to hand on
    rows.clear()


def watch() -> None:
    """Write them when a request, and ``migrate``, has ended (called when the app is ready)."""
    request_finished.connect(_on_request_finished, dispatch_uid="django_idgen")
    post_migrate.connect(_on_migrated, dispatch_uid="django_idgen.rows")


def now() -> str:
    """The time as the columns of our tables have it, and Django reads it."""
    moment = datetime.now(UTC)
    if not settings.USE_TZ:
        moment = make_naive(moment, get_default_timezone())
    return moment.strftime("%Y-%m-%d %H:%M:%S.%f")


def _write(db: sqlite3.Connection, rows: Iterable[FetchedRow]) -> None:
    found = list(rows)
    db.executemany(
        "INSERT INTO leaf_alloc (biz_tag, max_id, step, description, update_time) "
        "VALUES (?, ?, ?, '', ?) ON CONFLICT (biz_tag) DO UPDATE SET "
        "max_id = max(max_id, excluded.max_id), update_time = excluded.update_time",
        [(row.tag, row.max_id, row.step, now()) for row in found],
    )
    columns = {name for _, name, *_ in db.execute("PRAGMA table_info(leaf_alloc)")}
    if "fetched_at" in columns:  # not before the migration
        db.executemany(
            "UPDATE leaf_alloc SET holder = ?, fetched_at = ?, fetched_ids = ? "
            "WHERE biz_tag = ? AND ifnull(fetched_at, '') <= ?",
            [(r.holder, r.fetched_at, r.fetched_ids, r.tag, r.fetched_at) for r in found],
        )


def _on_request_finished(**_kwargs: Any) -> None:
    for alias in connections.settings:
        if connections.settings[alias]["ENGINE"].endswith("sqlite3"):
            catch_up(alias)


def _on_migrated(*, using: str = DEFAULT_DB_ALIAS, **_kwargs: Any) -> None:
    # As Django's own receivers: who sends the signal by hand may say nothing else.
    catch_up(using)


def _name(alias: str) -> str:
    return str(connections.settings[alias].get("NAME") or "")
