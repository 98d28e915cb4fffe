"""The tables of a marks file, and what a new file takes over from its database."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field

from ...core.book import NOT_WHOLE
from ...core.lease import PROTOCOL_VERSION
from ...core.segment import MAX_ID

__all__ = [
    "FAILOVER_SKIP",
    "Seed",
    "identity_of",
    "make_tables",
    "merge_namespaces",
    "merge_segments",
    "snapshot_of",
]

FAILOVER_SKIP = 3
"""Steps that are skipped when a tag's mark is taken from a mirror."""

_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS installation (key INTEGER PRIMARY KEY CHECK (key = 1), "
    "identity TEXT NOT NULL, protocol INTEGER NOT NULL, generation INTEGER NOT NULL, "
    "opened TEXT NOT NULL, tags_made INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS namespaces (name TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, "
    "generation INTEGER NOT NULL, fence INTEGER NOT NULL, largest_window INTEGER NOT NULL, "
    "workers_made INTEGER NOT NULL, highest_until INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS leases (namespace TEXT NOT NULL, worker INTEGER NOT NULL, "
    "token TEXT NOT NULL, start INTEGER NOT NULL, until INTEGER NOT NULL, "
    "generation INTEGER NOT NULL, holder TEXT NOT NULL, seen INTEGER NOT NULL, "
    "PRIMARY KEY (namespace, worker)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS segments (tag TEXT PRIMARY KEY, max_id INTEGER NOT NULL, "
    "step INTEGER NOT NULL) WITHOUT ROWID",
)


@dataclass(frozen=True, slots=True)
class Seed:
    """What a database knows of its marks. Frozen."""

    identity: str | None = None
    """The installation's; ``None`` if the database was never used with ids."""
    segments: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """By tag: the first id not handed out, and the largest step in use."""
    namespaces: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """By name, in ticks: the end of the latest window, and the largest window ever used."""
    generations: Mapping[str, int] = field(default_factory=dict)
    """By name: which generation of a namespace the database knows of, where it says so."""
    readable: bool = True
    """False if the database could not be asked. A new file is then not begun: it might
    give out again what the database would have told of."""


def identity_of(db: sqlite3.Connection) -> str | None:
    """The installation's identity; ``None`` if the file is new, or that row is gone."""
    made = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'installation'").fetchone()
    row = db.execute("SELECT identity FROM installation").fetchone() if made else None
    return None if row is None else str(row[0])


def make_tables(db: sqlite3.Connection, identity: str) -> None:
    """Make what is missing, under ``identity``."""
    for statement in _SCHEMA:
        db.execute(statement)
    # A row that was deleted by hand comes back knowing what the other tables know.
    (generation,) = db.execute("SELECT ifnull(max(generation), 0) FROM leases").fetchone()
    (tags,) = db.execute("SELECT count(*) FROM segments").fetchone()
    names = [name for (name,) in db.execute("SELECT name FROM namespaces ORDER BY name")]
    db.execute(
        "INSERT INTO installation VALUES (1, ?, ?, ?, ?, ?)",
        (identity, PROTOCOL_VERSION, generation, json.dumps(names), tags),
    )


def merge_segments(db: sqlite3.Connection, seed: Seed, *, anyway: bool) -> None:
    """Raise tags past what ``seed`` knows of them, where that is more or ``anyway``."""
    own = dict(db.execute("SELECT tag, max_id FROM segments"))
    # Without an identity nobody ever took from a file: the rows are not behind.
    steps = FAILOVER_SKIP if seed.identity is not None else 0
    for tag, (max_id, step) in seed.segments.items():
        # The mirror is never ahead of its file: if it is, the file is an old copy.
        if anyway or max_id > own.get(tag, 1):
            skipped = min(max_id + steps * step, MAX_ID)
            db.execute(
                "INSERT INTO segments VALUES (?, ?, ?) ON CONFLICT (tag) "
                "DO UPDATE SET max_id = max(max_id, excluded.max_id)",
                (tag, skipped, step),
            )
    db.execute("UPDATE installation SET tags_made = (SELECT count(*) FROM segments)")


def merge_namespaces(db: sqlite3.Connection, seed: Seed, *, anyway: bool) -> None:
    """Count namespaces as lost where ``seed`` knows of later windows, or ``anyway``."""
    query = "SELECT name, highest_until, generation FROM namespaces"
    own = {name: (until, generation) for name, until, generation in db.execute(query)}
    for name, (until, window) in seed.namespaces.items():
        highest, generation = own.get(name, (0, 0))
        # A mirror that lags by a generation may count in the ticks of another layout.
        lags = seed.generations.get(name, generation) < generation
        if anyway or (until > highest and not lags):
            # More workers than there are rows: the next to open it sees the loss,
            # and lays the fence with the settings that are not known here.
            db.execute(
                "INSERT INTO namespaces VALUES (?, '', 0, 0, ?, ?, ?) "
                "ON CONFLICT (name) DO UPDATE SET "
                "largest_window = max(largest_window, excluded.largest_window), "
                "workers_made = excluded.workers_made, "
                "highest_until = max(highest_until, excluded.highest_until)",
                (name, window, NOT_WHOLE, until),
            )


def snapshot_of(db: sqlite3.Connection) -> Seed:
    """What a mirror of the file would say."""
    segments = db.execute("SELECT tag, max_id, step FROM segments")
    namespaces = db.execute("SELECT name, highest_until, largest_window FROM namespaces")
    return Seed(
        identity=identity_of(db),
        segments={tag: (max_id, step) for tag, max_id, step in segments},
        namespaces={name: (until, window) for name, until, window in namespaces},
    )
