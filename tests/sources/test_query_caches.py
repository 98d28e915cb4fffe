"""Packages that answer queries out of a cache stand beside us (hazard 98)."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from django_idgen.contrib.sharding import ShardedSource
from tests.faults.processes import Site, database_settings
from tests.redis_servers import redis_farm
from tests.tiers import long
from tests.zookeeper_servers import ZooKeeper

TURNS = 4
STEP = 10
LEASES = "django_idgen.leases"


def sources(of: str) -> dict[str, Any]:
    """``IDGEN["SEGMENTS"]`` with each fetch of one step, so that each turn is a fetch."""
    databases = ["default", "another"] if of == "sharded" else "default"
    name = "databases" if of == "sharded" else "database"
    source: dict[str, Any] = {"OPTIONS": {name: databases}}
    if of == "sharded":
        source["BACKEND"] = f"{ShardedSource.__module__}.{ShardedSource.__name__}"
    if of == "pool":
        options = {"alias": "idgen", "timeout": 20, "source": source}
        source = {"BACKEND": "django_idgen.sources.pool.PoolSource", "OPTIONS": options}
    return {"SOURCE": source, "OPTIONS": {"default_step": STEP, "longest_step": 1}}


def registries(zookeeper: ZooKeeper, namespace: str) -> dict[str, Any]:
    """``IDGEN["GENERATORS"]``: a generator on each registry that has marks in the database."""
    options: dict[str, dict[str, Any]] = {
        "database.DatabaseLeases": {},
        "disposable.DisposableLeases": {},
        "redis.RedisLeases": {"alias": "idgen"},
        "zookeeper.ZooKeeperLeases": {"hosts": zookeeper.hosts},
    }
    return {
        name.rpartition(".")[2]: {
            "NAMESPACE": f"{namespace}-{number}",
            "LEASES": {"BACKEND": f"{LEASES}.{name}", "OPTIONS": {"timeout": 20, **given}},
        }
        for number, (name, given) in enumerate(options.items())
    }


@pytest.mark.parametrize("package", ["cachalot", *long("cacheops")])
@pytest.mark.parametrize(
    ("alias", "source"),
    [
        ("postgres", "database"),
        ("postgres", "pool"),
        ("postgres", "sharded"),
        ("mariadb", "database"),
    ],
)
@pytest.mark.parametrize("processes", [2, *long(4)])
def test_no_grant_comes_out_of_a_cache(
    processes: int,
    alias: str,
    source: str,
    package: str,
    another: str,
    zookeeper: ZooKeeper,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """I1: segments, sequences of the database and leases, of processes that take turns."""
    request.getfixturevalue(alias)
    site = Site(tmp_path, database_settings(alias), alias)
    databases = {"default": site.database, "another": database_settings(another)}
    with redis_farm() as farm:
        where = farm.server().url.rpartition("/")[0]
        caches = {
            alias: {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": f"{where}/{number}"}
            for number, alias in enumerate(("default", "idgen"))
        }
        site.environment.update(
            DJANGO_SETTINGS_MODULE="tests.faults.site.caching_settings",
            SITE_CACHES=json.dumps(caches),
            SITE_DATABASES=json.dumps(databases),
            SITE_NATIVE="1" if source == "database" else "0",
            SITE_QUERY_CACHE=package,
            SITE_QUERY_CACHE_REDIS=f"{where}/2",
        )
        site.set_idgen(
            {"SEGMENTS": sources(source), "GENERATORS": registries(zookeeper, tmp_path.name)}
        )
        argv = ("-W", "ignore", "-m", "tests.faults.site.in_turn", str(processes), str(TURNS))
        with site.start(sys.executable, *argv) as running:
            assert running.finish() == 0, running.output
    taken = site.journal()
    assert [entry["error"] for entry in taken if "error" in entry] == []
    assert len(taken) == processes * TURNS
    by_kind: dict[str, list[int]] = defaultdict(list)
    for entry in taken:
        for kind, ids in entry.items():
            by_kind[kind] += ids
    for kind, ids in by_kind.items():
        assert len(set(ids)) == len(ids), kind
    if source == "database":
        # No grant was lost, either: they came one after another.
        assert sorted(by_kind["tag"]) == list(range(1, processes * TURNS * STEP + 1))
