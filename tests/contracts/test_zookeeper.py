"""The registry in ZooKeeper keeps the contract, whichever database remembers for it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from django_idgen.core.lease import Namespace
from django_idgen.core.registry import Registry
from django_idgen.db.connection import Place, place_of
from django_idgen.leases.zookeeper import ZooKeeperLeases
from tests.tiers import long
from tests.zookeeper_servers import ZooKeeper

from .elsewhere import zookeeper_leases
from .lease_contract import LeaseContract
from .lenders import PATIENT, Lender, shared_name


class ZooKeeperLender(Lender):
    def __init__(self, server: ZooKeeper, database: str) -> None:
        super().__init__(f"contract-{secrets.token_hex(4)}")
        self.server = server
        self.database = database

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

    def crash(self, registry: Registry) -> None:
        """A dead process says nothing to ZooKeeper; what it holds expires."""

    def elsewhere(self, namespace: Namespace) -> Callable[[], Registry]:
        name = shared_name(self.database)
        return partial(zookeeper_leases, self.server.hosts, self.database, name, namespace)


@pytest.mark.parametrize(
    "database", ["sqlite", *long("postgres", "memory")], indirect=True, scope="class"
)
class TestZooKeeperLeases(LeaseContract):
    examples = 4
    measures_clocks = True

    @pytest.fixture
    def _backing(self, zookeeper: ZooKeeper, database: str) -> None:
        self.server, self.database = zookeeper, database
        self.shared_by_processes = place_of(database) is not Place.MEMORY

    @contextmanager
    def new_lender(self) -> Iterator[Lender]:
        yield ZooKeeperLender(self.server, self.database)
