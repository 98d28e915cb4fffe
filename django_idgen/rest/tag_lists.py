"""The tags of all databases as one list: sought, sorted, counted, shown in parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from django.db import DatabaseError
from django.db.models import Q, QuerySet

from ..core.errors import SegmentUnavailable
from ..db.stores import catch_up
from ..models import LeafAlloc
from ..process.tags import Tag, is_row_of, tag_databases

__all__ = ["ORDERINGS", "TagList"]

T = TypeVar("T")

FIELDS = {
    "tag": "biz_tag",
    "max_id": "max_id",
    "step": "step",
    "fetch_rate": "rate",
    "updated_at": "update_time",
}
ORDERINGS = [f"{sign}{name}" for name in FIELDS for sign in ("", "-")]


@dataclass(frozen=True, slots=True)
class TagList:
    """The tags that fit, in order. Asks the databases at each call.

    Of one database, that does the work; where there are several, names and sort keys of all
    tags that fit are read.
    """

    fits: Q
    ordering: str = "tag"

    def count(self) -> int:
        """Raises :class:`SegmentUnavailable`."""
        databases = _databases()
        if len(databases) == 1:
            return _asked(databases[0], lambda rows: rows.filter(self.fits).count())
        return len(self._keys(databases))

    def part(self, start: int, stop: int) -> Sequence[Tag]:
        """Raises :class:`SegmentUnavailable`."""
        databases = _databases()
        names = self._names(databases, start, stop)
        rows = {alias: _rows_of(alias, names) for alias in databases} if names else {}
        tags = [
            Tag(
                name,
                {
                    alias: found[name]
                    for alias, found in rows.items()
                    if name in found and is_row_of(name, alias)
                },
            )
            for name in names
        ]
        return [tag for tag in tags if tag.rows]

    def _names(self, databases: Sequence[str], start: int, stop: int) -> list[str]:
        if len(databases) == 1:
            order = [f"{self._sign}{self._column}", "biz_tag"]
            return _asked(
                databases[0],
                lambda rows: list(
                    rows.filter(self.fits)
                    .order_by(*dict.fromkeys(order))
                    .values_list("pk", flat=True)[start:stop]
                ),
            )
        keys = self._keys(databases)
        names = sorted(keys)
        names.sort(key=lambda name: keys[name], reverse=bool(self._sign))
        return names[start:stop]

    def _keys(self, databases: Sequence[str]) -> dict[str, Any]:
        """What each tag is sorted by: the highest of its databases."""
        keys: dict[str, Any] = {}
        for alias in databases:
            pairs = _asked(
                alias, lambda rows: list(rows.filter(self.fits).values_list("pk", self._column))
            )
            for name, value in pairs:
                if not is_row_of(name, alias):
                    continue
                keys[name] = max(value, keys[name]) if name in keys else value
        return keys

    @property
    def _sign(self) -> str:
        return "-" if self.ordering.startswith("-") else ""

    @property
    def _column(self) -> str:
        return FIELDS[self.ordering.removeprefix("-")]


def _databases() -> Sequence[str]:
    found = tag_databases()
    for alias in found:
        catch_up(alias)
    return found


def _rows_of(alias: str, names: Sequence[str]) -> Mapping[str, LeafAlloc]:
    return _asked(alias, lambda rows: {row.pk: row for row in rows.filter(pk__in=names)})


def _asked(alias: str, ask: Callable[[QuerySet[LeafAlloc]], T]) -> T:
    rows: QuerySet[LeafAlloc] = LeafAlloc.objects.using(alias)
    try:
        return ask(rows)
    except DatabaseError as error:
        raise SegmentUnavailable(f"Database {alias!r} can't be asked for tags: {error}") from error
