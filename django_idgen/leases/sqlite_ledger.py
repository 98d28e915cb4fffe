"""The ledger of a namespace in the marks file beside a SQLite database."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any, TypeVar

from ..core.errors import LayoutError, RegistryUnavailable
from ..core.lease import Namespace
from ..core.ledger import Change, Stored, Successor, era_words, eras_from
from ..core.lending import Record, opened_record
from ..core.succession import namespace_of
from ..db.forking import no_fork
from ..db.sqlite.marks import MarksError, MarksFile
from ..db.sqlite.marks_seed import identity_of
from ..db.stores import caller_of, mirror_of
from .sqlite import SqliteBook

__all__ = ["SqliteLedger"]

T = TypeVar("T")


class SqliteLedger:
    """A namespace in ``marks``, those of the SQLite database ``alias``.

    A :class:`Ledger`. ``read_now_us`` gives the time in µs since 1970.
    """

    def __init__(
        self,
        namespace: Namespace,
        *,
        marks: MarksFile,
        alias: str,
        read_now_us: Callable[[], int],
    ) -> None:
        self.namespace = namespace
        self.marks = marks
        self.place = f"the marks file of database {alias!r}"
        self.key: tuple[str, ...] = ("sqlite", str(marks.path), namespace.name)
        self._alias = alias
        self._read_now_us = read_now_us

    def read(self) -> Stored | None:
        """See :meth:`Ledger.read`."""
        return self._peek(self._read)

    def _read(self, db: sqlite3.Connection) -> Stored | None:
        if not _has(db, "namespaces"):
            return None
        book = self._book(db)
        record = book.record()
        return None if record is None else self._stored(db, book, record)

    def _peek(self, job: Callable[[sqlite3.Connection], T]) -> T | None:
        # Not by a job of the marks', which would make the file, or take it over.
        if not self.marks.path.exists():
            return None
        uri = f"{self.marks.path.as_uri()}?mode=ro"
        try:
            with no_fork(), closing(sqlite3.connect(uri, uri=True, timeout=5.0)) as db:
                return job(db)
        except sqlite3.Error as error:
            raise RegistryUnavailable(
                f"The id marks in {str(self.marks.path)!r} can't be read: {error}."
            ) from error

    def rewrite(self, change: Change) -> Stored:
        """See :meth:`Ledger.rewrite`."""
        try:
            stored = self.marks.run(lambda db: self._rewrite(db, change), compared=True)
        except MarksError as error:
            raise RegistryUnavailable(str(error)) from error
        mirror = mirror_of(self.marks)
        mirror.leases_changed()
        mirror.catch_up(caller_of(self._alias, mirror))
        return stored

    def entered(self) -> bool:
        """True: the file is what lends."""
        return True

    def is_whole(self) -> bool:
        """True: nobody else has any of it."""
        return True

    def enter(self) -> None:
        """Nothing to do."""

    def installation(self) -> str:
        """Whose ledger it is."""
        return self._peek(identity_of) or ""

    # --- in the transaction ---------------------------------------------------

    def _book(self, db: sqlite3.Connection) -> SqliteBook:
        return SqliteBook(db, self.namespace.name, self._read_now_us())

    def _stored(self, db: sqlite3.Connection, book: SqliteBook, record: Record) -> Stored:
        return Stored(
            _parsed(record.fingerprint),
            record.generation,
            record.fence,
            max(record.highest_until, record.fence, book.highest_until()),
            record.largest_window,
            eras_from(self._eras(db)),
        )

    def _rewrite(self, db: sqlite3.Connection, change: Change) -> Stored:
        book, now_us = self._book(db), self._read_now_us()
        found = book.record()
        space = self.namespace
        if found is not None and found.fingerprint:
            space = namespace_of(space, _parsed(found.fingerprint))
        record = opened_record(book, space, space.tick_at(now_us))
        record = replace(record, largest_window=max(record.largest_window, space.reach_ticks))
        stored = replace(self._stored(db, book, record), lead=self._lead(db, space))
        successor = change(stored, now_us)
        record = self._succeed(db, book, record, successor)
        return self._stored(db, book, record)

    def _lead(self, db: sqlite3.Connection, space: Namespace) -> int:
        rows = db.execute("SELECT until, seen FROM leases WHERE namespace = ?", (space.name,))
        return max((until - space.tick_at(seen) for until, seen in rows), default=0)

    def _succeed(
        self, db: sqlite3.Connection, book: SqliteBook, record: Record, successor: Successor
    ) -> Record:
        name, fence = self.namespace.name, successor.fence
        if successor.moved:
            # Not deleted: the mirror would keep what they said.
            db.execute(
                "UPDATE leases SET token = '', start = ?, until = ? WHERE namespace = ?",
                (fence, fence, name),
            )
            if _has(db, "terms"):  # who was lent what: told by ticks that mean nothing now
                db.execute("DELETE FROM terms WHERE namespace = ?", (name,))
        elif successor.lowered:
            db.execute(
                "UPDATE leases SET token = '', start = min(start, ?), until = min(until, ?) "
                "WHERE namespace = ?",
                (fence, fence, name),
            )
        made = replace(
            record,
            fingerprint=json.dumps(dict(successor.fingerprint), sort_keys=True, default=str),
            generation=book.next_generation(),
            fence=fence,
            largest_window=successor.longest,
            workers_made=book.count(),
            highest_until=fence,
        )
        book.save_record(made)
        self._forget_incarnation(db)
        self._save_eras(db, successor)
        return made

    def _forget_incarnation(self, db: sqlite3.Connection) -> None:
        if _has(db, "charters"):
            db.execute("DELETE FROM charters WHERE namespace = ?", (self.namespace.name,))

    def _eras(self, db: sqlite3.Connection) -> Any:
        if not _has(db, "eras"):
            return None
        query = "SELECT words FROM eras WHERE namespace = ?"
        row = db.execute(query, (self.namespace.name,)).fetchone()
        return None if row is None else json.loads(row[0])

    def _save_eras(self, db: sqlite3.Connection, successor: Successor) -> None:
        db.execute(
            "CREATE TABLE IF NOT EXISTS eras (namespace TEXT PRIMARY KEY, words TEXT NOT NULL)"
        )
        words = json.dumps([era_words(era) for era in successor.eras])
        db.execute("INSERT OR REPLACE INTO eras VALUES (?, ?)", (self.namespace.name, words))


def _has(db: sqlite3.Connection, table: str) -> bool:
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    return db.execute(query, (table,)).fetchone() is not None


def _parsed(text: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise LayoutError(f"What is stored of the settings can't be read: {text[:80]!r}.")
    return found
