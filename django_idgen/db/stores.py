"""Which store keeps the marks of a database alias, and the stores that exist.

A server keeps them in its own tables; a SQLite file in a file beside it; an
in-memory database, or an alias that the running test forbids, in this process.
The place is looked up at each call, since test runners change databases under
a running process; a store, once made, is kept for its database's name.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Generic, TypeVar

from django.db import connections

from ..core.errors import ConfigurationError
from ..core.loader import InlineLoader
from .connection import Place, own_connection, place_of
from .sqlite import memory_rows
from .sqlite.file_name import file_of
from .sqlite.marks import MarksFile
from .sqlite.mirror import Caller, Mirror

__all__ = [
    "SUFFIX",
    "PlacedLoader",
    "Stores",
    "caller_of",
    "catch_up",
    "database_of",
    "database_of_alias",
    "forget_in_process",
    "kept_in_process",
    "marks_of",
    "mirror_of",
]

T = TypeVar("T")
S = TypeVar("S")

SUFFIX = "-idgen"
"""What a marks file's name has after that of its database."""


class Stores(Generic[S]):
    """The stores of one alias by place and database name, made on first use. Thread-safe.

    Raises :class:`ConfigurationError` for an alias that is not configured.
    """

    def __init__(self, alias: str, make: Callable[[Place], S]) -> None:
        if alias not in connections.settings:
            raise ConfigurationError(
                f"'database' is {alias!r}, which is not in DATABASES. There are "
                f"{', '.join(map(repr, connections.settings))}."
            )
        self.alias = alias
        self._make = make
        self._made: dict[tuple[Place, str], S] = {}
        self._lock = threading.Lock()

    def current(self) -> S:
        """The store for what the alias is now, as seen by the calling thread."""
        key = self._key()
        found = self._made.get(key)
        if found is None:
            with self._lock:
                found = self._made.get(key) or self._made.setdefault(key, self._make(key[0]))
        return found

    def is_current(self, store: S) -> bool:
        """Whether the alias still means what it meant when ``store`` was made."""
        return self._made.get(self._key()) is store

    def _key(self) -> tuple[Place, str]:
        place = place_of(self.alias)
        if place is Place.FILE:
            # A link may lead to another file by now.
            return place, str(database_of_alias(self.alias))
        return place, str(connections.settings[self.alias]["NAME"])

    def all(self) -> list[S]:
        """Every store that was made."""
        return list(self._made.values())

    def reset(self) -> None:
        """After a fork: the lock is the parent's."""
        self._lock = threading.Lock()


class PlacedLoader:
    """The loader of an alias: a thread of its own for a server, none for SQLite.

    Another thread may not touch an in-memory database, and could only wait for
    the caller's lock on a file.
    """

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._inline = InlineLoader()

    @property
    def background(self) -> bool:
        return place_of(self._alias) is Place.SERVER

    def submit(self, fn: Callable[[], T], *, urgent: bool = False) -> Future[T]:
        if self.background:
            return own_connection(self._alias).loader.submit(fn, urgent=urgent)
        return self._inline.submit(fn, urgent=urgent)

    def reset(self) -> None:
        """The connection's loader is reset by :mod:`..process.lifecycle`."""


_in_process: dict[tuple[object, ...], Any] = {}
_files: dict[Path, tuple[MarksFile, Mirror]] = {}


def kept_in_process(alias: str, place: Place, *what: object, make: Callable[[], T]) -> T:
    """What this process keeps for a database that lives in it, made on first use.

    It outlives a change of settings (a test's ``override_settings``), as the rows do.
    """
    key = (alias, place, str(connections.settings[alias]["NAME"]), *what)
    found: T = _in_process.get(key) or _in_process.setdefault(key, make())
    return found


def forget_in_process() -> None:
    """Begin again: the databases in this process are empty, or no one's any more."""
    _in_process.clear()


def marks_of(alias: str) -> MarksFile:
    """The marks file beside the SQLite database of ``alias``."""
    return _files_of(database_of_alias(alias))[0]


def mirror_of(marks: MarksFile) -> Mirror:
    """What keeps the rows in the SQLite database that ``marks`` belong to."""
    return _files_of(database_of(marks.path))[1]


def database_of(marks: Path) -> Path:
    """The SQLite database that the marks file ``marks`` belongs to."""
    return marks.with_name(marks.name.removesuffix(SUFFIX))


def caller_of(alias: str, mirror: Mirror) -> Caller:
    """How the calling thread uses the database of ``mirror``, if that is still ``alias``."""
    if database_of_alias(alias) != mirror.database:
        return Caller()
    connection = connections[alias]
    raw = connection.connection
    if not isinstance(raw, sqlite3.Connection):  # closed, or wrapped by some instrument
        return Caller(None, connection.in_atomic_block)
    return Caller(raw, connection.in_atomic_block or raw.in_transaction)


def catch_up(alias: str) -> None:
    """Write what is pending in the mirror of ``alias``, if the calling thread may."""
    place = place_of(alias)
    if place is Place.MEMORY:
        memory_rows.write(alias)
    if place is not Place.FILE:
        return
    made = _files.get(database_of_alias(alias))
    if made is not None:
        made[1].catch_up(caller_of(alias, made[1]))


def database_of_alias(alias: str) -> Path:
    """The file of the SQLite database ``alias``."""
    return file_of(connections.settings[alias]["NAME"]) or Path()


def _files_of(database: Path) -> tuple[MarksFile, Mirror]:
    found = _files.get(database)
    if found is None:
        mirror = Mirror(database)
        marks = MarksFile(f"{database}{SUFFIX}", seed=mirror.seed, like=database)
        mirror.marks = marks
        # Atomic: of many threads all get the first one's.
        found = _files.setdefault(database, (marks, mirror))
    return found
