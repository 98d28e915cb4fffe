"""Rows of tags, changed in one transaction of their database, wherever that is.

On a server that is a transaction of our own, outside of the caller's. A SQLite database
has one writer: there it is the caller's connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from django.db import DatabaseError, DataError, IntegrityError, connections, transaction

from ...core.errors import IdgenError, InvalidTag, SegmentUnavailable
from ...db.connection import Place, own_connection, place_of
from ...db.row_writes import insert_row, why_alike
from ...db.tables import make_missing_tables, missing_tables
from ...db.transactions import Transactions
from ...models import Installation, LeafAlloc
from .rows import half_migrated

__all__ = ["TagExists", "Unstorable", "edit_rows", "insert_tag_row"]

T = TypeVar("T")

MODELS = ("LeafAlloc", "Installation")
TIMEOUT = 5.0
"""Seconds for one edit on a database server."""


class TagExists(IdgenError):
    """A tag that was to be made is there already."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        super().__init__(f"There is a tag {tag!r} already.")


class Unstorable(IdgenError):
    """The database has no place for a value, such as an emoji in a column of 3-byte UTF-8."""


def edit_rows(alias: str, body: Callable[[], T]) -> T:
    """``body`` as one transaction of the database ``alias``.

    Raises what it raises, :class:`Unstorable` and :class:`SegmentUnavailable`.
    """
    try:
        return _on_server(alias, body) if place_of(alias) is Place.SERVER else _here(alias, body)
    except SegmentUnavailable as error:
        if isinstance(error.__cause__, DataError):
            raise _unstorable(alias, error.__cause__) from error
        raise
    except DataError as error:
        raise _unstorable(alias, error) from error
    except DatabaseError as error:
        raise half_migrated(alias, error) or SegmentUnavailable(
            f"Database {alias!r} failed: {error}"
        ) from error


def _on_server(alias: str, body: Callable[[], T]) -> T:
    transactions = Transactions(
        own_connection(alias), timeout=TIMEOUT, models=MODELS, unavailable=SegmentUnavailable
    )
    return transactions.run(lambda _connection: body())


def _here(alias: str, body: Callable[[], T]) -> T:
    if missing_tables(connections[alias], MODELS):
        make_missing_tables(connections[alias], only=MODELS)
    with transaction.atomic(using=alias):
        return body()


def _unstorable(alias: str, error: Exception) -> Unstorable:
    words = " ".join(str(error).split())
    return Unstorable(f"Database {alias!r} can't store this: {words}")


def insert_tag_row(row: LeafAlloc, alias: str) -> None:
    """INSERT ``row``, a tag's first one in ``alias``, with that database's part of the ids.

    In the caller's transaction. Raises :class:`TagExists`, and
    :class:`InvalidTag` where the database takes it for another tag.
    """
    # Locked as a fetch does it, before the tag: nobody may divide the ids anew meanwhile.
    rows = Installation.objects.using(alias).filter(pk=1)
    installation = rows.select_for_update().first()
    if installation is not None:
        row.delta, row.remainder = installation.delta, installation.remainder
    if why := why_alike(row, alias):
        raise InvalidTag(row.pk, why)
    try:
        with transaction.atomic(using=alias):
            insert_row(row, alias)
    except IntegrityError as error:
        raise TagExists(row.pk) from error
