"""Migration operations that give a table a key of another type, with all references to it.

On PostgreSQL and SQLite a switch is one transaction. MariaDB and MySQL commit each ``ALTER
TABLE``: there every step checks, by the columns that it finds, whether it is done, so that an
interrupted switch continues where it stopped. No column is dropped until its successor is
filled, under a lock that keeps all writers off.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from django.apps import apps as installed_apps
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.base.schema import BaseDatabaseSchemaEditor as Editor
from django.db.migrations.state import ProjectState as State

from ...core.errors import ConfigurationError
from ...fields.base import GeneratedOnSave
from ...fields.operations import (
    ColumnFilling,
    Report,
    TableOperation,
    Take,
    count_rows,
    query,
    stop_writers,
)
from .tables import (
    KeyTable,
    Link,
    columns_of,
    drop_constraints,
    key_table,
    make_constraints,
    refuse_unsupported,
)

MAX_AT_SWITCH = 10_000
"""Rows that a switch fills itself; more have to be filled while the site is up."""
INTEGER = "bigint"


class Filling(ColumnFilling):
    """Fills the new key of ``table``, whose key is in ``old``, and then its references.

    ``take``: None if the new keys are in the table already, and only references are missing.
    """

    def __init__(
        self,
        connection: BaseDatabaseWrapper,
        table: KeyTable,
        *,
        old: str,
        new: str,
        take: Take | None,
        batch: int = 1000,
    ) -> None:
        super().__init__(connection, table.name, key=[old], new=new, take=take, batch=batch)
        self.links = table.links
        self.old = old

    def count_empty(self) -> int:
        """How many rows have no new key, or no new reference, yet."""
        return super().count_empty() + sum(self.count_empty_links(link) for link in self.links)

    def count_empty_links(self, link: Link) -> int:
        q = self._q
        condition = f"{q(link.column)} IS NOT NULL AND {q(link.new_column)} IS NULL"
        return count_rows(self.connection, link.table, condition)

    def finish(self) -> None:
        """With the tables locked: fill the last rows, and update references that changed."""
        self.run()
        q = self._q
        for link in self.links:
            table, old, new = q(link.table), q(link.column), q(link.new_column)
            stale = f"({table}.{new} IS NULL OR {table}.{new} <> target.{q(self.new)})"
            query(self.connection, f"{self._update_from_target(link)} AND {stale}")
            query(
                self.connection,
                f"UPDATE {table} SET {new} = NULL WHERE {old} IS NULL AND {new} IS NOT NULL",  # noqa: S608 - Django quotes the names
            )

    def _pass(self, report: Report) -> int:
        return super()._pass(report) + sum(self._fill_link(link, report) for link in self.links)

    def _fill_link(self, link: Link, report: Report) -> int:
        q, filled, last = self._q, 0, None
        while True:
            after = "" if last is None else f" AND {q(link.key)} > %s"
            rows = query(
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
        update = self._update_from_target(link)
        with self.connection.cursor() as cursor:
            cursor.execute(f"{update} AND target.{q(self.new)} IS NOT NULL AND {which}", keys)
            return max(int(cursor.rowcount), 0)

    def _update_from_target(self, link: Link) -> str:
        """An ``UPDATE`` of references from the rows they refer to; a condition can follow."""
        q, table, target = self._q, self._q(link.table), self._q(self.table)
        on = f"target.{q(self.old)} = {table}.{q(link.column)}"
        value = f"{q(link.new_column)} = target.{q(self.new)}"
        if self.connection.vendor == "mysql":
            return f"UPDATE {table} JOIN {target} target ON {on} SET {table}.{value} WHERE 1 = 1"  # noqa: S608 - Django quotes the names
        return f"UPDATE {table} SET {value} FROM {target} target WHERE {on}"  # noqa: S608 - Django quotes the names


# --- the operations --------------------------------------------------------------


class _NewKeyOperation(TableOperation):
    """Works with columns for a new key, beside the old ones."""

    def __init__(
        self,
        model_name: str,
        name: str,
        field: models.Field[Any, Any],
        source: str | None = None,
    ) -> None:
        super().__init__(model_name, name)
        self.field = field
        self.source = source
        """The field that has the new keys already, on the way back."""

    def references_model(self, name: str, app_label: str) -> bool:  # noqa: ARG002
        return True  # foreign keys from anywhere

    def add_columns(self, editor: Editor, table: KeyTable, *, has_key: bool) -> None:
        """Add the new columns that are missing."""
        kind = str(self.field.clone().db_type(editor.connection))
        q = editor.quote_name
        for name, column in _new_columns(table, has_key=has_key):
            if column not in columns_of(editor.connection, name):
                editor.execute(f"ALTER TABLE {q(name)} ADD COLUMN {q(column)} {kind} NULL")


class AddNewKey(_NewKeyOperation):
    """Add columns for a new key and for the references to it, which the models do not know."""

    def forwards(self, app_label: str, editor: Editor, before: State, after: State) -> None:  # noqa: ARG002
        table = key_table(after.apps, app_label, self.model_name)
        stop_writers(editor.connection, table.name)
        refuse_unsupported(editor.connection, table, installed_apps)
        self.add_columns(editor, table, has_key=self.source is not None)

    def backwards(self, app_label: str, editor: Editor, before: State, after: State) -> None:  # noqa: ARG002
        q = editor.quote_name
        table = key_table(after.apps, app_label, self.model_name)
        for name, column in _new_columns(table, has_key=self.source is not None):
            if column in columns_of(editor.connection, name):
                editor.execute(f"ALTER TABLE {q(name)} DROP COLUMN {q(column)}")

    def describe(self) -> str:
        return f"Add columns for a new key of {self.model_name}"


def _new_columns(table: KeyTable, *, has_key: bool) -> Iterator[tuple[str, str]]:
    """Tables and their new columns. ``has_key``: ``table`` itself has the new keys already."""
    if not has_key:
        yield table.name, table.new_column
    for link in table.links:
        yield link.table, link.new_column


class SwitchKey(_NewKeyOperation):
    """Replace the old columns with those of :class:`AddNewKey`.

    The old key stays as ``kept``, a unique field. Fills the last rows, and refuses if there
    are more than :data:`MAX_AT_SWITCH`.
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
        others = {
            name: field
            for name, field in state.models[key].fields.items()
            if name not in {self.name, self.source}
        }
        state.models[key].fields = {
            self.name: self.field.clone(),
            self.kept: self.kept_field.clone(),
            **others,
        }
        # All references to it change their type.
        state.clear_delayed_apps_cache()
        state.__dict__.pop("apps", None)
        state._relations = None  # type: ignore[attr-defined]

    def forwards(self, app_label: str, editor: Editor, before: State, after: State) -> None:
        old = key_table(before.apps, app_label, self.model_name)
        new = key_table(after.apps, app_label, self.model_name)
        connection = editor.connection
        stop_writers(connection, old.name)
        refuse_unsupported(connection, old, installed_apps)
        source = self.source and str(_field_of(old, self.source).column)
        kept = str(_field_of(new, self.kept).column)
        kind = SqliteSwap if connection.vendor == "sqlite" else ServerSwap
        swap = kind(editor, old, new, new=source or old.new_column, kept=kept)
        # After an interruption, where DDL is for good, the kept column identifies the rows.
        has_key = swap.is_key_done()
        undone = swap.undone()
        # A migration in between may have lost the columns.
        self.add_columns(editor, undone, has_key=has_key or source is not None)
        filling = Filling(
            connection,
            undone,
            old=kept if has_key else old.column,
            new=old.column if has_key else source or old.new_column,
            take=None if source or has_key else self._take(new),
        )
        if (rows := filling.count_empty()) > MAX_AT_SWITCH:
            raise ConfigurationError(
                f"{rows} rows of {', '.join(undone.tables)} have no new key yet. Fill them while "
                f"the site is up: 'manage.py idgen_adopt {old.model._meta.label} --yes'."
            )
        swap.run(filling)

    def backwards(self, app_label: str, editor: Editor, before: State, after: State) -> None:  # noqa: ARG002
        raise ConfigurationError(
            "This migration can't be undone by migrating back. 'manage.py idgen_adopt "
            f"{app_label}.{self.model_name} --back' writes the migration that undoes it."
        )

    def describe(self) -> str:
        return f"Switch the key of {self.model_name} to another type"

    def _take(self, table: KeyTable) -> Take:
        field = _field_of(table, self.name)
        if not isinstance(field, GeneratedOnSave):
            raise ConfigurationError(f"{field} is not a field of django_idgen.")
        return field.next_values


def _field_of(table: KeyTable, name: str) -> Any:
    return table.model._meta.get_field(name)


# --- the switch on each database -------------------------------------------------


class Swap(ABC):
    """Gives ``before`` the key that is in the column ``new``; the old one becomes ``kept``.

    ``before`` and ``after`` are the table in the states of the migration.
    """

    def __init__(
        self, editor: Any, before: KeyTable, after: KeyTable, *, new: str, kept: str
    ) -> None:
        self.editor = editor
        self.connection = editor.connection
        self.before = before
        self.after = after
        self.new = new
        self.kept = kept
        self._q = editor.quote_name
        self._execute = editor.execute

    def is_key_done(self) -> bool:
        """Whether the table itself has its new key. Never where DDL can be rolled back."""
        return False

    def undone(self) -> KeyTable:
        """The table with the links that still have the old type."""
        return self.before

    @abstractmethod
    def run(self, filling: Filling) -> None:
        """Do what is left."""


class ServerSwap(Swap):
    """On PostgreSQL, MariaDB and MySQL: rename the columns, with the tables locked."""

    def is_key_done(self) -> bool:
        return self.kept in columns_of(self.connection, self.before.name)

    def undone(self) -> KeyTable:
        to_integer = self.after.model._meta.pk.db_type(self.connection) == INTEGER
        links = tuple(
            link
            for link in self.before.links
            if (self._type(link.table, link.column) == INTEGER) != to_integer
        )
        return replace(self.before, links=links)

    def run(self, filling: Filling) -> None:
        undone = {(link.table, link.column) for link in filling.links}
        with self._locked():
            filling.finish()
            _refuse_orphans(filling)
            if self._postgresql:
                # PostgreSQL alters no table that has deferred checks left.
                self._execute("SET CONSTRAINTS ALL IMMEDIATE")
                self._execute("SET CONSTRAINTS ALL DEFERRED")
            for link in filling.links:
                drop_constraints(self.editor, link)
            if not self.is_key_done():
                self._swap_key()
            self._drop_second_index()
            for link in self.after.links:
                if (link.table, link.column) in undone:
                    self._swap_link(link)
                make_constraints(self.editor, link)

    @property
    def _postgresql(self) -> bool:
        return bool(self.connection.vendor == "postgresql")

    def _swap_key(self) -> None:
        q, old, name = self._q, self.before.column, self.editor._create_index_name
        table = f"ALTER TABLE {q(self.before.name)}"
        unique = q(name(self.before.name, [self.kept], "_uniq"))
        if not self._postgresql:
            kind = self.after.model._meta.pk.db_type(self.connection)
            self._execute(
                f"{table} DROP PRIMARY KEY, RENAME COLUMN {q(old)} TO {q(self.kept)}, "
                f"CHANGE {q(self.new)} {q(old)} {kind} NOT NULL, ADD PRIMARY KEY ({q(old)}), "
                f"ADD UNIQUE KEY {unique} ({q(self.kept)})"
            )
            return
        for primary in self.editor._constraint_names(self.before.model, primary_key=True):
            self._execute(f"{table} DROP CONSTRAINT {q(primary)}")
        self._execute(f"{table} RENAME COLUMN {q(old)} TO {q(self.kept)}")
        self._execute(f"{table} RENAME COLUMN {q(self.new)} TO {q(old)}")
        self._execute(f"{table} ALTER COLUMN {q(old)} SET NOT NULL")
        primary = q(name(self.before.name, [old], "_pkey"))
        self._execute(
            f"{table} ADD CONSTRAINT {primary} PRIMARY KEY ({q(old)}), "
            f"ADD CONSTRAINT {unique} UNIQUE ({q(self.kept)})"
        )

    def _drop_second_index(self) -> None:
        """A column that was unique before it became the key has a second index."""
        model, column = self.after.model, self.before.column
        names = self.editor._constraint_names(model, [column], unique=True, primary_key=False)
        for name in names:
            self._execute(self.editor._delete_unique_sql(model, name))

    def _swap_link(self, link: Link) -> None:
        q = self._q
        table = f"ALTER TABLE {q(link.table)}"
        if not self._postgresql:
            kind = link.field.db_type(self.connection)
            self._execute(
                f"{table} DROP COLUMN {q(link.column)}, "
                f"CHANGE {q(link.new_column)} {q(link.column)} {kind} "
                f"{'NULL' if link.field.null else 'NOT NULL'}"
            )
            return
        self._execute(f"{table} DROP COLUMN {q(link.column)}")
        self._execute(f"{table} RENAME COLUMN {q(link.new_column)} TO {q(link.column)}")
        if not link.field.null:
            self._execute(f"{table} ALTER COLUMN {q(link.column)} SET NOT NULL")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if self._postgresql:
            names = ", ".join(self._q(name) for name in self.before.tables)
            self._execute(f"LOCK TABLE {names} IN ACCESS EXCLUSIVE MODE")
            yield
            return
        mode = query(self.connection, "SELECT @@SESSION.sql_mode")[0][0]
        query(self.connection, "SET SESSION sql_mode = %s", [f"{mode},STRICT_ALL_TABLES"])
        self._execute(f"LOCK TABLES {', '.join(self._mysql_locks())}")
        try:
            yield
        finally:
            self._execute("UNLOCK TABLES")
            query(self.connection, "SET SESSION sql_mode = %s", [mode])

    def _mysql_locks(self) -> Iterator[str]:
        """Locks of the tables that are written, and of those their foreign keys refer to."""
        written = self.before.tables
        for name in written:
            yield f"{self._q(name)} WRITE"
        yield f"{self._q(self.before.name)} AS target WRITE"
        read = {
            field.remote_field.model._meta.db_table
            for link in self.before.links
            for field in link.model._meta.local_fields
            if isinstance(field, models.ForeignKey)
        }
        for name in sorted(read - set(written)):
            yield f"{self._q(name)} READ"

    def _type(self, table: str, column: str) -> str:
        schema = "current_schema()" if self._postgresql else "database()"
        found = query(
            self.connection,
            f"SELECT data_type FROM information_schema.columns WHERE table_schema = {schema} "  # noqa: S608 - Django quotes the names
            f"AND table_name = %s AND column_name = %s",
            [table, column],
        )
        return str(found[0][0]) if found else ""


class SqliteSwap(Swap):
    """On SQLite: rebuild each table."""

    def run(self, filling: Filling) -> None:
        filling.finish()
        _refuse_orphans(filling)
        for table in self.after.tables:
            links = [link for link in self.after.links if link.table == table]
            model = links[0].model if links else self.after.model
            self._rebuild(model, self._sources(table, model, links))

    def _sources(self, table: str, model: type[models.Model], links: list[Link]) -> dict[str, str]:
        """For each column of the new table, the column of the old one that fills it."""
        moved = {link.column: link.new_column for link in links}
        if table == self.after.name:
            moved |= {self.before.column: self.new, self.kept: self.before.column}
        existing = columns_of(self.connection, table)
        columns = [str(field.column) for field in model._meta.local_concrete_fields]
        sources = {column: moved.get(column, column) for column in columns}
        return {column: source for column, source in sources.items() if source in existing}

    def _rebuild(self, model: type[models.Model], sources: dict[str, str]) -> None:
        editor, meta, q = self.editor, model._meta, self._q
        table = meta.db_table
        interim = f"idgen_new_{table}"
        meta.db_table = interim
        try:
            # Not create_model(), which would make the through tables as well.
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
    """Raise :class:`ConfigurationError` for references to rows that do not exist."""
    lost = [
        f"{count} of {link.table}.{link.column}"
        for link in filling.links
        if (count := filling.count_empty_links(link))
    ]
    if lost:
        raise ConfigurationError(
            f"Some rows refer to rows of {filling.table} that do not exist: {', '.join(lost)}. "
            f"Correct or delete them first; nothing was changed."
        )
