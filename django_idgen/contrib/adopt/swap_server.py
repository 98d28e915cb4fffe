"""The switch of a key on PostgreSQL, MariaDB and MySQL, with the tables locked.

On PostgreSQL all of it is one transaction. The others commit each ``ALTER TABLE``: there
every step looks whether it was done, by the columns that it finds, so that a switch that
was broken off goes on where it was; and no column is dropped before a lock that nobody
writes under has seen its successor filled.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from django.db import models

from ...core.errors import ConfigurationError
from .composites import drop_constraints, make_constraints
from .filling import Filling
from .links import Keyed, Link
from .reading import columns_of, rows_of

__all__ = ["ServerSwap", "refuse_orphans"]

INTEGER = "bigint"


class ServerSwap:
    """Gives ``before`` the key that is in the column ``new``; the old one is ``kept``.

    ``before`` and ``after`` are the table in the states of the migration.
    """

    def __init__(self, editor: Any, before: Keyed, after: Keyed, *, new: str, kept: str) -> None:
        self.editor = editor
        self.connection = editor.connection
        self.before = before
        self.after = after
        self.new = new
        self.kept = kept
        self._postgresql = self.connection.vendor == "postgresql"

    def is_parent_done(self) -> bool:
        """Whether the table itself has its new key."""
        return self.kept in columns_of(self.connection, self.before.table)

    def undone(self) -> Keyed:
        """The table with those of its links that have the old type."""
        to_integer = self.after.model._meta.pk.db_type(self.connection) == INTEGER
        links = tuple(
            link
            for link in self.before.links
            if (self._type(link.table, link.column) == INTEGER) != to_integer
        )
        return replace(self.before, links=links)

    def run(self, filling: Filling) -> None:
        """Do what is left to be done."""
        undone = {link.field.name + link.table for link in filling.table.links}
        with self._locked():
            filling.finish()
            refuse_orphans(filling)
            self._check_constraints_now()
            for link in filling.table.links:
                drop_constraints(self.editor, link)
            if not self.is_parent_done():
                self._swap_key()
            self._settle_key()
            for link in self.after.links:
                if link.field.name + link.table in undone:
                    self._swap_link(link)
                make_constraints(self.editor, link)

    # --- the key -------------------------------------------------------------------------

    def _swap_key(self) -> None:
        q, old = self._q, self.before.column
        table = f"ALTER TABLE {q(self.before.table)}"
        kind = self.after.model._meta.pk.db_type(self.connection)
        if not self._postgresql:
            self._execute(
                f"{table} DROP PRIMARY KEY, RENAME COLUMN {q(old)} TO {q(self.kept)}, "
                f"CHANGE {q(self.new)} {q(old)} {kind} NOT NULL, ADD PRIMARY KEY ({q(old)}), "
                f"ADD UNIQUE KEY {q(self._name('uniq'))} ({q(self.kept)})"
            )
            return
        for name in self.editor._constraint_names(self.before.model, primary_key=True):
            self._execute(f"{table} DROP CONSTRAINT {q(name)}")
        self._execute(f"{table} RENAME COLUMN {q(old)} TO {q(self.kept)}")
        self._execute(f"{table} RENAME COLUMN {q(self.new)} TO {q(old)}")
        self._execute(f"{table} ALTER COLUMN {q(old)} SET NOT NULL")
        self._execute(
            f"{table} ADD CONSTRAINT {q(self._name('pkey'))} PRIMARY KEY ({q(old)}), "
            f"ADD CONSTRAINT {q(self._name('uniq'))} UNIQUE ({q(self.kept)})"
        )

    def _settle_key(self) -> None:
        """A primary key needs no second index, as one that was a unique column has."""
        model, column = self.after.model, self.before.column
        names = self.editor._constraint_names(model, [column], unique=True, primary_key=False)
        for name in names:
            self._execute(self.editor._delete_unique_sql(model, name))

    def _name(self, suffix: str) -> str:
        column = self.kept if suffix == "uniq" else self.before.column
        name: str = self.editor._create_index_name(self.before.table, [column], f"_{suffix}")
        return name

    # --- links ---------------------------------------------------------------------------

    def _swap_link(self, link: Link) -> None:
        q = self._q
        table = f"ALTER TABLE {q(link.table)}"
        null = "NULL" if link.field.null else "NOT NULL"
        if not self._postgresql:
            kind = link.field.db_type(self.connection)
            self._execute(
                f"{table} DROP COLUMN {q(link.column)}, "
                f"CHANGE {q(link.new_column)} {q(link.column)} {kind} {null}"
            )
            return
        self._execute(f"{table} DROP COLUMN {q(link.column)}")
        self._execute(f"{table} RENAME COLUMN {q(link.new_column)} TO {q(link.column)}")
        if not link.field.null:
            self._execute(f"{table} ALTER COLUMN {q(link.column)} SET NOT NULL")

    # --- the database ----------------------------------------------------------------------

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if self._postgresql:
            names = ", ".join(self._q(name) for name in self.before.tables)
            self._execute(f"LOCK TABLE {names} IN ACCESS EXCLUSIVE MODE")
            yield
            return
        mode = rows_of(self.connection, "SELECT @@SESSION.sql_mode")[0][0]
        rows_of(self.connection, "SET SESSION sql_mode = %s", [f"{mode},STRICT_ALL_TABLES"])
        self._execute(f"LOCK TABLES {', '.join(self._locks())}")
        try:
            yield
        finally:
            self._execute("UNLOCK TABLES")
            rows_of(self.connection, "SET SESSION sql_mode = %s", [mode])

    def _locks(self) -> Iterator[str]:
        """Written ones; and those that their foreign keys look at."""
        written = self.before.tables
        for name in written:
            yield f"{self._q(name)} WRITE"
        yield f"{self._q(self.before.table)} AS target WRITE"
        seen = {
            field.remote_field.model._meta.db_table
            for link in self.before.links
            for field in link.model._meta.local_fields
            if isinstance(field, models.ForeignKey)
        }
        for name in sorted(seen - set(written)):
            yield f"{self._q(name)} READ"

    def _check_constraints_now(self) -> None:
        if self._postgresql:
            # Else it refuses to alter tables with checks that are still to come.
            self._execute("SET CONSTRAINTS ALL IMMEDIATE")
            self._execute("SET CONSTRAINTS ALL DEFERRED")

    def _type(self, table: str, column: str) -> str:
        schema = "current_schema()" if self._postgresql else "database()"
        found = rows_of(
            self.connection,
            f"SELECT data_type FROM information_schema.columns WHERE table_schema = {schema} "  # noqa: S608 - Django quotes the names
            f"AND table_name = %s AND column_name = %s",
            [table, column],
        )
        return str(found[0][0]) if found else ""

    def _execute(self, sql: Any) -> None:
        self.editor.execute(sql)

    def _q(self, name: str) -> str:
        quoted: str = self.connection.ops.quote_name(name)
        return quoted


def refuse_orphans(filling: Filling) -> None:
    """Raise :class:`ConfigurationError` for references that lead nowhere: they would be lost."""
    lost = [
        f"{count} of {link.table}.{link.column}"
        for link in filling.table.links
        if (count := filling.open_links(link))
    ]
    if lost:
        raise ConfigurationError(
            f"Some rows refer to rows of {filling.table.table} that aren't there: "
            f"{', '.join(lost)}. Correct or delete them first; nothing was changed."
        )
