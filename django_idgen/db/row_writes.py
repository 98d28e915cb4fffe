"""Writing our own rows without signals such as ``post_save`` and ``pre_delete``.

A project may have a receiver for every model, such as an audit log, whose rows
have ids of this app. Called in the middle of a grant, it would wait for the very
grant that is being written.
"""

from __future__ import annotations

from collections.abc import Iterable

from django.db import DatabaseError, connections
from django.db.models import Model

__all__ = ["delete_rows", "insert_row", "update_row", "why_alike"]


def why_alike(row: Model, alias: str) -> str:
    """Why ``row`` can't stand beside one that is there, whose key looks alike; "" if it can.

    By the collations that MySQL and MariaDB come with "Orders" can't stand beside "orders".
    """
    if connections[alias].vendor != "mysql":
        return ""
    rows = type(row)._base_manager.using(alias).exclude(pk=row.pk)
    # By the column's collation, unlike the exact comparison of a NameField.
    other = rows.filter(pk__gte=row.pk, pk__lte=row.pk).values_list("pk", flat=True).first()
    if other is None:
        return ""
    column = f"{row._meta.db_table}.{row._meta.pk.column}"
    return (
        f"database {alias!r} has {other!r}, which is the same by the collation of {column}; "
        f"choose a name that differs in more than case, accents and spaces, or give that column "
        f"a binary collation"
    )


def insert_row(row: Model, alias: str) -> None:
    """``INSERT`` it. Raises what the database says, if its key is there, for example."""
    type(row)._base_manager.using(alias).bulk_create([row])


def update_row(row: Model, alias: str, *names: str) -> None:
    """``UPDATE`` its fields ``names``, or all of them but the key.

    Raises :class:`django.db.DatabaseError` if there is no such row.
    """
    fields = [field.name for field in row._meta.concrete_fields if not field.primary_key]
    values = {name: getattr(row, name) for name in names or fields}
    if not type(row)._base_manager.using(alias).filter(pk=row.pk).update(**values):
        raise DatabaseError(f"The row {row.pk!r} of {row._meta.db_table} is gone.")


def delete_rows(model: type[Model], alias: str, keys: Iterable[object]) -> int:
    """``DELETE`` those with the primary keys ``keys``; how many there were.

    For a table that no other one refers to: nothing is looked up for its sake.
    """
    chosen = list(keys)  # MySQL knows no LIMIT in a subquery
    rows = model._base_manager.using(alias).filter(pk__in=chosen)
    return int(rows._raw_delete(rows.db)) if chosen else 0
