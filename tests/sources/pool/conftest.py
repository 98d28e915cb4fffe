from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from django_idgen.sources.pool.source import PoolSource
from tests.redis_servers import RedisFarm, RedisServer, cache_alias, redis_farm
from tests.sources.pool.shop import OwnedSource, pool

MakePool = Callable[..., PoolSource]


@pytest.fixture
def farm() -> Iterator[RedisFarm]:
    """Makes Redis servers of this test's own."""
    with redis_farm() as made:
        yield made


@pytest.fixture
def source() -> OwnedSource:
    """What stands behind the pool: it outlives every Redis."""
    return OwnedSource()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


@pytest.fixture
def on(stack: ExitStack, source: OwnedSource) -> Callable[..., PoolSource]:
    """``on(server)``: a process whose pool is in that Redis server."""

    def make(server: RedisServer | int, **options: Any) -> PoolSource:
        port = server if isinstance(server, int) else server.port
        location = f"redis://127.0.0.1:{port}/{options.pop('db', 0)}"
        alias = stack.enter_context(cache_alias(f"idgen-{port}", location))
        made = pool(alias, options.pop("source", source), **options)
        stack.callback(made.close)
        return made

    return make


@pytest.fixture
def process(redis: str, stack: ExitStack, source: OwnedSource) -> Callable[..., PoolSource]:
    """``process()``: one more process, whose pool is in the shared Redis."""

    def make(**options: Any) -> PoolSource:
        made = pool(redis, options.pop("source", source), **options)
        stack.callback(made.close)
        return made

    return make
