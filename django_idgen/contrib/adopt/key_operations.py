"""Migration operations that change who gives the ids of a key: the database, or this package.

``manage.py idgen_adopt`` writes them. Where the database can't roll DDL back (MySQL, MariaDB),
an operation that was interrupted can be run again. Operations look at the table when they
run, so that one migration is right for each database of a project. On a table that has never
had a row, such as a test database's, they only change the column.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from django.core.management.base import CommandError
from django.db import DatabaseError, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor as Editor
from django.db.migrations.operations import AlterField
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState as State

from ...core.errors import ConfigurationError, one_line
from ...core.segment import MAX_ID
from ...db.sqlite import is_test_database
from ...fields import SegmentSource, SnowflakeSource
from ...fields.base import GeneratedOnSave
from ...fields.operations import TableOperation, stop_writers
from ...ops.tags.edits import pause_tag, resume_tag
from ...process.tags import TagUnknown, source_behind_pool
from .counters import Counter, counter_of
from .marks import first_id_of, grant_of, next_after, next_of, raise_tag_of
from .tables import key_table, put_keys_back

LEAST_MARGIN = 100_000
UNSEEN = 1_000
"""Ids that may be given out and deleted while a database without transactions alters a table."""


class WidenKey(AlterField):
    """An ``AlterField`` of a key to 64 bits, that leaves no foreign key out in silence.

    Django drops the foreign keys to the table, alters the columns, and makes the keys again.
    MariaDB and MySQL commit each of these steps. If one fails, such as for a lock of a busy
    table, this puts back the keys that it can, and ``migrate`` ends with ``CommandError``, which
    names the others. Run again, it does what is left.
    """

    def database_forwards(
        self, app_label: str, schema_editor: Editor, from_state: State, to_state: State
    ) -> None:
        try:
            super().database_forwards(app_label, schema_editor, from_state, to_state)
        except DatabaseError as error:
            if schema_editor.connection.features.can_rollback_ddl:
                raise
            table = key_table(from_state.apps, app_label, self.model_name)
            missing = ", ".join(put_keys_back(schema_editor, table))
            raise CommandError(
                f"Run 'manage.py migrate {app_label}' again, best at a quiet hour: it widens what "
                f"is left. Until then "
                + (
                    f"these foreign keys are missing: {missing}."
                    if missing
                    else "no key is missing."
                )
                + f" The database said: {one_line(error)}"
            ) from error

    def describe(self) -> str:
        return f"Widen the key of {self.model_name} to 64 bits"


class _KeyOperation(TableOperation, AlterField):
    """An ``AlterField`` of a primary key between an auto field and one of this app."""

    state_forwards = AlterField.state_forwards
    references_model = AlterField.references_model
    deconstruct = Operation.deconstruct  # the arguments it was made with

    def __init__(
        self,
        model_name: str,
        name: str,
        field: models.Field[Any, Any],
        margin: int | None = None,
        at_once: bool = False,
    ) -> None:
        AlterField.__init__(self, model_name, name, field)
        self.margin = margin
        self.at_once = at_once

    def margin_above(self, reached: int) -> int:
        """How many more ids the old side may give; by default a tenth of all it has given."""
        return max(LEAST_MARGIN, reached // 10) if self.margin is None else self.margin


class AdoptKey(_KeyOperation):
    """Let a table's ids come from ``field``, of this app. The table keeps the ids it has.

    ``margin``: ids that the database's counter may still give to processes with the old code;
    by default a tenth of all it has given, and at least 100,000. ``at_once``: none; stop those
    processes first.
    """

    def forwards(self, app_label: str, editor: Editor, before: State, after: State) -> None:
        field = self.field_in(after, app_label)
        counter = counter_of(editor.connection, field)
        reached = lock_and_look(counter)
        had_counter = counter.exists()
        if had_counter and not reached:
            _new_tables.add(_key_of(counter))
        if reached and had_counter and counter.fenceable and not self.at_once:
            self._fence(counter, field, reached)
            return
        if reached and (had_counter or isinstance(field, SegmentSource)):
            # First, so that what can't work fails before anything has changed.
            begin_above(field, reached)
        AlterField.database_forwards(self, app_label, editor, before, after)
        counter.forget()
        if reached and isinstance(field, SegmentSource):
            unseen = 0 if editor.connection.features.can_rollback_ddl else UNSEEN
            begin_above(field, max(reached, counter.largest()) + unseen)

    def _fence(self, counter: Counter, field: GeneratedOnSave, reached: int) -> None:
        """Let the generator begin above the fence, then hold the counter below it."""
        last = counter.limit()
        if last is not None:  # interrupted earlier: the generator may have given ids since
            begin_above(field, max(last, reached) if isinstance(field, SegmentSource) else last)
            return
        last = min(reached + self.margin_above(reached), MAX_ID - 1)
        begin_above(field, last)
        fence = first_id_of(field) - 1 if isinstance(field, SnowflakeSource) else last
        counter.fence(fence, room=last - reached)

    def backwards(self, app_label: str, editor: Editor, before: State, after: State) -> None:
        auto = self.field_in(after, app_label).clone()
        back = ReturnKey(self.model_name, self.name, auto, at_once=True)
        back.forwards(app_label, editor, before, after)

    def describe(self) -> str:
        return f"Let ids of {self.model_name} come from django_idgen"


class ReturnKey(_KeyOperation):
    """Let a table's ids come from the database again: ``field`` is a ``BigAutoField``.

    If the counter can be held, it gets a grant of ``margin`` ids of the tag, which no process
    gets. Otherwise the tag is paused: processes use up the ids they hold, and then get an
    error. For snowflakes the counter begins above all that can be made within
    :data:`~.marks.GRACE`.
    """

    def forwards(self, app_label: str, editor: Editor, before: State, after: State) -> None:
        field = self.field_in(before, app_label)
        if not isinstance(field, GeneratedOnSave):
            raise ConfigurationError(f"{field} is not a field of django_idgen.")
        counter = counter_of(editor.connection, field)
        reached = lock_and_look(counter)
        is_new = not reached and _is_new(counter, field)  # not if its rows were deleted
        can_fence = counter.fenceable and not self.at_once
        if not is_new and isinstance(field, SegmentSource) and can_fence:
            # The column takes values from both the tag and the counter.
            grant = grant_of(field, self.margin_above(reached), above=reached)
            counter.fence(grant.stop - 1, first=grant.start)
            return
        if not is_new:
            next_after(field)  # so that what can't work fails before the column counts
        if not counter.exists():
            AlterField.database_forwards(self, app_label, editor, before, after)
        if not is_new:
            if isinstance(field, SegmentSource):
                pause_unless_shared(field.resolved_tag, after)
            counter.free(max(counter.largest() + 1, next_after(field)))

    def backwards(self, app_label: str, editor: Editor, before: State, after: State) -> None:
        field = self.field_in(after, app_label).clone()
        adopt = AdoptKey(self.model_name, self.name, field, self.margin, self.at_once)
        adopt.forwards(app_label, editor, before, after)

    def describe(self) -> str:
        return f"Let ids of {self.model_name} come from the database"


class DropCounter(TableOperation):
    """Drop the database's counter of an adopted key. No process may use it any more."""

    def forwards(self, app_label: str, editor: Editor, before: State, after: State) -> None:  # noqa: ARG002
        field = self.field_in(after, app_label)
        counter = counter_of(editor.connection, field)
        if counter.exists():
            auto = self.field_in(self._with_auto_key(after, app_label), app_label)
            editor.alter_field(auto.model, auto, field)
            counter.forget()

    def backwards(self, app_label: str, editor: Editor, before: State, after: State) -> None:  # noqa: ARG002
        """Do the first half of the way back: see :class:`ReturnKey`."""
        key = ReturnKey(self.model_name, self.name, models.BigAutoField(primary_key=True))
        key.forwards(app_label, editor, after, self._with_auto_key(after, app_label))

    def describe(self) -> str:
        return f"Drop the database's counter of {self.model_name}.{self.name}"

    def _with_auto_key(self, state: State, app_label: str) -> State:
        column = self.field_in(state, app_label).db_column
        auto: models.Field[Any, Any] = models.BigAutoField(primary_key=True, db_column=column)
        changed = state.clone()
        AlterField(self.model_name, self.name, auto).state_forwards(app_label, changed)
        return changed


class FreeCounter(TableOperation):
    """Lift the bounds of the database's counter. No process may take ids of ``tag`` any more."""

    def __init__(self, model_name: str, name: str, tag: str = "") -> None:
        super().__init__(model_name, name)
        self.tag = tag

    def forwards(self, app_label: str, editor: Editor, before: State, after: State) -> None:  # noqa: ARG002
        counter = counter_of(editor.connection, self.field_in(after, app_label))
        if counter.limit() is None:  # this database's counter has no bounds
            counter.forget()
            return
        following = counter.reached() + 1
        if self.tag:
            pause_unless_shared(self.tag, after)
            following = max(following, next_of(self.tag))
        counter.free(following)

    def describe(self) -> str:
        return f"Lift the bounds of the database's counter of {self.model_name}.{self.name}"


_new_tables: set[tuple[str, str]] = set()
"""The database and table of each key that this process adopted before the first id."""


def _key_of(counter: Counter) -> tuple[str, str]:
    return str(counter.connection.settings_dict["NAME"]), counter.table


def _is_new(counter: Counter, field: GeneratedOnSave) -> bool:
    """Whether no id of the empty table was issued yet. Asks no service and no registry.

    Those may be out of reach where ``migrate`` makes a new database.
    """
    if isinstance(field, SegmentSource) and source_behind_pool().keeps_rows:
        return next_of(field.resolved_tag) == 1
    return is_test_database(counter.connection.alias) or _key_of(counter) in _new_tables


def lock_and_look(counter: Counter) -> int:
    """Lock the table for writers where that is possible; return the largest id in use."""
    stop_writers(counter.connection, counter.table)
    return counter.reached()


def begin_above(field: Any, reached: int) -> None:
    """Let ids of ``field`` begin above ``reached``. Raises :class:`ConfigurationError`."""
    if isinstance(field, SegmentSource):
        raise_tag_of(field, reached + 1)
        if source_behind_pool().keeps_rows:  # a service resumes its own tags
            resume_tag(field.resolved_tag)
        return
    check_above(field, field.model._meta.db_table, reached)


def check_above(field: Any, table: str, reached: int) -> None:
    """Raise :class:`ConfigurationError` unless snowflakes of ``field`` begin above ``reached``."""
    first = first_id_of(field)
    if first <= reached:
        raise ConfigurationError(
            f"Table {table} has, or may still get, ids up to {reached}, but snowflakes of "
            f"generator {field.generator!r} begin at {first} today: they would repeat ids. Use "
            f"--field segment, or a generator whose ids are larger (an earlier EPOCH)."
        )


def pause_unless_shared(tag: str, state: State) -> None:
    """Pause ``tag``, unless another table uses it, or a service has it."""
    is_used = any(
        isinstance(field, SegmentSource) and field.resolved_tag == tag
        for model in state.apps.get_models()
        for field in model._meta.local_fields
    )
    if not is_used and source_behind_pool().keeps_rows:
        with suppress(TagUnknown):
            pause_tag(tag)
