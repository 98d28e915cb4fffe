"""A table whose key changes its type, the foreign keys to it, and what speaks against it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.apps.registry import Apps
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import strip_quotes, truncate_name

from ...core.errors import ConfigurationError
from .reading import columns_of, is_partitioned

__all__ = ["Keyed", "Link", "keyed", "refuse_unsupported"]

AnyModel = type[models.Model]


@dataclass(frozen=True, slots=True)
class Link:
    """A column that refers to the key: of a foreign key, a one-to-one, or a through table."""

    field: Any
    """The ``ForeignKey``, of the model that has the column."""

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
        """The one beside it, that takes its place."""
        return truncate_name(f"idgen_new_{self.column}", 60)

    @property
    def key(self) -> str:
        """The column of the primary key of its own table."""
        return str(self.model._meta.pk.column)


@dataclass(frozen=True, slots=True)
class Keyed:
    """A model with the links to its key."""

    model: AnyModel
    links: tuple[Link, ...]

    @property
    def table(self) -> str:
        return strip_quotes(self.model._meta.db_table)

    @property
    def column(self) -> str:
        return str(self.model._meta.pk.column)

    @property
    def new_column(self) -> str:
        """Where the new key is made, if no column has it already."""
        return truncate_name(f"idgen_new_{self.column}", 60)

    @property
    def tables(self) -> list[str]:
        return list(dict.fromkeys([self.table, *(link.table for link in self.links)]))


def keyed(apps: Apps | Any, app_label: str, model_name: str) -> Keyed:
    """The model with its links, in the project's registry or in a migration's state."""
    model: AnyModel = apps.get_model(app_label, model_name)
    links = [
        Link(field)
        for other in apps.get_models(include_auto_created=True)
        for field in other._meta.local_fields
        if isinstance(field, models.ForeignKey)
        and field.remote_field.model is model
        and field.target_field is model._meta.pk
    ]
    return Keyed(model, tuple(links))


def refuse_unsupported(connection: BaseDatabaseWrapper, table: Keyed, apps: Apps | Any) -> None:
    """Raise :class:`ConfigurationError` with all that stands in the way of another type of key."""
    found = [*_about_model(table), *_about_links(table), *_about_database(connection, table, apps)]
    if found:
        raise ConfigurationError(
            f"The key of {table.model._meta.label} can't be changed to another type: "
            + "; ".join(found)
        )


def _about_model(table: Keyed) -> Iterator[str]:
    meta = table.model._meta
    name = meta.pk.name
    named = [
        *(index.name for index in meta.indexes if name in index.fields),
        *(str(names) for names in meta.unique_together if name in names),
        *(c.name for c in meta.constraints if name in getattr(c, "fields", ())),
    ]
    if named:
        yield f"indexes or constraints name its key ({', '.join(named)}): drop them before"


def _about_links(table: Keyed) -> Iterator[str]:
    for link in table.links:
        label = f"{link.model._meta.label}.{link.field.name}"
        if link.field.primary_key:
            kind = (
                "inherits from it" if link.field.remote_field.parent_link else "has it as its key"
            )
            yield f"{label} {kind}, so that another table's key would change with it"
        elif not link.model._meta.managed:
            yield f"{label} belongs to a model that migrations don't manage"
        elif isinstance(link.model._meta.pk, getattr(models, "CompositePrimaryKey", ())):
            yield f"{label} belongs to a model with a composite key"


def _about_database(
    connection: BaseDatabaseWrapper, table: Keyed, apps: Apps | Any
) -> Iterator[str]:
    for name in table.tables:
        if is_partitioned(connection, name):
            yield f"table {name} is partitioned"
    for label, count in _generic_rows(connection, table, apps):
        yield (
            f"{count} rows of {label} point at it by a GenericForeignKey, which keeps the old "
            f"keys: change them, or delete them, before"
        )


def _generic_rows(
    connection: BaseDatabaseWrapper, table: Keyed, apps: Apps | Any
) -> Iterator[tuple[str, int]]:
    """Models whose GenericForeignKey leads to the table, with how many rows do so.

    States of migrations have no such fields: it is the project's models that are asked.
    """
    meta = table.model._meta
    for model in apps.get_models():
        for field in model._meta.private_fields:
            kind, key = getattr(field, "ct_field", None), getattr(field, "fk_field", None)
            if not kind or not key or not columns_of(connection, model._meta.db_table):
                continue
            named = {f"{kind}__app_label": meta.app_label, f"{kind}__model": meta.model_name}
            rows = model._base_manager.using(connection.alias).filter(**named)
            if count := rows.count():
                yield f"{model._meta.label}.{field.name}", count
