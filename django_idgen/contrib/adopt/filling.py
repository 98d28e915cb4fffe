"""Filling the columns of new ids: in batches, each a transaction, as often as it takes.

Nothing is kept of how far it came but the rows themselves: a process that was killed
loses the ids of one batch, as a gap. Rows that are inserted meanwhile are found by the
next pass, since the columns are empty in them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from .links import Keyed, Link
from .reading import count_of, rows_of

__all__ = ["MOST_IN_BATCH", "Filling"]

MOST_IN_BATCH = 5000
Take = Callable[[int], Sequence[int]]
Report = Callable[[str], None]


class Filling:
    """Fills the new columns of ``table``, whose key is in ``old`` and whose new one in ``new``.

    ``also`` has the further columns of a composite key, to which nothing can refer.
    ``take(n)`` gives n new ids; None where the new key is there already. Raises what the
    database and ``take`` raise.
    """

    def __init__(
        self,
        connection: BaseDatabaseWrapper,
        table: Keyed,
        *,
        old: str,
        also: Sequence[str] = (),
        new: str,
        take: Take | None,
        batch: int = 1000,
    ) -> None:
        self.connection = connection
        self.table = table
        self.old = old
        self.key = [old, *also]
        self.new = new
        self.take = take
        self.batch = batch

    def open_rows(self) -> int:
        """How many rows have no new key, or no new reference, yet."""
        q = self._q
        keys = count_of(self.connection, self.table.table, f"{q(self.new)} IS NULL")
        return keys + sum(self.open_links(link) for link in self.table.links)

    def open_links(self, link: Link) -> int:
        q = self._q
        condition = f"{q(link.column)} IS NOT NULL AND {q(link.new_column)} IS NULL"
        return count_of(self.connection, link.table, condition)

    def run(self, report: Report) -> int:
        """Fill what is empty, until a pass finds nothing; returns how many rows it filled."""
        filled = 0
        while True:
            before = filled
            if self.take is not None:
                filled += self._fill_keys(self.take, report)
            for link in self.table.links:
                filled += self._fill_link(link, report)
            if filled == before:
                return filled

    def finish(self) -> None:
        """With the tables locked: fill the last rows, and follow references that changed."""
        self.run(lambda _line: None)
        for link in self.table.links:
            for sql in self._sync(link):
                rows_of(self.connection, sql)

    # --- keys --------------------------------------------------------------------------

    def _fill_keys(self, take: Take, report: Report) -> int:
        filled, last = 0, None
        while True:
            keys = self._empty_after(last)
            if not keys:
                return filled
            self._write_keys(keys, take(len(keys)))
            filled, last = filled + len(keys), keys[-1]
            report(f"{self.table.table}: {filled} new ids")

    def _empty_after(self, last: Sequence[Any] | None) -> list[Sequence[Any]]:
        """The keys of the next rows without an id."""
        q, columns = self._q, ", ".join(map(self._q, self.key))
        # The first column apart, too: MySQL uses no index for a comparison of rows.
        after = "" if last is None else f" AND {q(self.old)} >= %s AND ({columns}) > {self._marks}"
        return rows_of(
            self.connection,
            f"SELECT {columns} FROM {q(self.table.table)} WHERE {q(self.new)} IS NULL{after} "  # noqa: S608 - Django quotes the names
            f"ORDER BY {columns} LIMIT {self.batch:d}",
            None if last is None else [last[0], *last],
        )

    def _write_keys(self, keys: Sequence[Sequence[Any]], ids: Sequence[int]) -> None:
        q, columns, marks = self._q, ", ".join(map(self._q, self.key)), self._marks
        whens = " ".join([f"WHEN ({columns}) = {marks} THEN %s"] * len(keys))
        pairs = [value for key, id_ in zip(keys, ids, strict=True) for value in (*key, id_)]
        if self.connection.vendor == "mysql":  # it would lock the gaps of a range
            which, chosen = f"({columns}) IN ({', '.join([marks] * len(keys))})", keys
        else:  # a row that came in between matches no WHEN, and stays empty
            which, chosen = (
                f"({columns}) >= {marks} AND ({columns}) <= {marks}",
                (keys[0], keys[-1]),
            )
        rows_of(
            self.connection,
            f"UPDATE {q(self.table.table)} SET {q(self.new)} = CASE {whens} END "  # noqa: S608 - Django quotes the names
            f"WHERE {which} AND {q(self.new)} IS NULL",
            [*pairs, *(value for key in chosen for value in key)],
        )

    @property
    def _marks(self) -> str:
        return f"({', '.join(['%s'] * len(self.key))})"

    # --- links -------------------------------------------------------------------------

    def _fill_link(self, link: Link, report: Report) -> int:
        q = self._q
        filled, last = 0, None
        while True:
            after = "" if last is None else f" AND {q(link.key)} > %s"
            rows = rows_of(
                self.connection,
                f"SELECT {q(link.key)} FROM {q(link.table)} WHERE {q(link.column)} IS NOT NULL "  # noqa: S608 - Django quotes the names
                f"AND {q(link.new_column)} IS NULL{after} "
                f"ORDER BY {q(link.key)} LIMIT {self.batch:d}",
                None if last is None else [last],
            )
            if not rows:
                return filled
            keys = [row[0] for row in rows]
            filled, last = filled + self._write_link(link, keys), keys[-1]
            report(f"{link.table}.{link.column}: {filled} references")

    def _write_link(self, link: Link, keys: Sequence[Any]) -> int:
        q, table = self._q, self._q(link.table)
        marks = ", ".join(["%s"] * len(keys))
        which = f"{table}.{q(link.key)} IN ({marks}) AND {table}.{q(link.new_column)} IS NULL"
        with self.connection.cursor() as cursor:
            cursor.execute(
                f"{self._join(link)} AND target.{q(self.new)} IS NOT NULL AND {which}", keys
            )
            return max(int(cursor.rowcount), 0)

    def _join(self, link: Link) -> str:
        """The ``UPDATE`` of a reference from the row that it refers to, up to its condition."""
        q, table, target = self._q, self._q(link.table), self._q(self.table.table)
        on = f"target.{q(self.old)} = {table}.{q(link.column)}"
        value = f"{q(link.new_column)} = target.{q(self.new)}"
        if self.connection.vendor == "mysql":
            join = f"{table} JOIN {target} target ON {on}"
            return f"UPDATE {join} SET {table}.{value} WHERE 1 = 1"  # noqa: S608 - Django quotes the names
        return f"UPDATE {table} SET {value} FROM {target} target WHERE {on}"  # noqa: S608 - Django quotes the names

    def _sync(self, link: Link) -> list[str]:
        q, table = self._q, self._q(link.table)
        new = f"{table}.{q(link.new_column)}"
        stale = f"({new} IS NULL OR {new} <> target.{q(self.new)})"
        return [
            f"{self._join(link)} AND {stale}",
            f"UPDATE {table} SET {q(link.new_column)} = NULL "  # noqa: S608 - Django quotes the names
            f"WHERE {q(link.column)} IS NULL AND {q(link.new_column)} IS NOT NULL",
        ]

    def _q(self, name: str) -> str:
        return self.connection.ops.quote_name(name)
