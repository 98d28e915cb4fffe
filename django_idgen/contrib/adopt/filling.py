"""Filling the columns of a new key and of the references to it: see :mod:`...fields.filling`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from ...fields.filling import ColumnFilling, Report, Take, count_of, rows_of
from .tables import Keyed, Link

__all__ = ["Filling"]


class Filling(ColumnFilling):
    """Fills the new key of ``table``, whose key is in ``old``, and then its references.

    ``take``: None where the new key is in the table already, and its references are not.
    """

    def __init__(
        self,
        connection: BaseDatabaseWrapper,
        table: Keyed,
        *,
        old: str,
        new: str,
        take: Take | None,
        batch: int = 1000,
    ) -> None:
        super().__init__(connection, table.table, key=[old], new=new, take=take, batch=batch)
        self.table = table
        self.old = old

    def open_rows(self) -> int:
        """How many rows have no new key, or no new reference, yet."""
        return super().open_rows() + sum(self.open_links(link) for link in self.table.links)

    def open_links(self, link: Link) -> int:
        q = self._q
        condition = f"{q(link.column)} IS NOT NULL AND {q(link.new_column)} IS NULL"
        return count_of(self.connection, link.table, condition)

    def finish(self) -> None:
        """With the tables locked: fill the last rows, and follow references that changed."""
        self.run()
        for link in self.table.links:
            for sql in self._sync(link):
                rows_of(self.connection, sql)

    def _pass(self, report: Report) -> int:
        return super()._pass(report) + sum(
            self._fill_link(link, report) for link in self.table.links
        )

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
