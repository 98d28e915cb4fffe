"""Who was lent which worker id: a table of the marks file, made where it is missing."""

from __future__ import annotations

import sqlite3

__all__ = ["MOST", "drop_old", "last_before", "lent_at", "note"]

MOST = 100
"""Rows that are kept of a worker id."""


def note(
    db: sqlite3.Connection, namespace: str, worker: int, start: int, holder: str, lent_us: int
) -> None:
    """Write that ``holder`` was lent ``worker`` from tick ``start`` on, at ``lent_us`` (µs)."""
    # Not with the other tables: a file of an earlier version is taken as it is.
    db.execute(
        "CREATE TABLE IF NOT EXISTS terms (namespace TEXT NOT NULL, worker INTEGER NOT NULL, "
        "start INTEGER NOT NULL, holder TEXT NOT NULL, lent INTEGER NOT NULL, "
        "PRIMARY KEY (namespace, worker, start)) WITHOUT ROWID"
    )
    # Of two that start alike the first stamped nothing.
    row = (namespace, worker, start, holder, lent_us)
    db.execute("INSERT OR REPLACE INTO terms VALUES (?, ?, ?, ?, ?)", row)
    db.execute(
        "DELETE FROM terms WHERE namespace = ? AND worker = ? AND start <= (SELECT start "
        "FROM terms WHERE namespace = ? AND worker = ? ORDER BY start DESC LIMIT 1 OFFSET ?)",
        (namespace, worker, namespace, worker, MOST),
    )


def last_before(
    db: sqlite3.Connection, namespace: str, worker: int, tick: int
) -> tuple[int, str, int] | None:
    """Start, holder and time of the last one that began at ``tick`` or before."""
    if not _is_there(db):
        return None
    row = db.execute(
        "SELECT start, holder, lent FROM terms WHERE namespace = ? AND worker = ? "
        "AND start <= ? ORDER BY start DESC LIMIT 1",
        (namespace, worker, tick),
    ).fetchone()
    return None if row is None else (int(row[0]), str(row[1]), int(row[2]))


def lent_at(db: sqlite3.Connection, namespace: str) -> dict[tuple[int, int], int]:
    """When each lease of the history was lent, by worker id and start."""
    if not _is_there(db):
        return {}
    rows = db.execute("SELECT worker, start, lent FROM terms WHERE namespace = ?", (namespace,))
    return {(worker, start): lent for worker, start, lent in rows}


def drop_old(db: sqlite3.Connection, before_us: int) -> int:
    """Delete those whose worker id was lent on before ``before_us``; returns how many."""
    if not _is_there(db):
        return 0
    return db.execute(
        "DELETE FROM terms AS old WHERE EXISTS (SELECT 1 FROM terms AS later WHERE "
        "later.namespace = old.namespace AND later.worker = old.worker "
        "AND later.start > old.start AND later.lent < ?)",
        (before_us,),
    ).rowcount


def _is_there(db: sqlite3.Connection) -> bool:
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'terms'"
    return db.execute(query).fetchone() is not None
