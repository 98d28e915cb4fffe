"""``pipelined()``: inserts of rows with known ids do not wait for each other.

If the database gives a parent's id, its answer must arrive before the first child can be sent.
If the id is known before, PostgreSQL's pipeline mode (libpq 14, psycopg 3) sends all rows at
once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Protocol, TypeVar, overload

from django.db import DEFAULT_DB_ALIAS, Error, InternalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

Execute = Callable[[Any, Any, bool, dict[str, Any]], Any]
Function = TypeVar("Function", bound=Callable[..., Any])


class Block(Protocol):
    """A context manager and decorator."""

    def __enter__(self) -> None: ...
    def __exit__(self, *exc: Any) -> bool | None: ...
    def __call__(self, function: Function, /) -> Function: ...


@overload
def pipelined(using: Function) -> Function: ...
@overload
def pipelined(
    using: str | None = None, *, savepoint: bool = True, durable: bool = False
) -> Block: ...
def pipelined(using: Any = None, *, savepoint: bool = True, durable: bool = False) -> Any:
    """``transaction.atomic()`` that does not wait for PostgreSQL's answers to inserts.

        with pipelined():
            order = Order.objects.create(customer=customer)
            for article in basket:
                Line.objects.create(order=order, article=article)

    On PostgreSQL with psycopg 3 each ``INSERT`` without ``RETURNING`` (of a model whose key is
    a field of this app, or a ``UUIDField``) is sent at once, and the next one does not wait for
    the answer. Every other statement first waits for all answers, so that queries see the rows,
    and updates, ``get_or_create()`` and nested ``atomic()`` blocks work as usual. Elsewhere it
    is ``transaction.atomic()``, and takes the same arguments. It works as a decorator, with and
    without parentheses.

    The error of a refused row comes later than usual: from the next statement that waits, or
    from the end of the block. It is the error that ``save()`` would have raised. The block then
    keeps no row, even if the error is caught. Put a row that may be refused into a nested
    ``atomic()``, where each statement waits for its answer.

    ``iterator()`` reads all its rows at once, as server-side cursors do not work in pipelines.
    An iterator that began before the block can't continue inside it, and psycopg's own
    connection (``connection.connection``) may be in pipeline mode. Like ``atomic()``, it is not
    for coroutines.
    """
    if callable(using):  # a bare @pipelined
        return _pipelined(None, True, False)(using)
    return _pipelined(using, savepoint, durable)


@contextmanager
def _pipelined(using: str | None, savepoint: bool, durable: bool) -> Iterator[None]:
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
    """An ``execute_wrapper`` that turns pipeline mode on for each run of inserts, and only then.

    All other code finds the connection in its usual mode.
    """

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self._connection = connection
        self._open_savepoints = 0
        self._mode: AbstractContextManager[Any] | None = None
        self._pipeline: Any = None
        self._failure: BaseException | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        with _installed(self._connection, self):
            try:
                yield
            except BaseException as error:
                with suppress(Exception):  # everything is rolled back anyway
                    self._leave()
                self._close_if_stuck(error)
                raise
            self.settle()
        if self._failure is not None:
            # The caller caught it, but the rows must not vanish silently.
            raise self._failure

    def __call__(
        self, execute: Execute, sql: Any, params: Any, many: bool, context: dict[str, Any]
    ) -> Any:
        if not many and _goes_without_answer(sql) and self._is_ours(context["cursor"]):
            return self._send(execute, sql, params, context)
        self.settle()
        result = execute(sql, params, many, context)
        self._open_savepoints += _opens_savepoints(sql)
        return result

    def _is_ours(self, cursor: Any) -> bool:
        # An error after a savepoint must be raised before that savepoint ends.
        # After an error Django refuses all statements; that is not a second error.
        return (
            self._open_savepoints == 0
            and not self._connection.needs_rollback
            and isinstance(cursor.cursor, _Cursor)
            and cursor.cursor.inserts is self
        )

    def _send(self, execute: Execute, sql: str, params: Any, context: dict[str, Any]) -> Any:
        try:
            self._enter()
            return execute(sql, params, False, context)
        except BaseException as error:
            if isinstance(error, Error):  # of this row or an earlier one
                self._fail(error)
            with suppress(Error):
                self.settle()
            self._close_if_stuck(error)
            raise

    def _enter(self) -> None:
        if self._mode is None:
            with self._connection.wrap_database_errors:
                mode = self._connection.connection.pipeline()
                self._pipeline = mode.__enter__()
            self._mode = mode

    def settle(self) -> None:
        """Wait for all answers. Raises the error of the first row that was refused."""
        try:
            self._leave()
        except BaseException as error:  # after an interruption a row may have been refused
            self._fail(error)
            self._close_if_stuck(error)
            raise

    def _close_if_stuck(self, error: BaseException) -> None:
        # Interrupted at the wrong moment, psycopg stays in pipeline mode.
        driver = self._connection.connection
        if driver is not None and driver.pgconn.pipeline_status:
            self._fail(error)
            driver.close()

    def _leave(self) -> None:
        mode, self._mode = self._mode, None
        if mode is None:
            return
        with self._connection.wrap_database_errors:
            try:
                self._pipeline.sync()
            except BaseException:
                # After the error, psycopg reports only "aborted".
                with suppress(Exception):
                    mode.__exit__(None, None, None)
                raise
            mode.__exit__(None, None, None)
        self._check_transaction()

    def _check_transaction(self) -> None:
        from psycopg.pq import TransactionStatus

        status = self._connection.connection.info.transaction_status
        if status not in (TransactionStatus.INTRANS, TransactionStatus.IDLE):
            # psycopg raises an error only once, to the first caller.
            raise InternalError(
                f"The transaction is {status.name}: the database refused a row of this "
                "pipelined() block, but other code took the error. Use psycopg's own connection "
                "(connection.connection, is_usable()) outside of the block."
            )

    def _fail(self, error: BaseException) -> None:
        # Refuse queries until the end of the innermost atomic(), as save() does.
        connection: Any = self._connection
        connection.needs_rollback = True
        connection.rollback_exc = error
        self._failure = self._failure or error


class _Cursor:
    """psycopg's cursor, which waits for all answers before anything but ``execute()``."""

    def __init__(self, inserts: _Inserts, cursor: Any) -> None:
        self.inserts = inserts
        self._cursor = cursor

    def __getattr__(self, name: str) -> Any:
        if name not in ("execute", "close", "_query"):  # _query: for Django's debug cursor
            self.inserts.settle()
        return getattr(self._cursor, name)

    def __iter__(self) -> Iterator[Any]:
        self.inserts.settle()
        return iter(self._cursor)


@contextmanager
def _installed(connection: Any, inserts: _Inserts) -> Iterator[None]:
    # Blocks in generators may end in any order: the last block to end restores the cursor.
    wrappers = connection.execute_wrappers
    if not any(isinstance(wrapper, _Inserts) for wrapper in wrappers):
        connection.create_cursor = _Cursors(connection)
    wrappers.append(inserts)
    try:
        yield
    finally:
        wrappers.remove(inserts)
        if not any(isinstance(wrapper, _Inserts) for wrapper in wrappers):
            connection.create_cursor.remove()


class _Cursors:
    """A connection's ``create_cursor()`` while there are blocks."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._before = vars(connection).get("create_cursor")
        self._create_cursor = connection.create_cursor

    def __call__(self, _name: str | None = None) -> _Cursor:
        wrappers = self._connection.execute_wrappers
        inserts = next(found for found in reversed(wrappers) if isinstance(found, _Inserts))
        return _Cursor(inserts, self._create_cursor())  # never a server-side one

    def remove(self) -> None:
        if self._before is None:
            del self._connection.create_cursor
        else:
            self._connection.create_cursor = self._before


def _goes_without_answer(sql: Any) -> bool:
    # psycopg can't send several statements in one in pipeline mode.
    return (
        isinstance(sql, str)
        and sql.startswith("INSERT INTO ")
        and "RETURNING" not in sql
        and ";" not in sql
    )


def _opens_savepoints(sql: Any) -> int:
    """By how much ``sql`` changes the number of savepoints; Django does not list manual ones."""
    word = sql.split(maxsplit=1)[0].upper() if isinstance(sql, str) and sql.strip() else ""
    return (word == "SAVEPOINT") - (word == "RELEASE")
