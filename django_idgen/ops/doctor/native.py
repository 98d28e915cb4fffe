"""Examination ``native``: sequences that run out, or would give ids that are taken."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from django.db import router

from ..native import NativeColumn, aside, native_column
from .findings import Finding, Fix, Severity, Unexamined
from .id_columns import IdColumn, segment_columns
from .project import Project, attempt

__all__ = ["NAME", "examine"]

NAME = "native"


def examine(project: Project) -> Iterator[Finding | Unexamined]:
    """A finding for each sequence of ``idgen_native`` that has to be extended."""
    for column in segment_columns(project, project.up()):
        # Not on a replica: there the sequence is another server's.
        if column.alias == router.db_for_write(column.field.model):
            yield from attempt(NAME, column.words, _of_column(project, column))


def _of_column(project: Project, column: IdColumn) -> Iterator[Finding]:
    with project.reading(column.alias) as connection:
        native = native_column(connection, column.field)
        position = None if native is None else native.position()
        if native is None or position is None:
            return
        wrong = native.wrong_with(position)
    if not wrong and not position.is_due:
        return
    serious = bool(wrong) or not position.left
    yield Finding(
        NAME,
        Severity.ERROR if serious else Severity.WARNING,
        native.words,
        f"Its sequence {position.name} gives {position.words}{wrong and f', but {wrong}'}.",
        "Ids would repeat." if wrong else "Rows that other programs insert will be refused.",
        "See that Celery beat runs 'extend_native' (django_idgen.tasks.BEAT_SCHEDULE), or cron "
        "'manage.py idgen_upkeep'; until then 'manage.py idgen_native --extend'.",
        Fix("Gives it another segment of the tag.", partial(_extended, column)),
    )


def _extended(column: IdColumn) -> str:
    def extend(connection: object) -> str:
        native: NativeColumn | None = native_column(connection, column.field)  # type: ignore[arg-type]
        return "" if native is None else native.extend()

    return aside(column.alias, extend) or "it was extended meanwhile"
