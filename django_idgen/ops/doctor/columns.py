"""Examination ``columns``: columns too narrow for the ids that they have to hold.

What counts is the column in the database: the model may say ``bigint`` for years while the
table, made by an old migration, does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.db import Error as AnyDatabaseError
from django.db import connections, router

from ...checks import generic_keys, holds_ours, narrow_columns
from ...fields import SegmentSource
from ...fields.base import GeneratedOnSave
from ...fields.relations import id_held_by
from ...process.tags import next_free_id
from .findings import Finding, Severity, Unexamined
from .project import Project, attempt, unexamined

__all__ = ["NAME", "Narrow", "examine", "narrow_in"]

NAME = "columns"
HIGHEST = {"SmallAutoField": 2**15 - 1, "SmallIntegerField": 2**15 - 1}
"""By the kind of column; 2**31-1 for all others."""


@dataclass(frozen=True, slots=True)
class Narrow:
    """A column of 32 bits or fewer. Frozen."""

    alias: str
    table: str
    column: str
    kind: str
    source: Any
    """The field whose ids it has to hold; None for any of them."""

    @property
    def highest(self) -> int:
        """The highest id that fits."""
        return HIGHEST.get(self.kind, 2**31 - 1)

    @property
    def tag(self) -> str | None:
        """The tag whose ids it has to hold, if it is one's."""
        return self.source.resolved_tag if isinstance(self.source, SegmentSource) else None

    @property
    def words(self) -> str:
        return f"column {self.column!r} of table {self.table!r} in database {self.alias!r}"


def examine(project: Project) -> Iterator[Finding | Unexamined]:
    """A finding for each narrow column that ids have to go through."""
    for alias in project.up():
        found = narrow_in(project, alias)
        shown = (_finding(each) if isinstance(each, Narrow) else each for each in found)
        yield from attempt(NAME, f"database {alias!r}", shown)


def narrow_in(project: Project, alias: str) -> Iterator[Narrow | Unexamined]:
    """The narrow columns of a database that is up; none on SQLite, where all have 64 bits."""
    if connections[alias].vendor == "sqlite":
        return
    for model in apps.get_models(include_auto_created=True):
        table = model._meta.db_table
        if table not in project.tables(alias) or not router.allow_migrate_model(alias, model):
            continue
        try:
            with project.reading(alias) as connection:
                found = list(narrow_columns(connection, model, _holds_any))
        except AnyDatabaseError as error:
            yield unexamined(NAME, f"table {table!r} in database {alias!r}", error)
            continue
        for field, kind in found:
            source = id_held_by(field) if holds_ours(field) else None
            yield Narrow(alias, table, field.column, kind, source)


def _holds_any(field: Any) -> bool:
    return holds_ours(field) or _is_generic_key(field)


def _is_generic_key(field: Any) -> bool:
    """Whether a ``GenericForeignKey`` keeps ids in it, of which any may be ours."""
    keys = [column for _, column in generic_keys(field.model)]
    ours = any(isinstance(model._meta.pk, GeneratedOnSave) for model in apps.get_models())
    return ours and field in keys


def _finding(narrow: Narrow) -> Finding:
    fits = _fits_yet(narrow)
    return Finding(
        NAME,
        Severity.WARNING if fits else Severity.ERROR,
        narrow.words,
        f"It is of type {narrow.kind}, and holds ids up to {narrow.highest} alone.",
        f"The ids of tag {narrow.tag!r} will not fit one day."
        if fits
        else "Our ids don't fit: rows can't be written, or the wrong id is (MySQL and MariaDB "
        "outside of strict mode).",
        "Run the migrations if one of them widens it; else change the column to bigint.",
    )


def _fits_yet(narrow: Narrow) -> bool:
    return narrow.tag is not None and next_free_id(narrow.tag) <= narrow.highest
