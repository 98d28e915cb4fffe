"""What a database says of its tables, asked anew each time: DDL may be going on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

__all__ = ["columns_of", "count_of", "is_partitioned", "rows_of", "stop_writers"]

_PARTITIONED = {
    "postgresql": "SELECT count(*) FROM pg_class WHERE oid = to_regclass(%s) "
    "AND (relkind = 'p' OR relispartition)",
    "mysql": "SELECT count(*) FROM information_schema.partitions WHERE partition_name IS NOT NULL "
    "AND table_schema = database() AND table_name = %s",
}


def columns_of(connection: BaseDatabaseWrapper, table: str) -> list[str]:
    """The names of the columns of ``table``; none if there is no such table."""
    with connection.cursor() as cursor:
        if table not in connection.introspection.table_names(cursor):
            return []
        cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)} WHERE 1 = 0")  # noqa: S608 - Django quotes the names
        return [str(column[0]) for column in cursor.description]


def count_of(connection: BaseDatabaseWrapper, table: str, condition: str = "1 = 1") -> int:
    """How many rows of ``table`` meet ``condition``, which is SQL of ours."""
    quoted = connection.ops.quote_name(table)
    return int(rows_of(connection, f"SELECT count(*) FROM {quoted} WHERE {condition}")[0][0])  # noqa: S608 - Django quotes the names


def is_partitioned(connection: BaseDatabaseWrapper, table: str) -> bool:
    sql = _PARTITIONED.get(connection.vendor)
    if sql is None:
        return False
    name = connection.ops.quote_name(table) if connection.vendor == "postgresql" else table
    return bool(rows_of(connection, sql, [name])[0][0])


def rows_of(
    connection: BaseDatabaseWrapper, sql: str, params: Sequence[Any] | None = None
) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return list(cursor.fetchall()) if cursor.description else []


def stop_writers(connection: BaseDatabaseWrapper, table: str) -> None:
    """Have nobody else write to ``table`` until the transaction ends, where there is one.

    On SQLite a transaction that has read, and then writes, fails at once if somebody was
    quicker; one that begins so waits its turn.
    """
    if not connection.in_atomic_block:
        return
    quoted = connection.ops.quote_name(table)
    if connection.vendor == "postgresql":
        rows_of(connection, f"LOCK TABLE {quoted} IN SHARE ROW EXCLUSIVE MODE")
    elif connection.vendor == "sqlite":
        rows_of(connection, f"DELETE FROM {quoted} WHERE 0")  # noqa: S608 - Django quotes the names
