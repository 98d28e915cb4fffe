"""What many of these tests use: databases, and a Redis of a test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contrib.sharding.conftest import _shards, shards
from tests.places import empty_sqlite, place
from tests.redis_servers import RedisFarm, redis_farm

__all__ = ["_shards", "place", "shards"]


@pytest.fixture
def file(tmp_path: Path, django_db_blocker: Any) -> Iterator[str]:
    """The alias of an empty SQLite file."""
    with django_db_blocker.unblock(), empty_sqlite(tmp_path / "db.sqlite3") as alias:
        yield alias


@pytest.fixture
def farm() -> Iterator[RedisFarm]:
    with redis_farm() as made:
        yield made
