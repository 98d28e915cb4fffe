"""The registry and the source on a database server keep the contracts."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import cycle

import pytest
from django.db import connections

from django_idgen.core.lease import Namespace
from django_idgen.core.registry import Registry
from django_idgen.core.source import Source
from django_idgen.db.connection import OwnConnection
from django_idgen.leases.server import ServerLeases
from django_idgen.models import LeafAlloc, WorkerLease
from django_idgen.sources.server import FAILOVER_SKIP, ServerSource
from tests.places import make_tables

from .elsewhere import server_leases
from .lease_contract import LeaseContract
from .lenders import Lender
from .source_contract import Shop, SourceContract

CONNECTIONS = 6
"""Over so many the registries of a test are spread, as over processes."""


class ServerLender(Lender):
    def __init__(self, alias: str) -> None:
        super().__init__(f"contract-{secrets.token_hex(4)}")
        self.alias = alias
        self._own = cycle([OwnConnection(alias) for _ in range(CONNECTIONS)])
        make_tables(alias)

    def make(self, namespace: Namespace) -> Registry:
        return ServerLeases(
            namespace,
            alias=self.alias,
            timeout=30,
            own=next(self._own),
            read_now=lambda connection: self.time.read(),
        )

    def forget(self) -> None:
        WorkerLease.objects.using(self.alias).filter(namespace=self.namespace.name).delete()

    def crash(self, registry: Registry) -> None:
        """A dead process says nothing to the server; what it holds expires."""

    def elsewhere(self, namespace: Namespace) -> Callable[[], Registry]:
        database = connections.settings[self.alias]["NAME"]
        return partial(server_leases, self.alias, database, namespace)


class TestServerLeases(LeaseContract):
    examples = 5
    measures_clocks = True

    @pytest.fixture
    def _backing(self, server_alias: str) -> None:
        self.alias = server_alias

    @contextmanager
    def new_lender(self) -> Iterator[Lender]:
        yield ServerLender(self.alias)


class ServerShop(Shop):
    failover_skip = FAILOVER_SKIP

    def __init__(self, alias: str) -> None:
        super().__init__()
        self.alias = alias
        self.tells_alike_tags_apart = connections[alias].vendor != "mysql"
        self._own = cycle([OwnConnection(alias) for _ in range(CONNECTIONS)])
        make_tables(alias)
        self.forget()

    def make(self, default_step: int) -> Source:
        return ServerSource(
            alias=self.alias, default_step=default_step, timeout=30, own=next(self._own)
        )

    def set_step(self, tag: str, step: int) -> None:
        LeafAlloc.objects.using(self.alias).filter(pk=tag).update(step=step)
        connections[self.alias].close()

    def forget(self) -> None:
        LeafAlloc.objects.using(self.alias).all().delete()

    def tags(self) -> list[str]:
        return sorted(LeafAlloc.objects.using(self.alias).values_list("pk", flat=True))


class TestServerSource(SourceContract):
    examples = 5

    @pytest.fixture
    def _backing(self, server_alias: str) -> None:
        self.alias = server_alias

    @contextmanager
    def new_shop(self) -> Iterator[Shop]:
        yield ServerShop(self.alias)
