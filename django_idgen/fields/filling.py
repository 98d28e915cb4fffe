"""Filling a column of new ids: in batches, each a transaction, as often as it takes.

What is left to do stands in the rows alone: a process that was killed loses the ids of one
batch, as a gap. The next pass finds rows that were inserted in the meantime, since their
column is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from django.core.management.base import CommandError
from django.db.backends.base.base import BaseDatabaseWrapper

from ..core.errors import IdgenError

__all__ = ["MOST_IN_BATCH", "ColumnFilling", "count_of", "in_words", "rows_of", "stop_writers"]

MOST_IN_BATCH = 5000
Take = Callable[[int], Sequence[int]]
Report = Callable[[str], None]
P = ParamSpec("P")
T = TypeVar("T")


def in_words(function: Callable[P, T]) -> Callable[P, T]:
    """Have ``function`` raise ``CommandError``: ``migrate`` shows a traceback for others."""

    @wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except IdgenError as error:
            raise CommandError(" ".join(str(error).split())) from error

    return wrapped


def rows_of(
    connection: BaseDatabaseWrapper, sql: str, params: Sequence[Any] | None = None
) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return list(cursor.fetchall()) if cursor.description else []


def count_of(connection: BaseDatabaseWrapper, table: str, condition: str = "1 = 1") -> int:
    """How many rows of ``table`` meet ``condition``, which is SQL of this package."""
    quoted = connection.ops.quote_name(table)
    return int(rows_of(connection, f"SELECT count(*) FROM {quoted} WHERE {condition}")[0][0])  # noqa: S608 - Django quotes the names


def stop_writers(connection: BaseDatabaseWrapper, table: str) -> None:
    """Keep other writers off ``table`` until the transaction ends, where there is one.

    On SQLite a transaction that has read, and then writes, fails at once if another one
    was quicker; one that begins with a write waits its turn.
    """
    if not connection.in_atomic_block:
        return
    quoted = connection.ops.quote_name(table)
    if connection.vendor == "postgresql":
        rows_of(connection, f"LOCK TABLE {quoted} IN SHARE ROW EXCLUSIVE MODE")
    elif connection.vendor == "sqlite":
        rows_of(connection, f"DELETE FROM {quoted} WHERE 0")  # noqa: S608 - Django quotes the names


class ColumnFilling:
    """Fills the column ``new`` of ``table``, whose primary key is in the columns ``key``.

    ``take(n)`` gives n new ids; None: the column is full already. Raises what the database
    and ``take`` raise.
    """

    def __init__(
        self,
        connection: BaseDatabaseWrapper,
        table: str,
        *,
        key: Sequence[str],
        new: str,
        take: Take | None,
        batch: int = 1000,
    ) -> None:
        self.connection = connection
        self.name = table
        self.key = key
        self.new = new
        self.take = take
        self.batch = batch

    def open_rows(self) -> int:
        """How many rows are empty."""
        return count_of(self.connection, self.name, f"{self._q(self.new)} IS NULL")

    def run(self, report: Report = lambda _line: None) -> int:
        """Fill what is empty, until a pass finds nothing; returns how many rows it filled."""
        filled = 0
        while passed := self._pass(report):
            filled += passed
        return filled

    def _pass(self, report: Report) -> int:
        if self.take is None:
            return 0
        filled, last = 0, None
        while keys := self._empty_after(last):
            self._write_ids(keys, self.take(len(keys)))
            filled, last = filled + len(keys), keys[-1]
            report(f"{self.name}: {filled} new ids")
        return filled

    def _empty_after(self, last: Sequence[Any] | None) -> list[Sequence[Any]]:
        """The keys of the next rows without an id."""
        q, columns = self._q, self._columns
        # The first column apart, too: MySQL uses no index for a comparison of rows.
        after = "" if last is None else f" AND {q(self.key[0])} >= %s AND ({columns}) > {self._row}"
        return rows_of(
            self.connection,
            f"SELECT {columns} FROM {q(self.name)} WHERE {q(self.new)} IS NULL{after} "  # noqa: S608 - Django quotes the names
            f"ORDER BY {columns} LIMIT {self.batch:d}",
            None if last is None else [last[0], *last],
        )

    def _write_ids(self, keys: Sequence[Sequence[Any]], ids: Sequence[int]) -> None:
        q, columns, row = self._q, self._columns, self._row
        whens = " ".join([f"WHEN ({columns}) = {row} THEN %s"] * len(keys))
        pairs = [value for key, id_ in zip(keys, ids, strict=True) for value in (*key, id_)]
        if self.connection.vendor == "mysql":  # it would lock the gaps of a range
            which, chosen = f"({columns}) IN ({', '.join([row] * len(keys))})", keys
        else:  # a row that came in between matches no WHEN, and stays empty
            which, chosen = f"({columns}) >= {row} AND ({columns}) <= {row}", [keys[0], keys[-1]]
        rows_of(
            self.connection,
            f"UPDATE {q(self.name)} SET {q(self.new)} = CASE {whens} END "  # noqa: S608 - Django quotes the names
            f"WHERE {which} AND {q(self.new)} IS NULL",
            [*pairs, *(value for key in chosen for value in key)],
        )

    @property
    def _columns(self) -> str:
        return ", ".join(map(self._q, self.key))

    @property
    def _row(self) -> str:
        return f"({', '.join(['%s'] * len(self.key))})"

    def _q(self, name: str) -> str:
        return self.connection.ops.quote_name(name)
