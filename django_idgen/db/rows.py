"""Rows of our tables, read and written by statements of our own.

A query cache answers the SELECT after an UPDATE that it did not see with the row of before: a
grant that is read that way is given out twice. A manager, a router or a signal of another package
may do the same. So wherever safety hangs on a row, a queryset only builds the statement, and a
cursor runs it. Rows are written without signals such as post_save and pre_delete: a project may
have a receiver for every model, such as an audit log whose rows have ids of this app. In the
middle of a grant it would wait for the very grant that is being written.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from django.core.exceptions import EmptyResultSet
from django.db import DatabaseError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model, QuerySet
from django.db.models.aggregates import Aggregate
from django.db.models.sql.compiler import SQLCompiler

M = TypeVar("M", bound=Model)
CHUNK = 2000
"""Rows that are fetched at a time where there may be millions."""


def rows_of(model: type[M], alias: str) -> QuerySet[M]:
    """All rows of ``model`` in the database ``alias``, to be narrowed and read or written.

    In no order, so that a statement about one row is not built with one.
    """
    from ..models import HomeQuerySet  # which can't be imported before the apps are loaded

    return HomeQuerySet(model, using=alias).order_by()


# --- reading -----------------------------------------------------------------------------


def read(rows: QuerySet[M]) -> list[M]:
    """The rows as instances."""
    compiler = rows.query.get_compiler(rows.db)
    found = list(_found(compiler))
    names = [column.target.attname for column, *_ in compiler.select or ()]
    return [rows.model.from_db(rows.db, names, values) for values in found]


def read_first(rows: QuerySet[M]) -> M | None:
    """The first row in the order of ``rows``; None if there is none."""
    return next(iter(read(rows[:1])), None)


def read_values(rows: QuerySet[M], *names: str) -> list[tuple[Any, ...]]:
    """The fields ``names`` of each row."""
    chosen = rows.values_list(*names)
    return list(_found(chosen.query.get_compiler(chosen.db)))


def iterate_values(rows: QuerySet[M], *names: str) -> Iterator[tuple[Any, ...]]:
    """As :func:`read_values`, where there may be millions: :data:`CHUNK` rows at a time."""
    chosen = rows.values_list(*names)
    return _found(chosen.query.get_compiler(chosen.db), chunked=True)


def read_aggregate(rows: QuerySet[M], aggregate: Aggregate) -> Any:
    """``aggregate`` over ``rows``."""
    query = rows.order_by().values_list().query
    query.clear_select_clause()
    query.add_annotation(aggregate, "value")
    query.group_by = None
    ((value,),) = _found(query.get_compiler(rows.db))
    return value


def is_any(rows: QuerySet[M]) -> bool:
    """Whether there are ``rows``."""
    return bool(read_values(rows[:1], "pk"))


def move_row(
    rows: QuerySet[M], statement: tuple[str, Sequence[Any]], *names: str
) -> tuple[Any, ...] | None:
    """Run ``statement``, an UPDATE of ``rows``; the fields ``names`` of the one row as it is then.

    None if it changed no row. The UPDATE itself returns them where a database can do that. Else
    they are read in its transaction, which keeps the row locked.
    """
    sql, parameters = statement
    chosen = rows.values_list(*names)
    compiler = chosen.query.get_compiler(rows.db)
    connection = compiler.connection
    if not _returns_rows(connection):
        with connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            changed = cursor.rowcount
        return next(_found(compiler), None) if changed else None
    compiler.setup_query()
    columns = (connection.ops.quote_name(column.target.column) for column, *_ in compiler.select)
    with connection.cursor() as cursor:
        cursor.execute(f"{sql} RETURNING {', '.join(columns)}", parameters)
        return next(map(tuple, compiler.results_iter([cursor.fetchall()])), None)


def _returns_rows(connection: BaseDatabaseWrapper) -> bool:
    if connection.vendor == "sqlite":
        return sqlite3.sqlite_version_info >= (3, 35)
    return connection.vendor == "postgresql"


def _found(compiler: SQLCompiler, *, chunked: bool = False) -> Iterator[tuple[Any, ...]]:
    try:
        statement = compiler.as_sql()
    except EmptyResultSet:
        return
    connection = compiler.connection
    with connection.chunked_cursor() if chunked else connection.cursor() as cursor:
        cursor.execute(*statement)
        while found := cursor.fetchmany(CHUNK):
            yield from map(tuple, compiler.results_iter([found]))


# --- writing -----------------------------------------------------------------------------


def why_alike(row: Model, alias: str) -> str:
    """Why the key of ``row`` collides with that of another row; "" if it does not.

    In the default collations of MySQL and MariaDB, "Orders" and "orders" are one key.
    """
    if connections[alias].vendor != "mysql":
        return ""
    rows = rows_of(type(row), alias).exclude(pk=row.pk)
    # Compares by the column's collation, unlike the exact look-up of a NameField.
    others = read_values(rows.filter(pk__gte=row.pk, pk__lte=row.pk)[:1], "pk")
    if not others:
        return ""
    ((other,),) = others
    column = f"{row._meta.db_table}.{row._meta.pk.column}"
    return (
        f"database {alias!r} has {other!r}, which is the same by the collation of {column}; "
        f"choose a name that differs in more than case, accents and spaces, or give that column "
        f"a binary collation"
    )


def insert_row(row: Model, alias: str) -> None:
    """``INSERT`` the row. Raises what the database raises, for example for an existing key."""
    rows_of(type(row), alias).bulk_create([row])


def update_row(row: Model, alias: str, *names: str) -> None:
    """``UPDATE`` the fields ``names``, or all fields but the key.

    Raises :class:`django.db.DatabaseError` if the row does not exist.
    """
    fields = [field.name for field in row._meta.concrete_fields if not field.primary_key]
    values = {name: getattr(row, name) for name in names or fields}
    if not rows_of(type(row), alias).filter(pk=row.pk).update(**values):
        raise DatabaseError(f"The row {row.pk!r} of {row._meta.db_table} is gone.")
