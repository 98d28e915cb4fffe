"""Real failovers: a replica that missed the last commits is promoted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from django.db import connections

from django_idgen.core.clock import SYSTEM_CLOCK
from django_idgen.core.errors import LeaseLost
from django_idgen.core.lease import Lease
from django_idgen.db import dialects
from django_idgen.testing.contracts import Claims
from tests.faults.failover import mariadb_pair as maria
from tests.leases.server.shop import SHOP, SKEW, ServerLeases
from tests.own_servers import pointing_at
from tests.private_postgres import PostgresServer, postgres_farm
from tests.server_tools import execute

LIMIT = 60
pytestmark = pytest.mark.long


@pytest.fixture
def pair() -> Iterator[tuple[PostgresServer, PostgresServer]]:
    """A primary, and a replica that has all of its commits so far."""
    with postgres_farm() as farm:
        primary = farm.server()
        yield primary, farm.replica(primary)


def eventually(query: str, alias: str) -> None:
    deadline = SYSTEM_CLOCK.stopwatch() + LIMIT
    while execute(alias, query) != [(True,)]:
        assert SYSTEM_CLOCK.stopwatch() < deadline, query
        SYSTEM_CLOCK.sleep(0.05)


def lend_unseen(leases: ServerLeases, held: list[Lease]) -> list[Lease]:
    """What the replica misses: longer windows, a worker id that changes hands, and newcomers.

    The windows that were promised, but for the one that was given back.
    """
    windows = [leases.renew(lease, last_tick=lease.start + SKEW).lease for lease in held]
    leases.release(windows[0], last_tick=windows[0].start)
    return windows[1:] + [leases.acquire(holder=f"newcomer {n}").lease for n in range(6)]


def first_use(alias: str) -> list[Lease]:
    """Of another namespace."""
    unseen = ServerLeases(replace(SHOP, name="unseen"), alias=alias)
    return [unseen.acquire(holder=str(number)).lease for number in SHOP.workers]


def check_promoted(
    leases: ServerLeases, identity: str, windows: list[Lease], first: list[Lease]
) -> None:
    """All is lent anew, past whatever the lost primary may have promised."""
    # At once, before any checkpoint has told PostgreSQL's control file of the new timeline.
    assert dialects.server_identity(connections[leases.alias]) != identity
    after = [leases.acquire(holder=f"later {number}").lease for number in SHOP.workers]
    for lease in windows:
        with pytest.raises(LeaseLost):
            leases.renew(lease, last_tick=lease.start)
    assert {lease.generation for lease in after} == {2}
    assert min(lease.start for lease in after) >= max(lease.until for lease in windows)
    for leased in (windows + after, first + first_use(leases.alias)):
        claims = Claims()
        for lease in leased:
            claims.granted(lease)
        claims.check()


def test_what_the_replica_missed_is_not_lent_again(
    pair: tuple[PostgresServer, PostgresServer], postgres: str
) -> None:
    """I1, L7, hazards 17, 52 and 59: the windows before and after never overlap."""
    primary, replica = pair
    leases = ServerLeases(SHOP, alias=postgres)
    with pointing_at(primary, postgres):
        held = [leases.acquire(holder=str(number)).lease for number in range(6)]
        identity = dialects.server_identity(connections[postgres])
        (position,) = execute(postgres, "SELECT pg_current_wal_lsn()::text")[0]
    with pointing_at(replica, postgres):
        eventually(f"SELECT pg_last_wal_replay_lsn() >= '{position}'", postgres)
        execute(postgres, "ALTER SYSTEM SET primary_conninfo = ''")
        execute(postgres, "SELECT pg_reload_conf()")
        eventually("SELECT count(*) = 0 FROM pg_stat_wal_receiver", postgres)
    with pointing_at(primary, postgres):
        windows, first = lend_unseen(leases, held), first_use(postgres)
    primary.stop()
    replica.promote()
    with pointing_at(replica, postgres):
        check_promoted(leases, identity, windows, first)


def test_what_a_replica_of_mariadb_missed_is_not_lent_again(mariadb: str) -> None:
    """I1, L7, hazards 17, 52 and 59, on a real pair."""
    leases = ServerLeases(SHOP, alias=mariadb)
    with maria.mariadb_pair(mariadb) as (primary, replica):
        with maria.pointing_at(primary, mariadb):
            held = [leases.acquire(holder=str(number)).lease for number in range(6)]
            identity = dialects.server_identity(connections[mariadb])
        maria.follow_up(primary, replica, mariadb)
        with maria.pointing_at(primary, mariadb):
            windows, first = lend_unseen(leases, held), first_use(mariadb)
        primary.kill()
        maria.promote(replica, mariadb)
        with maria.pointing_at(replica, mariadb):
            check_promoted(leases, identity, windows, first)
