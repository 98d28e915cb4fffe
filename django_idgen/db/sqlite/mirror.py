"""The rows in a SQLite database that mirror its marks file.

They are there to be looked at (in the admin), to take a step or a higher
``max_id`` edited there, and to know enough if the marks file is lost. They are
written only when the caller is in no transaction, and then on the caller's own
connection: a write on another one would make the caller's next write fail under
WAL, if it has a SELECT open. What could not be written is pending until the next
occasion. Nobody is waited for.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ...core.clock import SYSTEM_CLOCK
from ...core.moments import moment
from ..forking import no_fork
from . import mirror_rows
from .marks import MarksError, MarksFile, Seed
from .mirror_rows import FetchedRow, Row, Rows, written

__all__ = ["Caller", "Mirror"]

Taken = tuple[str, int, int, int, str, str]
"""A row of history: tag, start, stop, delta, holder, time."""
Fetch = tuple[str, int, int]
"""Holder, time (µs since 1970), and number of ids."""
MOST_TAKEN = 10_000
"""Rows of history that may be pending."""
PATIENCE = 0.2
"""Seconds that reading the seed may wait for a writer, at most."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The calling thread's own use of the database. Frozen."""

    connection: sqlite3.Connection | None = None
    """Its connection, if it has one open."""
    in_transaction: bool = False


class Mirror:
    """Copies marks into ``database``, and reads from it what a new marks file needs.

    Thread-safe: no connection of ours outlives a call. Missing tables are passed
    over: the marks need none of them.
    """

    def __init__(self, database: Path) -> None:
        self.database = database
        self.marks: MarksFile | None = None
        # Kept small: as long as the database can't be written, there is one for each tag.
        self._tags: dict[str, Fetch | None] = {}
        """The tags whose rows are behind, with our last fetch, if their rows are to tell of it."""
        self._leases = False
        self._taken: deque[Taken] = deque(maxlen=MOST_TAKEN)

    # --- reading --------------------------------------------------------------

    def seed(self) -> Seed:
        """What the database knows of its marks.

        Raises :class:`MarksError` where it is locked and there is no marks
        file that could do without.
        """
        if not self.database.exists():
            return Seed()
        try:
            with no_fork(), closing(self._connect(PATIENCE)) as db:
                return Seed(
                    identity=mirror_rows.identity(db),
                    segments=mirror_rows.segments_of(db),
                    namespaces=mirror_rows.namespaces_of(db),
                    generations=mirror_rows.generations_of(db),
                )
        except sqlite3.Error as error:
            return self._unread(error)

    def _unread(self, error: sqlite3.Error) -> Seed:
        if self.marks is None or _is_made(self.marks.path) or not _is_busy(error):
            return Seed()
        raise MarksError(
            self.marks.path,
            f"the file is new, and what the database knows can't be read while somebody has "
            f"{str(self.database)!r} locked. Try again when that transaction is over.",
        ) from error

    def row_of(self, tag: str, caller: Caller) -> Row | None:
        """What the committed row of ``tag`` asks for, if there is one that can be read."""
        try:
            if caller.connection is not None and not caller.in_transaction:
                with _unwaiting(caller.connection):
                    return mirror_rows.read_row(caller.connection, tag)
            # Not on the caller's, where a first read would settle what it may still write.
            with no_fork(), closing(self._connect(0.0)) as db:
                return mirror_rows.read_row(db, tag)
        except sqlite3.Error:
            return None

    # --- writing --------------------------------------------------------------

    def tag_changed(self, tag: str) -> None:
        """The row of ``tag`` is to be brought up to its mark."""
        self._tags.setdefault(tag, None)

    def fetched(self, tag: str, holder: str, ids: int) -> None:
        """As :meth:`tag_changed`: ``holder`` has just been given that many."""
        self._tags[tag] = (holder, SYSTEM_CLOCK.wall_ns() // 1000, ids)

    def leases_changed(self) -> None:
        """The rows of the namespaces and of the worker leases are."""
        self._leases = True

    def taken(self, tag: str, start: int, stop: int, delta: int, holder: str) -> None:
        """A row of history is to be written; it is lost if the process ends before."""
        self._taken.append((tag, start, stop, delta, holder, mirror_rows.now()))

    def catch_up(self, caller: Caller) -> bool:
        """Write what is pending; False where that has to wait for another occasion."""
        if not (self._tags or self._leases or self._taken):
            return True
        if caller.in_transaction or self.marks is None or not self.database.exists():
            return False
        # Before the marks are read: what changes from now on is pending again.
        tags = {tag: self._tags.pop(tag, None) for tag in sorted(self._tags)}
        leases, taken = self._leases, self._pop_taken()
        self._leases = False
        try:
            rows = self.marks.run(lambda db: mirror_rows.dump(db, tags, leases))
            rows["segments"] = [_with_fetch(row, tags[row.tag]) for row in rows["segments"]]
            self._write(caller, {**rows, "history": taken})
        except (sqlite3.Error, MarksError):
            self._pend_again(tags, leases, taken)
            return False
        return True

    def _pend_again(
        self, tags: Mapping[str, Fetch | None], leases: bool, taken: list[Taken]
    ) -> None:
        for tag, fetch in tags.items():
            self._tags[tag] = self._tags.get(tag) or fetch  # a later one may be there by now
        self._leases = self._leases or leases
        self._taken.extendleft(reversed(taken))

    def _pop_taken(self) -> list[Taken]:
        taken = []
        with suppress(IndexError):  # another thread may be at it
            while True:
                taken.append(self._taken.popleft())
        return taken

    def _write(self, caller: Caller, rows: Rows) -> None:
        if caller.connection is not None:
            with _unwaiting(caller.connection):
                mirror_rows.write(caller.connection, rows)
        else:
            with no_fork(), closing(self._connect(0.0)) as db:
                mirror_rows.write(db, rows)

    def _connect(self, timeout: float) -> sqlite3.Connection:
        uri = f"{self.database.as_uri()}?mode=rw"
        return sqlite3.connect(uri, uri=True, timeout=timeout, isolation_level=None)


@contextmanager
def _unwaiting(db: sqlite3.Connection) -> Iterator[None]:
    """Have ``db`` wait for no lock, and leave it as it was found."""
    (timeout,) = db.execute("PRAGMA busy_timeout").fetchone()
    db.execute("PRAGMA busy_timeout = 0")
    try:
        yield
    finally:
        db.execute(f"PRAGMA busy_timeout = {int(timeout)}")


def _with_fetch(row: FetchedRow, fetch: Fetch | None) -> FetchedRow:
    if fetch is None:
        return row
    holder, at_us, ids = fetch
    return row._replace(holder=holder, fetched_at=written(moment(at_us)), fetched_ids=ids)


def _is_made(marks: Path) -> bool:
    # Looking for the identity in a file that is not there leaves an empty one.
    return marks.exists() and marks.stat().st_size > 0


def _is_busy(error: sqlite3.Error) -> bool:
    return str(getattr(error, "sqlite_errorname", "")).startswith("SQLITE_BUSY")
