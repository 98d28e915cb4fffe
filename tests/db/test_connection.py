"""Our own database connections: nobody else's, and gone when there is nothing to do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from django.db import DatabaseError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_idgen.db import connection
from django_idgen.db.connection import OwnConnection, Place, own_connection, place_of
from tests.segment_tools import in_child
from tests.server_tools import at_once, execute, sessions

SESSION_OF = {"postgres": "SELECT pg_backend_pid()", "mariadb": "SELECT connection_id()"}


def session_of(connection: BaseDatabaseWrapper) -> int:
    with connection.cursor() as cursor:
        cursor.execute(SESSION_OF[connection.alias])
        return int(cursor.fetchone()[0])


PATIENCE = 60
"""Seconds that a job may take, its connection included, on a busy machine."""


def wait_until(condition: Callable[[], bool]) -> None:
    """Give other threads, and the server, their time; the test fails if it never comes true."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_job_runs_on_a_connection_of_its_own(server_alias: str) -> None:
    """Not the caller's connection nor thread, in no transaction; ``using(alias)`` means it."""
    own = OwnConnection(server_alias)

    def look(db: BaseDatabaseWrapper) -> tuple[int, int, bool, bool]:
        found = connections[server_alias] is db
        return session_of(db), threading.get_ident(), db.in_atomic_block, found

    with transaction.atomic(using=server_alias):
        mine = session_of(connections[server_alias])
        session, thread, in_transaction, found = own.run(look, timeout=PATIENCE)
    assert session != mine
    assert thread != threading.get_ident()
    assert (in_transaction, found) == (False, True)


def test_many_threads_leave_no_connection(server_alias: str) -> None:
    """Ten threads that ask, and end, use one connection at a time. It closes when all is done.

    An open connection would keep a test runner from dropping the database.
    """
    execute(server_alias, "SELECT 1")
    own = own_connection(server_alias)
    at_once(10, lambda _: own.run(session_of, timeout=PATIENCE))
    wait_until(lambda: sessions(server_alias) == 0)


def test_what_a_job_raises_comes_to_the_caller_and_the_next_starts_clean(
    server_alias: str,
) -> None:
    """A failed job's connection, which may hold half a transaction, is not used again."""
    own = OwnConnection(server_alias)
    seen: list[int] = []

    def fail(db: BaseDatabaseWrapper) -> None:
        seen.append(session_of(db))
        with db.cursor() as cursor:
            cursor.execute("SELECT * FROM there_is_no_such_table")

    go_on = threading.Event()
    own.loader.submit(go_on.wait)  # or the connection would close between the two
    failed = own.loader.submit(lambda: own.call(fail))
    after = own.loader.submit(lambda: own.call(session_of))
    go_on.set()
    with pytest.raises(DatabaseError):
        failed.result(PATIENCE)
    assert after.result(PATIENCE) not in seen


def test_a_late_job_is_given_up(server_alias: str) -> None:
    """The caller waits no longer than its timeout, and later jobs still run."""
    own = OwnConnection(server_alias)
    let_go = threading.Event()
    with pytest.raises(TimeoutError):
        own.run(lambda db: let_go.wait(PATIENCE), timeout=0.05)
    let_go.set()
    assert own.run(session_of, timeout=PATIENCE)


def test_a_job_within_a_job_runs_at_once(server_alias: str) -> None:
    """It doesn't wait behind itself."""
    own = OwnConnection(server_alias)

    def nested(db: BaseDatabaseWrapper) -> bool:
        return session_of(db) == own.run(session_of, timeout=0.001)

    assert own.run(nested, timeout=PATIENCE)


def test_a_job_that_fails_within_a_job_leaves_that_ones_connection(server_alias: str) -> None:
    """A receiver of Django's signals may ask for ids in the midst of ours, in vain."""
    own = OwnConnection(server_alias)

    def fail(db: BaseDatabaseWrapper) -> None:
        raise LookupError

    def outer(db: BaseDatabaseWrapper) -> tuple[bool, bool]:
        before = session_of(db)
        with transaction.atomic(using=server_alias), suppress(LookupError):
            own.run(fail, timeout=PATIENCE)
        return session_of(db) == before, connections[server_alias] is db

    assert own.run(outer, timeout=PATIENCE) == (True, True)
    wait_until(lambda: sessions(server_alias) == 0)


def test_no_pool_and_no_transaction_of_the_projects_settings(postgres: str) -> None:
    """A pool may be used up by the callers who wait for us; ATOMIC_REQUESTS is not for us."""
    settings = connections.settings[postgres]
    configured = dict(settings)
    settings.update(OPTIONS={"pool": True, "isolation_level": 4}, ATOMIC_REQUESTS=True)
    settings.update(CONN_MAX_AGE=600, AUTOCOMMIT=False)
    try:
        found: dict[str, Any] = OwnConnection(postgres).run(
            lambda db: {**db.settings_dict}, timeout=PATIENCE
        )
    finally:
        settings.clear()
        settings.update(configured)
    assert set(found["OPTIONS"]) == {"connect_timeout", "tcp_user_timeout"}
    assert found["AUTOCOMMIT"] is True
    assert found["ATOMIC_REQUESTS"] is False
    assert found["CONN_MAX_AGE"] == 0


def test_without_a_thread_the_callers_connection_comes_through(
    server_alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no thread can be started (at exit) the caller's open transaction goes on after it."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    own = OwnConnection(server_alias)
    execute(server_alias, "CREATE TABLE kept (value INTEGER)")
    before = connections[server_alias]
    with transaction.atomic(using=server_alias):
        execute(server_alias, "INSERT INTO kept VALUES (1)")
        monkeypatch.setattr(threading.Thread, "start", refuse)
        other = own.run(session_of, timeout=PATIENCE)
        monkeypatch.undo()
        assert connections[server_alias] is before
        assert session_of(before) != other
        assert before.in_atomic_block
    assert execute(server_alias, "SELECT count(*) FROM kept")[0][0] == 1
    wait_until(lambda: sessions(server_alias) == 0)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_opens_its_own(server_alias: str) -> None:
    """A child neither uses nor closes the socket that its parent has open."""
    own = own_connection(server_alias)
    parent = own.run(lambda db: (session_of(db), _session_in_child(own)), timeout=PATIENCE)
    mine, childs = parent
    assert childs not in (0, mine)
    assert own.run(session_of, timeout=PATIENCE)


def _session_in_child(own: OwnConnection) -> int:
    def ask() -> list[int]:
        return at_once(1, lambda _: own.run(session_of, timeout=PATIENCE))

    return in_child(ask)[0]


def test_a_server_keeps_its_own_marks(server_alias: str) -> None:
    """The place of a server's marks is its tables."""
    assert place_of(server_alias) is Place.SERVER


def test_where_sqlite_keeps_its_marks(
    monkeypatch: pytest.MonkeyPatch, django_db_blocker: Any
) -> None:
    """In the process for a database in memory, in a file beside one in a file."""
    with django_db_blocker.unblock():
        for name, place in (
            (":memory:", Place.MEMORY),
            ("file:memorydb_default?mode=memory&cache=shared", Place.MEMORY),
            ("/nowhere/shop.sqlite3", Place.SERVER),
        ):
            monkeypatch.setitem(connections.settings["default"], "NAME", name)
            assert place_of("default") is place


def test_a_database_that_the_test_forbids_is_left_alone() -> None:
    """pytest-django blocks this test's access, so its ids come from the process."""
    assert place_of("default") is Place.FORBIDDEN


def test_a_silent_server_does_not_hold_the_thread_for_ever(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was stopped in the middle of a job is given up; the next job finds another."""
    monkeypatch.setattr(connection, "SOCKET_TIMEOUT", 1)
    own = OwnConnection(postgres)
    asked: list[int] = []

    def ask_in_vain(db: BaseDatabaseWrapper) -> None:
        asked.append(session_of(db))
        with db.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(3600)")

    given_up = own.loader.submit(lambda: own.call(ask_in_vain), urgent=True)
    assert isinstance(given_up.exception(PATIENCE), DatabaseError)
    monkeypatch.undo()
    assert own.run(session_of, timeout=PATIENCE) != asked[0]
    execute(postgres, f"SELECT pg_terminate_backend({asked[0]})")


def test_the_guard_goes_with_its_connection(postgres: str) -> None:
    """Nothing watches a connection that is closed; its socket's number may be another's."""
    own = OwnConnection(postgres)
    name = f"idgen-guard-{postgres}"
    assert own.run(lambda db: any(t.name == name for t in threading.enumerate()), timeout=PATIENCE)
    wait_until(lambda: all(t.name != name for t in threading.enumerate()))
