"""Hosts that are cut from one another, both ways and one, and healed, beside kills: no id twice.

Real servers on real networks. Once all reach all again, every process takes ids (I1, I2, I6).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tests.partitions.farm import (
    REDIS,
    SERVICE,
    WINDOW,
    ZOOKEEPER,
    Farm,
    leading_to,
    postgres_on,
    settings_of,
)
from tests.partitions.network import network
from tests.redis_servers import binary
from tests.soak.worker import SECRET
from tests.zookeeper_servers import JAR, MAIN, QUICK

pytestmark = pytest.mark.long
SECONDS = 30
LEASES = "django_idgen.leases"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def farm_on(stack: ExitStack, directory: Path, *hosts: str) -> Farm:
    made = stack.enter_context(network(*hosts))
    return stack.enter_context(closing(Farm(made, directory)))


def leases(backend: str = "database.DatabaseLeases", **options: Any) -> dict[str, Any]:
    return {
        "LEASES": {"BACKEND": f"{LEASES}.{backend}", "OPTIONS": {"window": WINDOW, **options}},
        "OPTIONS": {"max_ahead": 1},
    }


def segments(source: dict[str, Any] | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"OPTIONS": {"default_step": 200, "timeout": 2}}
    return found if source is None else {"SOURCE": source, **found}


def check(farm: Farm, pairs: list[tuple[str, str]], kinds: int) -> None:
    seed = random.randrange(10**6)
    print("seed", seed, farm.come_apart(pairs, SECONDS, random.Random(seed)))
    farm.all_take_ids(kinds)
    farm.end_workers()
    assert farm.written() > 10_000
    assert farm.repeats() == 0


def test_a_database_that_is_cut_off(stack: ExitStack, tmp_path: Path) -> None:
    """Leases and segments of a database, reached at once by one host and late by another."""
    farm = farm_on(stack, tmp_path, "db", "late", "one", "two")
    database = stack.enter_context(postgres_on(farm, "db"))
    farm.relay("late", 5432, "db", 0.3)
    idgen = {"GENERATORS": {"default": leases()}, "SEGMENTS": segments()}
    farm.migrate("one", settings_of(database, idgen))
    behind = leading_to(farm.network.address("late"))
    for number in range(2):
        farm.process(f"one{number}", "one", "worker", settings_of(database, idgen))
        farm.process(f"two{number}", "two", "worker", settings_of(behind, idgen))
    farm.process("upkeep", "one", "upkeep", settings_of(database, idgen))
    check(farm, [("one", "db"), ("two", "late"), ("late", "db")], kinds=3)


def test_a_primary_that_is_cut_off_goes_on_beside_the_promoted_replica(
    stack: ExitStack, tmp_path: Path
) -> None:
    """Some processes use the one Redis and some the other, and both ask one database (L6)."""
    binary()
    farm = farm_on(stack, tmp_path, "db", "old", "new", "one", "two")
    database = stack.enter_context(postgres_on(farm, "db"))
    for host in ("old", "new"):
        farm.redis(host)
    pool = {"BACKEND": "django_idgen.sources.pool.PoolSource", "OPTIONS": {"alias": "idgen"}}
    redis = leases("redis.RedisLeases", alias="idgen", timeout=1)
    idgen = {"GENERATORS": {"default": redis}, "SEGMENTS": segments(pool)}

    def settings(host: str) -> dict[str, Any]:
        location = f"redis://{farm.url(host, REDIS)}/0"
        cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": location}
        return settings_of(database, idgen, CACHES={"idgen": cache})

    def follow(host: str, primary: str) -> None:
        farm.ask_redis(host, "replicaof", farm.network.address(primary), str(REDIS))
        farm.eventually(
            lambda: "master_link_status:up" in farm.ask_redis(host, "info", "replication"),
            f"{host} follows {primary}",
        )

    follow("new", "old")
    farm.migrate("one", settings("old"))
    for host in ("one", "two"):
        for number in range(2):
            farm.process(f"{host}{number}", host, "worker", settings("old"))
    farm.process("upkeep", "one", "upkeep", settings("old"))
    farm.eventually(lambda: farm.written() > 2_000, "ids")
    for primary, replica in (("old", "new"), ("new", "old")):
        farm.network.cut(primary, replica)
        farm.network.cut(primary, "two")
        farm.eventually(lambda: farm.written() > 2_000, "ids")
        farm.ask_redis(replica, "replicaof", "no", "one")
        for number in range(2):  # on the side of the replica
            farm.restart(f"two{number}", settings(replica))
        pairs = [("one", primary), ("one", "db"), ("two", "db"), ("two", replica)]
        seed = random.randrange(10**6)
        print("seed", seed, farm.come_apart(pairs, SECONDS / 2, random.Random(seed)))
        follow(primary, replica)
        for name in (*farm.workers(), "upkeep"):
            farm.restart(name, settings(replica))
    farm.all_take_ids(kinds=3)
    farm.end_workers()
    assert farm.written() > 10_000
    assert farm.repeats() == 0


def test_an_ensemble_that_comes_apart(stack: ExitStack, tmp_path: Path) -> None:
    """Three servers of ZooKeeper, each with processes that reach it alone or all of them."""
    hosts = ("zk1", "zk2", "zk3")
    if not JAR.exists():
        pytest.skip("No ZooKeeper found. Install the package 'zookeeper' of Debian.")
    farm = farm_on(stack, tmp_path, "db", *hosts, "one", "two")
    database = stack.enter_context(postgres_on(farm, "db"))
    for number, host in enumerate(hosts, 1):
        data = tmp_path / host
        data.mkdir()
        (data / "myid").write_text(str(number))
        lines = {
            "tickTime": 300, "initLimit": 20, "syncLimit": 10, "dataDir": data,
            "clientPort": ZOOKEEPER, "admin.enableServer": "false", "maxClientCnxns": 0,
            **{
                f"server.{each}": f"{farm.network.address(name)}:2888:3888"
                for each, name in enumerate(hosts, 1)
            },
        }  # fmt: skip
        config = tmp_path / f"{host}.cfg"
        config.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        farm.start(host, host, "java", *QUICK, "-cp", JAR, MAIN, config)
    for host in hosts:
        farm.await_port(host, ZOOKEEPER)

    def settings(*of: str) -> dict[str, Any]:
        addresses = ",".join(farm.url(host, ZOOKEEPER) for host in of)
        registry = leases("zookeeper.ZooKeeperLeases", hosts=addresses, timeout=2)
        return settings_of(database, {"GENERATORS": {"default": registry}, "SEGMENTS": segments()})

    farm.migrate("one", settings(*hosts))
    farm.process("all", "one", "worker", settings(*hosts))
    for host in hosts:
        farm.process(f"of-{host}", "two", "worker", settings(host))
    farm.eventually(lambda: farm.written() > 2_000, "ids")
    pairs = [*zip(hosts, (*hosts[1:], hosts[0]), strict=True), ("one", "zk1"), ("two", "zk2")]
    check(farm, pairs, kinds=3)


def test_a_service_that_is_cut_off(stack: ExitStack, tmp_path: Path) -> None:
    """Clients of leases and segments over HTTP, through a relay that is late; and its database."""
    farm = farm_on(stack, tmp_path, "db", "service", "late", "one", "two")
    database = stack.enter_context(postgres_on(farm, "db"))
    served = {
        "GENERATORS": {"default": leases()},
        "SEGMENTS": segments(),
        "REST": {"make_tags": True, "max_leases": 500, "token_max_age": 0},
    }
    farm.migrate("service", settings_of(database, served))
    farm.process("service", "service", "service", settings_of(database, served))
    farm.await_port("service", SERVICE)
    farm.relay("late", SERVICE, "service", 0.3)

    def settings(host: str) -> dict[str, Any]:
        link = {"base_urls": f"http://{farm.url(host, SERVICE)}/idgen/", "token": SECRET}
        source = {"BACKEND": "django_idgen.sources.http.HttpSource", "OPTIONS": link}
        idgen = {
            "GENERATORS": {"default": leases("http.HttpLeases", **link)},
            "SEGMENTS": segments(source),
        }
        nowhere = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
        return settings_of(nowhere, idgen)

    for number in range(2):
        farm.process(f"one{number}", "one", "worker", settings("service"))
        farm.process(f"two{number}", "two", "worker", settings("late"))
    farm.eventually(lambda: farm.written() > 2_000, "ids")
    check(farm, [("one", "service"), ("two", "late"), ("late", "service"), ("service", "db")], 3)
