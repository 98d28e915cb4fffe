"""Who held a worker id before: how long that is kept, and where it is not."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext

from django_idgen.core.lease import Lease
from django_idgen.core.registry import Registry
from django_idgen.leases import history as lease_history
from django_idgen.leases.server import ServerLeases
from django_idgen.models import LeaseHistory, WorkerLease
from tests.leases.server.shop import SHOP
from tests.places import make_tables

ONE = replace(SHOP, workers=range(1))


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
    past_lease = overseen.past_lease(0, leases[-5].start)
    assert past_lease is not None
    assert past_lease.holder == "h7"
    assert overseen.past_lease(0, leases[0].start) is None


def test_a_server_without_history_needs_no_table_of_it(server_alias: str) -> None:
    """With ``history=False`` none is made, and the present holder is still known."""
    registry = ServerLeases(ONE, alias=server_alias, history=False)
    first, second = lend(registry, 2)
    assert LeaseHistory._meta.db_table not in connections[server_alias].introspection.table_names()
    past_lease = registry.past_lease(0, second.start)
    assert past_lease is not None
    assert past_lease.holder == "h1"
    assert registry.past_lease(0, first.start) is None


def test_a_row_that_starts_where_the_one_before_did_replaces_it(server_alias: str) -> None:
    """Who gave a lease back unused has stamped nothing: the ids are the next one's."""
    registry = ServerLeases(ONE, alias=server_alias, read_now=lambda _: 1_800_000_000_000_000)
    first = registry.acquire(holder="unused").lease
    registry.release(first, last_tick=None)
    second = registry.acquire(holder="user").lease
    assert first.start == second.start
    registry.release(second, last_tick=second.start)
    registry.acquire(holder="later")
    past_lease = registry.past_lease(0, second.start)
    assert past_lease is not None
    assert past_lease.holder == "user"


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
    make_tables(server_alias)
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
