"""Rows whose ids are known before the insert need not wait for each other's.

A parent's row that gets its id from the database must be answered before the
first child's can be sent. Where the id is there beforehand, PostgreSQL's
pipeline mode (of libpq 14 and psycopg 3) lets all of them go out at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from django.db import DEFAULT_DB_ALIAS, Error, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

__all__ = ["pipelined"]

Execute = Callable[[Any, Any, bool, dict[str, Any]], Any]


@contextmanager
def pipelined(
    using: str | None = None, *, savepoint: bool = True, durable: bool = False
) -> Iterator[None]:
    """``transaction.atomic()`` in which PostgreSQL's answers to inserts are not waited for.

        with pipelined():
            order = Order.objects.create(customer=customer)
            for article in basket:
                Line.objects.create(order=order, article=article)

    On PostgreSQL, with psycopg 3, each ``INSERT`` without ``RETURNING`` (a model whose
    key is one of our fields, or a ``UUIDField``) is sent at once, and the next one goes
    out without waiting for the answer. Every other statement waits for all answers
    first, so that queries see the rows, and updates, ``get_or_create()`` and nested
    ``atomic()`` blocks work as ever. Elsewhere it is ``transaction.atomic()``, whose
    arguments these are. It may be used as a decorator.

    A row that is refused is told of later than usual: by the next statement that
    waits, or by the end of the block, with the error that ``save()`` would have
    raised. No row of the block is kept then, even if somebody catches that error.
    A row that may be refused goes into a nested ``atomic()``, where each is waited for.

    ``cursor.rowcount`` of an ``INSERT`` of your own is -1. ``iterator()`` reads all its
    rows at once, as server-side cursors don't go with pipelines; one that was begun
    before the block can't go on inside it. Not for coroutines, as ``atomic()`` is not.
    """
    connection = connections[using or DEFAULT_DB_ALIAS]
    with transaction.atomic(using, savepoint, durable):
        if not _can_pipeline(connection) or (not savepoint and _is_pipelined(connection)):
            yield
        else:
            with _Inserts(connection).running():
                yield


def _can_pipeline(connection: BaseDatabaseWrapper) -> bool:
    if connection.vendor != "postgresql":
        return False
    try:
        from psycopg import Pipeline
    except ImportError:  # psycopg2
        return False
    return hasattr(connection.connection, "pipeline") and Pipeline.is_supported()


def _is_pipelined(connection: BaseDatabaseWrapper) -> bool:
    return any(isinstance(wrapper, _Inserts) for wrapper in connection.execute_wrappers)


class _Inserts:
    """An ``execute_wrapper``: in pipeline mode during each run of inserts, and only then.

    So that all else finds the connection as it always is.
    """

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self._connection = connection
        self._depth = self._savepoints()
        self._mode: AbstractContextManager[Any] | None = None
        self._pipeline: Any = None
        self._failure: Error | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        with self._connection.execute_wrapper(self), _client_cursors(self._connection):
            try:
                yield
            except BaseException:
                with suppress(Error):  # all of it is rolled back anyway
                    self._leave()
                raise
            self._settle()
        if self._failure is not None:
            # Somebody caught it: the rows must not vanish without a word.
            raise self._failure

    def __call__(
        self, execute: Execute, sql: Any, params: Any, many: bool, context: dict[str, Any]
    ) -> Any:
        if not many and _goes_without_answer(sql) and self._is_ours():
            return self._send(execute, sql, params, context)
        self._settle()
        return execute(sql, params, many, context)

    def _is_ours(self) -> bool:
        # An error inside a nested atomic() belongs to it, and must come before its end.
        # After an error Django refuses all statements, which is not to be counted as another.
        return self._savepoints() == self._depth and not self._connection.needs_rollback

    def _savepoints(self) -> int:
        return sum(sid is not None for sid in self._connection.savepoint_ids)

    def _send(self, execute: Execute, sql: str, params: Any, context: dict[str, Any]) -> Any:
        try:
            self._enter()
            return execute(sql, params, False, context)
        except Error as error:  # of this row, or of one before it
            self._fail(error)
            with suppress(Error):
                self._leave()
            raise

    def _enter(self) -> None:
        if self._mode is None:
            with self._connection.wrap_database_errors:
                mode = self._connection.connection.pipeline()
                self._pipeline = mode.__enter__()
            self._mode = mode

    def _settle(self) -> None:
        try:
            self._leave()
        except Error as error:
            self._fail(error)
            raise

    def _leave(self) -> None:
        """Wait for all answers. Raises what the first row that was refused was refused for."""
        mode, self._mode = self._mode, None
        if mode is None:
            return
        with self._connection.wrap_database_errors:
            try:
                self._pipeline.sync()
            except BaseException:
                # What follows the error is "aborted", which nobody needs to know.
                with suppress(Exception):
                    mode.__exit__(None, None, None)
                raise
            mode.__exit__(None, None, None)

    def _fail(self, error: Error) -> None:
        # As save() does: no query until the end of the innermost atomic().
        self._connection.needs_rollback = True
        self._failure = error


@contextmanager
def _client_cursors(connection: Any) -> Iterator[None]:
    before = vars(connection).get("chunked_cursor")
    connection.chunked_cursor = connection.cursor
    try:
        yield
    finally:
        if before is None:
            del connection.chunked_cursor
        else:
            connection.chunked_cursor = before


def _goes_without_answer(sql: Any) -> bool:
    return isinstance(sql, str) and sql.startswith("INSERT INTO ") and "RETURNING" not in sql
