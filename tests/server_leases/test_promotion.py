"""A real failover: a PostgreSQL replica that missed the last commits is promoted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections

from django_idgen import vendor
from django_idgen.core.clock import SYSTEM_CLOCK
from django_idgen.core.errors import LeaseLost
from django_idgen.leases.server import ServerLeases
from tests.private_postgres import PostgresServer, pointing_at, postgres_farm
from tests.server_leases.shop import SHOP, SKEW, assert_disjoint
from tests.server_tools import execute

LIMIT = 60


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


def test_what_the_replica_missed_is_not_lent_again(
    pair: tuple[PostgresServer, PostgresServer], postgres: str
) -> None:
    """I1, L7, hazards 17, 52 and 59: the windows before and after never overlap."""
    primary, replica = pair
    leases: Any = ServerLeases(SHOP, alias=postgres)
    with pointing_at(primary, postgres):
        held = [leases.acquire(holder=str(number)).lease for number in range(8)]
        identity = vendor.server_identity(connections[postgres])
        (position,) = execute(postgres, "SELECT pg_current_wal_lsn()::text")[0]
    with pointing_at(replica, postgres):
        eventually(f"SELECT pg_last_wal_replay_lsn() >= '{position}'", postgres)
        execute(postgres, "ALTER SYSTEM SET primary_conninfo = ''")
        execute(postgres, "SELECT pg_reload_conf()")
        eventually("SELECT count(*) = 0 FROM pg_stat_wal_receiver", postgres)
    with pointing_at(primary, postgres):
        # From here on nothing reaches the replica: longer windows, a worker id that
        # changes hands, and newcomers.
        windows = [leases.renew(lease, last_tick=lease.start + SKEW).lease for lease in held]
        leases.release(windows[0], last_tick=windows[0].start)
        windows += [leases.acquire(holder=f"newcomer {number}").lease for number in range(8)]
    primary.stop()
    replica.promote()
    with pointing_at(replica, postgres):
        # At once, before any checkpoint has told the control file of the new timeline.
        assert vendor.server_identity(connections[postgres]) != identity
        after = [leases.acquire(holder=f"later {number}").lease for number in range(64)]
        for lease in windows:
            with pytest.raises(LeaseLost):
                leases.renew(lease, last_tick=lease.start)
    assert {lease.generation for lease in after} == {2}
    assert min(lease.start for lease in after) >= max(lease.until for lease in windows)
    spans = [(lease.worker, lease.start, lease.until) for lease in windows[1:] + after]
    assert_disjoint(spans)
