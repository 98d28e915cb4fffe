"""The columns of the project that hold our ids, and the lowest and highest in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.db import DataError, router
from django.db.models import F, Max, Min

from ...core.segment import Shard
from ...fields import SegmentSource, SnowflakeSource
from .project import Project

__all__ = ["IdColumn", "segment_columns", "snowflake_columns"]


@dataclass(frozen=True, slots=True)
class IdColumn:
    """A field that holds ids of this package, in one database.

    What looks into it raises :class:`django.db.Error`, also where its values are no integers.
    """

    field: Any
    alias: str

    @property
    def words(self) -> str:
        """For people."""
        model = self.field.model._meta
        return f"{model.label}.{self.field.name} (table {model.db_table!r}, {self.alias!r})"

    def highest(self) -> int | None:
        """The highest id in it; a look-up in the index where the field has one."""
        return self._one(Max)

    def lowest(self) -> int | None:
        """The lowest id in it."""
        return self._one(Min)

    def highest_of(self, shard: Shard, least: int) -> int | None:
        """The highest id at or above ``least`` that is one of ``shard``'s."""
        if shard.delta == 1:
            top = self.highest()
            return top if top is not None and top >= least else None
        name = self.field.attname
        rows = self._rows().filter(**{f"{name}__gte": least})
        # Of rows above the mark there are few, or none.
        rows = rows.alias(of=F(name) % shard.delta).filter(of=shard.remainder)
        return self._one(Max, rows)

    def _one(self, aggregate: Any, rows: Any = None) -> int | None:
        rows = self._rows() if rows is None else rows
        try:
            found = rows.aggregate(found=aggregate(self.field.attname))["found"]
            return None if found is None else int(found)
        except (ValueError, TypeError, OverflowError) as error:
            # The model says bigint, and the table that it is money, or text.
            raise DataError(f"{self.words} holds what is no id: {error}") from error

    def _rows(self) -> Any:
        return self.field.model._base_manager.using(self.alias).order_by()


def segment_columns(project: Project, aliases: Sequence[str]) -> Iterator[IdColumn]:
    """Those in ``aliases`` (databases that are up) whose ids come from a tag."""
    return _columns(project, aliases, SegmentSource)


def snowflake_columns(project: Project, aliases: Sequence[str]) -> Iterator[IdColumn]:
    """Those in ``aliases`` whose ids come from a generator."""
    return _columns(project, aliases, SnowflakeSource)


def _columns(project: Project, aliases: Sequence[str], kind: type) -> Iterator[IdColumn]:
    for model in apps.get_models(include_auto_created=True):
        fields = [field for field in model._meta.local_concrete_fields if isinstance(field, kind)]
        for field in fields:
            for alias in aliases:
                there = model._meta.db_table in project.tables(alias)
                if there and router.allow_migrate_model(alias, model):
                    yield IdColumn(field, alias)
