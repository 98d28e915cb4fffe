"""A moment in seconds, in the SQL of each database."""

from __future__ import annotations

from typing import Any

from django.db.models import BigIntegerField, Func

__all__ = ["SecondsOf"]


class SecondsOf(Func):
    """The whole seconds of a time since 1970, by the calendar that the database keeps it in.

    On PostgreSQL, which knows the zone, since 1970 in UTC.
    """

    arity = 1
    output_field = BigIntegerField()

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        template = "FLOOR(EXTRACT(EPOCH FROM %(expressions)s))::bigint"
        return self.as_sql(compiler, connection, template=template, **extra)

    def as_mysql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        template = "TIMESTAMPDIFF(SECOND, '1970-01-01', %(expressions)s)"
        return self.as_sql(compiler, connection, template=template, **extra)

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        template = "CAST(strftime('%%%%s', %(expressions)s) AS INTEGER)"
        return self.as_sql(compiler, connection, template=template, **extra)

    def as_oracle(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        template = "FLOOR((CAST(%(expressions)s AS DATE) - DATE '1970-01-01') * 86400)"
        return self.as_sql(compiler, connection, template=template, **extra)
