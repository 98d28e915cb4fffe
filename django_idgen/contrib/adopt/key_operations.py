"""Migration operations that change who gives the ids of a key: the database, or we.

They are written by ``manage.py idgen_adopt``, and can be run again when they were broken
off where the database can't take DDL back (MySQL, MariaDB). What they see of the table
they see when they run, so that one migration is right for each database of a project.
On a table that has never had a row, such as a test database's, they only change the column.
"""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor as Editor
from django.db.migrations.operations import AlterField
from django.db.migrations.state import ProjectState as State

from ...core.errors import ConfigurationError
from ...core.segment import MAX_ID
from ...fields import SegmentSource, SnowflakeSource
from ...fields.base import GeneratedOnSave
from .counters import Counter
from .key_states import begin_above, counter_behind, field_of, lock_and_look, pause_unless_shared
from .marks import first_id_of, grant_of, next_after
from .plain_words import in_words

__all__ = ["LEAST_MARGIN", "AdoptKey", "ReturnKey", "margin_after"]

LEAST_MARGIN = 100_000
UNSEEN = 1_000
"""Ids that may be given out and deleted while a database without transactions alters a table."""


def margin_after(reached: int, margin: int | None) -> int:
    """How many more ids the old counter is left with: a tenth of all that it ever gave."""
    return max(LEAST_MARGIN, reached // 10) if margin is None else margin


class _KeyOperation(AlterField):
    """An ``AlterField`` of a primary key between an auto field and one of ours."""

    def __init__(
        self,
        model_name: str,
        name: str,
        field: models.Field[Any, Any],
        margin: int | None = None,
        at_once: bool = False,
    ) -> None:
        super().__init__(model_name, name, field)
        self.margin = margin
        self.at_once = at_once

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        name, args, kwargs = super().deconstruct()
        if self.margin is not None:
            kwargs["margin"] = self.margin
        if self.at_once:
            kwargs["at_once"] = True
        return name, list(args), kwargs

    def _allowed(self, app_label: str, editor: Editor, state: State) -> bool:
        model = state.apps.get_model(app_label, self.model_name)
        return bool(self.allow_migrate_model(editor.connection.alias, model))


class AdoptKey(_KeyOperation):
    """Have a table's ids come from ``field``, one of ours; those that it has are kept.

    ``margin``: how many more ids the database's counter may give to processes that don't
    know of it yet; by default a tenth of what it ever gave, and 100,000 at least. With
    ``at_once`` it gives none: stop those processes before.
    """

    @in_words
    def database_forwards(
        self, app_label: str, schema_editor: Editor, from_state: State, to_state: State
    ) -> None:
        if not self._allowed(app_label, schema_editor, to_state):
            return
        connection = schema_editor.connection
        field = field_of(to_state, app_label, self)
        counter = counter_behind(connection, field)
        reached = lock_and_look(counter)
        had = counter.exists()
        if reached and had and counter.fenceable and not self.at_once:
            self._fence(counter, field, reached)
            return
        if reached and (had or isinstance(field, SegmentSource)):
            # Before: what can't work is to be said while nothing was changed.
            begin_above(field, reached)
        super().database_forwards(app_label, schema_editor, from_state, to_state)
        counter.forget()
        if reached and isinstance(field, SegmentSource):
            unseen = 0 if connection.features.can_rollback_ddl else UNSEEN
            begin_above(field, max(reached, counter.largest()) + unseen)

    def _fence(self, counter: Counter, field: GeneratedOnSave, reached: int) -> None:
        """Ours begin above, first of all; then the counter is stopped below."""
        last = counter.limit()
        if last is not None:  # broken off earlier: there may be rows of ours by now
            begin_above(field, max(last, reached) if isinstance(field, SegmentSource) else last)
            return
        last = min(reached + margin_after(reached, self.margin), MAX_ID - 1)
        begin_above(field, last)
        fence = first_id_of(field) - 1 if isinstance(field, SnowflakeSource) else last
        counter.fence(fence, room=last - reached)

    @in_words
    def database_backwards(
        self, app_label: str, schema_editor: Editor, from_state: State, to_state: State
    ) -> None:
        if not self._allowed(app_label, schema_editor, to_state):
            return
        ours = field_of(from_state, app_label, self)
        counter = counter_behind(schema_editor.connection, ours)
        reached = lock_and_look(counter)
        if not counter.exists():
            super().database_forwards(app_label, schema_editor, from_state, to_state)
        if reached:
            pause_unless_shared(ours, to_state)
            counter.free(max(counter.largest() + 1, next_after(ours)))

    def describe(self) -> str:
        return f"Have ids of {self.model_name} come from django_idgen"


class ReturnKey(_KeyOperation):
    """Have a table's ids come from the database again: ``field`` is a ``BigAutoField``.

    Where it can be held, the counter is given a grant of ``margin`` ids of the tag, which
    no process is given that still takes ours. Elsewhere the tag is paused: they use up
    what they hold, and get an error. For snowflakes it begins above all that can be made
    within :data:`GRACE`.
    """

    @in_words
    def database_forwards(
        self, app_label: str, schema_editor: Editor, from_state: State, to_state: State
    ) -> None:
        if not self._allowed(app_label, schema_editor, to_state):
            return
        ours = field_of(from_state, app_label, self)
        if not isinstance(ours, GeneratedOnSave):
            raise ConfigurationError(f"{self.model_name}.{self.name} is no field of ours already.")
        counter = counter_behind(schema_editor.connection, ours)
        reached = lock_and_look(counter)
        if reached and isinstance(ours, SegmentSource) and counter.fenceable and not self.at_once:
            # The column takes values from us and from the counter.
            grant = grant_of(ours, margin_after(reached, self.margin), above=reached)
            counter.fence(grant.stop - 1, first=grant.start)
            return
        if not counter.exists():
            super().database_forwards(app_label, schema_editor, from_state, to_state)
        if reached:
            pause_unless_shared(ours, to_state)
            counter.free(max(counter.largest() + 1, next_after(ours)))

    @in_words
    def database_backwards(
        self, app_label: str, schema_editor: Editor, from_state: State, to_state: State
    ) -> None:
        adopt = AdoptKey(
            self.model_name,
            self.name,
            field_of(to_state, app_label, self).clone(),
            self.margin,
            self.at_once,
        )
        adopt.database_forwards(app_label, schema_editor, from_state, to_state)

    def describe(self) -> str:
        return f"Have ids of {self.model_name} come from the database"
