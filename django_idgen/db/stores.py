"""Which store keeps the marks of a database alias, and the stores that exist.

A server keeps them in its own tables, a SQLite database in those of the file beside it; an
in-memory database, or an alias that the running test forbids, in this process.
The place is looked up at each call, since test runners change databases under
a running process; a store, once made, is kept for its database's name.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from django.db import connections

from ..core.errors import ConfigurationError
from ..core.loader import InlineLoader
from .connection import Place, own_connection, place_of
from .sqlite import database_of

__all__ = [
    "AliasLoader",
    "Stores",
    "forget_in_process",
    "kept_in_process",
]

T = TypeVar("T")
S = TypeVar("S")


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
        # A link may lead to another file by now.
        name = database_of(self.alias) or connections.settings[self.alias]["NAME"]
        return place_of(self.alias), str(name)

    def all(self) -> list[S]:
        """Every store that was made."""
        return list(self._made.values())

    def reset(self) -> None:
        """After a fork: the lock is the parent's."""
        self._lock = threading.Lock()


class AliasLoader:
    """The loader of an alias: a thread of its own, but none for what is kept in this process.

    Another thread may not touch an in-memory database.
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
