"""Tags and the tables that they fill: a tag begins, and goes on, above the ids of its rows.

A tag that is new while its table has rows was renamed with its model, moved with it to
another app, or given to a field that had another one. A tag has no say in what is written
into its table by hand, either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from difflib import get_close_matches
from typing import Any, TypeVar

from django.db import connections, router

from ...core.errors import SegmentUnavailable
from ...core.segment import MAX_ID, MAX_STEP
from ...db.connection import Place, place_of
from ...models import LeafAlloc
from ...process import handlers
from .rows import TagUnknown, find_tag, source_behind_pool
from .rows import tag_databases as databases_of_tags

__all__ = ["HIGHEST", "check_made", "highest_in", "taken_of_new"]

T = TypeVar("T")

HIGHEST = MAX_ID - MAX_STEP
"""A tag goes past ids up to here; past one above, it would have no ids left to speak of."""

MAKE_IT = (
    " Make it in the admin (Segment tags, Add) before its ids are taken, or set "
    "IDGEN['SEGMENTS']['OPTIONS']['make_tags'] to True."
)


def taken_of_new(tag: str, fields: Sequence[Any]) -> int | None:
    """The highest id that rows of ``fields`` have, if ``tag`` has given out none yet; else 0.

    None if that can't be told: the tag's database is away.
    """
    source = source_behind_pool()
    if not fields or not source.keeps_rows:
        return 0  # a service that keeps the tags sees no tables
    try:
        if not source.is_new(tag):
            return 0
    except SegmentUnavailable:
        return None  # the fetch will say so, or a pool has some of a tag that is not new
    return _aside(lambda: max(map(highest_in, fields), default=0))


def check_made(tag: str) -> None:
    """Raise :class:`TagUnknown` if there is no tag ``tag``, be it in this process' memory.

    A service that keeps the tags refuses unknown ones itself. Raises what
    :func:`~.rows.find_tag` does besides.
    """
    source = source_behind_pool()
    if source.keeps_rows:
        if all(place_of(alias) is Place.FORBIDDEN for alias in source.route(tag)):
            return  # a test that allows no row to be there
        _aside(lambda: _check_in_databases(tag))
    elif source.is_new(tag):
        raise TagUnknown(tag, hint=MAKE_IT)


def _check_in_databases(tag: str) -> None:
    if find_tag(tag) is None:
        known = set(handlers.segments.fields)
        for alias in databases_of_tags():
            known.update(LeafAlloc.objects.using(alias).values_list("pk", flat=True))
        like = " or ".join(map(repr, get_close_matches(tag, known)))
        raise TagUnknown(tag, hint=f" Is it {like}?{MAKE_IT}" if like else MAKE_IT)


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
    name = getattr(field, "column", None)
    if name is None or connection.vendor == "unknown":
        return 0  # the table has no such column yet, or the project no such database
    connection.ensure_connection()
    q = connection.ops.quote_name
    column = q(name)
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
