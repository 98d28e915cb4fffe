"""Migration operations that give a table a key of another type, with all references to it.

On PostgreSQL and SQLite a switch is one transaction. MariaDB and MySQL commit each ``ALTER
TABLE``: there every step looks whether it was done, by the columns that it finds, so that a
switch that was broken off goes on where it was; and no column is dropped before a lock that
keeps all writers off has seen its successor filled.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from django.apps import apps as installed_apps
from django.db import models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor as Editor
from django.db.migrations.state import ProjectState as State

from ...core.errors import ConfigurationError
from ...fields.base import GeneratedOnSave
from ...fields.filling import rows_of, stop_writers
from .filling import Filling
from .key_operations import TableOperation
from .tables import (
    Keyed,
    Link,
    columns_of,
    drop_constraints,
    keyed,
    make_constraints,
    refuse_unsupported,
)

__all__ = ["MOST_AT_SWITCH", "AddNewKey", "SwitchKey"]

MOST_AT_SWITCH = 10_000
"""Rows that a switch fills itself; fill more before, while the site is up."""
INTEGER = "bigint"


class _SwapOperation(TableOperation):
    """Columns of a new key beside those of the old one."""

    reduces_to_sql = False

    def __init__(
        self,
        model_name: str,
        name: str,
        field: models.Field[Any, Any],
        source: str | None = None,
    ) -> None:
        self.model_name = model_name
        self.name = name
        self.field = field
        self.source = source
        """The field that has the new keys already, on the way back."""

    def references_model(self, name: str, app_label: str) -> bool:  # noqa: ARG002
        return True  # foreign keys from anywhere

    def _new_columns(self, table: Keyed, *, parent: bool = True) -> Iterator[tuple[str, str]]:
        """Tables and their new columns; of ``table`` itself only if ``parent`` is true."""
        if parent and self.source is None:
            yield table.table, table.new_column
        for link in table.links:
            yield link.table, link.new_column

    def _add_columns(self, editor: Editor, table: Keyed, *, parent: bool = True) -> None:
        """Add the new columns that are not there."""
        kind = str(self.field.clone().db_type(editor.connection))
        q = editor.quote_name
        for name, column in self._new_columns(table, parent=parent):
            if column not in columns_of(editor.connection, name):
                editor.execute(f"ALTER TABLE {q(name)} ADD COLUMN {q(column)} {kind} NULL")


class AddNewKey(_SwapOperation):
    """Add the columns of a new key, and of the references to it, unknown to the models."""

    def state_forwards(self, app_label: str, state: State) -> None:
        """Nothing: processes go on with the models that they have."""

    def forwards(self, app_label: str, editor: Editor, before: State, after: State) -> None:  # noqa: ARG002
        table = keyed(after.apps, app_label, self.model_name)
        stop_writers(editor.connection, table.table)
        refuse_unsupported(editor.connection, table, installed_apps)
        self._add_columns(editor, table)

    def backwards(self, app_label: str, editor: Editor, before: State, after: State) -> None:  # noqa: ARG002
        q = editor.quote_name
        for name, column in self._new_columns(keyed(after.apps, app_label, self.model_name)):
            if column in columns_of(editor.connection, name):
                editor.execute(f"ALTER TABLE {q(name)} DROP COLUMN {q(column)}")

    def describe(self) -> str:
        return f"Add columns for a new key of {self.model_name}"


class SwitchKey(_SwapOperation):
    """Have the columns of :class:`AddNewKey` take the places of the old ones.

    The old key stays as ``kept``, a unique field. Fills the last rows, and refuses if there
    are more than :data:`MOST_AT_SWITCH`.
    """

    def __init__(
        self,
        model_name: str,
        name: str,
        field: models.Field[Any, Any],
        kept: str,
        kept_field: models.Field[Any, Any],
        source: str | None = None,
    ) -> None:
        super().__init__(model_name, name, field, source)
        self.kept = kept
        self.kept_field = kept_field

    def state_forwards(self, app_label: str, state: State) -> None:
        key = app_label, self.model_name.lower()
        fields = {
            name: field
            for name, field in state.models[key].fields.items()
            if name not in {self.name, self.source}
        }
        state.models[key].fields = {
            self.name: self.field.clone(),
            self.kept: self.kept_field.clone(),
            **fields,
        }
        # All references to it change their type.
        state.clear_delayed_apps_cache()
        state.__dict__.pop("apps", None)
        state._relations = None  # type: ignore[attr-defined]

    def forwards(self, app_label: str, editor: Editor, before: State, after: State) -> None:
        old = keyed(before.apps, app_label, self.model_name)
        new = keyed(after.apps, app_label, self.model_name)
        connection = editor.connection
        stop_writers(connection, old.table)
        refuse_unsupported(connection, old, installed_apps)
        source = self._column(old, self.source)
        kept = str(self._column(new, self.kept))
        kind = SqliteSwap if connection.vendor == "sqlite" else ServerSwap
        swap = kind(editor, old, new, new=source or old.new_column, kept=kept)
        # After a break, where DDL is for good, the kept column identifies the rows.
        done = swap.is_parent_done()
        undone = swap.undone()
        # A migration in between may have lost them.
        self._add_columns(editor, undone, parent=not done)
        filling = Filling(
            connection,
            undone,
            old=kept if done else old.column,
            new=old.column if done else source or old.new_column,
            take=None if source or done else _new_field(new, self.name).next_values,
        )
        self._refuse_unfilled(filling)
        swap.run(filling)

    @staticmethod
    def _column(table: Keyed, name: str | None) -> str | None:
        field: Any = None if name is None else table.model._meta.get_field(name)
        return None if field is None else str(field.column)

    def backwards(self, app_label: str, editor: Editor, before: State, after: State) -> None:  # noqa: ARG002
        raise ConfigurationError(
            "The way back is a migration of its own: 'manage.py idgen_adopt "
            f"{app_label}.{self.model_name} --back' writes it."
        )

    def describe(self) -> str:
        return f"Switch the key of {self.model_name} to another type"

    def _refuse_unfilled(self, filling: Filling) -> None:
        rows = filling.open_rows()
        if rows > MOST_AT_SWITCH:
            raise ConfigurationError(
                f"{rows} rows of {', '.join(filling.table.tables)} have no new key yet. Fill them "
                f"while the site is up: 'manage.py idgen_adopt "
                f"{filling.table.model._meta.label} --yes'."
            )


def _new_field(table: Keyed, name: str) -> GeneratedOnSave:
    field = table.model._meta.get_field(name)
    if not isinstance(field, GeneratedOnSave):
        raise ConfigurationError(f"{field} gives no ids.")
    return field


# --- the switch on each database ------------------------------------------------------


class Swap(ABC):
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

    def is_parent_done(self) -> bool:
        """Whether the table itself has its new key: where DDL can be taken back, never."""
        return False

    def undone(self) -> Keyed:
        """The table with those of its links that have the old type."""
        return self.before

    @abstractmethod
    def run(self, filling: Filling) -> None:
        """Do what is left to be done."""

    def _execute(self, sql: Any) -> None:
        self.editor.execute(sql)

    def _q(self, name: str) -> str:
        quoted: str = self.connection.ops.quote_name(name)
        return quoted


class ServerSwap(Swap):
    """On PostgreSQL, MariaDB and MySQL: the columns change their names, with the tables locked."""

    def is_parent_done(self) -> bool:
        return self.kept in columns_of(self.connection, self.before.table)

    def undone(self) -> Keyed:
        to_integer = self.after.model._meta.pk.db_type(self.connection) == INTEGER
        links = tuple(
            link
            for link in self.before.links
            if (self._type(link.table, link.column) == INTEGER) != to_integer
        )
        return replace(self.before, links=links)

    def run(self, filling: Filling) -> None:
        undone = {link.field.name + link.table for link in filling.table.links}
        with self._locked():
            filling.finish()
            _refuse_orphans(filling)
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

    @property
    def _postgresql(self) -> bool:
        return bool(self.connection.vendor == "postgresql")

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

    # --- the database --------------------------------------------------------------------

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
        """For the tables that are written, and for those that their foreign keys look at."""
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
            # PostgreSQL alters no table that has deferred checks left.
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


class SqliteSwap(Swap):
    """On SQLite: each table is made anew."""

    def run(self, filling: Filling) -> None:
        filling.finish()
        _refuse_orphans(filling)
        for table in self.after.tables:
            links = [link for link in self.after.links if link.table == table]
            model = links[0].model if links else self.after.model
            self._remake(model, self._sources(table, model, links))

    def _sources(self, table: str, model: type[models.Model], links: list[Link]) -> dict[str, str]:
        """By the columns of the new table: those of the old one that they are filled from."""
        moved = {link.column: link.new_column for link in links}
        if table == self.after.table:
            moved |= {self.before.column: self.new, self.kept: self.before.column}
        there = columns_of(self.connection, table)
        columns = [str(field.column) for field in model._meta.local_concrete_fields]
        return {name: moved.get(name, name) for name in columns if moved.get(name, name) in there}

    def _remake(self, model: type[models.Model], sources: dict[str, str]) -> None:
        editor, meta = self.editor, model._meta
        table, q = meta.db_table, self._q
        interim = f"idgen_new_{table}"
        meta.db_table = interim
        try:
            # Not create_model(), which would make the through tables, too.
            sql, params = editor.table_sql(model)
            editor.execute(sql, params or None)
            editor.deferred_sql.extend(editor._model_indexes_sql(model))
        finally:
            meta.db_table = table
        targets = ", ".join(map(q, sources))
        values = ", ".join(map(q, sources.values()))
        editor.execute(
            f"INSERT INTO {q(interim)} ({targets}) SELECT {values} FROM {q(table)}"  # noqa: S608 - Django quotes the names
        )
        editor.execute(f"DROP TABLE {q(table)}")
        editor.alter_db_table(model, interim, table)
        for statement in editor.deferred_sql:
            editor.execute(statement)
        editor.deferred_sql = []


def _refuse_orphans(filling: Filling) -> None:
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
