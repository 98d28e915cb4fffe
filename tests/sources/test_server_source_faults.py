"""Segments from real database servers: transactions, routers, broken wires, lost answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from django.db import DatabaseError, OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import override_settings

from django_idgen.core.errors import RegistryUnavailable, SegmentUnavailable
from django_idgen.db.connection import OwnConnection, own_connection
from django_idgen.models import LeafAlloc
from django_idgen.sources.server import ServerSource
from django_idgen.testing.contracts.lenders import at_once
from tests.leaf import migrated_leaf
from tests.leases.server.shop import SHOP, ServerLeases
from tests.server_tools import (
    execute,
    execute_apart,
    kill_session_of,
    lossy_wire,
    make_tables,
    sessions,
)
from tests.tiers import LONG

WAITING = {
    "postgres": "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
    "AND datname = current_database() AND pid <> pg_backend_pid()",
    "mariadb": "SELECT id FROM information_schema.processlist "
    "WHERE db = database() AND id <> connection_id() AND info LIKE 'UPDATE%'",
}
OURS = {
    "postgres": "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
    "AND pid <> pg_backend_pid() AND state <> 'idle' ORDER BY random()",
    "mariadb": "SELECT id FROM information_schema.processlist WHERE db = database() "
    "AND id <> connection_id() AND info IS NOT NULL ORDER BY rand()",
}
KILLS = 40 if LONG else 15
KILL = {"postgres": "SELECT pg_terminate_backend({})", "mariadb": "KILL {}"}


def test_a_rollback_gives_nothing_back(source: ServerSource) -> None:
    """A segment fetched amid the caller's transaction stays fetched (hazard 31)."""
    source.fetch("a")
    with transaction.atomic(using=source.alias):
        LeafAlloc.objects.using(source.alias).count()
        assert source.fetch("a").start == 101
        transaction.set_rollback(True, using=source.alias)
    assert source.fetch("a").start == 201


def test_no_lock_is_held_for_the_caller(source: ServerSource) -> None:
    """Amid the caller's transaction others fetch, too, without waiting for its end."""
    source.fetch("a")
    with transaction.atomic(using=source.alias):
        starts = [source.fetch("a").start, *at_once(2, lambda _: source.fetch("a").start)]
    assert sorted(starts) == [101, 201, 301]


def test_an_impatient_caller_is_told_so(source: ServerSource) -> None:
    """The timeout is named; what the server grants after it is given up."""
    source.fetch("a")
    hasty = ServerSource(alias=source.alias, timeout=0.2)
    with transaction.atomic(using=source.alias):
        LeafAlloc.objects.using(source.alias).select_for_update().get(pk="a")
        with pytest.raises(SegmentUnavailable, match=r"within 0\.2 s"):
            hasty.fetch("a")
    assert source.fetch("a").start in {101, 201}


class Replica:
    """A router that sends all reads to another database."""

    def db_for_read(self, model: Any, **hints: Any) -> str:
        return "default"

    def db_for_write(self, model: Any, **hints: Any) -> str:
        return "default"


def test_a_router_does_not_interfere(source: ServerSource) -> None:
    """Both statements go to the alias, whatever the routers say (hazard 45)."""
    with override_settings(DATABASE_ROUTERS=["tests.sources.test_server_source_faults.Replica"]):
        assert [source.fetch("a").start for _ in range(3)] == [1, 101, 201]


def test_a_fetch_within_the_loader_runs_at_once(source: ServerSource) -> None:
    """A job of the loader's may fetch, though it occupies the thread that fetches."""
    futures = [source.loader.submit(lambda: source.fetch("a")) for _ in range(5)]
    starts = [future.result(30).start for future in futures]
    assert starts == [1, 101, 201, 301, 401]


def test_a_failed_fetch_within_the_loader_is_unavailable(source: ServerSource) -> None:
    """The error is the same as from outside, and the next job has a connection again."""
    migrated_leaf(source.alias)
    execute(source.alias, "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('a', 1, 0)")
    failed = source.loader.submit(lambda: source.fetch("a"))
    worked = source.loader.submit(lambda: source.fetch("b"))
    with pytest.raises(SegmentUnavailable):
        failed.result(30)
    assert worked.result(30).start == 1


def test_a_killed_connection_recovers_by_itself(source: ServerSource) -> None:
    """The fetch that it hits fails; the next, queued or not, has a new connection."""
    source.fetch("a")
    with transaction.atomic(using=source.alias):
        LeafAlloc.objects.using(source.alias).select_for_update().get(pk="a")
        hit = source.loader.submit(lambda: source.fetch("a"))
        queued = source.loader.submit(lambda: source.fetch("b"))
        while not (waiting := execute_apart(source.alias, WAITING[source.alias])):
            assert not hit.done()
        execute_apart(source.alias, KILL[source.alias].format(waiting[0][0]))
        with pytest.raises(SegmentUnavailable):
            hit.result(30)
        assert queued.result(30).start == 1
    assert source.fetch("a").start == 101


def fetch_one(source: ServerSource) -> object:
    return source.fetch("a")


def read_book(source: ServerSource) -> object:
    return ServerLeases(SHOP, alias=source.alias).stored_book().read()


def acquire(source: ServerSource) -> object:
    return ServerLeases(SHOP, alias=source.alias).acquire(holder="a")


@pytest.mark.parametrize("work", [fetch_one, read_book, acquire])
def test_a_thread_whose_connection_was_killed_fails_once(
    source: ServerSource, work: Callable[[ServerSource], object]
) -> None:
    """Hazard 46: killed between two jobs of a thread that has more to do, in autocommit.

    Django finds that out by an error, and goes on with the dead connection for ever.
    """
    work(source)
    own, all_there = own_connection(source.alias), threading.Event()
    own.loader.submit(lambda: all_there.wait(30))  # or the connection would go with the last job
    own.loader.submit(lambda: own.call(kill_session_of))
    hit = own.loader.submit(lambda: work(source))
    later = [own.loader.submit(lambda: work(source)) for _ in range(3)]
    all_there.set()
    assert isinstance(hit.exception(30), SegmentUnavailable | RegistryUnavailable)
    assert [job.exception(30) for job in later] == [None] * 3


@pytest.mark.parametrize(("lost", "start"), [("losing", 201), ("dropping", 101)])
def test_a_fetch_whose_answer_was_lost_is_not_repeated(
    source: ServerSource, lost: str, start: int
) -> None:
    """The segment is gone, one of them and not two, and the next one is above it.

    If the commit never arrived the error is the same, for nobody can tell; but then the fetch
    never was, and the next one may have that very segment.
    """
    source.fetch("a")
    with lossy_wire(source.alias) as wire:
        setattr(wire, lost, True)
        with pytest.raises(SegmentUnavailable):
            source.fetch("a")
        assert wire.sent == 1
    assert source.fetch("a").start == start


def test_a_backend_killed_at_the_commit(postgres: str) -> None:
    """PostgreSQL, amid its own commit: the transaction is rolled back."""
    source = ServerSource(alias=postgres, default_step=100)
    source.fetch("a")
    execute(
        postgres,
        "CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$",
    )
    try:
        execute(
            postgres,
            "CREATE CONSTRAINT TRIGGER die AFTER UPDATE ON leaf_alloc "
            "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION die()",
        )
        with pytest.raises(SegmentUnavailable):
            source.fetch("a")
    finally:
        execute(postgres, "DROP FUNCTION die CASCADE")
    assert source.fetch("a").start == 101


@pytest.mark.long
def test_backends_killed_at_random_under_load(source: ServerSource) -> None:
    """I1: many of them, whatever they were at; those who go on never share an id."""
    source.fetch("a")
    done = threading.Event()

    def fetch_on(_: int) -> list[int]:
        own = OwnConnection(source.alias)
        mine = ServerSource(alias=source.alias, default_step=100, own=own)
        found = []
        while not done.is_set():
            with suppress(SegmentUnavailable):
                found.append(mine.fetch("a").start)
        return found

    def kill_on(number: int) -> list[int]:
        try:
            kills = 0
            while kills < KILLS:
                for (session,) in execute_apart(source.alias, OURS[source.alias])[:1]:
                    with suppress(DatabaseError):  # it may be gone by itself
                        execute_apart(source.alias, KILL[source.alias].format(session))
                        kills += 1
        finally:
            done.set()
        return []

    jobs = [fetch_on] * 4 + [kill_on]
    starts = [start for found in at_once(5, lambda n: jobs[n](n)) for start in found]
    assert len(starts) == len(set(starts)) > 0
    assert all((start - 1) % 100 == 0 for start in starts)


def test_a_locked_row_holds_other_tags_up_no_longer_than_its_timeout(source: ServerSource) -> None:
    """Hazards 22, 68: queued behind it in the one thread, they come through while it is locked.

    Whoever wants the row itself gets an error that chains the database's, and no id is lost.
    """
    source.fetch("a")
    source.fetch("b")
    with transaction.atomic(using=source.alias):
        LeafAlloc.objects.using(source.alias).select_for_update().get(pk="a")
        first = source.loader.submit(lambda: source.fetch("a"))
        others = [source.loader.submit(lambda: source.fetch("b")) for _ in range(3)]
        assert [future.result(30).start for future in others] == [101, 201, 301]
        error = first.exception(30)
        assert isinstance(error, SegmentUnavailable)
        assert isinstance(error.__cause__, DatabaseError)
    assert source.fetch("a").start == 101


@pytest.fixture
def refusing(postgres: str) -> Iterator[str]:
    """PostgreSQL that refuses each commit that moves a tag up, and counts them."""
    ServerSource(alias=postgres).fetch("a")
    execute(postgres, "CREATE SEQUENCE commits")
    execute(
        postgres,
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "PERFORM nextval('commits'); "
        "RAISE EXCEPTION 'refused' USING ERRCODE = 'serialization_failure'; END $$",
    )
    execute(
        postgres,
        "CREATE CONSTRAINT TRIGGER refuse AFTER UPDATE ON leaf_alloc "
        "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()",
    )
    yield postgres
    execute(postgres, "DROP FUNCTION refuse CASCADE")
    execute(postgres, "DROP SEQUENCE commits")


def test_nothing_is_repeated_from_the_commit_on(refusing: str) -> None:
    """An error that would be tried again at a statement is final at the commit."""
    with pytest.raises(SegmentUnavailable, match="refused"):
        ServerSource(alias=refusing).fetch("a")
    assert execute(refusing, "SELECT last_value FROM commits") == [(1,)]


def test_a_server_that_can_not_be_reached_is_tried_once(
    source: ServerSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that drops all packets takes the connect timeout each time."""
    tries: list[object] = []

    def refused(connection: BaseDatabaseWrapper, parameters: object) -> None:
        tries.append(parameters)
        raise OperationalError("timed out")

    monkeypatch.setattr(type(connections[source.alias]), "get_new_connection", refused)
    with pytest.raises(SegmentUnavailable, match="timed out"):
        source.fetch("a")
    assert len(tries) == 1


def test_a_half_migrated_table_is_named(source: ServerSource) -> None:
    """A missing column leads to the command that adds it, and no id is lost."""
    source.fetch("a")
    execute(source.alias, "ALTER TABLE leaf_alloc DROP COLUMN update_time")
    with pytest.raises(SegmentUnavailable, match=r"leaf_alloc\.update_time.*migrate"):
        source.fetch("a")
    assert execute(source.alias, "SELECT max_id FROM leaf_alloc") in ([(101,)], [[101]])


@pytest.fixture
def reader(postgres: str) -> Iterator[str]:
    """PostgreSQL as a user who may not make tables."""
    settings = connections.settings[postgres]
    role = f"idgen_reader_{settings['NAME']}"
    user = settings["USER"]
    execute(postgres, f"CREATE ROLE {role} LOGIN")
    settings["USER"] = role
    yield postgres
    settings["USER"] = user
    execute(postgres, f"DROP OWNED BY {role}")
    execute(postgres, f"DROP ROLE {role}")


def test_a_user_who_may_not_make_tables_is_sent_to_migrate(reader: str) -> None:
    """The missing table and the command are named, and the refusal is chained."""
    with pytest.raises(SegmentUnavailable, match=r"leaf_alloc.*may not make.*migrate") as caught:
        ServerSource(alias=reader).fetch("a")
    assert isinstance(caught.value.__cause__, DatabaseError)


def test_the_rights_that_the_docs_name_are_enough(reader: str) -> None:
    """Tags are made and continued, worker ids taken, renewed and given back (processes.md)."""
    make_tables(reader)
    rights = "SELECT, INSERT, UPDATE"
    tables = "leaf_alloc, django_idgen_installation, django_idgen_namespace"
    role = connections.settings[reader]["USER"]
    execute(reader, f"GRANT {rights} ON {tables}, django_idgen_workerlease TO {role}")
    source, leases = ServerSource(alias=reader), ServerLeases(SHOP, alias=reader)
    assert [source.fetch("a").start for _ in range(2)] == [1, 1001]
    lease = leases.acquire(holder="a").lease
    lease = leases.renew(lease, last_tick=lease.start).lease
    assert leases.release(lease, last_tick=lease.start)


def test_no_connection_is_left_open(source: ServerSource) -> None:
    """Ten finished threads, and a failed fetch, leave none behind (hazards 33 and 47)."""
    at_once(10, lambda _: source.fetch("a"))
    execute(source.alias, "UPDATE leaf_alloc SET step = 0")
    with pytest.raises(SegmentUnavailable):
        source.fetch("a")
    assert sessions(source.alias) == 0


def test_the_loader_is_the_aliass_own(source: ServerSource) -> None:
    """All sources and registries of an alias share one thread and one connection."""
    assert source.loader is own_connection(source.alias).loader


def test_closing_and_abandoning_twice_is_harmless(source: ServerSource) -> None:
    """Both may be called at any time, and the source still works."""
    for _ in range(2):
        source.abandon()
        source.close()
    assert source.fetch("a").start == 1
