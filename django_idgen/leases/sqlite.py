"""Worker ids lent from the marks file beside a SQLite database."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeVar

from ..core.clock import SYSTEM_CLOCK, Clock, Reading
from ..core.errors import RegistryUnavailable
from ..core.holder import identity_of
from ..core.lease import Grant, Lease, Mark, Namespace
from ..core.lending import Record, extend, extend_seen, held_by, lend, rename_holders, take_back
from ..db.sqlite import marks_terms
from ..db.sqlite.marks import MarksError, MarksFile
from .book_oversight import BookOversight, OverseenBook, Term

__all__ = ["SqliteBook", "SqliteLeases"]

T = TypeVar("T")

PREVIOUS_LIMIT = 16
"""How many of the ids that a holder had are looked at before random ones are tried."""


class SqliteLeases:
    """A registry for the processes of one host. Thread-safe; safe across a fork.

    The registry's time is the host's wall clock (``read_now_us``, in microseconds
    since 1970, if given); whether ids repeat does not depend on it. With ``history``
    it is kept who was lent which worker id.
    """

    def __init__(
        self,
        namespace: Namespace,
        *,
        marks: MarksFile,
        history: bool = True,
        clock: Clock = SYSTEM_CLOCK,
        read_now_us: Callable[[], int] | None = None,
    ) -> None:
        self.namespace = namespace
        self.marks = marks
        self._history = history
        self._clock = clock
        self._read_now_us = read_now_us or (lambda: clock.wall_ns() // 1000)

    def acquire(self, *, holder: str, not_before: int = 0, avoid: int | None = None) -> Grant:
        """See :meth:`LeaseRegistry.acquire`."""

        def job(db: sqlite3.Connection) -> Grant:
            reading = self._read()
            lease = lend(
                self._book(db, reading),
                self.namespace,
                now=self.namespace.tick_at(reading.registry_us),
                holder=holder,
                not_before=not_before,
                avoid=avoid,
            )
            return Grant(lease, reading)

        # Rare enough to ask each time whether the file was put back from an old copy.
        return self._run(job, compared=True)

    def renew(self, lease: Lease, *, last_tick: int) -> Grant:
        """See :meth:`LeaseRegistry.renew`."""

        def job(db: sqlite3.Connection) -> Grant:
            reading = self._read()
            now = self.namespace.tick_at(reading.registry_us)
            book = self._book(db, reading)
            extended = extend(book, self.namespace, lease, now=now, last_tick=last_tick)
            return Grant(extended, reading)

        return self._run(job)

    def release(self, lease: Lease, *, last_tick: int | None) -> bool:
        """See :meth:`LeaseRegistry.release`."""

        def job(db: sqlite3.Connection) -> bool:
            book = self._book(db, self._read())
            return take_back(book, self.namespace, lease, last_tick=last_tick)

        return self._run(job)

    def held_by(self, holder: str) -> list[Lease]:
        """The leases that stand in ``holder``'s name, lapsed or not; the earliest first."""
        return self._run(lambda db: held_by(self._book(db, self._read()), self.namespace, holder))

    def rename_holders(self, rename: Callable[[str], str | None]) -> int:
        """See :meth:`DatabaseLeases.rename_holders`."""

        def job(db: sqlite3.Connection) -> int:
            reading = self._read()
            now = self.namespace.tick_at(reading.registry_us)
            book = self._book(db, reading)
            return rename_holders(book, self.namespace, now=now, rename=rename)

        return self._run(job)

    def renew_seen(self, *, idle_after: float) -> int:
        """See :meth:`LeaseRegistry.renew_seen`."""

        def job(db: sqlite3.Connection) -> int:
            reading = self._read()
            return extend_seen(
                self._book(db, reading),
                self.namespace,
                now=self.namespace.tick_at(reading.registry_us),
                since_us=reading.registry_us - int(idle_after * 1e6),
            )

        return self._run(job)

    def ping(self) -> None:
        """Raise :class:`RegistryUnavailable` unless the marks can be written. Changes nothing."""
        if self.marks.path.exists():  # or it would be made by asking
            self._run(lambda _db: None)

    def oversight(
        self, changed: Callable[[], None] = lambda: None, place: str = ""
    ) -> BookOversight:
        """For those who look into it, and after it; ``changed`` is called when a mark was.

        ``place``: what the database is called, whose marks these are.
        """
        return _FileOversight(self, changed, place or str(self.marks.path))

    def abandon(self) -> None:
        """Nothing was inherited: no connection outlives a call."""

    def close(self) -> None:
        """Nothing to free."""

    def _run(self, job: Callable[[sqlite3.Connection], T], *, compared: bool = False) -> T:
        try:
            return self.marks.run(job, compared=compared)
        except MarksError as error:
            raise RegistryUnavailable(str(error)) from error

    def _read(self) -> Reading:
        sent = self._clock.elapsed_ns()
        now = self._read_now_us()
        return Reading(now, sent, self._clock.elapsed_ns())

    def _book(self, db: sqlite3.Connection, reading: Reading) -> SqliteBook:
        return SqliteBook(db, self.namespace.name, reading.registry_us, history=self._history)


class _FileOversight(BookOversight):
    """Of the marks file, in which the truth stands; the database's rows are its mirror."""

    def __init__(self, leases: SqliteLeases, changed: Callable[[], None], place: str) -> None:
        now_us = leases._read_now_us
        super().__init__(leases.namespace, now_us, place=place, changed=changed)
        self._leases = leases

    def _run(self, job: Callable[[OverseenBook], T]) -> T | None:
        leases = self._leases
        if not leases.marks.path.exists():  # or it would be made by asking
            return None
        return leases._run(lambda db: job(leases._book(db, leases._read())))


class SqliteBook:
    """A :class:`LeaseBook` inside a write transaction."""

    def __init__(
        self, db: sqlite3.Connection, namespace: str, seen: int, *, history: bool = False
    ) -> None:
        self._db = db
        self._namespace = namespace
        self._seen = seen
        self._history = history

    def record(self) -> Record | None:
        row = self._db.execute(
            "SELECT fingerprint, generation, fence, largest_window, workers_made, highest_until "
            "FROM namespaces WHERE name = ?",
            (self._namespace,),
        ).fetchone()
        return None if row is None else Record(*row)

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

    def was_opened(self) -> bool:
        (opened,) = self._db.execute("SELECT opened FROM installation").fetchone()
        return self._namespace in json.loads(opened) or self.count() > 0

    def next_generation(self) -> int:
        (generation, opened) = self._db.execute(
            "SELECT generation + 1, opened FROM installation"
        ).fetchone()
        names = sorted({*json.loads(opened), self._namespace})
        self._db.execute(
            "UPDATE installation SET generation = ?, opened = ?", (generation, json.dumps(names))
        )
        return int(generation)

    def count(self) -> int:
        return self._number("SELECT count(*) FROM leases WHERE namespace = ?")

    def highest_until(self) -> int:
        return self._number("SELECT ifnull(max(until), 0) FROM leases WHERE namespace = ?")

    def mark(self, worker: int) -> Mark | None:
        row = self._db.execute(
            "SELECT worker, token, start, until, generation, holder FROM leases "
            "WHERE namespace = ? AND worker = ?",
            (self._namespace, worker),
        ).fetchone()
        return None if row is None else Mark(*row)

    def save_mark(self, mark: Mark) -> None:
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
                self._seen,
            ),
        )

    def save_end(self, mark: Mark) -> None:
        self._db.execute(
            "UPDATE leases SET until = ? WHERE namespace = ? AND worker = ?",
            (mark.until, self._namespace, mark.worker),
        )

    def seen(self, since_us: int) -> Sequence[Mark]:
        rows = self._db.execute(
            "SELECT worker, token, start, until, generation, holder FROM leases "
            "WHERE namespace = ? AND seen >= ?",
            (self._namespace, since_us),
        ).fetchall()
        return [Mark(*row) for row in rows]

    def held(self, now: int, generation: int, by: int) -> Collection[int]:
        rows = self._db.execute(
            "SELECT worker FROM leases WHERE namespace = ? "
            "AND (generation = ? AND token <> '' AND until > ? OR until > ?)",
            (self._namespace, generation, now, by),
        )
        return {worker for (worker,) in rows}

    def previous(self, holder: str) -> Sequence[int]:
        who = identity_of(holder)
        rows = self._db.execute(
            "SELECT worker, holder FROM leases WHERE namespace = ? "
            "AND (holder = ? OR substr(holder, 1, ?) = ?) ORDER BY seen DESC, worker LIMIT ?",
            (self._namespace, who, len(who) + 1, f"{who}:", PREVIOUS_LIMIT),
        )
        return [worker for worker, had in rows if identity_of(had) == who]

    def note_lent(self, mark: Mark) -> None:
        if self._history:
            who = (mark.worker, mark.start, mark.holder)
            marks_terms.note(self._db, self._namespace, *who, self._seen)

    def sightings(self) -> Iterable[tuple[Mark, int, int | None]]:
        lent = marks_terms.lent_at(self._db, self._namespace)
        rows = self._db.execute(
            "SELECT worker, token, start, until, generation, holder, seen FROM leases "
            "WHERE namespace = ?",
            (self._namespace,),
        )
        for *mark, seen in rows:
            known = Mark(*mark)
            yield known, seen, lent.get((known.worker, known.start))

    def void(self, worker: int) -> bool:
        changed = self._db.execute(
            "UPDATE leases SET token = '' WHERE namespace = ? AND worker = ? AND token <> ''",
            (self._namespace, worker),
        )
        return changed.rowcount > 0

    def term(self, worker: int, tick: int) -> Term | None:
        return marks_terms.last_before(self._db, self._namespace, worker, tick)

    def _number(self, query: str) -> int:
        (number,) = self._db.execute(query, (self._namespace,)).fetchone()
        return int(number)
