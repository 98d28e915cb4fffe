"""The SQL that differs from one database server to the other, on real ones; and moments."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import DatabaseError, connections, transaction
from django.test import override_settings
from django.utils import timezone

from django_idgen.core.clock import SYSTEM_CLOCK
from django_idgen.db import dialects
from django_idgen.db.dialects import aware_moment, stored_moment
from django_idgen.models import Installation, LeafAlloc
from django_idgen.testing.contracts.lenders import at_once
from tests.places import make_tables
from tests.server_tools import execute, execute_apart

A_MINUTE_US = 60_000_000
SLEEP = {"postgres": "SELECT pg_sleep(0.01)", "mariadb": "SELECT sleep(0.01)"}


def test_the_clock_goes_on_within_a_transaction(server_alias: str) -> None:
    """A transaction that waited for a lock reads the time after the wait."""
    with transaction.atomic(using=server_alias):
        before = dialects.now_us(connections[server_alias])
        execute(server_alias, SLEEP[server_alias])
        assert dialects.now_us(connections[server_alias]) - before >= 10_000


def test_the_clock_is_the_same_in_every_time_zone(server_alias: str) -> None:
    """Microseconds since 1970: the zone of the session moves nothing (hazard 65)."""
    zone = {"postgres": "SET TIME ZONE 'Asia/Karachi'", "mariadb": "SET time_zone = '+05:00'"}
    for _ in range(2):
        now = dialects.now_us(connections[server_alias])  # of this very host
        assert abs(now - SYSTEM_CLOCK.wall_ns() // 1000) < A_MINUTE_US
        execute(server_alias, zone[server_alias])


def test_another_vendor_goes_by_this_hosts_clock() -> None:
    """SQLite, or a database that Django doesn't ship, has the wall clock stand in."""
    connection = connections.create_connection("default")
    assert abs(dialects.now_us(connection) - SYSTEM_CLOCK.wall_ns() // 1000) < A_MINUTE_US
    assert dialects.server_identity(connection) == ""


def test_a_server_keeps_its_identity(server_alias: str) -> None:
    """Two connections to one server see one identity, and it isn't empty."""
    with closing(connections.create_connection(server_alias)) as other:
        with transaction.atomic(using=server_alias):
            identity = dialects.server_identity(connections[server_alias])
        assert identity == dialects.server_identity(other) != ""


def test_postgresql_is_told_by_system_and_timeline(postgres: str) -> None:
    """A promotion changes the timeline, a restored copy the system identifier."""
    system = execute(postgres, "SELECT system_identifier FROM pg_control_system()")[0][0]
    wal = execute(postgres, "SELECT pg_walfile_name(pg_current_wal_lsn())")[0][0]
    assert dialects.server_identity(connections[postgres]) == f"{system}/{wal[:8]}"


def role_of(alias: str) -> str:
    return f"idgen_refused_{connections[alias].settings_dict['NAME']}"


@pytest.fixture
def refused(postgres: str) -> Iterator[str]:
    """PostgreSQL as a user who may not ask what the server is, as on managed services."""
    role = role_of(postgres)
    functions = ["pg_control_system()", "pg_walfile_name(pg_lsn)"]
    execute(postgres, f"CREATE ROLE {role}")
    for function in functions:
        execute(postgres, f"REVOKE EXECUTE ON FUNCTION {function} FROM PUBLIC")
    execute(postgres, f"SET ROLE {role}")
    yield postgres
    execute(postgres, "RESET ROLE")
    for function in functions:
        execute(postgres, f"GRANT EXECUTE ON FUNCTION {function} TO PUBLIC")
    execute(postgres, f"DROP ROLE {role}")


def test_a_refused_question_leaves_the_transaction_alone(refused: str) -> None:
    """No identity then, and the transaction goes on."""
    with transaction.atomic(using=refused):
        assert dialects.server_identity(connections[refused]) == ""
        assert execute(refused, "SELECT 1") == [(1,)]


def test_one_look_says_what_three_questions_do(server_alias: str) -> None:
    """The identity, the clock and the installation's row, in one statement."""
    make_tables(server_alias)
    connection = connections[server_alias]
    row = Installation.objects.using(server_alias).get()
    with transaction.atomic(using=server_alias):
        found = dialects.look(connection)
        assert found is not None
        server, now, *installation = found
        assert server == dialects.server_identity(connection)
        assert 0 <= dialects.now_us(connection) - now < A_MINUTE_US
        assert installation == [row.identity, row.protocol]


def test_a_look_without_a_row_finds_nothing(server_alias: str) -> None:
    """So that the caller looks closer, and makes it."""
    make_tables(server_alias)
    Installation.objects.using(server_alias).delete()
    with transaction.atomic(using=server_alias):
        assert dialects.look(connections[server_alias]) is None


def test_a_refused_look_goes_without_the_identity(refused: str) -> None:
    """The clock and the installation are had all the same."""
    execute(refused, "RESET ROLE")
    make_tables(refused)
    row = Installation.objects.using(refused).get()
    execute(refused, f"GRANT SELECT ON django_idgen_installation TO {role_of(refused)}")
    execute(refused, f"SET ROLE {role_of(refused)}")
    with transaction.atomic(using=refused):
        found = dialects.look(connections[refused])
        assert found is not None
        server, now, *installation = found
        assert server == ""
        assert abs(now - SYSTEM_CLOCK.wall_ns() // 1000) < A_MINUTE_US
        assert installation == [row.identity, row.protocol]
    execute(refused, "RESET ROLE")
    execute(refused, f"REVOKE ALL ON django_idgen_installation FROM {role_of(refused)}")


def test_an_unknown_variable_leaves_the_transaction_alone(
    mariadb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A MariaDB without server_uid is told by where it listens and stores."""
    asked = dialects._asked

    def older(connection: Any, sql: str) -> str:
        return asked(connection, sql.replace("server_uid", "server_uid_of_later_versions"))

    monkeypatch.setattr(dialects, "_asked", older)
    with transaction.atomic(using=mariadb):
        assert dialects.server_identity(connections[mariadb]).count(":") == 2
        assert execute(mariadb, "SELECT 1")


def test_the_transaction_is_durable_and_impatient_on_postgresql(postgres: str) -> None:
    """Whatever the session was set to, and only until the transaction's end."""
    settings = ("synchronous_commit", "lock_timeout", "transaction_isolation")
    execute(postgres, "SET synchronous_commit = off")
    execute(postgres, "SET default_transaction_isolation = 'serializable'")

    def shown() -> list[str]:
        return [execute(postgres, f"SHOW {name}")[0][0] for name in settings]

    with transaction.atomic(using=postgres):
        dialects.begin(connections[postgres], lock_timeout=7)
        assert shown() == ["on", "7s", "read committed"]
    assert shown() == ["off", "0", "serializable"]


def test_the_transaction_is_impatient_on_mariadb(mariadb: str) -> None:
    """It sees what is committed, waits a few seconds for a lock, and reckons in UTC."""
    with transaction.atomic(using=mariadb):
        dialects.begin(connections[mariadb], lock_timeout=7)
        shown = execute(mariadb, "SELECT @@innodb_lock_wait_timeout, @@tx_isolation, @@time_zone")
    assert shown == [(7, "READ-COMMITTED", "+00:00")]


SNAPSHOTS = {
    "postgres": "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "mariadb": "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
}


def test_each_statement_sees_what_others_have_committed(server_alias: str) -> None:
    """A worker id looked up in a snapshot from before the lock could be another's by now."""
    make_tables(server_alias)
    tags = LeafAlloc.objects.using(server_alias)
    execute(server_alias, SNAPSHOTS[server_alias])  # as a receiver of connection_created may
    try:
        with transaction.atomic(using=server_alias):
            dialects.begin(connections[server_alias], lock_timeout=2)
            assert tags.count() == 0
            execute_apart(server_alias, "INSERT INTO leaf_alloc (biz_tag) VALUES ('t')")
            assert tags.count() == 1
    finally:
        connections[server_alias].close()


@pytest.fixture
def pairs(server_alias: str) -> str:
    """The alias of a server with a table of two rows."""
    execute(server_alias, "CREATE TABLE pairs (id integer PRIMARY KEY, value integer)")
    execute(server_alias, "INSERT INTO pairs VALUES (1, 0), (2, 0)")
    return server_alias


def test_a_lock_timeout_is_no_conflict(pairs: str) -> None:
    """Trying again would wait as long once more."""
    with transaction.atomic(using=pairs):
        execute(pairs, "UPDATE pairs SET value = 1")
        with closing(connections.create_connection(pairs)) as other:
            other.set_autocommit(False)
            dialects.begin(other, lock_timeout=1)
            with pytest.raises(DatabaseError) as caught, other.cursor() as cursor:
                cursor.execute("UPDATE pairs SET value = 2")
            other.rollback()
    assert not dialects.is_conflict(caught.value)


def test_a_process_that_stops_in_the_middle_holds_up_nobody_for_long(
    pairs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server takes its locks away, and the process hears of it when it goes on."""
    monkeypatch.setattr(dialects, "IDLE_IN_TRANSACTION", 1)
    with closing(connections.create_connection(pairs)) as stopped:
        stopped.set_autocommit(False)
        dialects.begin(stopped, lock_timeout=2)
        with stopped.cursor() as cursor:
            cursor.execute("UPDATE pairs SET value = 1")
        with transaction.atomic(using=pairs):
            dialects.begin(connections[pairs], lock_timeout=30)
            execute(pairs, "UPDATE pairs SET value = value + 10")
        with pytest.raises(DatabaseError):
            stopped.commit()
    assert execute(pairs, "SELECT value FROM pairs") == [(10,), (10,)]


def test_a_deadlock_is_a_conflict(pairs: str) -> None:
    """The loser of a real deadlock may try again: nothing of it was kept."""
    both_locked = threading.Barrier(2)

    def lock(number: int) -> list[bool]:
        first, second = (1, 2) if number else (2, 1)
        with closing(connections.create_connection(pairs)) as connection:
            connection.set_autocommit(False)
            with connection.cursor() as cursor:
                cursor.execute(f"UPDATE pairs SET value = 1 WHERE id = {first}")
                both_locked.wait(30)
                try:
                    cursor.execute(f"UPDATE pairs SET value = 1 WHERE id = {second}")
                except DatabaseError as error:
                    return [dialects.is_conflict(error)]
                finally:
                    connection.rollback()
        return []

    assert sorted(at_once(2, lock)) == [[], [True]]


# --- moments in the columns of a project without time zones -------------------


MOMENT = datetime(2025, 6, 1, 12, 30, tzinfo=UTC)


@override_settings(USE_TZ=False, TIME_ZONE="Asia/Kathmandu")
def test_columns_are_in_the_projects_zone_whatever_is_active() -> None:
    """A page in the zone of its reader writes, reads and compares the same moments."""
    with timezone.override("Pacific/Auckland"):
        stored = stored_moment(MOMENT)
        assert stored == datetime(2025, 6, 1, 18, 15)  # noqa: DTZ001
        assert aware_moment(stored) == MOMENT


@override_settings(USE_TZ=True, TIME_ZONE="Asia/Kathmandu")
def test_with_time_zones_a_moment_is_stored_as_it_is() -> None:
    """Django writes it in the zone of the database."""
    assert stored_moment(MOMENT) is MOMENT
    assert aware_moment(MOMENT) is MOMENT
