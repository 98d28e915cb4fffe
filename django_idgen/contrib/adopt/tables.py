"""A table whose key changes its type, and the foreign keys to it, as its database has them.

The database is asked each time, since DDL may be going on. Each change of an index or a
constraint first checks whether it is done, so that all of them can be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.apps.registry import Apps
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import strip_quotes, truncate_name

from ...checks import generic_keys
from ...core.errors import ConfigurationError
from ...db.rows import read_aggregate
from ...db.tables import has_table
from ...fields.operations import query

AnyModel = type[models.Model]
Editor = Any  # its methods for constraints have no public names

_PARTITIONED = {
    "postgresql": "SELECT count(*) FROM pg_class WHERE oid = to_regclass(%s) "
    "AND (relkind = 'p' OR relispartition)",
    "mysql": "SELECT count(*) FROM information_schema.partitions WHERE partition_name IS NOT NULL "
    "AND table_schema = database() AND table_name = %s",
}


@dataclass(frozen=True, slots=True)
class Link:
    """A column that refers to the key: of a foreign key, a one-to-one, or a through table."""

    field: Any
    """The ``ForeignKey``."""

    @property
    def model(self) -> AnyModel:
        model: AnyModel = self.field.model
        return model

    @property
    def table(self) -> str:
        return strip_quotes(self.model._meta.db_table)

    @property
    def column(self) -> str:
        return str(self.field.column)

    @property
    def new_column(self) -> str:
        """The column that replaces it."""
        return truncate_name(f"idgen_new_{self.column}", 60)

    @property
    def key(self) -> str:
        """The column of the primary key of its own table."""
        return str(self.model._meta.pk.column)


@dataclass(frozen=True, slots=True)
class KeyTable:
    """A model's table, and the links to its key."""

    model: AnyModel
    links: tuple[Link, ...]

    @property
    def name(self) -> str:
        return strip_quotes(self.model._meta.db_table)

    @property
    def column(self) -> str:
        return str(self.model._meta.pk.column)

    @property
    def new_column(self) -> str:
        """The column for the new key, unless another column has it already."""
        return truncate_name(f"idgen_new_{self.column}", 60)

    @property
    def tables(self) -> list[str]:
        return list(dict.fromkeys([self.name, *(link.table for link in self.links)]))


def key_table(apps: Apps | Any, app_label: str, model_name: str) -> KeyTable:
    """The table and links of a model, in the project's registry or in a migration's state."""
    model: AnyModel = apps.get_model(app_label, model_name)
    links = [
        Link(field)
        for other in apps.get_models(include_auto_created=True)
        for field in other._meta.local_fields
        if isinstance(field, models.ForeignKey)
        and field.remote_field.model is model
        and field.target_field is model._meta.pk
    ]
    return KeyTable(model, tuple(links))


def columns_of(connection: BaseDatabaseWrapper, table: str) -> list[str]:
    """The columns of ``table``; none if there is no such table."""
    if not has_table(connection, table):
        return []
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)} WHERE 1 = 0")  # noqa: S608 - Django quotes the names
        return [str(column[0]) for column in cursor.description]


# --- what stands in the way ------------------------------------------------------


def refuse_unsupported(connection: BaseDatabaseWrapper, table: KeyTable, apps: Apps | Any) -> None:
    """Raise :class:`ConfigurationError` with everything that prevents another type of key."""
    found = [*_about_model(table), *_about_links(table), *_about_database(connection, table, apps)]
    if found:
        raise ConfigurationError(
            f"The key of {table.model._meta.label} can't change its type: " + "; ".join(found)
        )


def _about_model(table: KeyTable) -> Iterator[str]:
    meta = table.model._meta
    name = meta.pk.name
    named = [
        *(index.name for index in meta.indexes if name in index.fields),
        *(str(names) for names in meta.unique_together if name in names),
        *(c.name for c in meta.constraints if name in getattr(c, "fields", ())),
    ]
    if named:
        yield f"indexes or constraints name its key ({', '.join(named)}): drop them first"


def _about_links(table: KeyTable) -> Iterator[str]:
    for link in table.links:
        label = f"{link.model._meta.label}.{link.field.name}"
        if link.field.primary_key:
            kind = (
                "inherits from it" if link.field.remote_field.parent_link else "has it as its key"
            )
            yield f"{label} {kind}, so another table's key would change with it"
        elif not link.model._meta.managed:
            yield f"{label} belongs to a model that migrations don't manage"
        elif isinstance(link.model._meta.pk, models.CompositePrimaryKey):
            yield f"{label} belongs to a model with a composite key"


def _about_database(
    connection: BaseDatabaseWrapper, table: KeyTable, apps: Apps | Any
) -> Iterator[str]:
    for name in table.tables:
        if _is_partitioned(connection, name):
            yield f"table {name} is partitioned"
    for label, count in _generic_rows(connection, table, apps):
        yield (
            f"{count} rows of {label} point at it by a GenericForeignKey, which keeps the old "
            f"keys: change or delete them first"
        )


def _generic_rows(
    connection: BaseDatabaseWrapper, table: KeyTable, apps: Apps | Any
) -> Iterator[tuple[str, int]]:
    """Each GenericForeignKey with rows that point at the table, and their number.

    ``apps`` is the project's: states of migrations have no such fields.
    """
    meta = table.model._meta
    for model in apps.get_models():
        for generic, _key in generic_keys(model):
            if not columns_of(connection, model._meta.db_table):
                continue
            kind = generic.ct_field
            named = {f"{kind}__app_label": meta.app_label, f"{kind}__model": meta.model_name}
            rows: Any = models.QuerySet(model, using=connection.alias).filter(**named)
            if count := read_aggregate(rows, models.Count("pk")):
                yield f"{model._meta.label}.{generic.name}", count


def _is_partitioned(connection: BaseDatabaseWrapper, table: str) -> bool:
    sql = _PARTITIONED.get(connection.vendor)
    if sql is None:
        return False
    name = connection.ops.quote_name(table) if connection.vendor == "postgresql" else table
    return bool(query(connection, sql, [name])[0][0])


# --- indexes and constraints -----------------------------------------------------


def drop_constraints(editor: Editor, link: Link) -> None:
    """Drop the indexes and constraints that name the column of ``link``."""
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
            if editor.connection.vendor == "mysql":
                # MySQL may use it for another foreign key of the table.
                editor._create_missing_fk_index(model, fields=[field.name for field in fields])
            editor.execute(editor._delete_unique_sql(model, name))


def make_constraints(editor: Editor, link: Link) -> None:
    """Make the indexes and constraints that the field of ``link`` has in the model."""
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
    """The indexes or constraints that name the field, be it in a condition."""
    for part in parts:
        text = repr(part.deconstruct()[1:])
        if f"'{link.field.name}'" in text or f"'{link.field.attname}'" in text:
            yield part
