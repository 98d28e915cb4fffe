"""Migration operations for the end of a deploy: what becomes of the database's counter."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor as Editor
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState as State

from ...ops.tags.rows import find_tag
from .key_operations import ReturnKey
from .key_states import counter_behind, field_of, pause_tag_unless_shared, with_auto_key
from .plain_words import in_words

__all__ = ["DropCounter", "FreeCounter"]


class _CounterOperation(Operation):
    """What changes the counter alone, when a deploy is over."""

    def __init__(self, model_name: str, name: str) -> None:
        self.model_name = model_name
        self.name = name

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        kwargs = {"model_name": self.model_name, "name": self.name}
        return type(self).__name__, [], kwargs

    def state_forwards(self, app_label: str, state: State) -> None:
        """Nothing: the models have said so before."""

    def references_model(self, name: str, app_label: str) -> bool:  # noqa: ARG002
        return name.lower() == self.model_name.lower()

    def _allowed(self, app_label: str, editor: Editor, state: State) -> bool:
        model = state.apps.get_model(app_label, self.model_name)
        return bool(self.allow_migrate_model(editor.connection.alias, model))


class DropCounter(_CounterOperation):
    """Take the database's counter from a key that is ours. No process may count on it."""

    @in_words
    def database_forwards(
        self,
        app_label: str,
        schema_editor: Editor,
        from_state: State,
        to_state: State,
    ) -> None:
        del from_state
        ours = field_of(to_state, app_label, self)
        counter = counter_behind(schema_editor.connection, ours)
        if self._allowed(app_label, schema_editor, to_state) and counter.exists():
            before = field_of(with_auto_key(to_state, app_label, self), app_label, self)
            schema_editor.alter_field(before.model, before, ours)
            counter.forget()

    @in_words
    def database_backwards(
        self,
        app_label: str,
        schema_editor: Editor,
        from_state: State,
        to_state: State,
    ) -> None:
        """As the first half of the way back: see :class:`ReturnKey`."""
        del from_state
        auto = with_auto_key(to_state, app_label, self)
        key = ReturnKey(self.model_name, self.name, models.BigAutoField(primary_key=True))
        key.database_forwards(app_label, schema_editor, to_state, auto)

    def describe(self) -> str:
        return f"Drop the database's counter of {self.model_name}.{self.name}"


class FreeCounter(_CounterOperation):
    """Let the database's counter go on without bounds. No process may take ids of ``tag``."""

    def __init__(self, model_name: str, name: str, tag: str = "") -> None:
        super().__init__(model_name, name)
        self.tag = tag

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        name, args, kwargs = super().deconstruct()
        return name, args, {**kwargs, **({"tag": self.tag} if self.tag else {})}

    @in_words
    def database_forwards(
        self,
        app_label: str,
        schema_editor: Editor,
        from_state: State,
        to_state: State,
    ) -> None:
        del from_state
        if not self._allowed(app_label, schema_editor, to_state):
            return
        counter = counter_behind(schema_editor.connection, field_of(to_state, app_label, self))
        if counter.limit() is None:  # it never was bounded here, or is not any more
            counter.forget()
            return
        following = counter.reached() + 1
        if self.tag:
            pause_tag_unless_shared(self.tag, to_state)
            found = find_tag(self.tag)
            following = max(following, found.max_id if found else 1)
        counter.free(following)

    @in_words
    def database_backwards(
        self, app_label: str, schema_editor: Editor, from_state: State, to_state: State
    ) -> None:
        """Nothing: a counter without bounds is that of any auto field."""

    def describe(self) -> str:
        return f"Let the database's counter of {self.model_name}.{self.name} go on"
