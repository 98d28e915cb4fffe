"""Indexes and constraints that a foreign key's column has a part in: taken away, and made anew.

Each step looks first whether it is done, so that all of it can be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.db import models

from .links import Link

__all__ = ["drop_constraints", "make_constraints"]

Editor = Any  # what it offers for constraints has no public name


def drop_constraints(editor: Editor, link: Link) -> None:
    """Take from the table whatever names the column of ``link``, but the column."""
    model, meta = link.model, link.model._meta
    for name in editor._constraint_names(model, [link.column], foreign_key=True):
        editor.execute(editor._delete_fk_sql(model, name))
    there = _names(editor, model)
    for index in _with(meta.indexes, link):
        if index.name in there:
            editor.remove_index(model, index)
    for constraint in _with(meta.constraints, link):
        if constraint.name in there:
            editor.remove_constraint(model, constraint)
    for columns, fields in _unique_together(link):
        for name in _unique_names(editor, model, columns):
            if hasattr(editor, "_create_missing_fk_index"):
                # MySQL may have used it for another foreign key of the table.
                editor._create_missing_fk_index(model, fields=[field.name for field in fields])
            editor.execute(editor._delete_unique_sql(model, name))


def make_constraints(editor: Editor, link: Link) -> None:
    """Make what a new table of this model would have for the field of ``link``."""
    model, field, meta = link.model, link.field, link.model._meta
    if field.unique and not _unique_names(editor, model, [link.column]):
        editor.execute(editor._create_unique_sql(model, [field]))
    for columns, fields in _unique_together(link):
        if not _unique_names(editor, model, columns):
            editor.execute(editor._create_unique_sql(model, fields))
    there = _names(editor, model)
    for index in _with(meta.indexes, link):
        if index.name not in there:
            editor.add_index(model, index)
    for constraint in _with(meta.constraints, link):
        if constraint.name not in there:
            editor.add_constraint(model, constraint)
    if editor._field_should_be_indexed(model, field) and not editor._constraint_names(
        model, [link.column], index=True, unique=False
    ):
        editor.execute(editor._create_index_sql(model, fields=[field]))
    if field.db_constraint and not editor._constraint_names(model, [link.column], foreign_key=True):
        editor.execute(editor._create_fk_sql(model, field, "_fk_%(to_table)s_%(to_column)s"))


def _names(editor: Editor, model: type[models.Model]) -> set[str]:
    connection = editor.connection
    with connection.cursor() as cursor:
        return set(connection.introspection.get_constraints(cursor, model._meta.db_table))


def _unique_names(editor: Editor, model: type[models.Model], columns: list[str]) -> list[str]:
    named = {constraint.name for constraint in model._meta.constraints}
    found: list[str] = editor._constraint_names(
        model, columns, unique=True, primary_key=False, exclude=named
    )
    return found


def _unique_together(link: Link) -> Iterator[tuple[list[str], list[Any]]]:
    meta = link.model._meta
    for names in meta.unique_together:
        if link.field.name in names:
            fields: list[Any] = [meta.get_field(name) for name in names]
            yield [field.column for field in fields], fields


def _with(parts: Any, link: Link) -> Iterator[Any]:
    """Those of the indexes or constraints that say the field's name, in a condition perhaps."""
    for part in parts:
        said = repr(part.deconstruct()[1:])
        if f"'{link.field.name}'" in said or f"'{link.field.attname}'" in said:
            yield part
