"""The registry and the source of databases keep the contracts, on servers and in a SQLite file.

So does a source with a pool before it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import cycle
from typing import TypeVar

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_idgen.core.lease import Namespace
from django_idgen.core.registry import Registry
from django_idgen.core.segment import STEP, Demand, Segment, check_step, check_tag
from django_idgen.core.source import Source
from django_idgen.db.connection import OwnConnection
from django_idgen.db.redis_client import raw_client
from django_idgen.models import Installation, LeafAlloc, NamespaceRecord, WorkerLease
from django_idgen.sources.redis_incr import RedisIncrSource
from django_idgen.sources.server import FAILOVER_SKIP, ServerSource
from django_idgen.testing.contracts import (
    WORKERS,
    FloorContract,
    LeaseContract,
    Lender,
    Shop,
    SourceContract,
)
from tests.leases.server.shop import ServerLeases
from tests.sources.pool.shop import OwnedSource, pool

from .elsewhere import server_leases
from .places import PATIENT, on

T = TypeVar("T")
CONNECTIONS = 6
"""Over so many the registries of a test are spread, as over processes."""


class Kept(OwnConnection):
    """Stays open from one operation to the next, as if there were always one that waits."""

    def __init__(self, alias: str) -> None:
        super().__init__(alias)
        self._thread = ThreadPoolExecutor(1, f"idgen-{alias}-kept")

    def run(self, job: Callable[[BaseDatabaseWrapper], T], *, timeout: float) -> T:
        if self.loader.inside:
            return self.call(job)
        name = str(connections.settings[self.alias]["NAME"])
        marked = partial(self.loader._marked, partial(self.call, job), name)
        return self._thread.submit(marked).result(timeout)

    def end(self) -> None:
        self._thread.submit(self._close)
        self._thread.shutdown()


class ServerLender(Lender):
    def __init__(self, alias: str) -> None:
        super().__init__(f"contract-{secrets.token_hex(4)}")
        self.alias = alias
        self._kept = [Kept(alias) for _ in range(CONNECTIONS)]
        self._own = cycle(self._kept)

    def make(self, namespace: Namespace) -> Registry:
        return ServerLeases(
            namespace,
            alias=self.alias,
            timeout=PATIENT,
            own=next(self._own),
            read_now=lambda connection: self.time.read(),
        )

    def forget(self) -> None:
        WorkerLease.objects.using(self.alias).filter(namespace=self.namespace.name).delete()

    def lose(self, how: int) -> None:
        name, rows = self.namespace.name, WorkerLease.objects.using(self.alias)
        if how % 3 == 0:
            self.forget()
        elif how % 3 == 1:
            rows.filter(namespace=name, worker=how % WORKERS).delete()
        else:
            records = NamespaceRecord.objects.using(self.alias).filter(pk=name)
            records.update(server="another server")

    def crash(self, registry: Registry) -> None:
        """A dead process says nothing to the server; what it holds expires."""

    def elsewhere(self, namespace: Namespace) -> Callable[[], Registry]:
        database = connections.settings[self.alias]["NAME"]
        return partial(server_leases, self.alias, database, namespace)

    def close(self) -> None:
        super().close()
        for own in self._kept:
            own.end()


@on("sqlite", "postgres", "mariadb")
class TestServerLeases(LeaseContract):
    examples = 5
    measures_clocks = True
    lends, needs = ServerLender, ("database",)


class ServerShop(Shop):
    failover_skip = FAILOVER_SKIP

    def __init__(self, alias: str) -> None:
        super().__init__()
        self.alias = alias
        self.tells_alike_tags_apart = connections[alias].vendor != "mysql"
        self._kept = [Kept(alias) for _ in range(CONNECTIONS)]
        self._own = cycle(self._kept)
        self.forget()
        # It knows the longest range that another test's sources were granted.
        Installation.objects.using(alias).update(largest_step=0)

    def make(self, default_step: int) -> Source:
        return ServerSource(
            alias=self.alias, default_step=default_step, timeout=PATIENT, own=next(self._own)
        )

    def set_step(self, tag: str, step: int) -> None:
        LeafAlloc.objects.using(self.alias).filter(pk=tag).update(step=step)
        connections[self.alias].close()

    def forget(self) -> None:
        LeafAlloc.objects.using(self.alias).all().delete()

    def tags(self) -> list[str]:
        return sorted(LeafAlloc.objects.using(self.alias).values_list("pk", flat=True))

    def close(self) -> None:
        super().close()
        for own in self._kept:
            own.end()


@on("sqlite", "postgres", "mariadb")
class TestServerSource(SourceContract):
    examples = 5
    fetches_from, needs = ServerShop, ("database",)


# --- with a pool before it --------------------------------------------------------------


class Rows(OwnedSource):
    """Keeps the step that a tag was made with, as a row does."""

    def fetch(self, tag: str, *, floor: int = 0, demand: Demand = STEP) -> Segment:
        self._steps.setdefault(check_tag(tag), self.default_step)
        return super().fetch(tag, floor=floor, demand=demand)


class PooledMemoryShop(Shop):
    def __init__(self, alias: str) -> None:
        super().__init__()
        self.alias = alias
        self.behind = Rows()

    def make(self, default_step: int) -> Source:
        self.behind.default_step = check_step(default_step)
        return pool(self.alias, self.behind)

    def set_step(self, tag: str, step: int) -> None:
        self.behind.set_step(tag, step)

    def forget(self) -> None:
        self.behind.flush()

    def lose(self) -> None:
        super().lose()
        forget_pool(self.alias, self.behind.whose)

    def tags(self) -> list[str]:
        return sorted(self.behind._max_ids)


class TestPoolOverMemory(SourceContract):
    examples = 15
    fetches_from, needs = PooledMemoryShop, ("redis",)


class PooledServerShop(ServerShop):
    before = staticmethod(pool)
    """Makes what stands before the rows."""

    def __init__(self, alias: str, cache: str) -> None:
        super().__init__(alias)
        self.cache = cache
        self.whose = OwnedSource().whose

    def make(self, default_step: int) -> Source:
        behind = super().make(default_step)
        behind.owner = lambda tag, *, max_age=0: self.whose  # type: ignore[method-assign]
        behind.can_be_pooled = True  # type: ignore[misc]
        return self.before(self.cache, behind)

    def lose(self) -> None:
        super().lose()
        forget_pool(self.cache, self.whose)


def forget_pool(alias: str, owner: str) -> None:
    """Delete the keys of a pool, as a flush does."""
    client = raw_client(alias)
    for key in client.scan_iter(f"*{{{owner}}}*"):
        client.delete(key)


@on("postgres")
class TestPoolOverServer(SourceContract):
    examples = 4
    fetches_from, needs = PooledServerShop, ("database", "redis")


def counter(alias: str, behind: Source) -> Source:
    return RedisIncrSource(alias=alias, source=behind, block=50, timeout=PATIENT)


class CountingShop(PooledServerShop):
    """Redis counts within blocks of the rows."""

    before = staticmethod(counter)


@on("postgres")
class TestRedisIncrOverServer(FloorContract):
    fetches_from, needs = CountingShop, ("database", "redis")

    def test_a_block_is_as_long_as_a_caller_needs(self, shop: Shop) -> None:
        """Else what Redis was given is left there, and the caller's ids come from the database."""
        source = shop.source()
        assert source.fetch("t", demand=Demand(at_least=120)).ids() == range(1, 121)
        assert source.stocks(["t"])["t"].ids == 0

    def test_ids_of_a_new_block_can_be_given_back(self, shop: Shop) -> None:
        """They are known to be of the life that the pool has now: no second question."""
        source = shop.source()
        source.fetch("t")
        assert source._fetched["t"].life == source.stocks(["t"])["t"].life != ""  # type: ignore[attr-defined]
