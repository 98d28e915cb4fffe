"""What each operation on a database server costs: statements, and the locks that it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connections, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_idgen.core.book import Book
from django_idgen.core.clock import Reading
from django_idgen.core.lease import Lease, Mark, Namespace
from django_idgen.db import dialects
from django_idgen.db.connection import OwnConnection
from django_idgen.leases.memory import MemoryBook, MemoryMarks
from django_idgen.models import Installation, NamespaceRecord, WorkerLease
from tests.leases.server.shop import EPOCH_US, SHOP, WINDOW, ServerLeases, Time
from tests.server_tools import execute

TICK = 1_000_000
"""The tick that the clock stands at."""
LOCKING = "FOR UPDATE"


class Counted:
    """A registry on PostgreSQL whose statements are seen; its clock costs none, by default."""

    def __init__(self, alias: str, namespace: Namespace = SHOP, **options: Any) -> None:
        self.own = OwnConnection(alias)
        self.time = Time(TICK)
        options.setdefault("read_now", self.time)
        self.registry = ServerLeases(namespace, alias=alias, own=self.own, **options)

    def statements(self, call: Callable[[], object]) -> list[str]:
        seen: list[str] = []
        self.time.tick += 1

        def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
            seen.append(sql)
            return execute(sql, params, many, context)

        def job(connection: Any) -> None:
            with connection.execute_wrapper(note):
                call()

        self.own.run(job, timeout=60)
        return [sql for sql in seen if not sql.startswith(("SAVEPOINT", "RELEASE", "SET"))]


@pytest.fixture
def shop(postgres: str) -> Counted:
    """A registry that has lent before: tables and record are there."""
    made = Counted(postgres)
    made.registry.acquire(holder="first")
    return made


def test_no_operation_takes_more_statements_than_it_needs(shop: Counted) -> None:
    """The record is opened by three: installation, record, server."""
    registry, leases = shop.registry, []

    def acquire() -> None:
        leases.append(registry.acquire(holder="a").lease)

    counts = {"acquire, new": len(shop.statements(acquire))}
    registry.release(leases[0], last_tick=None)
    counts["acquire, again"] = len(shop.statements(acquire))
    lease = leases[1]
    for name, call in {
        "renew": lambda: registry.renew(lease, last_tick=lease.start),
        "renew_seen": lambda: registry.renew_seen(idle_after=60),
        "inspect": registry.inspect,
        "release": lambda: registry.release(lease, last_tick=None),
    }.items():
        counts[name] = len(shop.statements(call))
    acquire()
    counts["free"] = len(shop.statements(lambda: registry.free(lease.worker)))
    assert counts == {
        "acquire, new": 8,
        "acquire, again": 6,
        "renew": 6,
        "renew_seen": 6,
        "inspect": 3,
        "release": 2,
        "free": 3,
    }


def test_the_clock_of_the_database_costs_a_statement_only_where_no_look_is_taken(
    postgres: str,
) -> None:
    """A lend and a renewal ask for it with the server's identity; a release asks for it alone."""
    shop = Counted(postgres, read_now=dialects.now_us)
    shop.registry.acquire(holder="first")
    leases = []

    def acquire() -> None:
        leases.append(shop.registry.acquire(holder="a").lease)

    def asking(call: Callable[[], object]) -> list[bool]:
        """For each statement that asks for the clock, whether that is all that it asks for."""
        seen = shop.statements(call)
        return ["installation" not in sql for sql in seen if "clock_timestamp" in sql]

    assert asking(acquire) == [False]
    lease = leases[0]
    assert asking(lambda: shop.registry.renew(lease, last_tick=lease.start)) == [False]
    assert asking(lambda: shop.registry.release(lease, last_tick=None)) == [True]


def test_what_lends_locks_the_record_and_what_gives_back_does_not(shop: Counted) -> None:
    """A fleet that ends at once must not stand in line for one row."""
    registry = shop.registry
    lease = registry.acquire(holder="a").lease

    def locks(call: Callable[[], object]) -> bool:
        return any(LOCKING in sql for sql in shop.statements(call))

    assert locks(lambda: registry.acquire(holder="b"))
    assert locks(lambda: registry.renew(lease, last_tick=lease.start))
    assert locks(lambda: registry.renew_seen(idle_after=60))
    assert not locks(registry.inspect)
    assert not locks(lambda: registry.release(lease, last_tick=None))
    other = registry.acquire(holder="c").lease
    assert not locks(lambda: registry.free(other.worker))


@pytest.mark.parametrize("limit", [3, 64], ids=["more than are searched", "few"])
def test_a_host_gets_the_worker_id_back_that_it_had_last(
    shop: Counted, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many it had, and though others of its processes still hold some."""
    monkeypatch.setattr("django_idgen.leases.server.PREVIOUS_LIMIT", limit)
    registry = shop.registry
    had = [registry.acquire(holder=f"web-1:{n} shop").lease for n in range(8)]
    other = registry.acquire(holder="web-10:1 shop").lease
    for number in (5, 1, 6, 3):
        shop.time.tick += 1
        registry.release(had[number], last_tick=None)
    shop.time.tick += WINDOW  # so that each is free in time
    registry.renew(had[7], last_tick=had[7].start)
    registry.release(other, last_tick=None)
    again = registry.acquire(holder="web-1:9 shop").lease
    assert again.worker == had[3].worker


def test_a_release_does_not_wait_for_the_record(shop: Counted, postgres: str) -> None:
    """Nor does freeing by hand, while another transaction holds the record's lock."""
    registry = shop.registry
    first, second = (registry.acquire(holder=name).lease for name in "ab")
    with transaction.atomic(using=postgres):
        NamespaceRecord.objects.using(postgres).select_for_update().get(pk="shop")
        assert registry.release(first, last_tick=None) is True
        assert registry.free(second.worker) is True
    connections[postgres].close()


def test_a_start_with_a_new_worker_id_looks_at_no_row(postgres: str) -> None:
    """Of four million that were used, none is counted: the record knows the next one."""
    shop = Counted(postgres, replace(SHOP, unused="only", workers=range(2**22)))
    shop.registry.acquire(holder="first")
    seen = shop.statements(lambda: shop.registry.acquire(holder="second"))
    assert len(seen) == 5
    assert not [sql for sql in seen if "django_idgen_workerlease" in sql and "INSERT" not in sql]


@pytest.mark.parametrize("left", [0, 1], ids=["all were lent", "one was never lent"])
def test_a_large_namespace_takes_no_more_statements(
    postgres: str, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """65,536 worker ids are scanned with as many as 1024, where no random try helps."""
    monkeypatch.setattr("django_idgen.core.book.RANDOM_TRIES", 0)
    counts = []
    for size in (1024, 65_536):
        fingerprint = {"workers": [0, size]}
        space = replace(SHOP, name=f"s{size}", workers=range(size), fingerprint=fingerprint)
        shop = Counted(postgres, space)
        shop.registry.acquire(holder="first")
        fill(postgres, space, size - left)
        counts.append(len(shop.statements(lambda shop=shop: shop.registry.acquire(holder="me"))))
    assert counts[0] == counts[1]


def fill(alias: str, space: Namespace, count: int) -> None:
    """All but the last worker id of ``count`` are held; the last one's window is over."""
    table, name, last = WorkerLease._meta.db_table, space.name, count - 1
    execute(alias, f"DELETE FROM {table} WHERE namespace = '{name}'")
    execute(
        alias,
        f"INSERT INTO {table} (id, namespace, worker, token, start, until, generation, holder, "
        f"acquired_at, seen_at, protocol) SELECT '{name}/' || n, '{name}', n, "
        f"CASE n WHEN {last} THEN '' ELSE 't' END, 0, "
        f"CASE n WHEN {last} THEN 1 ELSE {TICK + WINDOW} END, 1, 'h' || n, now(), now(), 1 "
        f"FROM generate_series(0, {last}) AS n",
    )
    NamespaceRecord.objects.using(alias).filter(pk=name).update(workers_made=count)
    connections[alias].close()


def row_of(namespace: str, mark: Mark, seen_us: int = 0) -> WorkerLease:
    seen = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=seen_us)
    return WorkerLease(
        id=WorkerLease.key_of(namespace, mark.worker),
        namespace=namespace,
        worker=mark.worker,
        token=mark.token,
        start=mark.start,
        until=mark.until,
        generation=mark.generation,
        holder=mark.holder,
        acquired_at=seen,
        seen_at=seen,
        protocol=1,
    )


NOW_US = EPOCH_US + TICK * SHOP.tick_us
near = st.integers(TICK - 3 * WINDOW, TICK + 3 * WINDOW)
marks = st.builds(
    lambda token, start, length, generation, holder, seen: (
        Mark(0, token, start, start + length, generation, holder),
        NOW_US - seen,
    ),
    token=st.sampled_from(["", "t"]),
    start=near,
    length=st.integers(0, 3 * WINDOW),
    generation=st.sampled_from([1, 2]),
    holder=st.sampled_from(["web-1:1 x", "cosid a", "h"]),
    seen=st.integers(0, 200_000_000),
)
books = st.lists(marks, min_size=1, max_size=8).map(
    lambda found: [(replace(mark, worker=n), seen) for n, (mark, seen) in enumerate(found)]
)
rarely = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def pure(found: list[tuple[Mark, int]]) -> MemoryBook:
    """The same marks in memory, where the rules are applied one by one."""
    book = MemoryBook(MemoryMarks())
    for mark, seen_us in found:
        book.read_at = Reading(seen_us, 0, 0)
        book.save_renewed(mark)
    book.read_at = Reading(NOW_US, 0, 0)
    return book


def written(shop: Counted, alias: str, found: list[tuple[Mark, int]]) -> None:
    rows = WorkerLease.objects.using(alias)
    rows.filter(namespace="shop").delete()
    rows.bulk_create([row_of("shop", *each) for each in found])
    NamespaceRecord.objects.using(alias).filter(pk="shop").update(generation=2)


def stored(book: Book) -> dict[int, Mark]:
    return {seen.mark.worker: seen.mark for seen in book.inspected()}


@rarely
@given(found=books, idle_us=st.integers(0, 200_000_000))
def test_the_bulk_renewal_in_sql_is_the_rule(
    shop: Counted, postgres: str, found: list[tuple[Mark, int]], idle_us: int
) -> None:
    """One statement over all rows does what the pure function does to each."""
    written(shop, postgres, found)
    asked = {"now": TICK, "since_us": NOW_US - idle_us, "generation": 2}
    expected = pure(found)
    count, highest = expected.extend_seen(SHOP, **asked)

    def job(book: Book) -> tuple[tuple[int, int], dict[int, Mark]]:
        return book.extend_seen(SHOP, **asked), stored(book)

    (counted, reached), after = shop.registry.store.run(job)
    assert (counted, after) == (count, stored(expected))
    assert not count or reached == highest


@rarely
@given(found=books, last=st.none() | near, pick=st.integers(0, 7), off=st.sampled_from([0, 0, 1]))
def test_a_release_in_sql_is_the_rule(
    shop: Counted,
    postgres: str,
    found: list[tuple[Mark, int]],
    last: int | None,
    pick: int,
    off: int,
) -> None:
    """One statement without a lock does what the pure function does."""
    written(shop, postgres, found)
    mark = found[pick % len(found)][0]
    lease = Lease("shop", mark.worker, mark.token or "u", mark.start + off, 0, mark.generation)
    expected = pure(found)
    record = shop.registry.store.run(lambda book: book.record())
    assert record is not None
    expected.save_record(record)
    known = expected.take_back(lease, last_tick=last)

    def job(book: Book) -> tuple[bool, dict[int, Mark]]:
        return book.take_back(lease, last_tick=last), stored(book)

    assert shop.registry.store.run(job) == (known, stored(expected))
    assert Installation.objects.using(postgres).count() == 1
