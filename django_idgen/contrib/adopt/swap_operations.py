"""Migration operations that give a table a key of another type, with all references to it.

On PostgreSQL and SQLite a switch is one transaction. MariaDB and MySQL commit each ``ALTER
TABLE``: there every step checks, by the columns that it finds, whether it is done, so that an
interrupted switch continues where it stopped. No column is dropped until its successor is
filled, under a lock that keeps all writers off.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from django.apps import apps as installed_apps
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.base.schema import BaseDatabaseSchemaEditor as Editor
from django.db.migrations.state import ProjectState as State

from ...core.errors import ConfigurationError
from ...fields import SegmentSource, SnowflakeSource
from ...fields.base import GeneratedOnSave
from ...fields.operations import TableOperation, ids_of, query, stop_writers
from .filling import Filling, FillingByAge, time_field
from .marks import ids_of_tag
from .past_ids import PastIds, past_ids
from .tables import (
    Column,
    KeyTable,
    altered,
    columns_of,
    drop_constraints,
    key_table,
    make_constraints,
    refuse_unsupported,
)

INTEGER = "bigint"


# --- the operations --------------------------------------------------------------


class _NewKeyOperation(TableOperation):
    """Works with columns for a new key, beside the old ones."""

    def __init__(
        self,
        model_name: str,
        name: str,
        field: models.Field[Any, Any],
        source: str | None = None,
        created_from: str | None = None,
        workers: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(model_name, name)
        self.field = field
        self.source = source
        """The field that has the new keys already, on the way back."""
        self.created_from = created_from
        """The field whose time goes into the new keys; ``workers`` are theirs, without the end."""
        self.workers = workers

    def filling(
        self, connection: BaseDatabaseWrapper, table: KeyTable, key: Any, **options: Any
    ) -> Filling:
        """Fills the columns, the new keys with ids of the field ``key``. See :class:`Filling`."""
        if self.source:
            column = table.key.model._meta.get_field(self.source).column
            return Filling(connection, table, str(column), None, **options)
        if self.created_from:
            created = time_field(table, self.created_from)
            return FillingByAge(connection, table, created, self.past_ids, **options)
        if not isinstance(key, GeneratedOnSave):
            raise ConfigurationError(f"{key} is not a field of django_idgen.")
        take = ids_of_tag(key) if isinstance(key, SegmentSource) else ids_of(key)
        return Filling(connection, table, table.key.new, take, **options)

    def past_ids(self) -> PastIds:
        """The source of keys of the past. Raises :class:`ConfigurationError`."""
        if not isinstance(self.field, SnowflakeSource) or self.workers is None:
            raise ConfigurationError("Only a SnowflakeField can have the creation time of a row.")
        return past_ids(self.field.generator, range(*self.workers))

    def references_model(self, name: str, app_label: str) -> bool:  # noqa: ARG002
        return True  # foreign keys from anywhere

    def columns(self, table: KeyTable) -> list[Column]:
        """Those that get a successor."""
        return [*table.links] if self.source else [table.key, *table.links]

    def add_columns(self, editor: Editor, table: KeyTable) -> None:
        """Add the new columns that are missing."""
        kind = str(self.field.clone().db_type(editor.connection))
        q = editor.quote_name
        for each in self.columns(table):
            if each.new not in columns_of(editor.connection, each.table):
                editor.execute(f"ALTER TABLE {q(each.table)} ADD COLUMN {q(each.new)} {kind} NULL")


class AddNewKey(_NewKeyOperation):
    """Add columns for a new key and for the references to it, which the models do not know."""

    def forwards(self, app_label: str, editor: Editor, before: State, after: State) -> None:  # noqa: ARG002
        table = key_table(after.apps, app_label, self.model_name)
        stop_writers(editor.connection, table.key.table)
        refuse_unsupported(editor.connection, table, installed_apps)
        self.add_columns(editor, table)

    def backwards(self, app_label: str, editor: Editor, before: State, after: State) -> None:  # noqa: ARG002
        q = editor.quote_name
        for each in self.columns(key_table(after.apps, app_label, self.model_name)):
            if each.new in columns_of(editor.connection, each.table):
                editor.execute(f"ALTER TABLE {q(each.table)} DROP COLUMN {q(each.new)}")

    def describe(self) -> str:
        return f"Add columns for a new key of {self.model_name}"


class SwitchKey(_NewKeyOperation):
    """Replace the old columns with those of :class:`AddNewKey`.

    The old key stays as ``kept``, a unique field. Fills the last rows, and refuses if there
    are more than :data:`.filling.MAX_AT_SWITCH`.
    """

    def __init__(
        self,
        model_name: str,
        name: str,
        field: models.Field[Any, Any],
        kept: str,
        kept_field: models.Field[Any, Any],
        source: str | None = None,
        created_from: str | None = None,
        workers: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(model_name, name, field, source, created_from, workers)
        self.kept = kept
        self.kept_field = kept_field

    def state_forwards(self, app_label: str, state: State) -> None:
        model = app_label, self.model_name.lower()
        if self.source:
            state.remove_field(*model, self.source)
        state.add_field(*model, self.kept, self.kept_field, preserve_default=True)
        state.alter_field(*model, self.name, self.field, preserve_default=True)

    def forwards(self, app_label: str, editor: Editor, before: State, after: State) -> None:
        old = key_table(before.apps, app_label, self.model_name)
        new = key_table(after.apps, app_label, self.model_name)
        stop_writers(editor.connection, old.key.table)
        refuse_unsupported(editor.connection, old, installed_apps)
        kept = new.key.model._meta.get_field(self.kept).column
        kind = SqliteSwap if editor.connection.vendor == "sqlite" else ServerSwap
        swap = kind(editor, old, new, str(kept))
        filling = None
        if undone := swap.undone():
            self.add_columns(editor, undone)  # a migration in between may have lost them
            filling = self.filling(editor.connection, undone, new.key.field)
            if (rows := filling.count_empty()) > filling.enough:
                raise ConfigurationError(
                    f"{rows} rows of {', '.join(undone.tables)} have no new key yet. Fill them "
                    f"while the site is up: 'manage.py idgen_adopt {old.key.model._meta.label} "
                    f"--yes'."
                )
        swap.run(filling)

    def backwards(self, app_label: str, editor: Editor, before: State, after: State) -> None:  # noqa: ARG002
        raise ConfigurationError(
            "This migration can't be undone by migrating back. 'manage.py idgen_adopt "
            f"{app_label}.{self.model_name} --back' writes the migration that undoes it."
        )

    def describe(self) -> str:
        return f"Switch the key of {self.model_name} to another type"


# --- the switch on each database -------------------------------------------------


class Swap(ABC):
    """Gives ``before`` the new key; the column of the old one becomes ``kept``.

    ``before`` and ``after`` are the table in the states of the migration.
    """

    def __init__(self, editor: Any, before: KeyTable, after: KeyTable, kept: str) -> None:
        self.editor = editor
        self.connection = editor.connection
        self.before = before
        self.after = after
        self.kept = kept
        self._q = editor.quote_name
        self._execute = editor.execute

    def undone(self) -> KeyTable | None:
        """The table with the links that still have the old type; None if all are done."""
        return self.before

    @abstractmethod
    def run(self, filling: Filling | None) -> None:
        """Fill the last rows, and do what is left."""

    def _finish(self, filling: Filling) -> None:
        filling.finish()
        if lost := filling.orphans():
            raise ConfigurationError(
                f"Some rows refer to rows of {filling.table} that do not exist: "
                f"{', '.join(lost)}. Correct or delete them first; nothing was changed."
            )


class ServerSwap(Swap):
    """On PostgreSQL, MariaDB and MySQL: rename the columns, with the tables locked.

    The key comes last. Until then its old column tells which rows the references belong to.
    """

    def undone(self) -> KeyTable | None:
        if self.kept in columns_of(self.connection, self.before.key.table):
            return None
        is_integer = self.after.key.field.db_type(self.connection) == INTEGER
        links = [
            link for link in self.after.links if (self._type_of(link) == INTEGER) != is_integer
        ]
        return replace(self.before, links=tuple(links))

    def run(self, filling: Filling | None) -> None:
        with self._locked():
            if filling is not None:
                self._finish(filling)
                if self._is_postgres:
                    # PostgreSQL alters no table that has deferred checks left.
                    self._execute("SET CONSTRAINTS ALL IMMEDIATE")
                    self._execute("SET CONSTRAINTS ALL DEFERRED")
                for each in filling.links:
                    drop_constraints(self.editor, each.link)
                for each in filling.links:
                    self._swap_link(each.link)
                self._swap_key(filling.new)
            self._drop_second_index()
            for link in self.after.links:
                make_constraints(self.editor, link)

    @property
    def _is_postgres(self) -> bool:
        return bool(self.connection.vendor == "postgresql")

    def _swap_link(self, link: Column) -> None:
        q, null = self._q, link.field.null
        table, old, new = f"ALTER TABLE {q(link.table)}", q(link.name), q(link.new)
        if not self._is_postgres:
            kind = f"{link.field.db_type(self.connection)} {'NULL' if null else 'NOT NULL'}"
            self._execute(f"{table} DROP COLUMN {old}, CHANGE {new} {old} {kind}")
            return
        self._execute(f"{table} DROP COLUMN {old}")
        self._execute(f"{table} RENAME COLUMN {new} TO {old}")
        if not null:
            self._execute(f"{table} ALTER COLUMN {old} SET NOT NULL")

    def _swap_key(self, new_column: str) -> None:
        q, key, connection = self._q, self.before.key, self.connection
        table, old, new, kept = map(q, (key.table, key.name, new_column, self.kept))
        if not self._is_postgres:
            kind = self.after.key.field.db_type(connection)
            self._execute(
                f"ALTER TABLE {table} DROP PRIMARY KEY, RENAME COLUMN {old} TO {kept}, "
                f"CHANGE {new} {old} {kind} NOT NULL, ADD PRIMARY KEY ({old}), ADD UNIQUE ({kept})"
            )
            return
        with connection.cursor() as cursor:
            found = connection.introspection.get_constraints(cursor, key.table)
        for name in (name for name, each in found.items() if each["primary_key"]):
            self._execute(f"ALTER TABLE {table} DROP CONSTRAINT {q(name)}")
        self._execute(f"ALTER TABLE {table} RENAME COLUMN {old} TO {kept}")
        self._execute(f"ALTER TABLE {table} RENAME COLUMN {new} TO {old}")
        self._execute(f"ALTER TABLE {table} ADD PRIMARY KEY ({old}), ADD UNIQUE ({kept})")

    def _drop_second_index(self) -> None:
        """A column that was unique before it became the key has a second index."""
        key = self.after.key
        unique = altered(key.field, primary_key=False, _unique=True)
        self.editor.alter_field(key.model, unique, altered(unique, _unique=False))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if self._is_postgres:
            names = ", ".join(map(self._q, self.before.tables))
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
        yield f"{self._q(self.before.key.table)} AS target WRITE"
        read = {
            field.remote_field.model._meta.db_table
            for link in self.before.links
            for field in link.model._meta.local_fields
            if isinstance(field, models.ForeignKey)
        }
        for name in sorted(read - set(written)):
            yield f"{self._q(name)} READ"

    def _type_of(self, link: Column) -> str:
        schema = "current_schema()" if self._is_postgres else "database()"
        found = query(
            self.connection,
            f"SELECT data_type FROM information_schema.columns WHERE table_schema = {schema} "  # noqa: S608 - a name of this module
            f"AND table_name = %s AND column_name = %s",
            [link.table, link.name],
        )
        return str(found[0][0]) if found else ""


class SqliteSwap(Swap):
    """On SQLite: rebuild each table."""

    def run(self, filling: Filling | None) -> None:
        if filling is not None:
            self._finish(filling)
            for table in self.after.tables:
                links = [link for link in self.after.links if link.table == table]
                moved = {link.name: link.new for link in links}
                if table == self.after.key.table:
                    moved |= {self.before.key.name: filling.new, self.kept: self.before.key.name}
                self._rebuild((links[0] if links else self.after.key).model, moved)

    def _rebuild(self, model: Any, moved: dict[str, str]) -> None:
        """Make the table anew; ``moved``: the old columns of those that have another name there."""
        editor, meta, q = self.editor, model._meta, self._q
        table, existing = meta.db_table, columns_of(self.connection, meta.db_table)
        names = [field.column for field in meta.local_concrete_fields]
        columns = {name: moved.get(name, name) for name in names}
        columns = {new: old for new, old in columns.items() if old in existing}
        through, interim = meta.local_many_to_many, f"idgen_new_{table}"
        meta.db_table, meta.local_many_to_many = interim, []  # its through tables are there already
        try:
            editor.create_model(model)
        finally:
            meta.db_table, meta.local_many_to_many = table, through
        editor.execute(
            f"INSERT INTO {q(interim)} ({', '.join(map(q, columns))}) "  # noqa: S608 - Django quotes the names
            f"SELECT {', '.join(map(q, columns.values()))} FROM {q(table)}"
        )
        editor.execute(f"DROP TABLE {q(table)}")
        editor.alter_db_table(model, interim, table)
        for statement in editor.deferred_sql:
            editor.execute(statement)
        editor.deferred_sql = []
