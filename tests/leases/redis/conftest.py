from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.leases.redis.fleet import Fleet
from tests.redis_servers import RedisFarm, cache_alias, redis_farm


@pytest.fixture
def farm() -> Iterator[RedisFarm]:
    """Makes Redis servers of this test's own."""
    with redis_farm() as made:
        yield made


@pytest.fixture
def fleet(farm: RedisFarm, postgres: str) -> Iterator[Fleet]:
    """Holders on a Redis of this test's own (``farm.first``), with PostgreSQL as its root."""
    farm.first = farm.server()
    with cache_alias("idgen", farm.first.url) as alias:
        made = Fleet(alias, postgres)
        yield made
        made.close()
