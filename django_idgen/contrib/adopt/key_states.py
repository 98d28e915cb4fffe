"""What the operations on keys look at: fields of a migration's states, and their counters."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.operations import AlterField
from django.db.migrations.state import ProjectState

from ...core.errors import ConfigurationError
from ...fields import SegmentSource
from ...ops.tags.pausing import pause_tag, resume_tag
from ...ops.tags.rows import TagUnknown
from .counters import Counter, counter_of
from .marks import first_id_of, lift
from .reading import stop_writers

__all__ = [
    "begin_above",
    "counter_behind",
    "field_of",
    "lock_and_look",
    "pause_tag_unless_shared",
    "pause_unless_shared",
    "with_auto_key",
]


def field_of(state: ProjectState, app_label: str, operation: Any) -> Any:
    model = state.apps.get_model(app_label, operation.model_name)
    return model._meta.get_field(operation.name)


def with_auto_key(state: ProjectState, app_label: str, operation: Any) -> ProjectState:
    """``state`` with an auto field for a key."""
    column = field_of(state, app_label, operation).db_column
    auto: models.Field[Any, Any] = models.BigAutoField(primary_key=True, db_column=column)
    after = state.clone()
    AlterField(operation.model_name, operation.name, auto).state_forwards(app_label, after)
    return after


def counter_behind(connection: BaseDatabaseWrapper, field: Any) -> Counter:
    return counter_of(connection, field.model._meta.db_table, field.column)


def lock_and_look(counter: Counter) -> int:
    """The largest id of the table so far; nobody adds one meanwhile, where that can be had."""
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


def pause_unless_shared(field: Any, state: ProjectState) -> None:
    if isinstance(field, SegmentSource):
        pause_tag_unless_shared(field.resolved_tag, state)


def pause_tag_unless_shared(tag: str, state: ProjectState) -> None:
    """Nobody is to be given more ids of ``tag``, unless another table uses it, too."""
    users = [
        field
        for model in state.apps.get_models()
        for field in model._meta.local_fields
        if isinstance(field, SegmentSource) and field.resolved_tag == tag
    ]
    if not users:
        with suppress(TagUnknown):
            pause_tag(tag)
