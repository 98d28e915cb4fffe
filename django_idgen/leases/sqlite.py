"""Worker ids lent from the marks file beside a SQLite database."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, TypeVar

from ..core.book import NOT_WHOLE, PREVIOUS_LIMIT, Book, Record
from ..core.clock import SYSTEM_CLOCK, Clock, Reading
from ..core.errors import RegistryUnavailable
from ..core.inspection import InspectedMark, PastLease
from ..core.lease import Mark, Namespace
from ..core.moments import moment
from ..db.forking import no_fork
from ..db.sqlite import marks_terms
from ..db.sqlite.marks import MarksError, MarksFile
from ..db.sqlite.marks_seed import identity_of
from .book_registry import BookRegistry, Store, read_clock

__all__ = ["SqliteBook", "SqliteLeases"]

T = TypeVar("T")

COLUMNS = "worker, token, start, until, generation, holder"
FREE = "(token = '' OR until <= ? OR generation <> ?)"
"""The rule of :func:`..core.lease.is_free`; a mark of another generation is void."""


class SqliteLeases(BookRegistry):
    """A registry for the processes of one host. Thread-safe; safe across a fork.

    The registry's time is the host's wall clock (``read_now_us``, in microseconds
    since 1970, if given); whether ids repeat does not depend on it. ``alias``: the database
    whose ``marks`` these are; ``on_change`` is called when one of them was changed here.
    ``history``: keep who was lent which worker id. Needs no Django.
    """

    def __init__(
        self,
        namespace: Namespace,
        *,
        marks: MarksFile,
        alias: str | None = None,
        on_change: Callable[[], None] | None = None,
        history: bool = True,
        clock: Clock = SYSTEM_CLOCK,
        read_now_us: Callable[[], int] | None = None,
    ) -> None:
        self.marks = marks
        read = read_now_us or (lambda: clock.wall_ns() // 1000)
        store = _MarksStore(namespace.name, marks, alias, clock, read, history=history)
        store.on_change = on_change
        super().__init__(namespace, store)


class _MarksStore(Store):
    on_change: Callable[[], None] | None = None

    def __init__(
        self,
        namespace: str,
        marks: MarksFile,
        alias: str | None,
        clock: Clock,
        read_now_us: Callable[[], int],
        *,
        history: bool,
    ) -> None:
        self.place = alias or str(marks.path)
        self.key = ("sqlite", str(marks.path))
        self.described = f"the marks file of database {alias!r}"
        self._namespace = namespace
        self._marks = marks
        self._clock = clock
        self._read_now_us = read_now_us
        self._history = history

    def run(self, job: Callable[[Book], T], *, compared: bool = False) -> T:
        try:
            return self._marks.run(lambda db: job(self._book(db)), compared=compared)
        except MarksError as error:
            raise RegistryUnavailable(str(error)) from error

    def run_if_there(self, job: Callable[[Book], T]) -> T | None:
        # Looked up first, or it would be made by asking.
        return self.run(job) if self._marks.path.exists() else None

    def read(self, job: Callable[[Book], T]) -> T | None:
        """Not by a job of the marks', which would make the file, or take it over."""
        if not self._marks.path.exists():
            return None
        uri = f"{self._marks.path.as_uri()}?mode=ro"
        try:
            with no_fork(), closing(sqlite3.connect(uri, uri=True, timeout=5.0)) as db:
                return job(self._book(db)) if _has(db, "namespaces") else None
        except sqlite3.Error as error:
            raise RegistryUnavailable(
                f"The id marks in {str(self._marks.path)!r} can't be read: {error}."
            ) from error

    def now_us(self) -> int:
        return self._read_now_us()

    def changed(self) -> None:
        if self.on_change is not None:
            self.on_change()

    def ping(self) -> None:
        self.run_if_there(lambda _book: None)

    def _book(self, db: sqlite3.Connection) -> SqliteBook:
        reading = read_clock(self._clock, self._read_now_us)
        return SqliteBook(db, self._namespace, reading, history=self._history)


class SqliteBook(Book):
    """A book inside a write transaction of the marks file."""

    server = "file"

    def __init__(
        self, db: sqlite3.Connection, namespace: str, reading: Reading, *, history: bool = False
    ) -> None:
        self._db = db
        self._namespace = namespace
        self._installation: str | None = None
        self._reading = reading
        self._history = history

    # --- the record -----------------------------------------------------------------

    @property
    def reading(self) -> Reading:
        return self._reading

    @property
    def installation(self) -> str:
        if self._installation is None:
            self._installation = str(identity_of(self._db) or "")
        return self._installation

    def record(self) -> Record | None:
        row = self._db.execute(
            "SELECT fingerprint, generation, fence, largest_window, workers_made, highest_until "
            "FROM namespaces WHERE name = ?",
            (self._namespace,),
        ).fetchone()
        if row is None:
            return None
        fingerprint, generation, fence, largest_window, workers_made, highest_until = row
        return Record(
            fingerprint,
            generation,
            fence,
            largest_window,
            workers_made,
            highest_until,
            # Of what a registry that can forget was lent, no more is kept.
            ceiling=highest_until,
            incarnation=self._incarnation(),
            installation=self.installation,
            # A record that may lag behind what was lent is not taken for a whole one.
            server="" if workers_made == NOT_WHOLE else self.server,
        )

    def save_record(self, record: Record) -> None:
        self._db.execute(
            "INSERT OR REPLACE INTO namespaces VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                self._namespace,
                record.fingerprint,
                record.generation,
                record.fence,
                record.largest_window,
                record.workers_made,
                record.highest_until,
            ),
        )
        if record.incarnation != self._incarnation():
            self._save_incarnation(record.incarnation)

    def _incarnation(self) -> str:
        if not _has(self._db, "charters"):
            return ""
        query = "SELECT incarnation FROM charters WHERE namespace = ?"
        row = self._db.execute(query, (self._namespace,)).fetchone()
        return "" if row is None else str(row[0])

    def _save_incarnation(self, incarnation: str) -> None:
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS charters "
            "(namespace TEXT PRIMARY KEY, incarnation TEXT NOT NULL)"
        )
        row = (self._namespace, incarnation)
        self._db.execute("INSERT OR REPLACE INTO charters VALUES (?, ?)", row)

    def was_opened(self) -> bool:
        (opened,) = self._db.execute("SELECT opened FROM installation").fetchone()
        return self._namespace in json.loads(opened)

    def next_generation(self, after: int) -> int:
        (known, opened) = self._db.execute("SELECT generation, opened FROM installation").fetchone()
        generation = max(int(known), after) + 1
        names = sorted({*json.loads(opened), self._namespace})
        self._db.execute(
            "UPDATE installation SET generation = ?, opened = ?", (generation, json.dumps(names))
        )
        return generation

    def eras(self) -> object:
        if not _has(self._db, "eras"):
            return None
        query = "SELECT words FROM eras WHERE namespace = ?"
        row = self._db.execute(query, (self._namespace,)).fetchone()
        return None if row is None else json.loads(row[0])

    def save_eras(self, words: Sequence[Mapping[str, Any]]) -> None:
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS eras (namespace TEXT PRIMARY KEY, words TEXT NOT NULL)"
        )
        row = (self._namespace, json.dumps(words))
        self._db.execute("INSERT OR REPLACE INTO eras VALUES (?, ?)", row)

    # --- the marks: reading -----------------------------------------------------------

    def count(self) -> int:
        return self._number("SELECT count(*) FROM leases WHERE namespace = ?")

    def highest_until(self) -> int:
        return self._number("SELECT ifnull(max(until), 0) FROM leases WHERE namespace = ?")

    def marks(self, workers: Collection[int]) -> Mapping[int, Mark]:
        places = ", ".join("?" * len(workers))
        marks = self._marks(f"worker IN ({places})", *workers)
        return {mark.worker: mark for mark in marks}

    def inspected(
        self, workers: Collection[int] | None = None, *, generation: int | None = None
    ) -> Iterable[InspectedMark]:
        # At once for all of them; one by one it is known of a few.
        lent = None if workers else marks_terms.lent_at(self._db, self._namespace)
        for mark, seen in self._seen("1"):
            if workers is None or mark.worker in workers:
                known = (mark.worker, mark.start)
                yield InspectedMark(
                    mark,
                    seen_us=seen,
                    acquired_us=self._lent_at(mark) if lent is None else lent.get(known),
                    void=generation not in (None, mark.generation),
                )

    def had_by(self, who: str, free_at: tuple[int, int] | None = None) -> Sequence[InspectedMark]:
        where = "(holder = ? OR substr(holder, 1, ?) = ?)"
        words: tuple[object, ...] = (who, len(who) + 1, f"{who}:")
        latest_first = "ORDER BY seen DESC, worker"
        if free_at is not None:
            where = f"{where} AND {FREE} {latest_first} LIMIT {PREVIOUS_LIMIT}"
            found = self._seen(where, *words, *free_at)
            return [InspectedMark(mark, seen_us=seen) for mark, seen in found]
        found = self._seen(f"{where} {latest_first}", *words)
        return [
            InspectedMark(mark, seen_us=seen, acquired_us=self._lent_at(mark))
            for mark, seen in list(found)
        ]

    def earliest_free(
        self, workers: range, avoid: int | None, now: int, generation: int
    ) -> Mark | None:
        where = f"worker >= ? AND worker < ? AND worker IS NOT ? AND {FREE}"
        words = (workers.start, workers.stop, avoid, now, generation)
        return next(self._marks(f"{where} ORDER BY until, worker LIMIT 1", *words), None)

    def lowest_missing(self, workers: range, avoid: int | None) -> int | None:
        query = "SELECT worker FROM leases WHERE namespace = ?"
        taken = {worker for (worker,) in self._db.execute(query, (self._namespace,))}
        return next((each for each in workers if each not in taken and each != avoid), None)

    def past_lease(self, worker: int, tick: int) -> PastLease | None:
        term = marks_terms.last_before(self._db, self._namespace, worker, tick)
        return None if term is None else PastLease(term[1], moment(term[2]), term[0])

    def _marks(self, where: str, *words: object) -> Iterator[Mark]:
        query = f"SELECT {COLUMNS} FROM leases WHERE namespace = ? AND {where}"  # noqa: S608
        return (Mark(*row) for row in self._db.execute(query, (self._namespace, *words)))

    def _lent_at(self, mark: Mark) -> int | None:
        term = marks_terms.last_before(self._db, self._namespace, mark.worker, mark.start)
        return term[2] if term is not None and term[0] == mark.start else None

    def _seen(self, where: str, *words: object) -> Iterator[tuple[Mark, int]]:
        """Marks, and when their holders were seen."""
        query = f"SELECT {COLUMNS}, seen FROM leases WHERE namespace = ? AND {where}"  # noqa: S608
        for *row, seen in self._db.execute(query, (self._namespace, *words)):
            yield Mark(*row), seen

    def _number(self, query: str) -> int:
        (number,) = self._db.execute(query, (self._namespace,)).fetchone()
        return int(number)

    # --- the marks: writing -----------------------------------------------------------

    def save_lent(self, mark: Mark, *, is_new: bool) -> None:  # noqa: ARG002
        self._save(mark)
        if self._history:
            marks_terms.note(
                self._db,
                self._namespace,
                mark.worker,
                mark.start,
                mark.holder,
                self._reading.registry_us,
            )

    def save_renewed(self, mark: Mark) -> None:
        self._save(mark)

    def save_released(self, mark: Mark) -> None:
        self._save(mark)

    def _save(self, mark: Mark) -> None:
        self._db.execute(
            "INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                self._namespace,
                mark.worker,
                mark.token,
                mark.start,
                mark.until,
                mark.generation,
                mark.holder,
                self._reading.registry_us,
            ),
        )

    def save_end(self, mark: Mark) -> None:
        self._set("until = ?", "worker = ?", mark.until, mark.worker)

    def void(self, worker: int, token: str) -> bool:
        return self._set("token = ''", "worker = ? AND token = ?", worker, token) > 0

    def rename(self, worker: int, token: str, holder: str) -> bool:
        return self._set("holder = ?", "worker = ? AND token = ?", holder, worker, token) > 0

    def restart_marks(self, workers: range, fence: int) -> None:  # noqa: ARG002
        # Not deleted: the mirror would keep what they said.
        self._set("token = '', start = ?, until = ?", "1", fence, fence)
        if _has(self._db, "terms"):
            self._db.execute("DELETE FROM terms WHERE namespace = ?", (self._namespace,))

    def lower_marks(self, fence: int) -> None:
        self._set("token = '', start = min(start, ?), until = min(until, ?)", "1", fence, fence)

    def _set(self, changes: str, where: str, *words: object) -> int:
        places = changes.count("?")
        words = (*words[:places], self._namespace, *words[places:])
        query = f"UPDATE leases SET {changes} WHERE namespace = ? AND {where}"  # noqa: S608
        return self._db.execute(query, words).rowcount


def _has(db: sqlite3.Connection, table: str) -> bool:
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    return db.execute(query, (table,)).fetchone() is not None
