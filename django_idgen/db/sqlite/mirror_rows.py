"""The SQL of a mirror: what is read from a marks file, and written to our tables.

Plain ``sqlite3``: the connection may be the caller's, where nothing that Django
counts or logs is to be seen of it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.conf import settings
from django.utils.timezone import get_default_timezone, make_naive

from ...core.lease import PROTOCOL_VERSION

__all__ = [
    "FetchedRow",
    "Row",
    "Rows",
    "dump",
    "generations_of",
    "identity",
    "namespaces_of",
    "now",
    "read_row",
    "segments_of",
    "write",
    "write_rows",
    "written",
]

Rows = dict[str, list[Any]]
"""Rows of the marks file by its tables."""


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
    holder: str = ""
    fetched_at: str | None = None
    fetched_ids: int = 0


def read_row(db: sqlite3.Connection, tag: str) -> Row | None:
    """The row of ``tag`` as ``db`` sees it."""
    # All columns, since "paused" is not there before the migration.
    cursor = db.execute("SELECT * FROM leaf_alloc WHERE biz_tag = ?", (tag,))
    found = cursor.fetchone()
    if found is None:
        return None
    values = dict(zip([column[0] for column in cursor.description], found, strict=True))
    cursor.close()
    return Row(int(values["max_id"]), int(values["step"]), bool(values.get("paused")))


def write_rows(db: sqlite3.Connection, rows: Iterable[FetchedRow]) -> None:
    """Bring rows of ``leaf_alloc`` up to ``rows``; the step only of new ones.

    Who fetched last is whoever did so later, whichever process writes first.
    """
    found = list(rows)
    db.executemany(
        "INSERT INTO leaf_alloc (biz_tag, max_id, step, description, update_time) "
        "VALUES (?, ?, ?, '', ?) ON CONFLICT (biz_tag) DO UPDATE SET "
        "max_id = max(max_id, excluded.max_id), update_time = excluded.update_time",
        [(row.tag, row.max_id, row.step, now()) for row in found],
    )
    fetched = [row for row in found if row.fetched_at]
    if fetched and "fetched_at" in _columns(db, "leaf_alloc"):  # not before the migration
        db.executemany(
            "UPDATE leaf_alloc SET holder = ?, fetched_at = ?, fetched_ids = ? "
            "WHERE biz_tag = ? AND ifnull(fetched_at, '') <= ?",
            [(r.holder, r.fetched_at, r.fetched_ids, r.tag, r.fetched_at) for r in fetched],
        )


def _columns(db: sqlite3.Connection, table: str) -> set[str]:
    return {name for _, name, *_ in db.execute(f"PRAGMA table_info({table})")}


def write(db: sqlite3.Connection, rows: Rows) -> None:
    db.execute("BEGIN IMMEDIATE")
    try:
        _write_installation(db, rows)
        _write_tags(db, rows)
        _write_leases(db, rows)
        _write_history(db, rows)
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def _tables(db: sqlite3.Connection) -> set[str]:
    return {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def identity(db: sqlite3.Connection) -> str | None:
    if "django_idgen_installation" not in _tables(db):
        return None
    row = db.execute("SELECT identity FROM django_idgen_installation").fetchone()
    return None if row is None else str(row[0])


def segments_of(db: sqlite3.Connection) -> dict[str, tuple[int, int]]:
    if "leaf_alloc" not in _tables(db):
        return {}
    rows = db.execute("SELECT biz_tag, max_id, step FROM leaf_alloc")
    return {tag: (max_id, step) for tag, max_id, step in rows}


def namespaces_of(db: sqlite3.Connection) -> dict[str, tuple[int, int]]:
    if not {"django_idgen_namespace", "django_idgen_workerlease"} <= _tables(db):
        return {}
    rows = db.execute(
        "SELECT name, largest_window, max(highest_until, (SELECT ifnull(max(until), 0) "
        "FROM django_idgen_workerlease WHERE namespace = name)) FROM django_idgen_namespace"
    )
    return {name: (until, window) for name, window, until in rows}


def generations_of(db: sqlite3.Connection) -> dict[str, int]:
    if "django_idgen_namespace" not in _tables(db):
        return {}
    return dict(db.execute("SELECT name, generation FROM django_idgen_namespace").fetchall())


def dump(db: sqlite3.Connection, tags: Iterable[str], leases: bool) -> Rows:
    installation = "SELECT identity, protocol, opened FROM installation"
    segments = "SELECT tag, max_id, step FROM segments WHERE tag = ?"
    rows: Rows = {
        "installation": db.execute(installation).fetchall(),
        "segments": [FetchedRow(*row) for tag in tags for row in db.execute(segments, (tag,))],
        "namespaces": [],
        "leases": [],
    }
    if leases:
        rows["namespaces"] = db.execute(
            "SELECT name, fingerprint, generation, fence, largest_window, workers_made, "
            "highest_until FROM namespaces"
        ).fetchall()
        rows["leases"] = db.execute(
            "SELECT namespace, worker, token, start, until, generation, holder FROM leases"
        ).fetchall()
    return rows


def _write_installation(db: sqlite3.Connection, rows: Rows) -> None:
    if "django_idgen_installation" in _tables(db):
        columns = ("key", "identity", "protocol", "namespaces")
        written = [
            (1, identity, protocol, json.dumps({name: {} for name in json.loads(opened)}))
            for identity, protocol, opened in rows["installation"]
        ]
        _upsert(db, "django_idgen_installation", columns, written)


def _write_tags(db: sqlite3.Connection, rows: Rows) -> None:
    if "leaf_alloc" in _tables(db):
        write_rows(db, rows["segments"])


def _write_leases(db: sqlite3.Connection, rows: Rows) -> None:
    tables = _tables(db)
    if "django_idgen_namespace" in tables:
        _upsert(
            db,
            "django_idgen_namespace",
            (
                "name",
                "fingerprint",
                "generation",
                "fence",
                "largest_window",
                "workers_made",
                "highest_until",
                "server",
                "protocol",
            ),
            ((*row, "", PROTOCOL_VERSION) for row in rows["namespaces"]),
        )
    if "django_idgen_workerlease" in tables:
        moment = now()
        _upsert(
            db,
            "django_idgen_workerlease",
            (
                "id",
                "namespace",
                "worker",
                "token",
                "start",
                "until",
                "generation",
                "holder",
                "acquired_at",
                "seen_at",
                "protocol",
            ),
            (
                (f"{row[0]}/{row[1]}", *row, moment, moment, PROTOCOL_VERSION)
                for row in rows["leases"]
            ),
        )


def _write_history(db: sqlite3.Connection, rows: Rows) -> None:
    if "django_idgen_history" in _tables(db):
        db.executemany(
            "INSERT INTO django_idgen_history (tag, start, stop, delta, holder, taken_at) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            rows.get("history", ()),
        )


def now() -> str:
    """The time as our tables have it."""
    return written(datetime.now(UTC))


def written(moment: datetime) -> str:
    """``moment`` (UTC) as the columns of our tables have it, and Django reads it."""
    if not settings.USE_TZ:
        moment = make_naive(moment, get_default_timezone())
    return moment.strftime("%Y-%m-%d %H:%M:%S.%f")


def _upsert(
    db: sqlite3.Connection, table: str, columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]
) -> None:
    # "acquired_at" stays as it was first written; everything else follows the marks.
    kept = {columns[0], "acquired_at"}
    changes = ", ".join(f"{name} = excluded.{name}" for name in columns if name not in kept)
    places = ", ".join("?" * len(columns))
    statement = (
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places}) "  # noqa: S608 - constants
        f"ON CONFLICT ({columns[0]}) DO UPDATE SET {changes}"
    )
    db.executemany(statement, rows)
