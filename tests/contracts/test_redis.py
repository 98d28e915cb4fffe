"""The registry in Redis keeps the contract, whichever database remembers for it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from django_idgen.core.lease import Namespace
from django_idgen.core.registry import Registry
from django_idgen.db.connection import Place, place_of
from django_idgen.db.redis_client import raw_client
from django_idgen.leases.redis.registry import RedisLeases
from tests import servers
from tests.tiers import long

from .elsewhere import redis_leases
from .lease_contract import LeaseContract
from .lenders import PATIENT, Lender, shared_name


class RedisLender(Lender):
    def __init__(self, alias: str, database: str) -> None:
        super().__init__(f"contract-{secrets.token_hex(4)}")
        self.alias = alias
        self.database = database

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

    def crash(self, registry: Registry) -> None:
        """A dead process says nothing to Redis; what it holds expires."""

    def elsewhere(self, namespace: Namespace) -> Callable[[], Registry]:
        name = shared_name(self.database)
        return partial(redis_leases, servers.REDIS["redis"], self.database, name, namespace)

    def close(self) -> None:
        super().close()
        client = raw_client(self.alias)
        for key in client.scan_iter(f"django_idgen:{{*:{self.namespace.name}}}"):
            client.delete(key)
        client.close()


@pytest.mark.parametrize(
    "database", ["sqlite", *long("postgres", "memory")], indirect=True, scope="class"
)
class TestRedisLeases(LeaseContract):
    examples = 8
    measures_clocks = True

    @pytest.fixture
    def _backing(self, redis: str, database: str) -> None:
        self.alias, self.database = redis, database
        self.shared_by_processes = place_of(database) is not Place.MEMORY

    @contextmanager
    def new_lender(self) -> Iterator[Lender]:
        yield RedisLender(self.alias, self.database)
