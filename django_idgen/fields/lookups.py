"""``id__created``: the moment that a snowflake id holds, in queries.

A comparison with a moment becomes a range of ids, so the index of the id's own column
serves it, also through relations::

    Order.objects.filter(id__created__gte=week_ago)       # id >= 7012...
    Line.objects.exclude(order__id__created__year=2025)   # NOT (order_id BETWEEN ...)

``exact``, ``gt``, ``gte``, ``lt``, ``lte``, ``in``, ``range``, ``isnull``, ``date``, ``year``
and ``iso_year`` (and comparisons of these three) are such ranges. ``created`` is the moment
at which the id's tick began, as ``generators[...].decode(id).created`` has it. Whatever else
a ``DateTimeField`` can do (``month``, ``F("id__created")``, ``values()``, ``order_by()``,
``Trunc``, a comparison with another column) is worked out by the database, row by row.

A value that is no id of the generator's layout has no moment: NULL. Moments before the
epoch, or past the layout's end, are earlier, or later, than all ids. Days and years are
those of the current time zone.
"""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, tzinfo
from typing import TYPE_CHECKING, Any, cast

from django.conf import settings
from django.core.exceptions import EmptyResultSet
from django.db.models import lookups
from django.db.models.functions import ExtractIsoYear, ExtractYear, TruncDate
from django.utils import timezone

from ..core.layout import BitLayout
from ..core.segment import MAX_ID
from .created import Created, last_id, require_time_on_top, span

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models.sql.compiler import SQLCompiler

    Sql = tuple[str, list[Any]]
    AnyLookup = lookups.Lookup[Any]
    Exact = lookups.Exact[Any]
    GreaterThan = lookups.GreaterThan[Any]
    GreaterThanOrEqual = lookups.GreaterThanOrEqual[Any]
    LessThan = lookups.LessThan[Any]
    LessThanOrEqual = lookups.LessThanOrEqual[Any]
    In = lookups.In[Any]
    Range = lookups.Range[Any]
else:
    from django.db.models.lookups import (
        Exact,
        GreaterThan,
        GreaterThanOrEqual,
        In,
        LessThan,
        LessThanOrEqual,
        Range,
    )
    from django.db.models.lookups import Lookup as AnyLookup

__all__ = ["Created", "CreatedDate", "CreatedIsoYear", "CreatedYear"]

# --- days and years ---------------------------------------------------------------


class Period(lookups.Transform):
    """A part of ``created`` whose values are stretches of time, one after the other."""

    @property
    def created(self) -> Created:
        return cast(Created, self.lhs)

    def span(self, layout: BitLayout, value: Any) -> tuple[int, int]:
        """The first id of the period, and the first after it."""
        start, after = self.days(value)
        return self._first(layout, start), self._first(layout, after)

    def days(self, value: Any) -> tuple[date | None, date | None]:
        """Its first day and that of the next period; None past the year 9999."""
        raise NotImplementedError

    def _first(self, layout: BitLayout, day: date | None) -> int:
        if day is None:
            return last_id(layout) + 1
        return span(layout, datetime.combine(day, time.min, _zone()))[0]


class CreatedDate(Period, TruncDate):
    """``id__created__date``."""

    def days(self, value: date) -> tuple[date | None, date | None]:
        return value, None if value == date.max else value + timedelta(days=1)


class Years(Period):
    """Years, by the day on which each begins."""

    def days(self, value: int) -> tuple[date | None, date | None]:
        return self._first_day(value), self._first_day(value + 1)

    def _first_day(self, year: int) -> date | None:
        if year > date.max.year:
            return None
        return self.new_year(max(year, date.min.year))

    def new_year(self, year: int) -> date:
        raise NotImplementedError


class CreatedYear(Years, ExtractYear):
    """``id__created__year``."""

    def new_year(self, year: int) -> date:
        return date(year, 1, 1)


class CreatedIsoYear(Years, ExtractIsoYear):
    """``id__created__iso_year``: it begins on the Monday of the week of January 4th."""

    def new_year(self, year: int) -> date:
        return date.fromisocalendar(year, 1, 1)


def _zone() -> tzinfo:
    return timezone.get_current_timezone() if settings.USE_TZ else timezone.get_default_timezone()


# --- comparisons ------------------------------------------------------------------

Ranges = list[tuple[int, int]]


class IdRangeLookup(AnyLookup):
    """A comparison with values that are known: ranges of ids. With a column: as Django has it."""

    def get_prep_lookup(self) -> Any:
        require_time_on_top(self.lhs.created.layout)
        return super().get_prep_lookup()

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> Any:
        if not self.rhs_is_direct_value():
            return super().as_sql(compiler, connection)
        created = self.lhs.created
        found = [pair for pair in self.ranges(created.layout) if pair[0] < pair[1]]
        if not found:
            raise EmptyResultSet
        return _condition(compiler, created.lhs, found)

    def ranges(self, layout: BitLayout) -> Ranges:
        """The first id of each range, and the one after its last."""
        first, after = self.lhs.span(layout, self.rhs)
        return [self.of_span(first, after, last_id(layout) + 1)]

    def of_span(self, first: int, after: int, end: int) -> tuple[int, int]:
        """The range of this comparison with a value whose own ids are ``first`` to ``after``."""
        raise NotImplementedError


class IdExact(IdRangeLookup, Exact):
    def of_span(self, first: int, after: int, end: int) -> tuple[int, int]:  # noqa: ARG002
        return first, after


class IdGreaterThan(IdRangeLookup, GreaterThan):
    def of_span(self, first: int, after: int, end: int) -> tuple[int, int]:  # noqa: ARG002
        return after, end


class IdGreaterThanOrEqual(IdRangeLookup, GreaterThanOrEqual):
    def of_span(self, first: int, after: int, end: int) -> tuple[int, int]:  # noqa: ARG002
        return first, end


class IdLessThan(IdRangeLookup, LessThan):
    def of_span(self, first: int, after: int, end: int) -> tuple[int, int]:  # noqa: ARG002
        return 1, first


class IdLessThanOrEqual(IdRangeLookup, LessThanOrEqual):
    def of_span(self, first: int, after: int, end: int) -> tuple[int, int]:  # noqa: ARG002
        return 1, after


class IdIn(IdRangeLookup, In):
    def ranges(self, layout: BitLayout) -> Ranges:
        values = {value for value in self.rhs if value is not None}
        return sorted(self.lhs.span(layout, value) for value in values)


class IdBetween(IdRangeLookup, Range):
    def ranges(self, layout: BitLayout) -> Ranges:
        first, last = self.rhs
        if first is None or last is None:
            return []  # nothing lies between NULL and anything
        return [(self.lhs.span(layout, first)[0], self.lhs.span(layout, last)[1])]


def _condition(compiler: SQLCompiler, ids: Any, ranges: Ranges) -> Sql:
    sql, params = compiler.compile(ids)
    parts: list[str] = []
    values: list[Any] = []
    for first, after in ranges:
        open_ended = after > MAX_ID
        parts.append(f"{sql} >= %s" if open_ended else f"{sql} BETWEEN %s AND %s")
        values += [*params, first] if open_ended else [*params, first, after - 1]
    joined = " OR ".join(parts)
    return (f"({joined})" if len(parts) > 1 else joined), values


_COMPARISONS = (
    IdExact,
    IdGreaterThan,
    IdGreaterThanOrEqual,
    IdLessThan,
    IdLessThanOrEqual,
    IdIn,
    IdBetween,
)
for _period in (CreatedDate, CreatedYear, CreatedIsoYear):
    Created.register_lookup(_period)
for _part in (Created, CreatedDate, CreatedYear, CreatedIsoYear):
    for _comparison in _COMPARISONS:
        _part.register_lookup(_comparison)
