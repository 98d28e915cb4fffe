"""One transaction on a connection of our own, with what can go wrong around it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError
from functools import partial
from typing import TypeVar

from django.db import DatabaseError, OperationalError, ProgrammingError, transaction
from django.db import Error as AnyDatabaseError
from django.db.backends.base.base import BaseDatabaseWrapper

from ..core.clock import SYSTEM_CLOCK
from ..core.errors import IdgenError
from . import dialects
from .connection import LOCK_TIMEOUT, OwnConnection
from .sqlite import database_of, reason_of
from .tables import (
    make_missing_tables,
    may_make_tables,
    missing_columns,
    missing_tables,
    table_of,
)

__all__ = ["Rerun", "Transactions"]

T = TypeVar("T")

ATTEMPTS = 8


class Rerun(Exception):
    """Raised by a body that wants its transaction rolled back and begun once more."""


class Transactions:
    """Runs bodies, each as one transaction on ``own``. Thread-safe.

    A transaction is tried again, within ``timeout`` seconds and :data:`ATTEMPTS`,
    only if it surely had no effect: when a statement *before* the commit lost
    against a rival, or found one of the tables of ``models`` missing, which it could
    make (see :func:`.tables.may_make_tables`). What else goes wrong in the database,
    or takes too long, becomes an ``unavailable``, with the cause chained. For a row
    that somebody else has locked it waits ``lock_timeout`` seconds.
    """

    def __init__(
        self,
        own: OwnConnection,
        *,
        timeout: float,
        models: tuple[str, ...],
        unavailable: type[IdgenError],
        lock_timeout: int = LOCK_TIMEOUT,
    ) -> None:
        self.own = own
        self.timeout = timeout
        self._lock_timeout = lock_timeout
        self._models = models
        self._unavailable = unavailable

    def run(self, body: Callable[[BaseDatabaseWrapper], T], *, timeout: float | None = None) -> T:
        """What ``body`` returns, once it is committed. What it raises rolls back.

        ``timeout`` stands in for that of all transactions.
        """
        timeout = self.timeout if timeout is None else timeout
        try:
            return self.own.run(partial(self._attempts, body, timeout), timeout=timeout)
        except AnyDatabaseError as error:
            raise self._unavailable(f"Database {self._words(error)}") from error
        except (TimeoutError, CancelledError) as error:
            raise self._unavailable(
                f"Database {self.own.alias!r} did not answer within {timeout:g} s. What it "
                f"may still grant is given up. See what holds the server up (a locked row of "
                f"the django_idgen tables?), or raise the 'timeout' option."
            ) from error

    def _words(self, error: AnyDatabaseError) -> str:
        alias = self.own.alias
        if (database := database_of(alias)) is not None:
            return f"{alias!r}: {reason_of(error, database)}"
        words = " ".join(str(error).split())  # psycopg's have several lines
        return (
            f"{alias!r} failed: {words}. What it may have granted is given up. See that the server "
            f"can be reached, and that its user may read and write the django_idgen tables."
        )

    def _attempts(
        self,
        body: Callable[[BaseDatabaseWrapper], T],
        timeout: float,
        connection: BaseDatabaseWrapper,
    ) -> T:
        deadline = SYSTEM_CLOCK.stopwatch() + timeout
        tables_checked = False
        for _ in range(ATTEMPTS):
            attempt = _Attempt(connection, self._lock_timeout)
            try:
                return attempt.run(body)
            except Rerun:
                pass
            except DatabaseError as error:
                if attempt.reached_commit:
                    raise
                if not dialects.is_conflict(error):
                    if tables_checked or not self._made_tables(connection, error):
                        raise
                    tables_checked = True
            if SYSTEM_CLOCK.stopwatch() > deadline:
                break
        raise self._unavailable(
            f"Database {self.own.alias!r}: one transaction after the other lost to a rival. "
            f"Try again; if it lasts, see who else writes to the django_idgen tables."
        )

    def _made_tables(self, connection: BaseDatabaseWrapper, error: DatabaseError) -> bool:
        """Whether tables may have been missing that are there now; raises if columns are."""
        if not isinstance(error, (ProgrammingError, OperationalError)):
            return False
        if connection.connection is None:
            return False  # a host that keeps silent would take as long again to say nothing
        try:
            tables = missing_tables(connection, self._models)
            there = [name for name in self._models if table_of(name) not in tables]
            columns = missing_columns(connection, there)
        except AnyDatabaseError:
            raise error from error.__cause__
        if columns:
            raise self._unavailable(
                f"Database {self.own.alias!r} is half-migrated, or the table is Leaf's own: "
                f"it lacks {', '.join(columns)}. "
                f"Run 'manage.py migrate django_idgen --database {self.own.alias}'."
            ) from error
        if tables:
            self._make_tables(connection, tables)
        # With none missing any more, another process may just have made them.
        return bool(tables) or isinstance(error, ProgrammingError)

    def _make_tables(self, connection: BaseDatabaseWrapper, tables: list[str]) -> None:
        lacks = f"Database {self.own.alias!r} lacks {', '.join(tables)}"
        run = f"Run 'manage.py migrate django_idgen --database {self.own.alias}'"
        if not may_make_tables(connection):
            raise self._unavailable(f"{lacks}. {run}.")
        try:
            make_missing_tables(connection, only=self._models)
        except DatabaseError as error:
            raise self._unavailable(
                f"{lacks}, and its user may not make tables. {run} as one who may."
            ) from error


class _Attempt:
    """One transaction, and how far it came."""

    def __init__(self, connection: BaseDatabaseWrapper, lock_timeout: int) -> None:
        self._connection = connection
        self._lock_timeout = lock_timeout
        self.reached_commit = False
        """From then on an error doesn't tell whether the transaction took effect."""

    def run(self, body: Callable[[BaseDatabaseWrapper], T]) -> T:
        with transaction.atomic(using=self._connection.alias, durable=True):
            dialects.begin(self._connection, lock_timeout=self._lock_timeout)
            result = body(self._connection)
            self.reached_commit = True
        return result
