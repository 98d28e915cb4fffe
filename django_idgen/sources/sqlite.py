"""Segments from the marks file beside a SQLite database."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TypeVar

from ..core.errors import SegmentExhausted, SegmentUnavailable, TagPaused
from ..core.segment import MAX_ID, STEP, Demand, Segment, check_step, check_tag
from ..core.source import Source
from ..db.sqlite.marks import MarksError, MarksFile, MarksLost

__all__ = ["SqliteSource"]

T = TypeVar("T")

_PAUSED = "CREATE TABLE IF NOT EXISTS paused (tag TEXT PRIMARY KEY) WITHOUT ROWID"
"""Made with the first pause: files of the version before have none."""


class SqliteSource(Source):
    """A source for the processes of one host. Thread-safe; safe across a fork.

    A new tag starts at 1 and takes ``default_step`` ids at a time, until
    :meth:`set_step`. The last id is ``2**63 - 2``, since the first free id must
    itself be storable.
    """

    def __init__(self, *, marks: MarksFile, default_step: int = 1000) -> None:
        self.marks = marks
        self.default_step = check_step(default_step)

    def fetch(self, tag: str, *, floor: int = 0, demand: Demand = STEP) -> Segment:
        """See :meth:`Source.fetch`."""
        check_tag(tag)

        def job(db: sqlite3.Connection) -> Segment:
            if _is_paused(db, tag):
                raise TagPaused(tag)
            max_id, step = self._row(db, tag)
            start = max(max_id, floor)
            # In Python: SQLite would turn a sum past 2**63 into a float.
            stop = min(start + demand.length(step), MAX_ID)
            if start >= stop:
                raise SegmentExhausted(
                    f"Tag {tag!r} has reached {start} of at most {MAX_ID}: there are no "
                    f"higher ids. Use another tag for a new table."
                )
            db.execute("UPDATE segments SET max_id = ? WHERE tag = ?", (stop, tag))
            return Segment(tag, start, stop, step)

        return self._run(job)

    def set_step(self, tag: str, step: int) -> None:
        """From the next fetch on, ``tag`` takes ``step`` ids at a time.

        Raises :class:`ConfigurationError` for a step out of range.
        """
        check_tag(tag)
        check_step(step)

        def job(db: sqlite3.Connection) -> None:
            self._row(db, tag)
            db.execute("UPDATE segments SET step = ? WHERE tag = ?", (step, tag))

        self._run(job)

    def open_tag(self, tag: str, *, step: int, max_id: int) -> bool:
        """Make ``tag``, whose first id is to be ``max_id``; False if it is there already."""
        check_tag(tag)
        check_step(step)

        def job(db: sqlite3.Connection) -> bool:
            query = "SELECT 1 FROM segments WHERE tag = ?"
            if db.execute(query, (tag,)).fetchone() is not None:
                return False
            self._row(db, tag)
            changes = (max_id, step, tag)
            db.execute("UPDATE segments SET max_id = ?, step = ? WHERE tag = ?", changes)
            return True

        return self._run(job)

    def raise_mark(self, tag: str, to: int) -> None:
        """No id of ``tag`` below ``to`` is given out from now on; never lowers its mark."""
        check_tag(tag)

        def job(db: sqlite3.Connection) -> None:
            self._row(db, tag)
            db.execute("UPDATE segments SET max_id = max(max_id, ?) WHERE tag = ?", (to, tag))

        self._run(job)

    def set_paused(self, tag: str, *, paused: bool) -> None:
        """Whether ids of ``tag`` are refused, with ``TagPaused``, from now on."""
        check_tag(tag)

        def job(db: sqlite3.Connection) -> None:
            if paused:
                self._row(db, tag)
                db.execute(_PAUSED)
                db.execute("INSERT OR IGNORE INTO paused VALUES (?)", (tag,))
            elif _has_paused(db):
                db.execute("DELETE FROM paused WHERE tag = ?", (tag,))

        self._run(job)

    def is_paused(self, tag: str) -> bool:
        """Whether ids of ``tag`` are refused."""
        return self._run(lambda db: _is_paused(db, tag))

    def max_id(self, tag: str) -> int:
        """The first id of ``tag`` that was not handed out; 1 if there was no fetch yet."""
        row = self._run(
            lambda db: db.execute("SELECT max_id FROM segments WHERE tag = ?", (tag,)).fetchone()
        )
        return 1 if row is None else int(row[0])

    def ping(self) -> None:
        """Raise :class:`SegmentUnavailable` unless the marks can be written."""
        if self.marks.path.exists():  # or it would be made by asking
            self._run(lambda _db: None)

    def _row(self, db: sqlite3.Connection, tag: str) -> tuple[int, int]:
        row = db.execute("SELECT max_id, step FROM segments WHERE tag = ?", (tag,)).fetchone()
        if row is not None:
            return int(row[0]), int(row[1])
        (made,) = db.execute("SELECT tags_made FROM installation").fetchone()
        (rows,) = db.execute("SELECT count(*) FROM segments").fetchone()
        if rows < made:
            # This may be one of those that were deleted: the database may know it.
            raise MarksLost
        db.execute("INSERT INTO segments VALUES (?, 1, ?)", (tag, self.default_step))
        db.execute("UPDATE installation SET tags_made = ?", (rows + 1,))
        return 1, self.default_step

    def _run(self, job: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return self.marks.run(job)
        except MarksError as error:
            raise SegmentUnavailable(str(error)) from error


def _has_paused(db: sqlite3.Connection) -> bool:
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'paused'"
    return db.execute(query).fetchone() is not None


def _is_paused(db: sqlite3.Connection, tag: str) -> bool:
    if not _has_paused(db):
        return False
    return db.execute("SELECT 1 FROM paused WHERE tag = ?", (tag,)).fetchone() is not None
