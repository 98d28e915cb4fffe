"""The registry in Redis keeps the contract, whichever database remembers for it."""

from __future__ import annotations

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
from django_idgen.db.redis_client import raw_client
from django_idgen.leases.redis.registry import RedisLeases
from tests import servers
from tests.places import empty_sqlite

from .elsewhere import redis_leases
from .lease_contract import LeaseContract
from .lenders import Lender


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
            timeout=30,
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
        name = connections.settings[self.database]["NAME"]
        return partial(redis_leases, servers.REDIS["redis"], self.database, name, namespace)

    def close(self) -> None:
        super().close()
        client = raw_client(self.alias)
        for key in client.scan_iter(f"django_idgen:{{*:{self.namespace.name}}}"):
            client.delete(key)
        client.close()


class TestRedisLeasesOverPostgres(LeaseContract):
    examples = 6
    measures_clocks = True

    @pytest.fixture
    def _backing(self, redis: str, postgres: str) -> None:
        self.alias, self.database = redis, postgres

    @contextmanager
    def new_lender(self) -> Iterator[Lender]:
        yield RedisLender(self.alias, self.database)


@pytest.mark.long
class TestRedisLeasesOverSqlite(LeaseContract):
    examples = 8
    measures_clocks = True

    @pytest.fixture
    def _backing(self, redis: str, tmp_path: Path, django_db_blocker: Any) -> Iterator[None]:
        self.alias = redis
        with django_db_blocker.unblock(), empty_sqlite(tmp_path / "shop.sqlite3"):
            yield

    @contextmanager
    def new_lender(self) -> Iterator[Lender]:
        yield RedisLender(self.alias, "default")


@pytest.mark.long
class TestRedisLeasesOverMemory(LeaseContract):
    measures_clocks = True
    shared_by_processes = False

    @pytest.fixture
    def _backing(self, redis: str, django_db_blocker: Any) -> Iterator[None]:
        self.alias = redis
        with django_db_blocker.unblock(), empty_sqlite(Path(":memory:")):
            yield

    @contextmanager
    def new_lender(self) -> Iterator[Lender]:
        lender = RedisLender(self.alias, "default")
        lender.elsewhere = partial(Lender.elsewhere, lender)  # type: ignore[method-assign]
        yield lender
