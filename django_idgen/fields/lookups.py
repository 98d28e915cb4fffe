"""``id__created``: the time in a snowflake id, in queries.

A comparison with a datetime becomes a range of ids, which uses the index of the id's own
column, also through relations::

    Order.objects.filter(id__created__gte=week_ago)       # id >= 7012...
    Line.objects.exclude(order__id__created__year=2025)   # NOT (order_id BETWEEN ...)

``exact``, ``gt``, ``gte``, ``lt``, ``lte``, ``in``, ``range``, ``isnull``, ``date``, ``year``
and ``iso_year`` (and comparisons of these three) become ranges. ``created`` is the start of
the id's tick, the same as ``generators[...].decode(id).created``. The database computes
everything else that a ``DateTimeField`` offers (``month``, ``F("id__created")``, ``values()``,
``order_by()``, ``Trunc``, a comparison with another column), row by row.

For a value that is not an id of the generator's layout ``created`` is NULL. A time before the
epoch is earlier than all ids, and a time past the layout's end is later. Days and years are
those of the current time zone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, cast

from django.conf import settings
from django.core.exceptions import EmptyResultSet
from django.db import NotSupportedError, models
from django.db.models import lookups
from django.db.models.functions import ExtractIsoYear, ExtractYear, TruncDate
from django.utils import timezone

from ..core.clock import MAX_UNIX_US
from ..core.errors import LayoutError, TimeOutOfRange
from ..core.segment import MAX_ID
from ..process.maps import generator_settings

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models.sql.compiler import SQLCompiler

    from ..core.layout import BitLayout

    Sql = tuple[str, Any]
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


_END = datetime.max.replace(tzinfo=UTC)

# --- the time of an id -----------------------------------------------------------


class Created(lookups.Transform):
    """The start of an id's tick, as a ``DateTimeField``."""

    lookup_name = "created"
    output_field = cast("Any", models.DateTimeField())

    @property
    def layout(self) -> BitLayout:
        """The layout of the field's generator. Raises :class:`SettingsError`."""
        field: Any = self.lhs.output_field
        while isinstance(field, models.ForeignKey):
            field = field.target_field
        return generator_settings(field.generator).layout

    # The numbers are literals: for PostgreSQL two expressions with parameters differ, and it
    # refuses to group by the second.

    def as_sql(  # type: ignore[override]  # it takes none of Func's options
        self,
        compiler: SQLCompiler,  # noqa: ARG002
        connection: BaseDatabaseWrapper,
        **_context: Any,
    ) -> Sql:
        raise NotSupportedError(
            f"{connection.vendor} can't compute 'created' of an id, only PostgreSQL, MySQL, "
            f"MariaDB and SQLite can. Compare it with a datetime, or decode ids in Python."
        )

    def as_postgresql(
        self,
        compiler: SQLCompiler,
        connection: BaseDatabaseWrapper,  # noqa: ARG002
        **_context: Any,
    ) -> Sql:
        us = self._microseconds()
        # An interval times a number is computed as a float: two factors keep it exact.
        return self._case(
            compiler,
            f"(TIMESTAMPTZ '1970-01-01 00:00:00+00' + ({us}) / 1000000 * INTERVAL '1 second'"
            f" + MOD({us}, 1000000) * INTERVAL '1 microsecond')",
        )

    def as_mysql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **_context: Any
    ) -> Sql:
        us = self._microseconds()
        made = f"(TIMESTAMP'1970-01-01 00:00:00.000000' + INTERVAL ({us}) MICROSECOND)"
        zone = connection.timezone_name
        if zone != "UTC":
            if not connection.features.has_zoneinfo_database:
                raise NotSupportedError(
                    f"Database {connection.alias!r} stores datetimes in time zone {zone!r}, but "
                    f"has no time zone definitions: load them with mysql_tzinfo_to_sql."
                )
            made = f"CONVERT_TZ({made}, 'UTC', {_literal(zone)})"
        return self._case(compiler, made)

    def as_sqlite(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **_context: Any
    ) -> Sql:
        # Django's function for datetime + duration: it formats a datetime as Django does.
        made = f"django_format_dtdelta('+', '1970-01-01 00:00:00', {self._microseconds()})"
        zone = connection.timezone_name
        if zone != "UTC":
            whole = f"django_datetime_trunc('second', {made}, {_literal(zone)}, 'UTC')"
            made = f"({whole} || SUBSTR({made}, 20))"
        return self._case(compiler, made)

    def _microseconds(self) -> str:
        layout = self.layout
        return f"{layout.epoch_us} + {_tick(layout)} * {layout.tick_us}"

    def _case(self, compiler: SQLCompiler, made: str) -> Sql:
        sql, params = compiler.compile(self.lhs)
        layout = self.layout
        end = (MAX_UNIX_US - layout.epoch_us) // layout.tick_us + 1
        known = f"{{id}} BETWEEN 1 AND {(1 << layout.bits) - 1}"
        if end < layout.max_ticks:
            known += f" AND {_tick(layout)} < {end}"  # a datetime ends with the year 9999
        template = f"CASE WHEN {known} THEN {made} END"
        return template.replace("{id}", sql), [*params] * template.count("{id}")

    @property
    def created(self) -> Created:
        return self

    def span(self, layout: BitLayout, value: datetime) -> tuple[int, int]:
        return span(layout, value if timezone.is_aware(value) else _aware(value))


def span(layout: BitLayout, moment: datetime) -> tuple[int, int]:
    """The first id of ``layout`` created at an aware ``moment`` or later, and the first after it.

    Both are one past the last id if there is no such id. Raises :class:`LayoutError` if time is
    not the top field.
    """
    end = last_id(layout) + 1
    try:
        first = layout.min_id_at(moment)
    except TimeOutOfRange:
        return end, end
    try:
        return first, layout.max_id_at(moment) + 1
    except TimeOutOfRange:
        return first, first


def require_time_on_top(layout: BitLayout) -> None:
    """Raise :class:`LayoutError` unless a range of time is a range of ids."""
    if not layout.time_is_top:
        raise LayoutError(
            f"Ids of layout {layout.name!r} ({layout}) are not ordered by time: "
            f"{layout.fields[0][0]!r} is above time, so no range of ids is a range of time. "
            f"Compare the time of every row instead: .annotate(made=ExpressionWrapper("
            f"F('id__created'), DateTimeField())).filter(made__gte=...), or choose a layout with "
            f"time on top."
        )


def last_id(layout: BitLayout) -> int:
    """The last id with a valid time. Raises :class:`LayoutError` as :func:`span` does."""
    return layout.max_id_at(_END)


def _tick(layout: BitLayout) -> str:
    shifted = f"({{id}} >> {layout.time_shift})"
    return shifted if layout.time_is_top else f"({shifted} & {layout.max_ticks - 1})"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''").replace("%", "%%") + "'"


def _aware(value: datetime) -> datetime:
    # Only if USE_TZ is False: otherwise DateTimeField has made it aware, with a warning.
    return timezone.make_aware(value, timezone.get_default_timezone())


# --- days and years ---------------------------------------------------------------


class Period(lookups.Transform, ABC):
    """A part of ``created`` whose values are consecutive periods."""

    @property
    def created(self) -> Created:
        return cast(Created, self.lhs)

    def span(self, layout: BitLayout, value: Any) -> tuple[int, int]:
        """The first id of the period, and the first after it."""
        start, after = self.days(value)
        return self._first(layout, start), self._first(layout, after)

    @abstractmethod
    def days(self, value: Any) -> tuple[date | None, date | None]:
        """The first day of the period and of the next one; None past the year 9999."""

    def _first(self, layout: BitLayout, day: date | None) -> int:
        if day is None:
            return last_id(layout) + 1
        zone = timezone.get_current_timezone if settings.USE_TZ else timezone.get_default_timezone
        return span(layout, datetime.combine(day, time.min, zone()))[0]


class CreatedDate(Period, TruncDate):
    """``id__created__date``."""

    def days(self, value: date) -> tuple[date | None, date | None]:
        return value, None if value == date.max else value + timedelta(days=1)


class Years(Period):
    """Periods of a year."""

    def days(self, value: int) -> tuple[date | None, date | None]:
        return self._first_day(value), self._first_day(value + 1)

    def _first_day(self, year: int) -> date | None:
        return None if year > date.max.year else self.new_year(max(year, date.min.year))

    @abstractmethod
    def new_year(self, year: int) -> date:
        """The first day of ``year``."""


class CreatedYear(Years, ExtractYear):
    """``id__created__year``."""

    def new_year(self, year: int) -> date:
        return date(year, 1, 1)


class CreatedIsoYear(Years, ExtractIsoYear):
    """``id__created__iso_year``, which begins on the Monday of the week of January 4th."""

    def new_year(self, year: int) -> date:
        return date.fromisocalendar(year, 1, 1)


# --- comparisons ------------------------------------------------------------------

Ranges = list[tuple[int, int]]


class IdRangeLookup(AnyLookup, ABC):
    """Compares with given values by ranges of ids; with a column, as Django does."""

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

    @abstractmethod
    def ranges(self, layout: BitLayout) -> Ranges:
        """The first id of each range, and the first id after it."""

    def span(self, layout: BitLayout) -> tuple[int, int]:
        """The range of the value that is compared with."""
        found: tuple[int, int] = self.lhs.span(layout, self.rhs)
        return found


class IdExact(IdRangeLookup, Exact):
    def ranges(self, layout: BitLayout) -> Ranges:
        return [self.span(layout)]


class IdGreaterThan(IdRangeLookup, GreaterThan):
    def ranges(self, layout: BitLayout) -> Ranges:
        return [(self.span(layout)[1], last_id(layout) + 1)]


class IdGreaterThanOrEqual(IdRangeLookup, GreaterThanOrEqual):
    def ranges(self, layout: BitLayout) -> Ranges:
        return [(self.span(layout)[0], last_id(layout) + 1)]


class IdLessThan(IdRangeLookup, LessThan):
    def ranges(self, layout: BitLayout) -> Ranges:
        return [(1, self.span(layout)[0])]


class IdLessThanOrEqual(IdRangeLookup, LessThanOrEqual):
    def ranges(self, layout: BitLayout) -> Ranges:
        return [(1, self.span(layout)[1])]


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
