from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace

import pytest

from django_idgen.core.lease import Namespace
from django_idgen.leases.zookeeper import ZooKeeperLeases
from tests.leases.redis.fleet import Fleet, new_space
from tests.tiers import LONG
from tests.zookeeper_servers import ZooKeeper


class ZooKeeperFleet(Fleet):
    """Holders on the ZooKeeper whose hosts are the fleet's ``alias``."""

    size, early = 12, 1

    def registry(self, alias: str | None = None, **options: object) -> ZooKeeperLeases:  # type: ignore[override]
        given = {"timeout": 10.0 if LONG else 5.0, "read_now_us": self.time.read, **options}
        return ZooKeeperLeases(
            self.space,
            hosts=alias or self.alias,
            database=self.database,
            **given,  # type: ignore[arg-type]
        )


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    """What kazoo leaves open goes before another test runs."""
    yield
    gc.collect()


@pytest.fixture
def server(zookeeper: ZooKeeper) -> Iterator[ZooKeeper]:
    """The ZooKeeper of this worker, which a test may kill: it is there again for the next one."""
    yield zookeeper
    if not zookeeper.runs:
        zookeeper.start()


@pytest.fixture
def fleet(server: ZooKeeper, postgres: str) -> Iterator[Fleet]:
    """Holders on ``server``, with PostgreSQL as its root."""
    made = ZooKeeperFleet(server.hosts, postgres, space=zookeeper_space())
    yield made
    made.close()


def zookeeper_space() -> Namespace:
    """A namespace of the test's own."""
    space = new_space()
    return replace(space, fingerprint={**space.fingerprint, "registry": "zookeeper"})
