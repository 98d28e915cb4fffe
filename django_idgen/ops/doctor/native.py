"""Examination ``native``: sequences that run out, or would give ids that are taken."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from django.db import router
from django.db.backends.base.base import BaseDatabaseWrapper

from ..native import native_column, on_own_connection
from .findings import Finding, Fix, Severity, Unexamined
from .project import IdColumn, Project, attempt


def examine(project: Project) -> Iterator[Finding | Unexamined]:
    """A finding for each sequence of ``idgen_native`` that has to be extended."""
    for column in project.segment_columns(project.reachable()):
        # Not on a replica, whose sequence belongs to the primary.
        if column.alias == router.db_for_write(column.field.model):
            yield from attempt(str(column), _of_column(project, column))


def _of_column(project: Project, column: IdColumn) -> Iterator[Finding]:
    with project.reading(column.alias) as connection:
        native = native_column(connection, column.field)
        position = None if native is None else native.position()
        if native is None or position is None:
            return
        problem = native.problem(position)
    if problem or position.runs_low:
        yield Finding(
            Severity.ERROR if problem or not position.left else Severity.WARNING,
            str(native),
            f"Its sequence {position.name} gives {position}{problem and f', but {problem}'}.",
            "Ids would repeat." if problem else "Rows that other programs insert will be refused.",
            "Make sure that Celery beat runs 'extend_native' (django_idgen.tasks.BEAT_SCHEDULE), "
            "or cron 'manage.py idgen_upkeep'; until then run 'manage.py idgen_native --extend'.",
            Fix("Gives it another segment of the tag.", partial(_extend, column)),
        )


def _extend(column: IdColumn) -> str:
    def extend(connection: BaseDatabaseWrapper) -> str:
        native = native_column(connection, column.field)
        return "" if native is None else native.extend()

    return on_own_connection(column.alias, extend) or "it was extended meanwhile"
