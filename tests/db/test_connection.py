"""Our own database connections: nobody else's, gone when there is nothing to do, one a process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from django.db import DatabaseError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_idgen import generators, next_id, segments
from django_idgen.core import segment_generator
from django_idgen.core.errors import LeaseLost
from django_idgen.db import connection
from django_idgen.db.connection import (
    OwnConnection,
    Place,
    Stores,
    home_connection,
    own_connection,
    place_of,
)
from django_idgen.db.tables import MODELS, missing_tables
from django_idgen.leases.database import DatabaseLeases
from django_idgen.process import factory, maps
from django_idgen.testing import no_registry
from django_idgen.testing.contracts.lenders import at_once
from tests import places
from tests.faults.processes import eventually
from tests.leases.server.shop import SHOP
from tests.places import STEP
from tests.places import place as place
from tests.segment_tools import LIMIT, in_child
from tests.server_tools import configured, execute, sessions

SESSION_OF = {"postgres": "SELECT pg_backend_pid()", "mariadb": "SELECT connection_id()"}


def session_of(connection: BaseDatabaseWrapper) -> int:
    with connection.cursor() as cursor:
        cursor.execute(SESSION_OF[connection.alias])
        return int(cursor.fetchone()[0])


PATIENCE = 60
"""Seconds that a job may take, its connection included, on a busy machine."""


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
    eventually(lambda: sessions(server_alias) == 0)


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
    eventually(lambda: sessions(server_alias) == 0)


def test_no_pool_and_no_transaction_of_the_projects_settings(postgres: str) -> None:
    """A pool may be used up by the callers who wait for us; ATOMIC_REQUESTS is not for us."""
    theirs = {"OPTIONS": {"pool": True, "isolation_level": 4}, "ATOMIC_REQUESTS": True}
    with configured(postgres, **theirs, CONN_MAX_AGE=600, AUTOCOMMIT=False):
        found: dict[str, Any] = OwnConnection(postgres).run(
            lambda db: {**db.settings_dict}, timeout=PATIENCE
        )
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
    eventually(lambda: sessions(server_alias) == 0)


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
    eventually(lambda: all(t.name != name for t in threading.enumerate()))


# --- which store a database's marks are in, as test runners change databases ---


@pytest.fixture
def shop(directory: Path) -> Iterator[Path]:
    """A SQLite database, the default one."""
    with places.sqlite(directory):
        yield directory / "shop.sqlite3"


def another_database(alias: str, name: str) -> None:
    """What a test runner does to an alias when it starts and when it is done."""
    connections[alias].close()
    connections.settings[alias]["NAME"] = name


def test_a_store_is_made_once_for_a_place_and_a_name(shop: Path) -> None:
    """And found again when the alias means the same database again."""
    made: list[Place] = []
    stores = Stores("default", lambda place: made.append(place) or object())
    first = stores.current()
    assert stores.current() is first
    another_database("default", ":memory:")
    assert stores.current() is not first
    assert not stores.is_current(first)
    another_database("default", str(shop))
    assert stores.current() is first
    assert made == [Place.SERVER, Place.MEMORY]


def test_a_database_in_memory_has_no_background_thread(shop: Path, server_alias: str) -> None:
    """Another thread would find another database (hazard 67); a file's it finds, or a server's.

    There the next segment is loaded while the caller goes on.
    """
    assert own_connection(server_alias).loader.background
    loader = own_connection("default").loader
    assert loader.background
    another_database("default", ":memory:")
    assert not loader.background


def test_ids_of_a_test_without_the_database_come_one_at_a_time() -> None:
    """Nothing is left over that would be used on the database once it is allowed."""
    with_database_before = segments["t"].next_ids(3)
    assert with_database_before == sorted(set(with_database_before))
    assert segments["t"].stats().remaining == 0
    assert next_id() < next_id()
    maps.reset()


def test_a_lease_is_not_given_back_to_another_sqlite_database(shop: Path) -> None:
    """At the end of a test run the real database is left alone: not even a file is made."""
    next_id()
    segments["t"].next_ids(STEP)
    real = shop.with_name("real.sqlite3")
    real.write_bytes(b"")
    another_database("default", str(real))
    maps.reset()
    assert real.read_bytes() == b""
    assert not real.with_name("real.sqlite3-idgen").exists()


def test_a_dropped_sqlite_database_gets_no_new_marks(shop: Path) -> None:
    """Nor is a marks file made again beside a database that is gone."""
    next_id()
    connections["default"].close()
    shop.unlink()
    shop.with_name("shop.sqlite3-idgen").unlink()
    maps.reset()
    assert [*shop.parent.iterdir()] == []


def test_a_lease_is_not_given_back_to_another_server_database(server_alias: str) -> None:
    """No table of ours is made in the real database at the end of a test run."""
    with places.using(server_alias):
        next_id()
        name = connections.settings[server_alias]["NAME"]
        real = f"{name}_real"
        with connections[server_alias]._nodb_cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {real}")
        another_database(server_alias, real)
        try:
            maps.reset()
            assert len(missing_tables(home_connection(server_alias))) == len(MODELS)
        finally:
            another_database(server_alias, name)
            with connections[server_alias]._nodb_cursor() as cursor:
                cursor.execute(f"DROP DATABASE {real}")


def test_a_lease_of_another_database_is_not_renewed(shop: Path) -> None:
    """A generator that lives on takes a worker id where its ids go now."""
    next_id()
    keeper = generators["default"].keeper
    lease = keeper.lease
    another_database("default", str(shop.with_name("other.sqlite3")))
    with pytest.raises(LeaseLost, match="is no longer the server that lent"):
        keeper.registry.renew(lease, last_tick=lease.start)


def test_a_lease_stays_as_it_is_while_its_lender_is_forbidden(
    place: str, django_db_blocker: Any
) -> None:
    """A test that may not use the database neither renews nor loses what is held."""
    next_id()
    keeper = generators["default"].keeper
    with django_db_blocker.block():
        kept = keeper.registry.renew(keeper.lease, last_tick=keeper.lease.start).lease
        assert kept == keeper.lease
        assert next_id() < next_id()


def test_one_sqlite_database_has_one_marks_file(shop: Path) -> None:
    """Releases that each link to the database would else give out the same ids."""
    ids = [segments["t"].next_id()]
    release = shop.parent / "release"
    release.mkdir()
    link = release / "shop.sqlite3"
    link.symlink_to(shop)
    for name in (link, f"file:{link}?mode=rw", f"file://{shop}"):
        another_database("default", str(name))
        maps.reset()
        ids.append(segments["t"].next_id())
        assert next_id()
    assert ids == [ids[0] + STEP * n for n in range(4)]
    assert [path.name for path in release.iterdir()] == ["shop.sqlite3"]


# --- first uses that meet: the second comes while the first is making what both want ---


class Meeting:
    """Holds the first thread up inside ``module.name`` until a second one has come.

    It has come when it stands before the lock of ``owner``, or makes one more itself.
    """

    def __init__(self, patch: pytest.MonkeyPatch, owner: Any, module: Any, name: str) -> None:
        self.made: list[Any] = []
        self._make = getattr(module, name)
        self._lock = owner._lock
        self._second: threading.Thread | None = None
        self._came = threading.Event()
        patch.setattr(owner, "_lock", self)
        patch.setattr(module, name, self.make)

    def asked_by_two(self, ask: Callable[[], Any]) -> list[Any]:
        """What the two were given."""
        got: list[Any] = []
        self._second = threading.Thread(target=lambda: got.append(ask()))
        got.append(ask())
        self._second.join(LIMIT)
        assert len(got) == 2
        return got

    def make(self, *args: Any, **options: Any) -> Any:
        assert self._second is not None
        if threading.current_thread() is self._second:
            self._came.set()
        else:
            self._second.start()
            assert self._came.wait(LIMIT)
        self.made.append(self._make(*args, **options))
        return self.made[-1]

    def __enter__(self) -> None:
        if threading.current_thread() is self._second:
            self._came.set()
        self._lock.acquire()

    def __exit__(self, *exc: object) -> None:
        self._lock.release()


def in_generators() -> tuple[Any, Any, str, Callable[[], Any]]:
    return generators, factory, "build_generator", lambda: generators["default"]


def in_segments() -> tuple[Any, Any, str, Callable[[], Any]]:
    return segments, factory, "build_allocator", lambda: segments["order"]


def in_tags() -> tuple[Any, Any, str, Callable[[], Any]]:
    return segments.allocator().segments, segment_generator, "_GENERATOR", lambda: segments["order"]


def in_stores() -> tuple[Any, Any, str, Callable[[], Any]]:
    found: Any = DatabaseLeases(SHOP)._stores
    return found, found, "_make", found.current


@pytest.mark.parametrize("owner_of", [in_generators, in_segments, in_tags, in_stores])
def test_two_threads_at_first_use_share_one(
    owner_of: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hazard 29: one per process and alias, or both would give out the same ids."""
    with no_registry():
        owner, module, name, ask = owner_of()
        meeting = Meeting(monkeypatch, owner, module, name)
        one, other = meeting.asked_by_two(ask)
    assert one is other
    assert len(meeting.made) == 1
