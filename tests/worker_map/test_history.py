"""Who held a worker id before: how long that is kept, and where it is not."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext

from django_idgen.core.lease import Lease
from django_idgen.core.registry import Registry
from django_idgen.db.sqlite import marks_terms
from django_idgen.db.sqlite.marks import MarksFile
from django_idgen.db.tables import make_missing_tables
from django_idgen.leases import history as lease_history
from django_idgen.leases.server import ServerLeases
from django_idgen.leases.sqlite import SqliteLeases
from django_idgen.models import LeaseHistory, WorkerLease
from tests.contracts.lenders import DrivenTime
from tests.server_leases.shop import SHOP

ONE = replace(SHOP, workers=range(1))


@pytest.fixture
def marks(tmp_path: Path) -> MarksFile:
    return MarksFile(tmp_path / "shop.sqlite3-idgen")


def lend(registry: Registry, times: int) -> list[Lease]:
    """The leases of so many holders, one after the other."""
    leases = []
    for number in range(times):
        lease = registry.acquire(holder=f"h{number}").lease
        leases.append(lease)
        registry.release(lease, last_tick=lease.start)
    return leases


def test_a_server_keeps_about_the_newest_rows(
    server_alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each worker id, without anybody who prunes; of others all."""
    monkeypatch.setattr(lease_history, "MOST", 5)
    monkeypatch.setattr(lease_history, "ONE_IN", 1)
    other = replace(ONE, name="other")
    lend(ServerLeases(other, alias=server_alias), 3)
    registry = ServerLeases(ONE, alias=server_alias)
    leases = lend(registry, 12)
    rows = LeaseHistory.objects.using(server_alias)
    kept = rows.filter(namespace="shop").order_by("start").values_list("start", flat=True)
    assert list(kept) == [lease.start for lease in leases[-5:]]
    assert rows.filter(namespace="other").count() == 3
    overseen = registry
    tenure = overseen.past_lease(0, leases[-5].start)
    assert tenure is not None
    assert tenure.holder == "h7"
    assert overseen.past_lease(0, leases[0].start) is None


def test_a_file_keeps_the_newest_rows(marks: MarksFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a server does."""
    monkeypatch.setattr(marks_terms, "MOST", 5)
    registry = SqliteLeases(ONE, marks=marks)
    leases = lend(registry, 12)
    with closing(sqlite3.connect(marks.path)) as db:
        starts = [start for (start,) in db.execute("SELECT start FROM terms ORDER BY start")]
    assert starts == [lease.start for lease in leases[-5:]]


def test_a_server_without_history_needs_no_table_of_it(server_alias: str) -> None:
    """With ``history=False`` none is made, and the present holder is still known."""
    registry = ServerLeases(ONE, alias=server_alias, history=False)
    first, second = lend(registry, 2)
    assert LeaseHistory._meta.db_table not in connections[server_alias].introspection.table_names()
    tenure = registry.past_lease(0, second.start)
    assert tenure is not None
    assert tenure.holder == "h1"
    assert registry.past_lease(0, first.start) is None


def test_a_marks_file_of_the_version_before_is_taken_as_it_is(marks: MarksFile) -> None:
    """It has no such table: its holder is known from its mark, and the next one makes it."""
    old = SqliteLeases(ONE, marks=marks, history=False)
    (first,) = lend(old, 1)
    registry = SqliteLeases(ONE, marks=marks)
    tenure = registry.past_lease(0, first.start)
    assert tenure is not None
    assert (tenure.holder, tenure.acquired_at) == ("h0", None)
    (survey,) = registry.inspect()
    assert [sight.acquired_us for sight in survey.sights] == [None]
    assert marks.run(lambda db: marks_terms.drop_old(db, 2**62)) == 0
    (second,) = lend(registry, 1)
    tenure = registry.past_lease(0, second.start)
    assert tenure is not None
    assert tenure.acquired_at is not None
    # Whoever knows nothing of the table goes on with the file.
    (third,) = lend(old, 1)
    assert third.start > second.start


def test_pruning_a_file_keeps_who_has_a_worker_id_still(marks: MarksFile) -> None:
    """And who had it until lately."""
    time = DrivenTime()
    registry = SqliteLeases(ONE, marks=marks, read_now_us=time.read)
    first, second, third = (
        _lend_and_wait(registry, time),
        _lend_and_wait(registry, time),
        _lend_and_wait(registry, time),
    )
    lent_us = marks.run(lambda db: marks_terms.lent_at(db, "shop"))
    before = lent_us[0, second.start] + 1
    assert marks.run(lambda db: marks_terms.drop_old(db, before)) == 1
    assert marks.run(lambda db: set(marks_terms.lent_at(db, "shop"))) == {
        (0, second.start),
        (0, third.start),
    }
    assert registry.past_lease(0, first.start) is None
    assert marks.run(lambda db: marks_terms.drop_old(db, 2**62)) == 1


def _lend_and_wait(registry: SqliteLeases, time: DrivenTime) -> Lease:
    (lease,) = lend(registry, 1)
    time.pass_ticks(100)
    return lease


def test_a_row_that_starts_where_the_one_before_did_replaces_it(server_alias: str) -> None:
    """Who gave a lease back unused has stamped nothing: the ids are the next one's."""
    registry = ServerLeases(ONE, alias=server_alias, read_now=lambda _: 1_800_000_000_000_000)
    first = registry.acquire(holder="unused").lease
    registry.release(first, last_tick=None)
    second = registry.acquire(holder="user").lease
    assert first.start == second.start
    registry.release(second, last_tick=second.start)
    registry.acquire(holder="later")
    tenure = registry.past_lease(0, second.start)
    assert tenure is not None
    assert tenure.holder == "user"


def test_pruning_in_batches_deletes_all_that_is_old(server_alias: str) -> None:
    """In several transactions, each of which may be the last."""
    registry = ServerLeases(ONE, alias=server_alias)
    lend(registry, 9)
    LeaseHistory.objects.using(server_alias).update(acquired_at=datetime.now(UTC) - timedelta(9))
    lend(registry, 2)
    before = datetime.now(UTC) - timedelta(1)
    assert lease_history.prune_leases(before, database=server_alias, batch=3) == 8
    assert LeaseHistory.objects.using(server_alias).count() == 3
    assert WorkerLease.objects.using(server_alias).count() == 1


def test_a_year_of_a_fleet_is_pruned_without_a_subquery(server_alias: str) -> None:
    """Each row is looked at once: MariaDB would compare all with all others."""
    make_missing_tables(connections[server_alias])
    began = datetime.now(UTC) - timedelta(400)
    rows = LeaseHistory.objects.using(server_alias)
    for turn in range(100):
        rows.bulk_create(
            LeaseHistory(
                namespace="shop",
                worker=worker,
                start=turn,
                holder=f"{turn}",
                acquired_at=began + timedelta(turn),
            )
            for worker in range(256)
        )
    with CaptureQueriesContext(connections[server_alias]) as queries:
        pruned = lease_history.prune_leases(began + timedelta(90), database=server_alias)
    assert max(query["sql"].count("SELECT") for query in queries) == 1
    assert pruned == 256 * 89
    assert set(rows.values_list("start", flat=True)) == {*range(89, 100)}
