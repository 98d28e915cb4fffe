"""The database's auto-increment as a peer: an insert for each id."""

from __future__ import annotations

import weakref
from collections import deque

from django.db import Error, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from .run import BenchFailed

__all__ = ["AutoIncrement"]

TABLE = "idgen_bench"
COLUMN = "id"


class AutoIncrement:
    """Ids of a ``BigAutoField`` column in database ``alias``. Thread-safe.

    The table is temporary: nothing is left behind, and no commit waits for the disk. A real
    table costs more. Each thread that asks meanwhile has a connection with a table of its own,
    which counts for itself; the connections close with this object.
    """

    def __init__(self, alias: str = "default") -> None:
        self._alias = alias
        self._idle = deque([_Table(alias)])
        weakref.finalize(self, _close, self._idle)

    def next_id(self) -> int:
        """Insert a row, and return its id. Raises :class:`BenchFailed`, and the database's errors.

        A connection that failed is not used again.
        """
        try:
            table = self._idle.pop()
        except IndexError:
            table = _Table(self._alias)
        found = table.insert()
        self._idle.append(table)
        return found


class _Table:
    """A temporary table, and the connection that alone sees it."""

    def __init__(self, alias: str) -> None:
        self.connection = connection = connections.create_connection(alias)
        connection.inc_thread_sharing()  # by one thread after the other
        table, column = map(connection.ops.quote_name, (TABLE, COLUMN))
        try:
            kind = connection.data_types["BigAutoField"]
            suffix = connection.data_types_suffix.get("BigAutoField", "")
            with connection.cursor() as cursor:
                # A connection out of a pool may have it already.
                cursor.execute(
                    f"CREATE TEMPORARY TABLE IF NOT EXISTS {table} ({column} {kind} NOT NULL "
                    f"PRIMARY KEY {suffix}, stub char(1) NOT NULL)"
                )
        except Error as error:
            raise BenchFailed(
                f"Database {alias!r} can't make a temporary table for 'auto-increment': "
                f"{str(error).strip()} Leave it out of --against."
            ) from error
        self._returns = connection.features.can_return_columns_from_insert
        returning = f" RETURNING {column}" if self._returns else ""
        self._insert = f"INSERT INTO {table} (stub) VALUES ('x'){returning}"  # noqa: S608

    def insert(self) -> int:
        connection = self.connection
        with connection.cursor() as cursor:
            cursor.execute(self._insert)
            if self._returns:
                return int(cursor.fetchone()[0])
            return int(connection.ops.last_insert_id(cursor, TABLE, COLUMN))


def _close(tables: deque[_Table]) -> None:
    for table in tables:
        # SQLite's own close() leaves a database in memory open.
        BaseDatabaseWrapper.close(table.connection)
