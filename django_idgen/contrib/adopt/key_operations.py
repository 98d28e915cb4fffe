"""Migration operations that change who gives the ids of a key: the database, or this package.

``manage.py idgen_adopt`` writes them. They can be run again when they were broken off where
the database can't take DDL back (MySQL, MariaDB). What they need to know of a table they find
out when they run, so that one migration is right for each database of a project. On a table
that has never had a row, such as a test database's, they only change the column.
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import suppress
from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.base.schema import BaseDatabaseSchemaEditor as Editor
from django.db.migrations.operations import AlterField
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState as State

from ...core.errors import ConfigurationError
from ...core.segment import MAX_ID
from ...fields import SegmentSource, SnowflakeSource
from ...fields.base import GeneratedOnSave
from ...fields.filling import in_words, stop_writers
from ...ops.tags.edits import pause_tag, resume_tag
from ...process.tags import TagUnknown, find_tag
from .counters import Counter, counter_of
from .marks import first_id_of, grant_of, lift, next_after

__all__ = [
    "LEAST_MARGIN",
    "AdoptKey",
    "DropCounter",
    "FreeCounter",
    "ReturnKey",
    "TableOperation",
    "counter_behind",
    "margin_after",
]

LEAST_MARGIN = 100_000
UNSEEN = 1_000
"""Ids that may be given out and deleted while a database without transactions alters a table."""


def margin_after(reached: int, margin: int | None) -> int:
    """How many more ids the old counter is left with: a tenth of all that it ever gave."""
    return max(LEAST_MARGIN, reached // 10) if margin is None else margin


class TableOperation(Operation):
    """Runs only where the table of ``model_name`` is kept; fails with a ``CommandError``."""

    model_name: str

    @abstractmethod
    def forwards(self, app_label: str, editor: Editor, before: State, after: State) -> None:
        """Change the database from state ``before`` to ``after``."""

    @abstractmethod
    def backwards(self, app_label: str, editor: Editor, before: State, after: State) -> None:
        """Change the database back, likewise."""

    @in_words
    def database_forwards(
        self, app_label: str, schema_editor: Editor, from_state: State, to_state: State
    ) -> None:
        if self._is_kept(app_label, schema_editor, to_state):
            self.forwards(app_label, schema_editor, from_state, to_state)

    @in_words
    def database_backwards(
        self, app_label: str, schema_editor: Editor, from_state: State, to_state: State
    ) -> None:
        if self._is_kept(app_label, schema_editor, to_state):
            self.backwards(app_label, schema_editor, from_state, to_state)

    def _is_kept(self, app_label: str, editor: Editor, state: State) -> bool:
        model = state.apps.get_model(app_label, self.model_name)
        return bool(self.allow_migrate_model(editor.connection.alias, model))


class _KeyOperation(TableOperation, AlterField):
    """An ``AlterField`` of a primary key between an auto field and one of this app."""

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

    deconstruct = Operation.deconstruct  # what it was made with

    def alter_field(self, app_label: str, editor: Editor, before: State, after: State) -> None:
        """What ``AlterField`` does."""
        AlterField.database_forwards(self, app_label, editor, before, after)


class AdoptKey(_KeyOperation):
    """Have a table's ids come from ``field``, of this app; the table keeps those that it has.

    ``margin``: ids that the database's counter may still give to processes with the old
    code; by default a tenth of all that it gave, and 100,000 at least. ``at_once``: none;
    stop those processes before.
    """

    def forwards(self, app_label: str, editor: Editor, before: State, after: State) -> None:
        connection = editor.connection
        field = field_of(after, app_label, self)
        counter = counter_behind(connection, field)
        reached = lock_and_look(counter)
        had = counter.exists()
        if reached and had and counter.fenceable and not self.at_once:
            self._fence(counter, field, reached)
            return
        if reached and (had or isinstance(field, SegmentSource)):
            # First, so that what can't work fails before anything is changed.
            begin_above(field, reached)
        self.alter_field(app_label, editor, before, after)
        counter.forget()
        if reached and isinstance(field, SegmentSource):
            unseen = 0 if connection.features.can_rollback_ddl else UNSEEN
            begin_above(field, max(reached, counter.largest()) + unseen)

    def _fence(self, counter: Counter, field: GeneratedOnSave, reached: int) -> None:
        """Have the generator begin above the fence, and then hold the counter below it."""
        last = counter.limit()
        if last is not None:  # broken off earlier: the generator may have given ids by now
            begin_above(field, max(last, reached) if isinstance(field, SegmentSource) else last)
            return
        last = min(reached + margin_after(reached, self.margin), MAX_ID - 1)
        begin_above(field, last)
        fence = first_id_of(field) - 1 if isinstance(field, SnowflakeSource) else last
        counter.fence(fence, room=last - reached)

    def backwards(self, app_label: str, editor: Editor, before: State, after: State) -> None:
        auto = field_of(after, app_label, self).clone()
        back = ReturnKey(self.model_name, self.name, auto, at_once=True)
        back.forwards(app_label, editor, before, after)

    def describe(self) -> str:
        return f"Have ids of {self.model_name} come from django_idgen"


class ReturnKey(_KeyOperation):
    """Have a table's ids come from the database again: ``field`` is a ``BigAutoField``.

    Where the counter can be held, it gets a grant of ``margin`` ids of the tag, which no
    process gets. Elsewhere the tag is paused: processes use up what they hold, and then get
    an error. For snowflakes the counter begins above all that can be made within
    :data:`GRACE`.
    """

    def forwards(self, app_label: str, editor: Editor, before: State, after: State) -> None:
        ours = field_of(before, app_label, self)
        if not isinstance(ours, GeneratedOnSave):
            raise ConfigurationError(
                f"{self.model_name}.{self.name} is not a field of django_idgen."
            )
        counter = counter_behind(editor.connection, ours)
        reached = lock_and_look(counter)
        if reached and isinstance(ours, SegmentSource) and counter.fenceable and not self.at_once:
            # The column takes values from the tag and from the counter.
            grant = grant_of(ours, margin_after(reached, self.margin), above=reached)
            counter.fence(grant.stop - 1, first=grant.start)
            return
        if not counter.exists():
            self.alter_field(app_label, editor, before, after)
        if reached:
            pause_unless_shared(ours, after)
            counter.free(max(counter.largest() + 1, next_after(ours)))

    def backwards(self, app_label: str, editor: Editor, before: State, after: State) -> None:
        field = field_of(after, app_label, self).clone()
        adopt = AdoptKey(self.model_name, self.name, field, self.margin, self.at_once)
        adopt.forwards(app_label, editor, before, after)

    def describe(self) -> str:
        return f"Have ids of {self.model_name} come from the database"


# --- the counter alone, when a deploy is over ---------------------------------------


class _CounterOperation(TableOperation):
    """Changes the counter alone, when a deploy is over."""

    def __init__(self, model_name: str, name: str) -> None:
        self.model_name = model_name
        self.name = name

    def state_forwards(self, app_label: str, state: State) -> None:
        """Nothing: the models have said so before."""

    def references_model(self, name: str, app_label: str) -> bool:  # noqa: ARG002
        return name.lower() == self.model_name.lower()


class DropCounter(_CounterOperation):
    """Drop the database's counter of an adopted key. No process may use it any more."""

    def forwards(self, app_label: str, editor: Editor, before: State, after: State) -> None:  # noqa: ARG002
        ours = field_of(after, app_label, self)
        counter = counter_behind(editor.connection, ours)
        if counter.exists():
            auto = field_of(with_auto_key(after, app_label, self), app_label, self)
            editor.alter_field(auto.model, auto, ours)
            counter.forget()

    def backwards(self, app_label: str, editor: Editor, before: State, after: State) -> None:  # noqa: ARG002
        """As the first half of the way back: see :class:`ReturnKey`."""
        auto = with_auto_key(after, app_label, self)
        key = ReturnKey(self.model_name, self.name, models.BigAutoField(primary_key=True))
        key.forwards(app_label, editor, after, auto)

    def describe(self) -> str:
        return f"Drop the database's counter of {self.model_name}.{self.name}"


class FreeCounter(_CounterOperation):
    """Lift the bounds of the database's counter. No process may take ids of ``tag`` any more."""

    def __init__(self, model_name: str, name: str, tag: str = "") -> None:
        super().__init__(model_name, name)
        self.tag = tag

    def forwards(self, app_label: str, editor: Editor, before: State, after: State) -> None:  # noqa: ARG002
        counter = counter_behind(editor.connection, field_of(after, app_label, self))
        if counter.limit() is None:  # it has no bounds here (any more)
            counter.forget()
            return
        following = counter.reached() + 1
        if self.tag:
            pause_tag_unless_shared(self.tag, after)
            found = find_tag(self.tag)
            following = max(following, found.max_id if found else 1)
        counter.free(following)

    def backwards(self, app_label: str, editor: Editor, before: State, after: State) -> None:
        """Nothing: a counter without bounds is that of any auto field."""

    def describe(self) -> str:
        return f"Let the database's counter of {self.model_name}.{self.name} go on"


# --- what the operations look at --------------------------------------------------


def field_of(state: State, app_label: str, operation: Any) -> Any:
    model = state.apps.get_model(app_label, operation.model_name)
    return model._meta.get_field(operation.name)


def with_auto_key(state: State, app_label: str, operation: Any) -> State:
    """``state`` with an auto field for a key."""
    column = field_of(state, app_label, operation).db_column
    auto: models.Field[Any, Any] = models.BigAutoField(primary_key=True, db_column=column)
    after = state.clone()
    AlterField(operation.model_name, operation.name, auto).state_forwards(app_label, after)
    return after


def counter_behind(connection: BaseDatabaseWrapper, field: Any) -> Counter:
    return counter_of(connection, field.model._meta.db_table, field.column)


def lock_and_look(counter: Counter) -> int:
    """The largest id of the table; the table is locked for writers, where that is possible."""
    stop_writers(counter.connection, counter.table)
    return counter.reached()


def begin_above(field: Any, reached: int) -> None:
    """Have ids of ``field`` begin above ``reached``; raises :class:`ConfigurationError`."""
    if isinstance(field, SegmentSource):
        lift(field, reached + 1)
        resume_tag(field.resolved_tag)
        return
    first = first_id_of(field)
    if first <= reached:
        raise ConfigurationError(
            f"Table {field.model._meta.db_table} has ids up to {reached}, but snowflakes of "
            f"generator {field.generator!r} begin at {first} today: they would meet. Use "
            f"--field segment, or a generator whose ids are larger (an earlier EPOCH)."
        )


def pause_unless_shared(field: Any, state: State) -> None:
    if isinstance(field, SegmentSource):
        pause_tag_unless_shared(field.resolved_tag, state)


def pause_tag_unless_shared(tag: str, state: State) -> None:
    """Pause ``tag``, unless another table uses it, too."""
    users = [
        field
        for model in state.apps.get_models()
        for field in model._meta.local_fields
        if isinstance(field, SegmentSource) and field.resolved_tag == tag
    ]
    if not users:
        with suppress(TagUnknown):
            pause_tag(tag)
