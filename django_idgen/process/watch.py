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
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any, TypeVar

from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, Error, connections, router
from django.db.backends.base.base import BaseDatabaseWrapper

from ..core.errors import SegmentUnavailable, sentence
from ..core.generator import Watch
from ..core.segment import HIGHEST
from ..core.segment_generator import SegmentGenerator
from ..db.connection import Place, place_of
from ..db.tables import has_table

T = TypeVar("T")
Spot = tuple[type, str, str, object]
"""A field's model and column, and the database and tenant of the caller."""


@dataclass(frozen=True, slots=True)
class IdColumn:
    """A column of a table, as the caller's connection finds it. Frozen."""

    model: Any
    alias: str
    table: str
    """In SQL."""
    exists: bool
    """Whether the table was found; else it has not been looked for."""
    name: str
    key: str
    """A short text that no other column has."""

    def highest(self) -> int:
        """The highest id in its rows; 0 without any, or without a table.

        Raises :class:`SegmentUnavailable`.
        """
        connection = connections[self.alias]
        sql = (
            f"SELECT MAX({connection.ops.quote_name(self.name)}) FROM {self.table} "  # noqa: S608
            f"WHERE {connection.ops.quote_name(self.name)} <= {HIGHEST}"
        )
        with _errors_of(self.model, self.alias), _uncounted(connection):
            if not self.exists and not has_table(connection, self.model._meta.db_table):
                return 0
            with connection.cursor() as cursor:
                cursor.execute(sql)
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
        self._also: dict[Spot, Any] = {}
        self._found: set[Spot] = set()
        self._columns: dict[str, IdColumn] = {}
        # Packages that give each tenant a schema keep its name in the connection.
        self._has_tenants = any(hasattr(connections[alias], "schema_name") for alias in connections)

    def follow(self, field: Any) -> None:
        """Before an id goes into ``field``: look at its table, unless that was done."""
        spot = self._spot(field)
        if spot not in self._found:
            self._also[spot] = field
            outside_event_loop(partial(self._find, [field]))

    def is_due(self) -> bool:
        return any(self._spot(field) not in self._found for field in self._known())

    def find(self) -> None:
        outside_event_loop(partial(self._find, self._known()))

    def look(self, tables: frozenset[str]) -> None:
        outside_event_loop(partial(self._look, tables))

    async def in_thread(self, ask: Callable[[], None]) -> None:
        # The thread in which coroutines use the ORM. Its connection has the caller's tenant.
        await sync_to_async(partial(_closing_new, ask))()

    def _spot(self, field: Any) -> Spot:
        # Quick: each new row of a field gets here.
        model = field.model
        alias = router.db_for_write(model) if settings.DATABASE_ROUTERS else DEFAULT_DB_ALIAS
        tenant = getattr(connections[alias], "schema_name", None) if self._has_tenants else None
        return model, getattr(field, "column", ""), alias, tenant

    def _known(self) -> list[Any]:
        return [*self._fields, *self._also.values()]

    def _find(self, fields: Iterable[Any]) -> None:
        for field in fields:
            spot = self._spot(field)
            if spot in self._found:
                continue
            columns = columns_of(field)
            if columns is None:
                continue  # it has no table yet, or may not be asked
            self._columns.update((each.key, each) for each in columns)
            if late := self._generator.expect(frozenset(each.key for each in columns)):
                self._look(late)
            self._found.add(spot)

    def _look(self, tables: frozenset[str]) -> None:
        top = max(self._columns[key].highest() for key in tables)
        self._generator.pass_rows(tables, top)


def highest_in(field: Any) -> int:
    """The highest id in rows of ``field``, in all databases that may have some; 0 without any.

    Raises :class:`SegmentUnavailable` if a database does not answer.
    """
    return max((each.highest() for each in columns_of(field) or ()), default=0)


# --- where rows are ----------------------------------------------------------------------


def columns_of(field: Any) -> list[IdColumn] | None:
    """The column of ``field`` in all databases that may have rows; None if the table is missing.

    Also None while a test forbids the database. Raises :class:`SegmentUnavailable`.
    """
    model, name = field.model, getattr(field, "column", None)
    if name is None:
        return None
    first = router.db_for_write(model)
    found = []
    for alias in {first, *_other_databases(model)}:
        connection = connections[alias]
        if connection.vendor == "unknown":
            continue  # a project without a database
        if place_of(alias) is Place.FORBIDDEN:
            if alias == first:
                return None
            continue
        with _errors_of(model, alias), _uncounted(connection):
            column = _resolved(connection, model, name, ask=alias == first)
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


def _resolved(
    connection: BaseDatabaseWrapper, model: Any, name: str, *, ask: bool
) -> IdColumn | None:
    """The column in the table that ``connection`` finds; None if it finds no table.

    Without ``ask`` no connection is opened for that: a replica may be down.
    """
    where, table = connection.settings_dict, model._meta.db_table
    quoted = connection.ops.quote_name(table)
    address: list[object] = [where["HOST"], where["PORT"], where["NAME"], table]
    ask = ask or connection.connection is not None
    if ask:
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute(_TABLE_IN_POSTGRESQL, [quoted])
                found = cursor.fetchone()
            if found is None:
                return None
            quoted, *address[2:] = found
        elif not has_table(connection, table):
            return None
    text = "/".join(map(str, [connection.vendor, *address, name]))
    key = sha256(text.encode()).hexdigest()[:16]
    return IdColumn(model, connection.alias, quoted, ask, name, key)


_TABLE_IN_POSTGRESQL = """
    SELECT quote_ident(space.nspname) || '.' || quote_ident(found.relname),
           current_database(), found.oid
    FROM pg_class found JOIN pg_namespace space ON space.oid = found.relnamespace
    WHERE found.oid = to_regclass(%s)
"""


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
    lent = {alias: connections[alias] for alias in connections}

    def asking() -> T:
        for alias, connection in lent.items():
            connection.inc_thread_sharing()
            connections[alias] = connection
        try:
            return _closing_new(ask)
        finally:
            for connection in lent.values():
                connection.dec_thread_sharing()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asking).result()


def _closing_new(ask: Callable[[], T]) -> T:
    """Call ``ask``, and close the connections that it opened."""
    were_open = {alias for alias in connections if connections[alias].connection is not None}
    try:
        return ask()
    finally:
        for alias in connections:
            if alias not in were_open:
                connections[alias].close()
