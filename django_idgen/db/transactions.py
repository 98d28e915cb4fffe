"""Transactions on our own connections: retries, missing tables, errors."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError
from functools import partial
from typing import Any, TypeVar

from django.db import DatabaseError, OperationalError, ProgrammingError, transaction
from django.db import Error as AnyDatabaseError
from django.db.backends.base.base import BaseDatabaseWrapper

from ..core.clock import SYSTEM_CLOCK
from ..core.errors import ConfigurationError, IdgenError, sentence
from . import dialects
from .connection import LOCK_TIMEOUT, OwnConnection
from .sqlite import BUSY_TIMEOUT, FileConnection, database_of, reason_of
from .tables import (
    how_to_make_tables,
    make_missing_tables,
    may_make_tables,
    missing_columns,
    missing_tables,
    table_of,
)

T = TypeVar("T")

ATTEMPTS = 8


class Rerun(Exception):
    """A body raises it to have its transaction rolled back and run again."""


class Transactions:
    """Runs bodies, each as one transaction on ``own``. Thread-safe.

    Retries a transaction, within ``timeout`` seconds and :data:`ATTEMPTS`, only if it certainly
    had no effect: a statement *before* the commit lost against a rival, or found a table of
    ``models`` missing that may be made (see :func:`.tables.may_make_tables`). Any other
    database error, and a timeout, becomes an ``unavailable``, with the cause chained. Waits
    ``lock_timeout`` seconds for a locked row.
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
        self._file_timeout = max(BUSY_TIMEOUT, lock_timeout)
        """Seconds to wait for a SQLite file, which is locked as a whole."""
        self._models = models
        self._unavailable = unavailable

    def run(self, body: Callable[[BaseDatabaseWrapper], T], *, timeout: float | None = None) -> T:
        """Run ``body``, commit, and return its result. An exception rolls back.

        ``timeout`` overrides that of all transactions.
        """
        timeout = self.timeout if timeout is None else timeout
        try:
            return self.own.run(partial(self._attempts, body, timeout), timeout=timeout)
        except AnyDatabaseError as error:
            if dialects.lacks_character(error):
                raise ConfigurationError(
                    f"Database {self.own.alias!r} can't store a character of the tag or namespace: "
                    f"{sentence(error)} Convert the django_idgen tables to utf8mb4 (on PostgreSQL: "
                    f"a database in UTF8), or use a name whose characters their charset has."
                ) from error
            raise self._unavailable(f"Database {self._describe(error)}") from error
        except (TimeoutError, CancelledError) as error:
            raise self._unavailable(
                f"Database {self.own.alias!r} did not answer within {timeout:g} s. Find out what "
                "blocks the server (a locked row of the django_idgen tables?), or raise the "
                "'timeout' option."
            ) from error

    def _describe(self, error: AnyDatabaseError) -> str:
        alias = self.own.alias
        if (database := database_of(alias)) is not None:
            return f"{alias!r}: {reason_of(error, database, waited=self._file_timeout)}"
        # psycopg's texts have several lines, and may end with a question.
        return (
            f"{alias!r} failed: {sentence(error)} Check that the server can be reached, and that "
            "its user may read and write the django_idgen tables."
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
            committing = False
            try:
                if isinstance(connection, FileConnection):
                    connection.wait_for_writers(self._file_timeout)
                with transaction.atomic(using=connection.alias, durable=True):
                    dialects.begin(connection, lock_timeout=self._lock_timeout)
                    result = body(connection)
                    committing = True
                return result
            except Rerun:
                pass
            except DatabaseError as error:
                if committing:  # the transaction may have taken effect
                    raise
                if not dialects.is_conflict(error):
                    if tables_checked or not self._made_tables(connection, error):
                        raise
                    tables_checked = True
            if SYSTEM_CLOCK.stopwatch() > deadline:
                break
        raise self._unavailable(
            f"Database {self.own.alias!r}: another process changed the rows during every attempt. "
            "Try again. If this continues, find out which program writes to the django_idgen "
            "tables."
        )

    def _made_tables(self, connection: BaseDatabaseWrapper, error: DatabaseError) -> bool:
        """Whether missing tables may have been the cause, and now exist. Raises for columns."""
        if not isinstance(error, (ProgrammingError, OperationalError)):
            return False
        if connection.connection is None:
            return False  # a silent host would cost the timeout once more
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
        # If none is missing now, another process may just have made them.
        return bool(tables) or isinstance(error, ProgrammingError)

    def _make_tables(self, connection: BaseDatabaseWrapper, tables: list[str]) -> None:
        lacks = f"Database {self.own.alias!r} lacks {', '.join(tables)}"
        how = how_to_make_tables(self.own.alias)
        if not may_make_tables(connection):
            raise self._unavailable(f"{lacks}. {how}.")
        try:
            make_missing_tables(connection, only=self._models)
        except DatabaseError as error:
            raise self._unavailable(
                f"{lacks}, and its user may not make tables. {how}, as a user who may."
            ) from error


View = TypeVar("View", bound=Callable[..., Any])


class EveryDatabase(set[str]):
    """Contains every alias, including those of databases that are added later."""

    def __contains__(self, alias: object) -> bool:
        return True


def never_atomic(view: View) -> View:
    """Exempt ``view`` from ``ATOMIC_REQUESTS`` of every database. Also works as a decorator.

    Django's :func:`~django.db.transaction.non_atomic_requests` exempts one database. A probe
    that began a transaction on another one would fail, or hang, with that database.
    """
    # The attribute that Django's decorator sets.
    view._non_atomic_requests = EveryDatabase()  # type: ignore[attr-defined]
    return view
