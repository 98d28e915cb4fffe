"""Registries that can forget keep the contract, whichever database remembers for them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from functools import partial

from django_idgen.core.lease import Namespace
from django_idgen.core.registry import Registry
from django_idgen.db.connection import Place, place_of
from django_idgen.db.redis_client import raw_client
from django_idgen.leases.redis.registry import RedisLeases
from django_idgen.leases.zookeeper import ZooKeeperLeases
from django_idgen.testing.contracts import LeaseContract, Lender
from tests import servers
from tests.tiers import long
from tests.zookeeper_servers import ZooKeeper

from .elsewhere import redis_leases, zookeeper_leases
from .places import PATIENT, on, shared_name


class RootedLender(Lender):
    """Processes of a registry whose root is a database."""

    def __init__(self, database: str) -> None:
        super().__init__(f"contract-{secrets.token_hex(4)}")
        self.database = database

    def crash(self, registry: Registry) -> None:
        """A dead process says nothing to the registry; what it holds expires."""


class RootedContract(LeaseContract):
    measures_clocks = True

    @property
    def shared_by_processes(self) -> bool:  # type: ignore[override]
        database, *_ = self.backing
        return place_of(database) is not Place.MEMORY


class RedisLender(RootedLender):
    def __init__(self, database: str, alias: str) -> None:
        super().__init__(database)
        self.alias = alias

    def make(self, namespace: Namespace) -> Registry:
        return RedisLeases(
            namespace,
            alias=self.alias,
            database=self.database,
            timeout=PATIENT,
            read_now_us=self.time.read,
        )

    def forget(self) -> None:
        """Delete the field of every worker id, as somebody with redis-cli might."""
        client = raw_client(self.alias)
        for key in client.scan_iter(f"django_idgen:{{*:{self.namespace.name}}}"):
            fields = [field for field in client.hkeys(key) if field.startswith(b"w:")]
            if fields:
                client.hdel(key, *fields)
        client.close()

    def elsewhere(self, namespace: Namespace) -> Callable[[], Registry]:
        name = shared_name(self.database)
        return partial(redis_leases, servers.REDIS["redis"], self.database, name, namespace)

    def close(self) -> None:
        super().close()
        client = raw_client(self.alias)
        for key in client.scan_iter(f"django_idgen:{{*:{self.namespace.name}}}"):
            client.delete(key)
        client.close()


@on("sqlite", *long("postgres", "memory"))
class TestRedisLeases(RootedContract):
    examples = 8
    lends, needs = RedisLender, ("database", "redis")


class ZooKeeperLender(RootedLender):
    def __init__(self, database: str, server: ZooKeeper) -> None:
        super().__init__(database)
        self.server = server

    def make(self, namespace: Namespace) -> Registry:
        return ZooKeeperLeases(
            namespace,
            hosts=self.server.hosts,
            database=self.database,
            timeout=PATIENT,
            read_now_us=self.time.read,
        )

    def forget(self) -> None:
        """Take the mark of every worker id out of the node, as somebody with a client might."""
        with self.server.client() as client:
            for installation in client.get_children("/django_idgen"):
                path = f"/django_idgen/{installation}/{self.namespace.name}"
                if client.exists(path):
                    words = json.loads(client.get(path)[0]) | {"workers": {}}
                    client.set(path, json.dumps(words).encode())

    def elsewhere(self, namespace: Namespace) -> Callable[[], Registry]:
        name = shared_name(self.database)
        return partial(zookeeper_leases, self.server.hosts, self.database, name, namespace)


@on("sqlite", *long("postgres", "memory"))
class TestZooKeeperLeases(RootedContract):
    examples = 4
    lends, needs = ZooKeeperLender, ("database", "zookeeper")
