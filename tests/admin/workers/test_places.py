"""The map of a generator's worker ids, on each kind of database."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_idgen import generators, next_id
from django_idgen.core import book
from django_idgen.core.errors import WorkerOutOfRange
from django_idgen.core.inspection import WorkerState, name_of
from django_idgen.models import WorkerLease
from django_idgen.ops.workers import release_worker, who_held, worker_map
from django_idgen.process import maps
from tests.leases.server.shop import SHOP, ServerLeases
from tests.places import place
from tests.server_tools import execute_apart

__all__ = ["place"]


def test_of_a_held_worker_id_the_map_tells_all(place: str) -> None:
    """Who holds it, since when, until when; and that all the others are free."""
    next_id()
    worker = generators["default"].keeper.lease.worker  # type: ignore[attr-defined]
    found = worker_map("default")
    (entry,) = found.entries.values()
    assert entry.worker == worker
    assert entry.state is found.state(worker) is WorkerState.HELD
    assert entry.holder
    assert entry.acquired_at == entry.seen_at
    assert entry.until is not None
    assert entry.acquired_at is not None
    lent = entry.until - entry.acquired_at  # to the tick
    assert timedelta(seconds=179.999) <= lent <= timedelta(seconds=180)
    assert entry.window_left is not None
    assert 120 < entry.window_left <= 180
    assert entry.acquired_at <= found.read_at <= entry.until
    assert (found.kind, found.namespace, found.workers) == ("database", "default", range(1024))
    counts = found.counts()
    assert (counts[WorkerState.HELD], counts[WorkerState.FREE]) == (1, 1023)
    assert sum(counts.values()) == 1024


def test_what_was_given_back_is_free(place: str) -> None:
    """Its last holder is still told."""
    next_id()
    maps.reset()
    (entry,) = worker_map("default").entries.values()
    assert (entry.state, entry.window_left) == (WorkerState.FREE, None)
    assert entry.holder


def test_whose_ids_are_of_a_lease(place: str) -> None:
    """From its first tick to the end of what was promised, and nobody's before or after."""
    next_id()
    lease = generators["default"].keeper.lease  # type: ignore[attr-defined]
    held = who_held("default", lease.worker, lease.start)
    assert held is not None
    entry = worker_map("default").entries[lease.worker]
    assert (held.mark.holder, held.acquired_at) == (entry.holder, entry.acquired_at)
    assert who_held("default", lease.worker, lease.until - 1) == held
    assert who_held("default", lease.worker, lease.until) is None
    assert who_held("default", lease.worker, lease.start - 1) is None
    assert who_held("default", (lease.worker + 1) % 1024, lease.start) is None


def test_releasing_by_hand(place: str) -> None:
    """It frees the worker id once, and the end of its window stays."""
    next_id()
    lease = generators["default"].keeper.lease  # type: ignore[attr-defined]
    before = worker_map("default").entries[lease.worker]
    assert release_worker("default", lease.worker) is True
    assert release_worker("default", lease.worker) is False
    after = worker_map("default").entries[lease.worker]
    assert (after.state, after.until) == (WorkerState.FREE, before.until)
    with pytest.raises(WorkerOutOfRange):
        release_worker("default", 1024)


def test_releasing_the_lease_that_was_seen(place: str) -> None:
    """Whoever else has the worker id by now keeps it; the name of a lease lets nobody renew."""
    next_id()
    keeper = generators["default"].keeper  # type: ignore[attr-defined]
    (seen,) = worker_map("default").entries.values()
    assert keeper.lease.token not in seen.lease
    registry = keeper.registry
    assert registry.release(keeper.lease, last_tick=None)
    lease = registry.acquire(holder=seen.holder).lease
    assert lease.worker == seen.worker
    assert release_worker("default", seen.worker, seen.lease) is False
    assert registry.renew(lease, last_tick=lease.start)
    (now,) = worker_map("default").entries.values()
    assert (now.state, now.holder) == (WorkerState.HELD, seen.holder)
    assert now.lease != seen.lease
    assert release_worker("default", seen.worker, now.lease) is True
    assert worker_map("default").entries[seen.worker].lease == ""


def test_a_hand_over_between_look_and_change_is_not_undone(
    server_alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease that was compared is freed, or nobody's, also where that takes two statements."""
    registry = ServerLeases(SHOP, alias=server_alias)
    lease = registry.acquire(holder="a").lease
    statement = "UPDATE django_idgen_workerlease SET token = 'ab' WHERE token <> ''"

    def hand_over(token: str) -> str:
        execute_apart(server_alias, statement)
        return name_of(token)

    monkeypatch.setattr(book, "name_of", hand_over)
    overseen = registry
    assert overseen.free(lease.worker, name_of(lease.token)) is False
    assert WorkerLease.objects.using(server_alias).get().token == "ab"
    assert overseen.free(lease.worker) is True
    registry.close()
