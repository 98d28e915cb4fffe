"""Examination ``columns``: columns too narrow for the ids that they have to hold.

It reads the columns of the database: the model may say bigint while the table is older.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.db import Error as AnyDatabaseError
from django.db import connections

from ...checks import generic_keys, narrow_columns
from ...core.errors import one_line
from ...fields import SegmentSource
from ...fields.base import GeneratedOnSave, id_held_by
from ...process.tags import next_free_id
from .findings import Finding, Severity, Unexamined
from .project import Project, attempt


@dataclass(frozen=True, slots=True)
class NarrowColumn:
    """A column of 32 bits or fewer."""

    alias: str
    table: str
    column: str
    kind: str
    tag: str | None
    """The tag that fills it; None if other ids fill it."""

    @property
    def highest(self) -> int:
        """The highest id that fits."""
        return 2**15 - 1 if "Small" in self.kind else 2**31 - 1

    def __str__(self) -> str:
        return f"column {self.column!r} of table {self.table!r} in database {self.alias!r}"


def examine(project: Project) -> Iterator[Finding | Unexamined]:
    """A finding for each narrow column that has to hold ids."""
    for alias in project.reachable():
        found = narrow_columns_in(project, alias)
        shown = (_finding(each) if isinstance(each, NarrowColumn) else each for each in found)
        yield from attempt(f"database {alias!r}", shown)


def narrow_columns_in(project: Project, alias: str) -> Iterator[NarrowColumn | Unexamined]:
    """The narrow columns of a reachable database; none on SQLite, where all have 64 bits."""
    if connections[alias].vendor == "sqlite":
        return
    for model in apps.get_models(include_auto_created=True):
        table = model._meta.db_table
        if not project.has_rows_of(alias, model):
            continue
        try:
            with project.reading(alias) as connection:
                found = list(narrow_columns(connection, model, _may_hold_ids))
        except AnyDatabaseError as error:
            yield Unexamined(f"table {table!r} in database {alias!r}", one_line(error))
            continue
        for field, kind in found:
            source = id_held_by(field)
            tag = source.resolved_tag if isinstance(source, SegmentSource) else None
            yield NarrowColumn(alias, table, field.column, kind, tag)


def _may_hold_ids(field: Any) -> bool:
    """Whether the field holds our ids, or is a generic key, which may hold those of any model."""
    if id_held_by(field):
        return True
    is_generic = field in [column for _, column in generic_keys(field.model)]
    return is_generic and any(
        isinstance(model._meta.pk, GeneratedOnSave) for model in apps.get_models()
    )


def _finding(narrow: NarrowColumn) -> Finding:
    fits = narrow.tag is not None and next_free_id(narrow.tag) <= narrow.highest
    return Finding(
        Severity.WARNING if fits else Severity.ERROR,
        str(narrow),
        f"Its type is {narrow.kind}, which holds ids up to {narrow.highest} only.",
        f"The ids of tag {narrow.tag!r} will outgrow it."
        if fits
        else (
            "Larger ids don't fit: a row can't be written, or gets a wrong id (MySQL and MariaDB "
            "outside of strict mode)."
        ),
        "Run the migration that widens it, if there is one. Otherwise change the column to bigint.",
    )
