"""The ordinary life of a lease: taken, renewed, given back, expired."""

from __future__ import annotations

from dataclasses import replace

import pytest

from django_idgen.core.errors import ClockBeforeEpoch, LeaseLost, TimeExhausted
from django_idgen.db.connection import home_connection
from django_idgen.db.tables import missing_tables
from django_idgen.leases.server import MODELS, ServerLeases
from tests.leases.server.shop import (
    SHOP,
    WINDOW,
    Time,
    rows_of,
)


def test_tables_are_made_on_first_use(leases: ServerLeases) -> None:
    """A database that was never migrated lends a worker id at the first request."""
    assert leases.acquire(holder="a").lease.worker in SHOP.workers
    assert missing_tables(home_connection(leases.alias), MODELS) == []


def test_a_new_namespace_starts_without_a_fence(leases: ServerLeases, time: Time) -> None:
    """The first window of all begins now, in generation 1."""
    lease = leases.acquire(holder="a").lease
    assert (lease.start, lease.until, lease.generation) == (time.tick, time.tick + WINDOW, 1)


def test_the_reading_is_the_servers_clock(server_alias: str) -> None:
    """The reading comes from the database's clock, inside the round trip noted with it."""
    registry = ServerLeases(SHOP, alias=server_alias)
    first, second = registry.acquire(holder="a").reading, registry.acquire(holder="b").reading
    assert first.sent_ns <= first.received_ns <= second.sent_ns <= second.received_ns
    assert first.registry_us < second.registry_us


def test_renewal_moves_the_end_only(leases: ServerLeases, time: Time) -> None:
    """Token, start and worker id stay; the end is a window past now."""
    lease = leases.acquire(holder="a").lease
    time.tick += 400
    renewed = leases.renew(lease, last_tick=lease.start).lease
    assert renewed == replace(lease, until=time.tick + WINDOW)
    assert rows_of(leases).get().until == renewed.until


def test_renewal_never_lowers_the_mark(leases: ServerLeases, time: Time) -> None:
    """A registry clock that went back an hour leaves the mark where it was."""
    lease = leases.acquire(holder="a").lease
    time.tick -= 3_600_000 // 4
    assert leases.renew(lease, last_tick=lease.start).lease.until == lease.until


def test_renewal_needs_the_very_lease(leases: ServerLeases) -> None:
    """Another token, start, generation or worker id is another lease."""
    lease = leases.acquire(holder="a").lease
    for other in (
        replace(lease, token="0" * 32),
        replace(lease, token=""),
        replace(lease, start=lease.start + 1),
        replace(lease, generation=2),
        replace(lease, worker=(lease.worker + 1) % 64),
    ):
        with pytest.raises(LeaseLost):
            leases.renew(other, last_tick=lease.start)
    leases.renew(lease, last_tick=lease.start)


def test_release_leaves_the_mark_past_the_last_tick(leases: ServerLeases, time: Time) -> None:
    """The next holder starts after the last tick that was loaded, and not at the old end."""
    lease = leases.acquire(holder="a").lease
    assert leases.release(lease, last_tick=lease.start + 7)
    again = leases.acquire(holder="a").lease
    assert (again.worker, again.start) == (lease.worker, lease.start + 8)
    assert again.token != lease.token


def test_release_of_an_unused_lease_gives_all_of_it_back(leases: ServerLeases) -> None:
    """Where no tick was loaded the next window starts where this one did."""
    lease = leases.acquire(holder="a").lease
    assert leases.release(lease, last_tick=None)
    assert leases.acquire(holder="a").lease.start == lease.start


def test_a_late_or_second_release_frees_nothing(leases: ServerLeases) -> None:
    """Once the worker id is somebody else's, the old token does nothing to it."""
    lease = leases.acquire(holder="a").lease
    assert leases.release(lease, last_tick=lease.start)
    assert not leases.release(lease, last_tick=lease.start)
    newer = leases.acquire(holder="a").lease
    assert not leases.release(lease, last_tick=None)
    assert rows_of(leases).get().token == newer.token


def test_an_expired_worker_id_is_lent_after_the_old_window(
    leases: ServerLeases, time: Time
) -> None:
    """A holder that expired has lost its lease, and the new window lies after its own."""
    lease = leases.acquire(holder="a").lease
    time.tick = lease.until
    taken = leases.acquire(holder="a").lease
    assert taken.worker == lease.worker
    assert taken.start >= lease.until
    with pytest.raises(LeaseLost):
        leases.renew(lease, last_tick=lease.start)


def test_a_window_starts_where_the_caller_can_use_it(leases: ServerLeases, time: Time) -> None:
    """``not_before`` puts the start off, so that the caller's ids go on rising."""
    lease = leases.acquire(holder="a", not_before=time.tick + 30).lease
    assert lease.start == time.tick + 30


def test_time_outside_the_layout_is_refused(leases: ServerLeases, time: Time) -> None:
    """Before the epoch, and past the last tick, there is no window; nothing is stored."""
    time.tick = -5
    with pytest.raises(ClockBeforeEpoch):
        leases.acquire(holder="a")
    time.tick = SHOP.max_ticks
    with pytest.raises(TimeExhausted):
        leases.acquire(holder="a")
    assert not rows_of(leases).exists()
