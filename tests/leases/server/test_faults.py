"""Many at once, locked rows, broken wires, and lost answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.db import DatabaseError, transaction

from django_idgen.core.book import change_sub_lease
from django_idgen.core.errors import LeaseLost, RegistryUnavailable
from django_idgen.core.lease import Lease
from django_idgen.db.connection import OwnConnection
from django_idgen.leases import server
from django_idgen.models import NamespaceRecord
from django_idgen.testing.contracts.lenders import at_once
from tests.leases.server.shop import (
    EPOCH_US,
    SHOP,
    WINDOW,
    ServerLeases,
    Time,
    changed,
    rows_of,
)
from tests.server_tools import (
    execute,
    kill_session_of,
    lossy_wire,
    sessions,
    unreachable,
)


def test_many_at_once_on_first_use(server_alias: str, time: Time) -> None:
    """Threads over a connection each, no tables yet: each gets a worker id of its own."""

    def job(number: int) -> Lease:
        own = OwnConnection(server_alias)
        registry = ServerLeases(SHOP, alias=server_alias, read_now=time, own=own, timeout=60)
        return registry.acquire(holder=f"{number}").lease

    got = at_once(len(SHOP.workers), job)
    assert sorted(lease.worker for lease in got) == list(SHOP.workers)
    assert len({lease.token for lease in got}) == len(got)
    assert {lease.generation for lease in got} == {1}
    assert {lease.start for lease in got} == {time.tick}


def test_a_grant_outlives_the_callers_rollback(leases: ServerLeases) -> None:
    """What is rolled back around it is the caller's; the lease stays lent, and unlocked."""
    leases.acquire(holder="0")
    with transaction.atomic(using=leases.alias):
        lease = leases.acquire(holder="a").lease
        transaction.set_rollback(True, using=leases.alias)
    assert leases.renew(lease, last_tick=lease.start).lease.token == lease.token


def test_a_locked_record_is_given_up_on(
    leases: ServerLeases, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody who holds the row costs us an error, and not the process."""
    leases.acquire(holder="a")
    hasty = ServerLeases(SHOP, alias=leases.alias, read_now=time, timeout=0.2)
    monkeypatch.setattr(server, "SOCKET_TIMEOUT", 3)  # of it the lock may take a second
    waiting = ServerLeases(SHOP, alias=leases.alias, read_now=time, timeout=60)
    with transaction.atomic(using=leases.alias):
        NamespaceRecord.objects.using(leases.alias).select_for_update().get(pk="shop")
        with pytest.raises(RegistryUnavailable, match=r"within 0\.2 s"):
            hasty.acquire(holder="b")
        with pytest.raises(RegistryUnavailable) as caught:
            waiting.acquire(holder="b")
    assert isinstance(caught.value.__cause__, DatabaseError)
    assert leases.acquire(holder="b").lease.worker in SHOP.workers


def test_a_killed_connection_recovers_by_itself(leases: ServerLeases, time: Time) -> None:
    """The call it hits fails without a grant, and the next one has a new connection."""
    leases.acquire(holder="a")

    def killing(connection: Any) -> int:
        kill_session_of(connection)
        return time(connection)

    with pytest.raises(RegistryUnavailable) as caught:
        changed(leases, killing).acquire(holder="b")
    assert caught.value.__cause__ is not None
    assert rows_of(leases).count() == 1
    assert leases.acquire(holder="b").lease.generation == 1


def test_an_operation_whose_answer_was_lost_is_not_repeated(leases: ServerLeases) -> None:
    """The commit went through and its answer didn't come: one row, one error, no second try."""
    leases.acquire(holder="a")
    with lossy_wire(leases.alias) as wire:
        wire.losing = True
        with pytest.raises(RegistryUnavailable):
            leases.acquire(holder="b")
        assert wire.sent == 1
    lost = rows_of(leases).exclude(holder="a").get()
    again = leases.acquire(holder="b").lease
    assert again.worker != lost.worker


def test_a_lost_renewal_can_be_asked_for_again(leases: ServerLeases, time: Time) -> None:
    """It moved the mark or it didn't; either way the holder goes on with what it was told."""
    lease = leases.acquire(holder="a").lease
    time.tick += 10
    with lossy_wire(leases.alias) as wire:
        wire.losing = True
        with pytest.raises(RegistryUnavailable):
            leases.renew(lease, last_tick=lease.start)
    assert rows_of(leases).get().until == time.tick + WINDOW
    assert leases.renew(lease, last_tick=lease.start).lease.until == time.tick + WINDOW


def test_a_server_that_is_down_is_named(leases: ServerLeases) -> None:
    """The error names the alias and chains what the driver said."""
    with (
        unreachable(leases.alias),
        pytest.raises(RegistryUnavailable, match=repr(leases.alias)) as caught,
    ):
        leases.acquire(holder="a")
    assert isinstance(caught.value.__cause__, DatabaseError)


def test_a_half_migrated_table_is_named(leases: ServerLeases) -> None:
    """A missing column leads to the command that adds it, and nothing is stored."""
    leases.acquire(holder="a")
    execute(leases.alias, "ALTER TABLE django_idgen_namespace DROP COLUMN fence")
    with pytest.raises(RegistryUnavailable, match=r"django_idgen_namespace\.fence.*migrate"):
        leases.acquire(holder="b")


def test_no_connection_is_left_open(server_alias: str) -> None:
    """After the last operation, the one that failed included, the server sees nobody."""
    registry = ServerLeases(SHOP, alias=server_alias)
    lease = registry.acquire(holder="a").lease
    registry.release(lease, last_tick=None)
    with pytest.raises(LeaseLost):
        registry.renew(lease, last_tick=lease.start)
    assert sessions(server_alias) == 0


def test_closing_and_abandoning_twice_is_harmless(leases: ServerLeases) -> None:
    """Both may be called at any time, and the registry still works."""
    for _ in range(2):
        leases.abandon()
        leases.close()
    assert leases.acquire(holder="a").lease.worker in SHOP.workers


WAITS = {
    "postgres": "SELECT setting::bigint / 1000 FROM pg_settings WHERE name = 'lock_timeout'",
    "mariadb": "SELECT @@innodb_lock_wait_timeout",
}


def test_a_fleet_that_starts_at_once_stands_in_line(server_alias: str) -> None:
    """Whoever lends, or asks for Redis, waits for the namespace's row as long as it may."""
    waits: list[int] = []

    def note(connection: Any) -> int:
        with connection.cursor() as cursor:
            cursor.execute(WAITS[server_alias])
            waits.append(int(cursor.fetchone()[0]))
        return EPOCH_US

    ServerLeases(SHOP, alias=server_alias, timeout=5, read_now=note).acquire(holder="a")
    lent = ServerLeases(replace(SHOP, name="lent"), alias=server_alias, timeout=5, read_now=note)
    lent.store.run(
        lambda book: change_sub_lease(book, lent.namespace, lambda lease: lease, stride=WINDOW)
    )
    assert set(waits) == {5}
