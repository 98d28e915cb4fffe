"""Migration operations that give a table a key of another type, with all references to it."""

from __future__ import annotations

from typing import Any

from django.apps import apps as installed_apps
from django.db import models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor as Editor
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState as State

from ...core.errors import ConfigurationError
from ...fields.base import GeneratedOnSave
from ...process.handlers import generators, segments
from .filling import Filling
from .links import Keyed, keyed, refuse_unsupported
from .plain_words import in_words
from .reading import columns_of, stop_writers
from .swap_server import ServerSwap
from .swap_sqlite import SqliteSwap

__all__ = ["MOST_AT_SWITCH", "AddNewKey", "SwitchKey", "taker"]

MOST_AT_SWITCH = 10_000
"""Rows that a switch fills itself; more are to be filled before, while the site is up."""


class _SwapOperation(Operation):
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

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        kwargs = {"model_name": self.model_name, "name": self.name, "field": self.field}
        if self.source is not None:
            kwargs["source"] = self.source
        return type(self).__name__, [], kwargs

    def references_model(self, name: str, app_label: str) -> bool:  # noqa: ARG002
        return True  # foreign keys from anywhere

    def _table(self, app_label: str, editor: Editor, state: State) -> Keyed | None:
        """The table as ``state`` has it; None if it isn't kept in this database."""
        table = keyed(state.apps, app_label, self.model_name)
        allowed = self.allow_migrate_model(editor.connection.alias, table.model)
        return table if allowed else None


class AddNewKey(_SwapOperation):
    """Add the columns of a new key, and of the references to it; no model knows of them."""

    def state_forwards(self, app_label: str, state: State) -> None:
        """Nothing: processes go on with the models that they have."""

    @in_words
    def database_forwards(
        self, app_label: str, schema_editor: Editor, from_state: State, to_state: State
    ) -> None:
        del from_state
        table = self._table(app_label, schema_editor, to_state)
        if table is None:
            return
        stop_writers(schema_editor.connection, table.table)
        refuse_unsupported(schema_editor.connection, table, installed_apps)
        kind = _type_of(self.field, schema_editor)
        if self.source is None:
            _add_column(schema_editor, table.table, table.new_column, kind)
        for link in table.links:
            _add_column(schema_editor, link.table, link.new_column, kind)

    @in_words
    def database_backwards(
        self, app_label: str, schema_editor: Editor, from_state: State, to_state: State
    ) -> None:
        del from_state
        table = self._table(app_label, schema_editor, to_state)
        if table is None:
            return
        if self.source is None:
            _drop_column(schema_editor, table.table, table.new_column)
        for link in table.links:
            _drop_column(schema_editor, link.table, link.new_column)

    def describe(self) -> str:
        return f"Add columns for a new key of {self.model_name}"


class SwitchKey(_SwapOperation):
    """Have the columns of :class:`AddNewKey` take the places of the old ones.

    The old key stays as ``kept``, a unique field. Rows that are not filled yet are, up
    to :data:`MOST_AT_SWITCH`; with more it refuses.
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

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        name, args, kwargs = super().deconstruct()
        return name, args, {**kwargs, "kept": self.kept, "kept_field": self.kept_field}

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
        # All that refers to it changes its type.
        state.clear_delayed_apps_cache()
        state.__dict__.pop("apps", None)
        state._relations = None  # type: ignore[attr-defined]

    @in_words
    def database_forwards(
        self, app_label: str, schema_editor: Editor, from_state: State, to_state: State
    ) -> None:
        before = self._table(app_label, schema_editor, from_state)
        if before is None:
            return
        after = keyed(to_state.apps, app_label, self.model_name)
        connection = schema_editor.connection
        stop_writers(connection, before.table)
        refuse_unsupported(connection, before, installed_apps)
        source = self._column(before, self.source)
        kept = str(self._column(after, self.kept))
        kind = SqliteSwap if connection.vendor == "sqlite" else ServerSwap
        swap = kind(schema_editor, before, after, new=source or before.new_column, kept=kept)
        # Broken off earlier, where DDL is for good, the rows are known by the kept column.
        done = swap.is_parent_done()
        filling = Filling(
            connection,
            self._with_columns(schema_editor, swap.undone(), parent=not done),
            old=kept if done else before.column,
            new=before.column if done else source or before.new_column,
            take=None if source or done else taker(after.model._meta.get_field(self.name)),
        )
        self._refuse_unfilled(filling)
        swap.run(filling)

    def _with_columns(self, editor: Editor, table: Keyed, *, parent: bool) -> Keyed:
        """``table``; what a migration in between has lost, or brought, is added."""
        kind = _type_of(self.field, editor)
        if parent and self.source is None:
            _add_column(editor, table.table, table.new_column, kind)
        for link in table.links:
            _add_column(editor, link.table, link.new_column, kind)
        return table

    @staticmethod
    def _column(table: Keyed, name: str | None) -> str | None:
        field: Any = None if name is None else table.model._meta.get_field(name)
        return None if field is None else str(field.column)

    @in_words
    def database_backwards(
        self, app_label: str, schema_editor: Editor, from_state: State, to_state: State
    ) -> None:
        del schema_editor, from_state, to_state
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


def taker(field: Any) -> Any:
    """What takes n ids for the rows of ``field``, one of ours."""
    if not isinstance(field, GeneratedOnSave):
        raise ConfigurationError(f"{field} gives no ids.")
    if hasattr(field, "resolved_tag"):
        return segments.of_field(field).next_ids
    return generators[field.generator].next_ids  # type: ignore[attr-defined]


def _type_of(field: models.Field[Any, Any], editor: Editor) -> str:
    return str(field.clone().db_type(editor.connection))


def _add_column(editor: Editor, table: str, column: str, kind: str) -> None:
    if column not in columns_of(editor.connection, table):
        q = editor.quote_name
        editor.execute(f"ALTER TABLE {q(table)} ADD COLUMN {q(column)} {kind} NULL")


def _drop_column(editor: Editor, table: str, column: str) -> None:
    if column in columns_of(editor.connection, table):
        q = editor.quote_name
        editor.execute(f"ALTER TABLE {q(table)} DROP COLUMN {q(column)}")
