"""The moment that a snowflake id holds, worked out by the database, and as ranges of ids.

What compares with it is in :mod:`.lookups`, which registers it all.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from django.db import NotSupportedError, models
from django.db.models import lookups
from django.utils import timezone

from ..core.errors import LayoutError, TimeOutOfRange
from ..core.layout import BitLayout
from ..core.moments import MAX_UNIX_US
from ..process.handlers import generator_settings

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models.sql.compiler import SQLCompiler

    Sql = tuple[str, Any]

__all__ = ["Created", "last_id", "require_time_on_top", "span"]

_END = datetime.max.replace(tzinfo=UTC)


class Created(lookups.Transform):
    """The moment at which the tick of an id began, as a ``DateTimeField`` has it."""

    lookup_name = "created"
    # An attribute of the class, as Django's own transforms have it.
    output_field = cast("Any", models.DateTimeField())

    @property
    def layout(self) -> BitLayout:
        """That of the field's generator. Raises :class:`SettingsError`."""
        field: Any = self.lhs.output_field
        while isinstance(field, models.ForeignKey):
            field = field.target_field
        return generator_settings(field.generator).layout

    # The numbers stand in the SQL, not beside it: PostgreSQL takes two expressions with
    # parameters for different ones, and refuses to group by the second.

    def as_sql(  # type: ignore[override]  # of Func's own options it has none
        self,
        compiler: SQLCompiler,  # noqa: ARG002
        connection: BaseDatabaseWrapper,
        **_context: Any,
    ) -> Sql:
        raise NotSupportedError(
            f"'created' of an id can't be worked out on {connection.vendor}: only PostgreSQL, "
            f"MySQL, MariaDB and SQLite. Compare it with a moment, or decode ids in Python."
        )

    def as_postgresql(
        self,
        compiler: SQLCompiler,
        connection: BaseDatabaseWrapper,  # noqa: ARG002
        **_context: Any,
    ) -> Sql:
        us = self._microseconds()
        # An interval times a number goes by way of a float: two factors keep it exact.
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
                    f"Database {connection.alias!r} keeps datetimes in time zone {zone!r}, and "
                    f"has no time zone definitions: load them with mysql_tzinfo_to_sql."
                )
            made = f"CONVERT_TZ({made}, 'UTC', {_literal(zone)})"
        return self._case(compiler, made)

    def as_sqlite(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **_context: Any
    ) -> Sql:
        # Django's function for datetime + duration: it writes a moment as Django does.
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
            known += f" AND {_tick(layout)} < {end}"  # no datetime goes past the year 9999
        template = f"CASE WHEN {known} THEN {made} END"
        return template.replace("{id}", sql), [*params] * template.count("{id}")

    # --- ranges of ids ----------------------------------------------------------

    @property
    def created(self) -> Created:
        return self

    def span(self, layout: BitLayout, value: datetime) -> tuple[int, int]:
        return span(layout, value if timezone.is_aware(value) else _aware(value))


def span(layout: BitLayout, moment: datetime) -> tuple[int, int]:
    """The first id of ``layout`` created at an aware ``moment`` or later, and the first after it.

    Both are one past the last id where there is none. Raises
    :class:`LayoutError` where time is not the top field.
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
    """Raise :class:`LayoutError` unless a range of time is one of ids."""
    if not layout.time_is_top:
        raise LayoutError(
            f"Ids of layout {layout.name!r} ({layout}) are not ordered by time: "
            f"{layout.fields[0][0]!r} lies above it, so no range of ids is a range of time. "
            f"Have the moment of every row compared instead: .annotate(made=ExpressionWrapper("
            f"F('id__created'), DateTimeField())).filter(made__gte=...), or choose a layout with "
            f"time on top."
        )


def last_id(layout: BitLayout) -> int:
    """The last id that holds a moment. Raises :class:`LayoutError` as above."""
    return layout.max_id_at(_END)


def _tick(layout: BitLayout) -> str:
    shifted = f"({{id}} >> {layout.time_shift})"
    return shifted if layout.time_is_top else f"({shifted} & {layout.max_ticks - 1})"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''").replace("%", "%%") + "'"


def _aware(value: datetime) -> datetime:
    # Only where USE_TZ is False: else DateTimeField has warned, and made it aware.
    return timezone.make_aware(value, timezone.get_default_timezone())
