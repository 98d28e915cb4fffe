"""What SQL can't say in one way for every database: its clock, its identity, its waiting.

Each function takes an open connection and runs in the calling thread. The
identities are compared for equality and nothing else.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import DatabaseError, IntegrityError, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import BigIntegerField, Func
from django.db.models.functions import Now as DjangoNow

from ..core.clock import SYSTEM_CLOCK
from .sqlite import LIFE_SQL, FileConnection

__all__ = [
    "IDENTITY_LENGTH",
    "Now",
    "SecondsOf",
    "begin",
    "identity_sql",
    "is_conflict",
    "is_denied",
    "now_us",
    "server_identity",
    "writes_utc",
]

IDENTITY_LENGTH = 200
"""Characters of a server's identity that are kept, as the columns for it hold."""

IDLE_IN_TRANSACTION = 10
"""Seconds between two statements of one transaction, which take milliseconds, at the most."""

# clock_timestamp(), because now() stands still in a transaction that waited for a lock.
_POSTGRESQL_NOW = "SELECT (EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::bigint"
# UTC_TIMESTAMP, because NOW() is off by the session's zone and steps back in autumn.
_MYSQL_NOW = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
_ORACLE_NOW = (
    "SELECT EXTRACT(DAY FROM d) * 86400000000 + EXTRACT(HOUR FROM d) * 3600000000"
    " + EXTRACT(MINUTE FROM d) * 60000000 + ROUND(EXTRACT(SECOND FROM d) * 1000000)"
    " FROM (SELECT SYS_EXTRACT_UTC(SYSTIMESTAMP) - TIMESTAMP '1970-01-01 00:00:00' d FROM dual)"
)
_NOW = {"postgresql": _POSTGRESQL_NOW, "mysql": _MYSQL_NOW, "oracle": _ORACLE_NOW}

# The file that is being written: pg_control_checkpoint() still names the old
# timeline for minutes after a promotion.
_POSTGRESQL_TIMELINE = "'/' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)"
_POSTGRESQL_SYSTEM = "(SELECT system_identifier::text FROM pg_control_system())"
# In the order in which they are tried: the user may be refused the system's identifier.
_POSTGRESQL_IDENTITY = (f"{_POSTGRESQL_SYSTEM} || {_POSTGRESQL_TIMELINE}", _POSTGRESQL_TIMELINE)
_MARIADB_IDENTITY = ("@@server_uid", "CONCAT_WS(':', @@hostname, @@port, @@datadir)")
_MYSQL_IDENTITY = ("@@server_uuid",)

_CONFLICTS = frozenset({"40001", "40P01"})
"""SQLSTATEs of a serialization failure and of a deadlock."""
_MYSQL_CONFLICTS = frozenset({1020, 1213})
"""Record changed since it was read; deadlock. Both rolled the transaction back."""
_DENIED = frozenset({"42501"})
_MYSQL_DENIED = frozenset({1142, 1143})
"""Of a table, of a column."""


def now_us(connection: BaseDatabaseWrapper) -> int:
    """The database's clock, in µs since 1970. Read it after the locks were taken.

    A vendor whose clock we can't ask (none that Django ships) has this host's
    wall clock stand in; then keep the clocks of all hosts in step.
    """
    sql = _NOW.get(connection.vendor)
    return SYSTEM_CLOCK.wall_ns() // 1000 if sql is None else int(_scalar(connection, sql))


def server_identity(connection: BaseDatabaseWrapper) -> str:
    """What changes when another server takes over the database; "" if it won't say.

    PostgreSQL: system identifier and timeline, the latter changing with every
    promotion. MySQL: ``server_uuid``; MariaDB: ``server_uid``, or where it
    listens and stores on a version that has none. SQLite: the file's life. Of a longer
    one the first :data:`IDENTITY_LENGTH` characters. Must be called in a transaction, which goes
    on whatever the server answers.
    """
    return _identity(connection)[1][:IDENTITY_LENGTH]


def identity_sql(connection: BaseDatabaseWrapper) -> str:
    """The SQL expression that :func:`server_identity` comes from; "" if there is none.

    For a statement that asks for something else anyway. Must be called in a
    transaction, which goes on.
    """
    return _identity(connection)[0]


def _identity(connection: BaseDatabaseWrapper) -> tuple[str, str]:
    for sql in _identities(connection):
        answer = _asked(connection, f"SELECT {sql}")
        if answer:
            return sql, answer
    return "", ""


def _identities(connection: BaseDatabaseWrapper) -> tuple[str, ...]:
    if connection.vendor == "postgresql":
        return _POSTGRESQL_IDENTITY
    if isinstance(connection, FileConnection):
        return (LIFE_SQL,)
    if connection.vendor != "mysql":
        return ()
    mariadb = connection.mysql_is_mariadb  # type: ignore[attr-defined]
    return _MARIADB_IDENTITY if mariadb else _MYSQL_IDENTITY


def begin(connection: BaseDatabaseWrapper, *, lock_timeout: int) -> None:
    """Set up the transaction just begun; ``lock_timeout`` is in whole seconds.

    Each statement sees what others have committed by then, whatever a receiver of
    ``connection_created`` has asked for; the commit waits for the disk
    (a grant that a crash forgets would be granted again), and a row locked by
    somebody else is given up on. The server ends a transaction in which it hears nothing
    for :data:`IDLE_IN_TRANSACTION`: of a process that was stopped in its middle (MySQL
    has no such limit).
    """
    if connection.vendor == "postgresql":
        _execute(
            connection,
            "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;"
            "SET LOCAL synchronous_commit = on;"
            f"SET LOCAL lock_timeout = '{int(lock_timeout)}s';"
            f"SET LOCAL idle_in_transaction_session_timeout = '{IDLE_IN_TRANSACTION}s'",
        )
    elif connection.vendor == "mysql":
        # Django writes UTC, but CURRENT_TIMESTAMP and TIMESTAMP columns go by the session.
        zone = ", time_zone = '+00:00'" if writes_utc(connection) else ""
        # The transaction begins with its first look at a table, so this is in time for it.
        mariadb = connection.mysql_is_mariadb  # type: ignore[attr-defined]
        isolation = "tx_isolation" if mariadb else "transaction_isolation"
        idle = f", SESSION idle_transaction_timeout = {IDLE_IN_TRANSACTION}" if mariadb else ""
        _execute(
            connection,
            f"SET SESSION innodb_lock_wait_timeout = {max(1, int(lock_timeout))}, "
            f"SESSION {isolation} = 'READ-COMMITTED'{idle}{zone}",
        )


def is_conflict(error: BaseException) -> bool:
    """Whether a statement failed because of a rival, so that trying again can help."""
    return isinstance(error, IntegrityError) or _is(error, _CONFLICTS, _MYSQL_CONFLICTS)


def is_denied(error: BaseException) -> bool:
    """Whether a statement failed because the user has no right to it."""
    return _is(error, _DENIED, _MYSQL_DENIED)


def _is(error: BaseException, states: frozenset[str], numbers: frozenset[int]) -> bool:
    cause = error.__cause__
    code = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    number = error.args[0] if error.args else None
    return code in states or (isinstance(number, int) and number in numbers)


def writes_utc(connection: BaseDatabaseWrapper) -> bool:
    """Whether times are written in UTC, and not in a zone of the project's or the database's."""
    return bool(settings.USE_TZ) and not connection.settings_dict.get("TIME_ZONE")


def _asked(connection: BaseDatabaseWrapper, sql: str) -> str:
    """The answer, or "" where we may not ask (managed services) or it is not known."""
    try:
        # A savepoint, since PostgreSQL aborts a transaction in which a statement failed.
        with transaction.atomic(using=connection.alias):
            return str(_scalar(connection, sql) or "")
    except DatabaseError:
        if connection.needs_rollback:
            raise  # not a refusal: the connection broke
        return ""


def _scalar(connection: BaseDatabaseWrapper, sql: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()[0]


def _execute(connection: BaseDatabaseWrapper, sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


class Now(DjangoNow):
    """The time as the database's columns have it: on SQLite Django's own is always in UTC."""

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        zone = "" if writes_utc(connection) else ", 'localtime'"
        template = f"STRFTIME('%%%%Y-%%%%m-%%%%d %%%%H:%%%%M:%%%%f', 'NOW'{zone})"
        return self.as_sql(compiler, connection, template=template, **extra)


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
