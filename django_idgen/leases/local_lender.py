"""The charter of a registry that can forget, where the project's database is SQLite."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from dataclasses import replace
from secrets import token_hex

from django.db import connections

from ..core.charter import Change, Charter, reaching
from ..core.errors import RegistryUnavailable
from ..core.lease import Namespace
from ..core.lending import LeaseBook, opened_record
from ..db.sqlite.marks import MarksError, MarksFile
from ..db.sqlite.marks_seed import identity_of
from ..db.stores import caller_of, mirror_of
from .memory import MemoryBook
from .sqlite import SqliteBook

__all__ = ["Memory", "MemoryLender", "SqliteLender", "memory_of"]


class _LocalLender:
    """A charter in a :class:`LeaseBook`: its ceiling is the highest mark there."""

    def __init__(
        self, namespace: Namespace, *, stride: int, read_now_us: Callable[[], int]
    ) -> None:
        self.namespace = namespace
        self._stride = stride
        self._read_now_us = read_now_us

    def _changed(
        self, book: LeaseBook, installation: str, incarnation: str, change: Change
    ) -> Charter:
        now = self.namespace.tick_at(self._read_now_us())
        record = opened_record(book, self._reaching(Charter("", 0, 0, 0), now), now)
        charter = change(
            Charter(
                installation, record.generation, record.fence, record.highest_until, incarnation
            )
        )
        book.save_record(
            replace(
                record,
                generation=charter.generation,
                fence=charter.fence,
                highest_until=charter.ceiling,
                workers_made=book.count(),
                largest_window=self._reaching(charter, now).reach_ticks,
            )
        )
        return charter

    def _reaching(self, charter: Charter, now: int) -> Namespace:
        return reaching(self.namespace, charter, now=now, stride=self._stride)


class SqliteLender(_LocalLender):
    """The charter in the marks file beside the SQLite database ``alias``. Thread-safe."""

    def __init__(
        self,
        namespace: Namespace,
        marks: MarksFile,
        alias: str,
        *,
        stride: int,
        read_now_us: Callable[[], int],
    ) -> None:
        super().__init__(namespace, stride=stride, read_now_us=read_now_us)
        self.marks = marks
        self._alias = alias

    def change(self, change: Change) -> Charter:
        """See :meth:`Lender.change`."""
        try:
            # No row says that one is missing, and this is not asked for often.
            charter = self.marks.run(lambda db: self._job(db, change), compared=True)
        except MarksError as error:
            raise RegistryUnavailable(str(error)) from error
        mirror = mirror_of(self.marks)
        mirror.leases_changed()
        mirror.catch_up(caller_of(self._alias, mirror))
        return charter

    def _job(self, db: sqlite3.Connection, change: Change) -> Charter:
        name = self.namespace.name
        db.execute(
            "CREATE TABLE IF NOT EXISTS charters "
            "(namespace TEXT PRIMARY KEY, incarnation TEXT NOT NULL)"
        )
        query = "SELECT incarnation FROM charters WHERE namespace = ?"
        rows = db.execute(query, (name,)).fetchall()
        incarnation = str(rows[0][0]) if rows else ""
        book = SqliteBook(db, name, 0)
        charter = self._changed(book, str(identity_of(db)), incarnation, change)
        db.execute("INSERT OR REPLACE INTO charters VALUES (?, ?)", (name, charter.incarnation))
        return charter

    def installation(self) -> str | None:
        """See :meth:`Lender.installation`."""
        if not self.marks.path.exists():
            return None
        try:
            return self.marks.run(identity_of)
        except MarksError as error:
            raise RegistryUnavailable(str(error)) from error

    def abandon(self) -> None:
        """Nothing was inherited: no connection outlives a call."""


class Memory:
    """What the lenders of an in-memory database have in common, in this process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.identity = token_hex(16)
        self.books: dict[str, MemoryBook] = {}
        self.incarnations: dict[str, str] = {}


_memories: dict[str, Memory] = {}


def memory_of(alias: str) -> Memory:
    """The memory of the in-memory database that ``alias`` means."""
    return _memories.setdefault(str(connections.settings[alias]["NAME"]), Memory())


class MemoryLender(_LocalLender):
    """The charter in this process, for an in-memory database. Thread-safe."""

    def __init__(
        self,
        namespace: Namespace,
        memory: Memory,
        *,
        stride: int,
        read_now_us: Callable[[], int],
    ) -> None:
        super().__init__(namespace, stride=stride, read_now_us=read_now_us)
        self._memory = memory

    def change(self, change: Change) -> Charter:
        """See :meth:`Lender.change`."""
        memory, name = self._memory, self.namespace.name
        with memory.lock:
            book = memory.books.setdefault(name, MemoryBook())
            incarnation = memory.incarnations.get(name, "")
            charter = self._changed(book, memory.identity, incarnation, change)
            memory.incarnations[name] = charter.incarnation
        return charter

    def installation(self) -> str | None:
        """See :meth:`Lender.installation`."""
        return self._memory.identity

    def abandon(self) -> None:
        """In a forked child, whose database is a copy: it goes on as another installation."""
        self._memory.lock = threading.Lock()
        self._memory.identity = token_hex(16)
        self._memory.incarnations.clear()
