"""The tables whose rows get the ids of a tag. Ids begin above all rows that are there.

A tag's mark may be below the rows of a field's table: the rows were loaded by other means, the
tag was given to a field that had another one, or it was made by a program that knows no tables.
So a process looks at a table before it takes the first id for it. The tag's row stores which
tables were looked at, and each fetch reads that in the statement that moves the row: see
:meth:`.Source.fetch`. With sources that don't store it, each process looks.

Two tables are told apart as their database does: by its address, and by the table that the
connection of the caller finds. Tenants whose tables have one name are apart, too.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any, TypeVar

from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, Error, OperationalError, connections, router
from django.db.backends.base.base import BaseDatabaseWrapper

from ..core.errors import SegmentUnavailable, sentence
from ..core.generator import Watch
from ..core.loader import Turn
from ..core.segment import HIGHEST
from ..core.segment_generator import SegmentGenerator
from ..db import dialects
from ..db.connection import LOCK_TIMEOUT, Place, connection_apart, place_of
from ..db.tables import has_column

T = TypeVar("T")
Spot = tuple[type, str, str, object]
"""A field's model and column, and the database and tenant of the caller."""


@dataclass(frozen=True, slots=True)
class IdColumn:
    """A column of a table, as a connection finds it. Frozen."""

    model: Any
    alias: str
    table: str
    """In SQL."""
    name: str
    key: str
    """A short text that no other column has."""
    by_caller: bool = True
    """Whether the caller's connection goes there; else no connection was opened for that."""
    hides_rows: bool = False
    """Whether row-level security may hide rows from this user."""

    def highest(self) -> tuple[int, bool]:
        """The highest id in its rows, 0 without any; and whether others see no higher one.

        The caller sees what it wrote and has not committed. In a transaction it may also have
        deleted rows that come back, or see an old snapshot: so what is committed counts, too.
        Raises :class:`SegmentUnavailable`.
        """
        mine = connections[self.alias]
        with _errors_of(self.model, self.alias):
            if not self.by_caller:
                return self._committed() or 0, True
            if place_of(self.alias).in_process or not _in_transaction(mine):
                top = self._read(mine)
                return top or 0, not self.hides_rows and top is not None
            return self._highest_for_all(mine)

    def _highest_for_all(self, mine: BaseDatabaseWrapper) -> tuple[int, bool]:
        own = None
        if mine.vendor != "sqlite" or mine.connection.total_changes:
            # SQLite refuses to write in a transaction that began with a read.
            own = self._read(mine)
        if self.hides_rows:
            return own or 0, False
        try:
            committed = self._committed()
        except OperationalError as error:
            if not dialects.is_lock_timeout(error):
                raise
            return own or 0, False  # the caller itself may have locked it: an ALTER TABLE
        return max(own or 0, committed or 0), own is not None or committed is not None

    def _committed(self) -> int | None:
        with closing(connection_apart(self.alias)) as connection:
            connection.set_autocommit(False)
            dialects.limit_lock_waits(connection, LOCK_TIMEOUT)
            return self._read(connection)

    def _read(self, connection: BaseDatabaseWrapper) -> int | None:
        """None without a table: it was dropped, or is not yet committed."""
        name = f"{self.table}.{connection.ops.quote_name(self.name)}"
        with _uncounted(connection), connection.cursor() as cursor:
            if not has_column(connection, self.table, self.name):
                return None
            cursor.execute(f"SELECT MAX({name}) FROM {self.table} WHERE {name} <= {HIGHEST}")  # noqa: S608
            (found,) = cursor.fetchone()
        return max(int(found or 0), 0)


class FieldWatch(Watch):
    """Looks at the tables of the fields of ``generator``'s tag. Thread-safe.

    It uses the connections of the caller, which see what the caller wrote. A test that counts
    queries counts none of these. ``fields``: a list that may grow.
    """

    def __init__(self, generator: SegmentGenerator, fields: Iterable[Any]) -> None:
        self._generator = generator
        self._fields = fields
        self._found: set[Spot] = set()
        self._found_for: dict[Spot, object] = {}
        """Those found for one transaction, which sees more or less than others do."""
        self._columns: dict[str, IdColumn] = {}
        self._turn = Turn()

    def follow(self, field: Any, using: str | None = None) -> None:
        spot = self._spot(field, using)
        if spot not in self._found and not self._is_found_here(spot):
            outside_event_loop(partial(self._in_turn, partial(self._find, [(field, using)])))

    def is_due(self) -> bool:
        spots = map(self._spot, self._fields)
        return any(each not in self._found and not self._is_found_here(each) for each in spots)

    def find(self) -> None:
        fields = [(field, None) for field in self._fields]
        find = partial(self._in_turn, partial(self._find, fields))
        outside_event_loop(partial(_closing_new, find))

    def look(self, tables: frozenset[str]) -> None:
        look = partial(self._in_turn, partial(self._look, tables))
        outside_event_loop(partial(_closing_new, look))

    async def in_thread(self, ask: Callable[[], None]) -> None:
        # The thread in which coroutines use the ORM. Its connection has the caller's tenant.
        waiting = sync_to_async(ask)()
        try:
            await waiting
        except RuntimeError as error:  # of asgiref: that thread waits for this very coroutine
            raise SegmentUnavailable(
                f"The tables of tag {self._generator.tag!r} can't be looked at here: {error} Take "
                "the first id outside of the coroutine."
            ) from error

    def _spot(self, field: Any, using: str | None = None) -> Spot:
        # Quick: each new row of a field gets here.
        model = field.model
        if using is None:
            using = router.db_for_write(model) if settings.DATABASE_ROUTERS else DEFAULT_DB_ALIAS
        # Packages that give each tenant a schema keep its name in the connection.
        tenant = getattr(connections[using], "schema_name", None)
        return model, getattr(field, "column", ""), using, tenant

    def _find(self, fields: Iterable[tuple[Any, str | None]]) -> None:
        for field, using in fields:
            spot = self._spot(field, using)
            if spot in self._found:
                continue
            columns = columns_of(field, using)
            if columns is None:
                continue  # it has no table yet, or may not be asked
            for each in columns:
                self._columns.setdefault(each.key, each)
            keys = frozenset(each.key for each in columns)
            late = self._generator.expect(keys)
            # One that is looked at for each transaction, or is missing, is looked at now. The
            # fetch would only be refused, and of several databases lose its turn.
            if self._look(keys if spot in self._found_for else late):
                self._found.add(spot)
            else:
                self._found_for[spot] = _transaction_of(connections[spot[2]])

    def _look(self, tables: frozenset[str]) -> bool:
        """Whether all processes would see as much."""
        sure = True
        for key in tables - self._generator.tables_seen:
            column = self._columns[key]
            top, for_all = column.highest()
            self._generator.pass_rows(frozenset([key]), top, for_all=for_all)
            sure &= for_all or column.hides_rows
        if not sure:  # they are found again, once this transaction has ended
            found, self._found = self._found, set()
            self._found_for |= {each: _transaction_of(connections[each[2]]) for each in found}
        return sure

    def _is_found_here(self, spot: Spot) -> bool:
        if spot not in self._found_for:
            return False
        transaction = _transaction_of(connections[spot[2]])
        return transaction is not None and self._found_for[spot] is transaction

    def _in_turn(self, ask: Callable[[], T]) -> T:
        """Call ``ask``, one thread at a time: a herd would take a connection each."""

        def late() -> T:  # the other thread looks for long; or was forked away
            self._turn = Turn()
            return ask()

        return self._turn.run(ask, timeout=LOCK_TIMEOUT, late=late)


def highest_in(field: Any) -> int:
    """The highest id in rows of ``field``, in all databases that may have some; 0 without any.

    Raises :class:`SegmentUnavailable` if a database does not answer.
    """
    return max((each.highest()[0] for each in columns_of(field) or ()), default=0)


# --- where rows are ----------------------------------------------------------------------


def columns_of(field: Any, using: str | None = None) -> list[IdColumn] | None:
    """The column of ``field`` in all databases that may have rows; None if the table is missing.

    The database of the row comes first: ``using``, or the one that routers name. Also None while
    a test forbids that. Raises :class:`SegmentUnavailable`.
    """
    model, name = field.model, getattr(field, "column", None)
    if name is None:
        return None
    first = using or router.db_for_write(model)
    found = []
    for alias in dict.fromkeys([first, *sorted(_other_databases(model))]):
        connection = connections[alias]
        if connection.vendor == "unknown":
            continue  # a project without a database
        if place_of(alias) is Place.FORBIDDEN:
            if alias == first:
                return None
            continue
        by_caller = alias == first or connection.connection is not None
        if not by_caller or connection.vendor != "postgresql":
            found.append(_as_named(connection, model, name, by_caller=by_caller))
            continue
        with _errors_of(model, alias):
            column = _resolved(connection, model, name)
        if column is not None:
            found.append(column)
        elif alias == first:
            return None
    return found


def _other_databases(model: Any) -> set[str]:
    """The aliases that may have rows of ``model``. A router may spread them by instance."""
    found = {router.db_for_read(model)}
    if settings.DATABASE_ROUTERS:
        found |= {each for each in connections if router.allow_migrate_model(each, model)}
    return found


def _as_named(
    connection: BaseDatabaseWrapper, model: Any, name: str, *, by_caller: bool
) -> IdColumn:
    """The column as the settings name it, without a query: a replica may be down."""
    table = model._meta.db_table
    quoted = connection.ops.quote_name(table)
    database = connection.settings_dict["NAME"]
    if connection.vendor == "sqlite":
        database = os.path.abspath(database)
    key = _key(connection, database, table, name)
    return IdColumn(model, connection.alias, quoted, name, key, by_caller=by_caller)


def _resolved(connection: BaseDatabaseWrapper, model: Any, name: str) -> IdColumn | None:
    """The column in the table that ``connection`` finds; None if it finds no such table."""
    words = [name, connection.ops.quote_name(model._meta.db_table)]
    try:
        found = _asked(connection, words)
    except Error:  # a transaction that was aborted; or a database that the next line asks, too
        with closing(connection_apart(connection.alias)) as apart:
            found = _asked(apart, words)
    if found is None:
        return None
    table, database, number, hides_rows = found
    key = _key(connection, database, number, name)
    return IdColumn(model, connection.alias, table, name, key, hides_rows=hides_rows)


def _asked(connection: BaseDatabaseWrapper, words: list[str]) -> Any:
    with _uncounted(connection), connection.cursor() as cursor:
        cursor.execute(_TABLE_IN_POSTGRESQL, words)
        return cursor.fetchone()


LOCAL = ("", "localhost", "127.0.0.1", "::1")


def _key(connection: BaseDatabaseWrapper, *words: object) -> str:
    where = connection.settings_dict
    host = str(where["HOST"])
    # Each host has another database at such an address.
    own = socket.gethostname() if host in LOCAL or host.startswith("/") else host
    text = "/".join(map(str, [connection.vendor, own, where["PORT"], *words]))
    return sha256(text.encode()).hexdigest()[:16]


_TABLE_IN_POSTGRESQL = """
    SELECT quote_ident(space.nspname) || '.' || quote_ident(found.relname),
           current_database(), found.oid, row_security_active(found.oid)
    FROM pg_class found
    JOIN pg_namespace space ON space.oid = found.relnamespace
    JOIN pg_attribute part ON part.attrelid = found.oid AND part.attname = %s
    WHERE found.oid = to_regclass(%s) AND NOT part.attisdropped
"""


def _in_transaction(connection: BaseDatabaseWrapper) -> bool:
    """Whether it may be in one, that ``atomic()`` began or other code."""
    if connection.in_atomic_block or not connection.get_autocommit():
        return True
    raw: Any = connection.connection
    if connection.vendor == "sqlite":
        return bool(raw.in_transaction)
    if connection.vendor == "postgresql":
        info = getattr(raw, "info", None)  # of psycopg 3, and of psycopg2 from 2.8 on
        return info is None or int(info.transaction_status) != 0
    # mysqlclient does not say; PyMySQL has the server's SERVER_STATUS_IN_TRANS.
    return bool(getattr(raw, "server_status", 1) & 1)


def _transaction_of(connection: BaseDatabaseWrapper) -> object:
    """What stands for the transaction that ``atomic()`` has begun; None without one."""
    return next(iter(connection.atomic_blocks), None)


@contextmanager
def _errors_of(model: Any, alias: str) -> Iterator[None]:
    try:
        yield
    except Error as error:
        raise SegmentUnavailable(
            f"Database {alias!r} can't be asked which ids the rows of {model._meta.label} have: "
            f"{sentence(error)} Ids could repeat theirs, so none is given out."
        ) from error


@contextmanager
def _uncounted(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Queries that no test counts."""
    log, connection.queries_log = connection.queries_log, deque()
    try:
        yield
    finally:
        connection.queries_log = log


# --- threads -----------------------------------------------------------------------------


def outside_event_loop(ask: Callable[[], T]) -> T:
    """Call ``ask`` with the connections of this thread, in another one if it has an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return ask()
    # A coroutine that does not await has connections of its own.
    lent = connections.all(initialized_only=True)

    def asking() -> T:
        for connection in lent:
            connection.inc_thread_sharing()
            connections[connection.alias] = connection
        try:
            return _closing_new(ask)
        finally:
            for connection in lent:
                connection.dec_thread_sharing()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asking).result()


def _closing_new(ask: Callable[[], T]) -> T:
    """Call ``ask``, and close the connections that it opened."""
    were_open = [each for each in connections.all(initialized_only=True) if each.connection]
    try:
        return ask()
    finally:
        for each in connections.all(initialized_only=True):
            if each not in were_open:
                each.close()
