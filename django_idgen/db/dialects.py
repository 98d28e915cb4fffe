"""SQL that differs between databases: the clock, the server's identity, lock timeouts, errors.

Most functions take an open connection and run in the calling thread. The
identities are compared for equality and nothing else.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

from django.conf import settings
from django.db import DatabaseError, IntegrityError, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import BigIntegerField, Func
from django.db.models.functions import Now as DjangoNow
from django.utils.timezone import get_default_timezone, is_aware, make_aware, make_naive

from ..core.clock import SYSTEM_CLOCK
from .sqlite import LIFE_SQL, FileConnection

IDENTITY_LENGTH = 200
"""Characters of a server's identity that its columns hold."""

IDLE_IN_TRANSACTION = 10
"""Most seconds between two statements of a transaction; milliseconds are normal."""

# clock_timestamp(), because now() stands still in a transaction that waited for a lock.
_POSTGRESQL_NOW = "(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::bigint"
# UTC_TIMESTAMP, because NOW() is off by the session's zone and steps back in autumn.
_MYSQL_NOW = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
_ORACLE_NOW = (
    "EXTRACT(DAY FROM d) * 86400000000 + EXTRACT(HOUR FROM d) * 3600000000"
    " + EXTRACT(MINUTE FROM d) * 60000000 + ROUND(EXTRACT(SECOND FROM d) * 1000000)"
    " FROM (SELECT SYS_EXTRACT_UTC(SYSTIMESTAMP) - TIMESTAMP '1970-01-01 00:00:00' d FROM dual)"
)
_NOW = {"postgresql": _POSTGRESQL_NOW, "mysql": _MYSQL_NOW, "oracle": _ORACLE_NOW}

# From the WAL file that is being written: after a promotion, pg_control_checkpoint() names the
# old timeline for minutes.
_POSTGRESQL_TIMELINE = "'/' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)"
_POSTGRESQL_SYSTEM = "(SELECT system_identifier::text FROM pg_control_system())"
# Tried in this order: the user may have no right to read the system identifier.
_POSTGRESQL_IDENTITY = (f"{_POSTGRESQL_SYSTEM} || {_POSTGRESQL_TIMELINE}", _POSTGRESQL_TIMELINE)
_MARIADB_IDENTITY = ("@@server_uid", "CONCAT_WS(':', @@hostname, @@port, @@datadir)")
_MYSQL_IDENTITY = ("@@server_uuid",)
_NO_IDENTITY = "''"

_CONFLICTS = frozenset({"40001", "40P01"})
"""SQLSTATEs of a serialization failure and a deadlock."""
_MYSQL_CONFLICTS = frozenset({1020, 1213})
"""Record changed since it was read; deadlock. Both rolled the transaction back."""
_NO_CHARACTER = frozenset({"22021", "22P05"})
"""SQLSTATEs of a character that an encoding does not have."""
_MYSQL_NO_CHARACTER = frozenset({1267, 1270, 1271, 3988})
"""Illegal mix of collations; a conversion that is impossible."""


def now_us(connection: BaseDatabaseWrapper) -> int:
    """The database's clock, in µs since 1970. Read it after the locks are taken.

    For a vendor whose clock we can't read (none that Django ships) it is this host's wall
    clock. The clocks of all hosts must then be in step.
    """
    sql = _NOW.get(connection.vendor)
    if sql is None:
        return SYSTEM_CLOCK.wall_ns() // 1000
    (now,) = _row(connection, f"SELECT {sql}") or ()
    return int(now)


def server_identity(connection: BaseDatabaseWrapper) -> str:
    """A text that changes when another server takes over the database; "" if unknown.

    PostgreSQL: system identifier and timeline (which changes with every promotion). MySQL:
    ``server_uuid``. MariaDB: ``server_uid``, or host, port and data directory on a version
    without one. SQLite: the file's life. At most :data:`IDENTITY_LENGTH` characters. Call it in a
    transaction; a refusal does not break that.
    """
    return _identity(connection)[1][:IDENTITY_LENGTH]


def look(connection: BaseDatabaseWrapper) -> tuple[str, int, str, int] | None:
    """The server's identity and clock, and the identity and protocol of its installation.

    One statement instead of three. None where that can't be had: on SQLite, or where the
    installation has no row. Call it in a transaction; a refusal does not break that. Raises
    :class:`django.db.DatabaseError` if the connection broke.
    """
    if connection.vendor not in ("postgresql", "mysql"):
        return None
    row = f"FROM django_idgen_installation WHERE {connection.ops.quote_name('key')} = 1"
    for sql in (*_identities(connection), _NO_IDENTITY):
        found = _asked(connection, f"{sql}, {_NOW[connection.vendor]}, identity, protocol {row}")
        if found and (found[0] or sql == _NO_IDENTITY):
            server, now, installation, protocol = found
            return str(server)[:IDENTITY_LENGTH], int(now), installation, protocol
    return None


def identity_sql(connection: BaseDatabaseWrapper) -> str:
    """The SQL expression for :func:`server_identity`, to use in other statements; "" if none.

    Call it in a transaction; a refusal does not break that.
    """
    return _identity(connection)[0]


def _identity(connection: BaseDatabaseWrapper) -> tuple[str, str]:
    for sql in _identities(connection):
        (answer,) = _asked(connection, sql) or ("",)
        if answer:
            return sql, str(answer)
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
    """Set up the transaction just begun. ``lock_timeout``: whole seconds to wait for a row.

    Each statement sees what others have committed, whatever a receiver of ``connection_created``
    has set. The commit waits for the disk: a grant that a crash forgets would be granted again.
    The server ends a transaction that is idle for :data:`IDLE_IN_TRANSACTION` seconds, since
    its process was stopped (MySQL has no such limit).
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
        # Django writes UTC, but CURRENT_TIMESTAMP and TIMESTAMP columns use the session's zone.
        zone = ", time_zone = '+00:00'" if writes_utc(connection) else ""
        # In time: the transaction begins when it first reads a table.
        mariadb = connection.mysql_is_mariadb  # type: ignore[attr-defined]
        isolation = "tx_isolation" if mariadb else "transaction_isolation"
        idle = f", SESSION idle_transaction_timeout = {IDLE_IN_TRANSACTION}" if mariadb else ""
        _execute(
            connection,
            f"SET SESSION innodb_lock_wait_timeout = {max(1, int(lock_timeout))}, "
            f"SESSION {isolation} = 'READ-COMMITTED'{idle}{zone}",
        )


def limit_lock_waits(connection: BaseDatabaseWrapper, seconds: int) -> None:
    """Let no statement of a transaction just begun wait longer for a lock on a table."""
    if connection.vendor == "postgresql":
        _execute(connection, f"SET LOCAL lock_timeout = '{int(seconds)}s'")
    elif connection.vendor == "mysql":
        _execute(connection, f"SET SESSION lock_wait_timeout = {int(seconds)}")
    elif connection.vendor == "sqlite":
        _execute(connection, f"PRAGMA busy_timeout = {int(seconds) * 1000}")


def is_lock_timeout(error: BaseException) -> bool:
    """Whether a statement failed because it waited too long for a lock."""
    cause = error.__cause__
    code = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    number = error.args[0] if error.args else None
    return code == "55P03" or number == 1205 or "database is locked" in str(error)


def is_conflict(error: BaseException) -> bool:
    """Whether a statement failed because of a rival, so that a retry can help."""
    if isinstance(error, IntegrityError):
        return True
    cause = error.__cause__
    code = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    number = error.args[0] if error.args else None
    return code in _CONFLICTS or (isinstance(number, int) and number in _MYSQL_CONFLICTS)


def lacks_character(error: BaseException) -> bool:
    """Whether a statement failed because the database's charset lacks a character."""
    cause = error.__cause__
    number = error.args[0] if error.args else None
    return getattr(cause, "sqlstate", None) in _NO_CHARACTER or number in _MYSQL_NO_CHARACTER


def writes_utc(connection: BaseDatabaseWrapper) -> bool:
    """Whether Django writes times in UTC, not in the zone of the project or the database."""
    return bool(settings.USE_TZ) and not connection.settings_dict.get("TIME_ZONE")


def stored_moment(aware: datetime) -> datetime:
    """``aware`` as a ``DateTimeField`` takes it: without time zones, naive in the project's."""
    return aware if settings.USE_TZ else make_naive(aware, get_default_timezone())


def aware_moment(stored: datetime) -> datetime:
    """The moment of a ``DateTimeField``'s value, whatever time zone is active now."""
    return stored if is_aware(stored) else make_aware(stored, get_default_timezone())


def _asked(connection: BaseDatabaseWrapper, sql: str) -> tuple[Any, ...] | None:
    """The row that ``SELECT sql`` finds; None where the user may not ask (managed services)."""
    try:
        # A savepoint, since PostgreSQL aborts a transaction in which a statement failed.
        with transaction.atomic(using=connection.alias):
            return _row(connection, f"SELECT {sql}")
    except DatabaseError:
        if connection.needs_rollback:
            raise  # the connection broke
        return None


def _row(connection: BaseDatabaseWrapper, sql: str) -> tuple[Any, ...] | None:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        found: tuple[Any, ...] | None = cursor.fetchone()
        return found


def _execute(connection: BaseDatabaseWrapper, sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


class Now(DjangoNow):
    """The time as Django writes it into columns. (On SQLite, Django's Now is always in UTC.)"""

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        zone = "" if writes_utc(connection) else ", 'localtime'"
        template = f"STRFTIME('%%%%Y-%%%%m-%%%%d %%%%H:%%%%M:%%%%f', 'NOW'{zone})"
        return self.as_sql(compiler, connection, template=template, **extra)


class SecondsOf(Func):
    """The whole seconds from 1970 to a time, in the zone in which the database stores it.

    On PostgreSQL, which stores the zone, in UTC.
    """

    arity = 1
    output_field = BigIntegerField()
    templates: ClassVar[dict[str, str]] = {
        "postgresql": "FLOOR(EXTRACT(EPOCH FROM %(expressions)s))::bigint",
        "mysql": "TIMESTAMPDIFF(SECOND, '1970-01-01', %(expressions)s)",
        "sqlite": "CAST(strftime('%%%%s', %(expressions)s) AS INTEGER)",
        "oracle": "FLOOR((CAST(%(expressions)s AS DATE) - DATE '1970-01-01') * 86400)",
    }

    def as_sql(  # type: ignore[override]  # it takes none of Func's other options
        self, compiler: Any, connection: Any, **extra: Any
    ) -> Any:
        template = self.templates[connection.vendor]
        return super().as_sql(compiler, connection, template=template, **extra)
