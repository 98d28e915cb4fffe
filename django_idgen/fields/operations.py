"""Migration operations for the fields of this app."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import FieldDoesNotExist
from django.db import models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor as Editor
from django.db.backends.utils import strip_quotes
from django.db.migrations.operations import RunPython
from django.db.migrations.operations.fields import FieldOperation
from django.db.migrations.state import ProjectState as State

from ..core.errors import ConfigurationError
from .base import GeneratedOnSave
from .filling import MOST_IN_BATCH, ColumnFilling, in_words, stop_writers

__all__ = ["FillIds"]


class FillIds(FieldOperation):
    """Give an id to each row that has none in field ``name``, which was added with ``null=True``.

    ``FillIds("order", "public_id")`` takes the ids from the field's own generator or tag, in
    the order of the primary key. A row that has an id keeps it.

    ``batch_size`` (1 to 5000) is the number of rows of one ``UPDATE``. In a migration with
    ``atomic = False`` each batch is a transaction, and a ``migrate`` that was killed goes on
    where it ended. Else PostgreSQL and SQLite do all of it in the migration's transaction,
    which keeps other writers off the table. The way back does nothing.

    ``migrate`` fails with ``CommandError`` if there is no such model or field, if the field
    is not one of this app's, or can't be empty.
    """

    reduces_to_sql = False
    category = getattr(RunPython, "category", None)  # from Django 5.1 on

    def __init__(
        self, model_name: str, name: str, batch_size: int = 1000, elidable: bool = False
    ) -> None:
        super().__init__(model_name, name)
        self.batch_size = batch_size
        self.elidable = elidable  # type: ignore[misc]  # RunPython does the same

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        kwargs: dict[str, Any] = {"model_name": self.model_name, "name": self.name}
        if self.batch_size != 1000:
            kwargs["batch_size"] = self.batch_size
        if self.elidable:
            kwargs["elidable"] = True
        return type(self).__name__, [], kwargs

    def state_forwards(self, app_label: str, state: State) -> None:
        """Nothing: the models stay as they are."""

    @in_words
    def database_forwards(
        self, app_label: str, schema_editor: Editor, from_state: State, to_state: State
    ) -> None:
        del from_state
        field = self._field(app_label, to_state)
        connection = schema_editor.connection
        if self.allow_migrate_model(connection.alias, field.model):
            table = strip_quotes(field.model._meta.db_table)
            stop_writers(connection, table)
            ColumnFilling(
                connection,
                table,
                key=_key_columns(field.model),
                new=field.column,
                take=field.next_values,
                batch=self.batch_size,
            ).run()

    def database_backwards(
        self, app_label: str, schema_editor: Editor, from_state: State, to_state: State
    ) -> None:
        """Nothing: the rows keep their ids until the column goes."""

    def describe(self) -> str:
        return f"Fill {self.model_name}.{self.name} of the rows that have no id"

    @property
    def migration_name_fragment(self) -> str:
        return f"fill_{self.model_name_lower}_{self.name}"

    def _field(self, app_label: str, state: State) -> Any:
        """The field, as the migrations have it by now."""
        try:
            field: Any = state.apps.get_model(app_label, self.model_name)._meta.get_field(self.name)
        except (LookupError, FieldDoesNotExist) as error:
            raise ConfigurationError(f"{self!r} can't be run: {error}") from error
        wrong = self._wrong_with(field)
        if wrong:
            raise ConfigurationError(f"{self!r} can't be run: {wrong}")
        return field

    def _wrong_with(self, field: Any) -> str:
        if not isinstance(field, GeneratedOnSave):
            return f"{field} is a {type(field).__name__}. Name a SnowflakeField or SegmentIdField."
        if not field.null:
            return f"{field} has no null=True, so no row is empty. Put it before the AlterField."
        if type(self.batch_size) is not int or not 1 <= self.batch_size <= MOST_IN_BATCH:
            return f"batch_size must be a whole number of 1 to {MOST_IN_BATCH}."
        return ""


def _key_columns(model: type[models.Model]) -> list[str]:
    # Composite keys came with Django 5.2.
    keys: Any = getattr(model._meta, "pk_fields", [model._meta.pk])
    return [key.column for key in keys]
