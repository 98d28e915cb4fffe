"""The registry in ZooKeeper keeps the contract, whichever database remembers for it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from django_idgen.core.lease import Namespace
from django_idgen.core.registry import Registry
from django_idgen.leases.zookeeper import ZooKeeperLeases
from tests.places import empty_sqlite
from tests.zookeeper_servers import ZooKeeper

from .elsewhere import zookeeper_leases
from .lease_contract import LeaseContract
from .lenders import Lender


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
            timeout=30,
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
        name = connections.settings[self.database]["NAME"]
        return partial(zookeeper_leases, self.server.hosts, self.database, name, namespace)


class TestZooKeeperLeasesOverPostgres(LeaseContract):
    examples = 4
    measures_clocks = True

    @pytest.fixture
    def _backing(self, zookeeper: ZooKeeper, postgres: str) -> None:
        self.server, self.database = zookeeper, postgres

    @contextmanager
    def new_lender(self) -> Iterator[Lender]:
        yield ZooKeeperLender(self.server, self.database)


@pytest.mark.long
class TestZooKeeperLeasesOverMemory(LeaseContract):
    examples = 8
    measures_clocks = True
    shared_by_processes = False

    @pytest.fixture
    def _backing(self, zookeeper: ZooKeeper, django_db_blocker: Any) -> Iterator[None]:
        self.server = zookeeper
        with django_db_blocker.unblock(), empty_sqlite(Path(":memory:")):
            yield

    @contextmanager
    def new_lender(self) -> Iterator[Lender]:
        lender = ZooKeeperLender(self.server, "default")
        lender.elsewhere = partial(Lender.elsewhere, lender)  # type: ignore[method-assign]
        yield lender
