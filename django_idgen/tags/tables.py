"""Tags and the tables that they fill: a tag begins, and goes on, above the ids of its rows.

A tag that is new while its table has rows was renamed with its model, moved with it to
another app, or given to a field that had another one. A tag has no say in what is written
into its table by hand, either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from django.db import connections, router

from ..connection import Place, place_of
from ..core.errors import SegmentUnavailable
from ..core.segment import MAX_ID, MAX_STEP
from .rows import source_behind_pool

__all__ = ["HIGHEST", "highest_in", "taken_of_new"]

T = TypeVar("T")

HIGHEST = MAX_ID - MAX_STEP
"""A tag goes past ids up to here; past one above, it would have no ids left to speak of."""


def taken_of_new(tag: str, fields: Sequence[Any]) -> int:
    """The highest id that rows of ``fields`` have, if ``tag`` has given out none yet; else 0."""
    source = source_behind_pool()
    try:
        if not hasattr(source, "is_new") or not source.is_new(tag):
            return 0
    except SegmentUnavailable:
        return 0  # the fetch will say so, or a pool has some of a tag that is not new
    return _aside(lambda: max(map(highest_in, fields), default=0))


def highest_in(field: Any) -> int:
    """The highest id that rows of ``field`` have; 0 if there are none, or no table.

    Asked on the caller's connection, which sees what the caller wrote, but not through
    Django's cursor: a test that counts queries counts those of its project.
    """
    model = field.model
    alias = router.db_for_write(model)
    if place_of(alias) is Place.FORBIDDEN:
        return 0  # a test that allows no row to be there
    connection = connections[alias]
    connection.ensure_connection()
    q = connection.ops.quote_name
    column = q(field.column)
    sql = f"SELECT MAX({column}) FROM {q(model._meta.db_table)} WHERE {column} <= {HIGHEST}"  # noqa: S608
    with connection.wrap_database_errors:
        cursor: Any = connection.connection.cursor()
        try:
            if model._meta.db_table not in connection.introspection.table_names(cursor):
                return 0
            cursor.execute(sql)
            (found,) = cursor.fetchone()
        finally:
            cursor.close()
    return max(int(found or 0), 0)


def _aside(ask: Callable[[], T]) -> T:
    """What ``ask`` returns: in another thread if an event loop runs in this one."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return ask()

    def ask_and_close() -> T:
        try:
            return ask()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(ask_and_close).result()
