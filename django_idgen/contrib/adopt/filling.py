"""Filling the columns for a new key, and those for the references to it, while the site is up.

Rows are read and written by SQL, since the models do not know the columns yet.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from functools import cache
from itertools import accumulate, pairwise
from typing import Any

from django.db import models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone

from ...core.clock import MAX_UNIX_US, unix_us
from ...core.errors import ConfigurationError
from ...fields.operations import ColumnFilling, Progress, Report, Rows, Take, count_rows, query
from .past_ids import PastIds
from .tables import Column, KeyTable, columns_of

MAX_AT_SWITCH = 10_000
"""Rows that a switch fills itself; more have to be filled while the site is up."""
OUT_OF_ORDER = timedelta(hours=3) // timedelta(microseconds=1)
"""How far local times that rise may go back, in µs: a time that a zone skips in spring is read as
a later one. Zones skip an hour; some in Antarctica skip two or three."""
BATCHES_READ = 100
"""Batches that one ``SELECT`` reads: without an index on the date it sorts all rows."""


class Filling(ColumnFilling):
    """Fills the new key of ``table``, in the column ``new``, and then its references.

    ``take``: None if the new keys are in the table already, and only references are missing.
    """

    def __init__(
        self,
        connection: BaseDatabaseWrapper,
        table: KeyTable,
        new: str,
        take: Take | None,
        batch: int = 1000,
    ) -> None:
        super().__init__(
            connection, table.key.table, key=[table.key.name], new=new, take=take, batch=batch
        )
        self.links = [_LinkFilling(self, link) for link in table.links]
        self.enough = MAX_AT_SWITCH

    def count_empty(self) -> int:
        """How many rows have no new key, or no new reference, yet."""
        return super().count_empty() + sum(link.count_empty() for link in self.links)

    def check(self) -> None:
        """Raise :class:`ConfigurationError` unless each row can have a new key."""

    def finish(self) -> None:
        """With the tables locked: fill the last rows, and update references that changed."""
        self.enough = 0
        self.run()
        for link in self.links:
            link.refresh()

    def orphans(self) -> list[str]:
        """The columns with references to rows that do not exist, and how many there are."""
        counts = [(each.count_empty(), f"{each.table}.{each.link.name}") for each in self.links]
        return [f"{count} of {column}" for count, column in counts if count]

    def _pass(self, progress: Progress, left: int) -> None:
        super()._pass(progress, left)
        for link in self.links:
            link._pass(progress, left)


class _LinkFilling(ColumnFilling):
    """Fills the new column of ``link`` from the rows that it refers to."""

    def __init__(self, target: Filling, link: Column) -> None:
        key = str(link.model._meta.pk.column)
        super().__init__(
            target.connection, link.table, key=[key], new=link.new, take=None, batch=target.batch
        )
        q, self.link = self._q, link
        self.empty = f"{q(link.name)} IS NOT NULL AND {self.empty}"
        table, of_target = q(self.table), f"{q(target.table)} target"
        on = f"target.{q(target.key[0])} = {table}.{q(link.name)}"
        value = f"{q(self.new)} = target.{q(target.new)}"
        self._update = f"UPDATE {table} SET {value} FROM {of_target} WHERE {on} AND"  # noqa: S608 - Django quotes the names
        if self.connection.vendor == "mysql":
            self._update = f"UPDATE {table} JOIN {of_target} ON {on} SET {table}.{value} WHERE"  # noqa: S608 - Django quotes the names
        self._found = f"target.{q(target.new)}"

    def refresh(self) -> None:
        """Update references that are empty, or that changed since they were filled."""
        q = self._q
        table, new = q(self.table), f"{q(self.table)}.{q(self.new)}"
        query(self.connection, f"{self._update} ({new} IS NULL OR {new} <> {self._found})")
        query(
            self.connection,
            f"UPDATE {table} SET {q(self.new)} = NULL "  # noqa: S608 - Django quotes the names
            f"WHERE {q(self.link.name)} IS NULL AND {q(self.new)} IS NOT NULL",
        )

    def _fill(self, rows: Rows) -> int:
        table, marks = self._q(self.table), ", ".join(["%s"] * len(rows))
        which = f"{table}.{self._q(self.key[0])} IN ({marks})"
        is_new = f"{self._found} IS NOT NULL AND {table}.{self._q(self.new)} IS NULL"
        with self.connection.cursor() as cursor:
            cursor.execute(f"{self._update} {is_new} AND {which}", [row[0] for row in rows])
            return max(int(cursor.rowcount), 0)


class FillingByAge(Filling):
    """A :class:`Filling` whose new keys have the moments that ``created`` has.

    ``created`` is the old key, with UUIDs of version 7, or a column of dates. All rows are
    checked before the first one is written. For one run at a time: a second one ends with
    :class:`ConfigurationError`.
    """

    def __init__(
        self,
        connection: BaseDatabaseWrapper,
        table: KeyTable,
        created: Any,
        past: Callable[[], PastIds],
        **options: Any,
    ) -> None:
        super().__init__(connection, table, table.key.new, self._ids, **options)
        self.created = created
        # On first use: an empty table, such as a test's, needs no worker ids.
        self.past = cache(past)
        self._read = reader(created, connection)
        self.order = list(dict.fromkeys([str(created.column), *self.key]))
        self.batches_read = BATCHES_READ
        self.by_range = False  # so that the count of rows shows whether another run was there

    def check(self) -> None:
        """See :meth:`Filling.check`; for rows that are empty, or all before there is a column."""
        empty, q = "1 = 1", self._q
        if self.new in columns_of(self.connection, self.table):
            empty, new, table = self.empty, q(self.new), q(self.table)
            for highest, created in query(
                self.connection,
                f"SELECT {new}, {q(self.created.column)} FROM {table} "  # noqa: S608 - Django quotes the names
                f"WHERE {new} IS NOT NULL ORDER BY {new} DESC LIMIT 1",
            ):
                # A date that was emptied since counts as later than all others.
                latest_us = MAX_UNIX_US if created is None else self._read(created)
                self.past().begin_above(int(highest), latest_us)
        if span := span_of(self.connection, self.table, self.created, empty):
            self.past().check(*span)

    def run(self, report: Report = lambda _line: None) -> tuple[int, int]:
        self.check()
        return super().run(report)

    def _ids(self, rows: Rows) -> Sequence[int]:
        created = [self._read(row[0]) for row in rows]
        if any(earlier - later > OUT_OF_ORDER for earlier, later in pairwise(created)):
            raise ConfigurationError(
                f"The database does not sort {self.table}.{self.created.column} by time. (MariaDB "
                "before 10.11.5 does not sort its UUIDs.) Name a date column."
            )
        return self.past().take(list(accumulate(created, max)))

    def _write_ids(self, keys: Rows, ids: Sequence[int]) -> int:
        with transaction.atomic(using=self.connection.alias):
            written = super()._write_ids(keys, ids)
            if written < len(keys) and self._count_full(keys) > written:
                raise ConfigurationError(
                    f"Another run is filling {self.table}. Let one of them come to its end."
                )
        return written

    def _count_full(self, keys: Rows) -> int:
        marks = ", ".join(["%s"] * len(keys))
        condition = f"{self._q(self.key[0])} IN ({marks}) AND NOT {self.empty}"
        return count_rows(self.connection, self.table, condition, [key[0] for key in keys])


def time_field(table: KeyTable, name: str) -> Any:
    """The field that has the time of a row. Raises :class:`ConfigurationError`."""
    meta = table.key.model._meta
    found = next((field for field in meta.local_concrete_fields if field.name == name), None)
    is_key = found is not None and found is meta.pk and isinstance(found, models.UUIDField)
    if not is_key and not isinstance(found, models.DateField):
        raise ConfigurationError(
            f"--created-from must name the key, if it is a UUIDField with UUIDs of version 7, or a "
            f"DateTimeField or DateField of {meta.label}, not {name!r}."
        )
    return found


def span_of(
    connection: BaseDatabaseWrapper, table: str, created: Any, condition: str = "1 = 1"
) -> tuple[int, int] | None:
    """When the first and the last of the rows were created that meet ``condition``, if any do.

    In µs since 1970. Raises :class:`ConfigurationError` if a row has no time.
    """
    q = connection.ops.quote_name
    column, wrong, what = q(created.column), f"{q(created.column)} IS NULL", "no date"
    if isinstance(created, models.UUIDField):
        column = f"REPLACE(CAST({column} AS CHAR(36)), '-', '')"
        wrong, what = f"SUBSTR({column}, 13, 1) <> '7'", "a UUID of another version than 7"
    first, last, bad = query(
        connection,
        f"SELECT MIN({column}), MAX({column}), SUM(CASE WHEN {wrong} THEN 1 ELSE 0 END) "  # noqa: S608 - Django quotes the names
        f"FROM {q(table)} WHERE {condition}",
    )[0]
    if bad:
        raise ConfigurationError(
            f"{bad} rows of {table} have {what} in {created.column}, and so no time for their ids."
        )
    read = reader(created, connection)
    return None if first is None else (read(first), read(last))


def reader(created: Any, connection: BaseDatabaseWrapper) -> Callable[[Any], int]:
    """Reads a value of the column, as a cursor returns it: µs since 1970."""
    column = created.get_col(created.model._meta.db_table)
    converters = [
        *connection.ops.get_db_converters(column),
        *column.get_db_converters(connection),
    ]

    def read(value: Any) -> int:
        for convert in converters:
            value = convert(value, column, connection)
        return _unix_us(value)

    return read


def _unix_us(value: Any) -> int:
    if isinstance(value, str):  # of a UUID
        value = uuid.UUID(value)
    if isinstance(value, uuid.UUID) and value.version == 7:
        return (value.int >> 80) * 1000
    if not isinstance(value, date):
        raise ConfigurationError(f"A row came with {value!r}, which has no time for its id.")
    if not isinstance(value, datetime):
        value = datetime.combine(value, time.min)
    return unix_us(timezone.make_aware(value) if timezone.is_naive(value) else value)
