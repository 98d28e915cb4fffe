"""A table whose key changes its type, and the foreign keys to it, as its database has them.

The database is asked each time, since DDL may be going on. Each change of an index or a
constraint first checks whether it is done, so that all of them can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.apps.registry import Apps
from django.db import DatabaseError, models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.base.schema import BaseDatabaseSchemaEditor as Editor
from django.db.backends.utils import strip_quotes, truncate_name

from ...checks import generic_keys
from ...core.errors import ConfigurationError
from ...db.rows import read_aggregate
from ...db.tables import has_table
from ...fields.operations import query

_PARTITIONED = {
    "postgresql": "SELECT count(*) FROM pg_class WHERE oid = to_regclass(%s) "
    "AND (relkind = 'p' OR relispartition)",
    "mysql": "SELECT count(*) FROM information_schema.partitions WHERE partition_name IS NOT NULL "
    "AND table_schema = database() AND table_name = %s",
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column with keys of a table: the table's own, or references to it."""

    field: Any
    """The primary key; or a ``ForeignKey``, be it of a through table."""
    model: Any
    table: str
    name: str
    new: str
    """The column that replaces it."""


@dataclass(frozen=True, slots=True)
class KeyTable:
    """The key of a table, and the links to it."""

    key: Column
    links: tuple[Column, ...]

    @property
    def tables(self) -> list[str]:
        return list(dict.fromkeys([self.key.table, *(link.table for link in self.links)]))


def key_table(apps: Apps | Any, app_label: str, model_name: str) -> KeyTable:
    """The table and links of a model, in the project's registry or in a migration's state."""
    model = apps.get_model(app_label, model_name)
    links = [
        field
        for other in apps.get_models(include_auto_created=True)
        for field in other._meta.local_fields
        if isinstance(field, models.ForeignKey)
        and field.remote_field.model is model
        and field.target_field is model._meta.pk
    ]
    return KeyTable(_column_of(model._meta.pk), tuple(map(_column_of, links)))


def _column_of(field: Any) -> Column:
    table, new = strip_quotes(field.model._meta.db_table), f"idgen_new_{field.column}"
    return Column(field, field.model, table, str(field.column), truncate_name(new, 60))


def columns_of(connection: BaseDatabaseWrapper, table: str) -> list[str]:
    """The columns of ``table``; none if there is no such table."""
    if not has_table(connection, table):
        return []
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)} WHERE 1 = 0")  # noqa: S608 - Django quotes the names
        return [str(column[0]) for column in cursor.description]


# --- what stands in the way ------------------------------------------------------


def refuse_unsupported(connection: BaseDatabaseWrapper, table: KeyTable, apps: Apps | Any) -> None:
    """Raise :class:`ConfigurationError` with everything that prevents another type of key.

    ``apps`` is the project's: states of migrations have no ``GenericForeignKey``.
    """
    meta = table.key.model._meta
    found = [
        *_names_of_key(meta),
        *_about_links(table),
        *_about_database(connection, table),
        *(
            f"{count} rows of {label} point at it by a GenericForeignKey, which keeps the old "
            f"keys: change or delete them first"
            for label, count in _generic_rows(connection, meta, apps)
        ),
    ]
    if found:
        raise ConfigurationError(
            f"The key of {meta.label} can't change its type: {'; '.join(found)}"
        )


def _names_of_key(meta: Any) -> Iterator[str]:
    parts = [each.name for each in _naming({meta.pk.name}, *meta.indexes, *meta.constraints)]
    together = [str(names) for names in meta.unique_together if meta.pk.name in names]
    if parts or together:
        named = ", ".join([*parts, *together])
        yield f"indexes or constraints name its key ({named}): drop them first"


def _about_links(table: KeyTable) -> Iterator[str]:
    for link in table.links:
        meta = link.model._meta
        label = f"{meta.label}.{link.field.name}"
        if link.field.primary_key:
            is_parent = link.field.remote_field.parent_link
            how = "inherits from it" if is_parent else "has it as its key"
            yield f"{label} {how}, so another table's key would change with it"
        elif not meta.managed:
            yield f"{label} belongs to a model that migrations don't manage"
        elif isinstance(meta.pk, models.CompositePrimaryKey):
            yield f"{label} belongs to a model with a composite key"


def _about_database(connection: BaseDatabaseWrapper, table: KeyTable) -> Iterator[str]:
    sql, is_postgres = _PARTITIONED.get(connection.vendor, ""), connection.vendor == "postgresql"
    for name in table.tables if sql else ():
        found = query(connection, sql, [connection.ops.quote_name(name) if is_postgres else name])
        if found[0][0]:
            yield f"table {name} is partitioned"


def _generic_rows(
    connection: BaseDatabaseWrapper, meta: Any, apps: Apps | Any
) -> Iterator[tuple[str, int]]:
    """Each GenericForeignKey with rows that point at the table, and their number."""
    for model in apps.get_models():
        for generic, _key in generic_keys(model):
            if not columns_of(connection, model._meta.db_table):
                continue
            kind = generic.ct_field
            named = {f"{kind}__app_label": meta.app_label, f"{kind}__model": meta.model_name}
            rows: Any = models.QuerySet(model, using=connection.alias).filter(**named)
            if count := read_aggregate(rows, models.Count("pk")):
                yield f"{model._meta.label}.{generic.name}", count


# --- indexes and constraints -----------------------------------------------------


def drop_constraints(editor: Editor, link: Column) -> None:
    """Drop the foreign key of ``link``, and the indexes and constraints that name its field."""
    editor.alter_field(link.model, link.field, altered(link.field, db_constraint=False))
    for is_there, _, drop in _parts(editor, link):
        if is_there:
            drop()


def make_constraints(editor: Editor, link: Column) -> None:
    """Make the indexes and constraints that the field of ``link`` has in the model."""
    editor.alter_field(link.model, _as_found(editor, link), link.field)
    for is_there, make, _ in _parts(editor, link):
        if not is_there:
            make()


def put_keys_back(editor: Editor, table: KeyTable) -> list[str]:
    """Make the foreign keys to ``table`` that are missing; the columns of those that fail."""
    failed = []
    for link in table.links:
        found = _as_found(editor, link)
        if found.db_constraint != link.field.db_constraint:
            try:
                editor.alter_field(link.model, found, link.field)
            except DatabaseError:
                failed.append(f"{link.table}.{link.name}")
    return failed


def _naming(names: set[str], *parts: Any) -> Iterator[Any]:
    """Those indexes and constraints of a model that name one of the fields, or use it."""
    for part in parts:
        fields = {name.removeprefix("-") for name in getattr(part, "fields", ())}
        # An exclusion has pairs of an expression and an operator; a string is a field.
        used = [each[0] if isinstance(each, list | tuple) else each for each in _expressions(part)]
        condition = models.Q(*(models.F(each) if isinstance(each, str) else each for each in used))
        if names & {*fields, *getattr(part, "include", ()), *condition.referenced_base_fields}:
            yield part


def _expressions(part: Any) -> list[Any]:
    condition = getattr(part, "condition", None)
    return [*getattr(part, "expressions", ()), *([condition] if condition else [])]


Change = Callable[[], object]


def _parts(editor: Editor, link: Column) -> Iterator[tuple[bool, Change, Change]]:
    """What names the field: whether the table has it, what makes it, and what drops it."""
    model, meta, there = link.model, link.model._meta, _constraints(editor, link)
    names = {link.field.name, link.field.attname}
    for parts, add, remove in (
        (meta.indexes, editor.add_index, editor.remove_index),
        (meta.constraints, editor.add_constraint, editor.remove_constraint),
    ):
        for part in _naming(names, *parts):
            yield part.name in there, partial(add, model, part), partial(remove, model, part)
    alter = partial(editor.alter_unique_together, model)
    for together in meta.unique_together:
        if link.field.name in together:
            found = _on(link, [meta.get_field(name).column for name in together], there)
            is_there = any(each["unique"] for each in found)
            yield is_there, partial(alter, (), (together,)), partial(alter, (together,), ())


def _as_found(editor: Editor, link: Column) -> Any:
    """The field of ``link`` with no foreign key, index and unique constraint but the column's."""
    field, found = link.field, _on(link, [link.name], _constraints(editor, link))
    return altered(
        field,
        db_constraint=field.db_constraint and any(each["foreign_key"] for each in found),
        db_index=field.db_index and any(each["index"] or each["unique"] for each in found),
        _unique=field.unique and any(each["unique"] for each in found),
    )


def altered(field: Any, **attributes: Any) -> Any:
    """A copy of ``field`` with other attributes, for ``alter_field``."""
    copied = copy(field)
    copied.__dict__.pop("unique", None)  # which Django caches
    for name, value in attributes.items():
        setattr(copied, name, value)
    return copied


def _constraints(editor: Editor, link: Column) -> dict[str, Any]:
    """The indexes and constraints that the table of ``link`` has, by name."""
    with editor.connection.cursor() as cursor:
        found: dict[str, Any] = editor.connection.introspection.get_constraints(cursor, link.table)
    return found


def _on(link: Column, columns: list[str], there: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Those of ``columns`` that stand for no index or constraint of the model's ``Meta``."""
    meta = link.model._meta
    others = {part.name for part in (*meta.indexes, *meta.constraints)}
    return [
        each
        for name, each in there.items()
        if each["columns"] == columns and name not in others and not each["primary_key"]
    ]
