"""The map of worker ids that Redis lends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from django.test import override_settings

from django_idgen import generators, next_id
from django_idgen.core.errors import RegistryUnavailable
from django_idgen.core.inspection import WorkerState
from django_idgen.leases.redis import registry as redis_scripts
from django_idgen.models import NamespaceRecord
from django_idgen.ops.workers import release_worker, who_held, worker_map
from django_idgen.process import maps
from tests.places import empty_sqlite
from tests.redis_servers import RedisFarm, RedisServer, cache_alias, redis_farm
from tests.upkeep_tools import redis_leases_on


@pytest.fixture
def farm() -> Iterator[RedisFarm]:
    with redis_farm() as made:
        yield made


@pytest.fixture
def server(farm: RedisFarm) -> RedisServer:
    return farm.server()


@pytest.fixture
def database(postgres: str, server: RedisServer) -> Iterator[str]:
    """The root of a registry in a Redis of the test's own."""
    with (
        cache_alias("idgen", server.url) as alias,
        override_settings(IDGEN=redis_leases_on(alias, postgres, timeout=2)),
    ):
        yield postgres
        maps.reset()


def lease() -> Any:
    return generators["default"].keeper.lease  # type: ignore[attr-defined]


def test_before_the_first_lease_nothing_is_made(database: str, server: RedisServer) -> None:
    """Neither a table nor a key, by whoever looks, releases or asks who it was."""
    found = worker_map("default")
    assert (found.kind, dict(found.entries)) == ("redis", {})
    assert release_worker("default", 3) is False
    assert who_held("default", 3, 1) is None
    assert connections[database].introspection.table_names() == []
    assert server.run("DBSIZE") == 0


def test_a_lease_in_redis_is_told_with_its_clock(database: str) -> None:
    """As one in a database, and so is who holds it."""
    next_id()
    (entry,) = worker_map("default").entries.values()
    assert (entry.worker, entry.state, entry.registry) == (
        lease().worker,
        WorkerState.HELD,
        "redis",
    )
    assert entry.clock_offset is not None
    assert abs(entry.clock_offset) < 30  # one host's clock, but for a slow start
    assert entry.acquired_at == entry.seen_at
    held = who_held("default", lease().worker, lease().start)
    assert held is not None
    assert (held.mark.holder, held.acquired_at) == (entry.holder, entry.acquired_at)


def test_a_redis_that_is_away_is_said_to_be(
    database: str, server: RedisServer, farm: RedisFarm
) -> None:
    """By the map, by a release, and where the holder of an id is asked for."""
    next_id()
    held = lease()
    server.kill()
    with pytest.raises(RegistryUnavailable, match="did not answer"):
        worker_map("default")
    with pytest.raises(RegistryUnavailable, match="did not answer"):
        release_worker("default", held.worker)
    with pytest.raises(RegistryUnavailable, match="did not answer"):
        who_held("default", held.worker, held.start)


def test_an_older_life_of_redis_is_shown_as_expired(database: str, server: RedisServer) -> None:
    """Its holders can't renew; a hash that is gone has nothing to show; looking mends nothing."""
    next_id()
    (key,) = server.run("KEYS", "django_idgen:*")
    incarnation = server.run("HGET", key, "incarnation")
    server.run("HSET", key, "incarnation", b"another/" + incarnation)
    (entry,) = worker_map("default").entries.values()
    assert entry.state is WorkerState.EXPIRED
    assert entry.window_left is not None
    assert entry.window_left > 0
    assert release_worker("default", entry.worker) is False
    assert server.run("HGET", key, "incarnation") == b"another/" + incarnation
    server.run("FLUSHALL")
    assert worker_map("default").entries == {}
    assert release_worker("default", entry.worker) is False
    assert server.run("DBSIZE") == 0
    assert NamespaceRecord.objects.using(database).get().generation == 1


def test_marks_and_notes_that_are_garbled_are_passed_over(
    database: str, server: RedisServer
) -> None:
    """What can't be read is not shown, and the rest is."""
    next_id()
    worker = lease().worker
    (key,) = server.run("KEYS", "django_idgen:*")
    server.run("HSET", key, f"n:{worker}", "rubbish")
    (entry,) = worker_map("default").entries.values()
    assert (entry.clock_offset, entry.acquired_at) == (None, None)
    assert entry.state is WorkerState.HELD
    server.run("HSET", key, f"w:{worker}", "rubbish")
    assert worker_map("default").entries == {}


def test_over_a_sqlite_file_it_is_the_same(
    server: RedisServer, tmp_path: Path, django_db_blocker: Any
) -> None:
    """Only the last holder is known."""
    with (
        django_db_blocker.unblock(),
        empty_sqlite(tmp_path / "shop.sqlite3"),
        cache_alias("idgen", server.url) as alias,
        override_settings(IDGEN=redis_leases_on(alias, "default")),
    ):
        assert worker_map("default").entries == {}
        assert list(tmp_path.glob("*-idgen")) == []
        next_id()
        first = lease()
        maps.reset()
        next_id()
        (entry,) = worker_map("default").entries.values()
        assert entry.state is WorkerState.HELD
        held = who_held("default", first.worker, lease().start)
        assert held is not None
        assert held.mark.start == lease().start
        assert who_held("default", first.worker, first.start) is None
        maps.reset()


def test_a_large_map_is_asked_for_in_parts(database: str, server: RedisServer) -> None:
    """Redis does one thing at a time: nobody's renewal waits until thousands are told."""
    next_id()
    fill_up(server)
    before = scripts_run(server)
    found = worker_map("default")
    assert list(found.entries) == list(range(1024))
    assert found.entries[lease().worker].acquired_at is not None
    assert scripts_run(server) - before >= 3072 // redis_scripts.PART + 1
    assert found.counts()[WorkerState.HELD] == 1024
    before = scripts_run(server)
    assert who_held("default", 77, lease().start) is not None
    assert scripts_run(server) - before == 1


def fill_up(server: RedisServer) -> None:
    """Have all other worker ids lent, as our own is."""
    (key,) = server.run("KEYS", "*")
    own = lease()
    mark = server.run("HGET", key, f"w:{own.worker}").decode().rpartition(":")[0]
    note = server.run("HGET", key, f"n:{own.worker}").decode()
    words: list[str] = []
    for worker in set(range(1024)) - {own.worker}:
        words += [f"w:{worker}", f"{mark}:{worker}", f"h:{worker}", f"{worker}"]
        words += [f"n:{worker}", note]
    server.run("HSET", key, *words)
    server.run("HSET", key, "fields", server.run("HLEN", key))


def scripts_run(server: RedisServer) -> int:
    found = server.run("INFO", "commandstats")
    return sum(found.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("eval", "evalsha"))
