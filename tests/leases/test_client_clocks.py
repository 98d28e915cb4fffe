"""Hazard 12: a worker id is lent by the server's clock, whatever the clients' clocks say."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections

from django_idgen.core.layout import parse_layout
from django_idgen.db.redis_client import raw_client
from django_idgen.models import NamespaceRecord
from tests import servers
from tests.leases import wrong_clock
from tests.server_tools import ROOT, make_tables
from tests.tiers import long

HOUR_US = 3_600_000_000
LAYOUT = parse_layout("standard")


@pytest.fixture(params=["postgres", *long("mariadb"), "redis"])
def place(request: pytest.FixtureRequest) -> dict[str, str]:
    """Where the worker ids are lent: a database server, or Redis with PostgreSQL as its root."""
    database = request.getfixturevalue("postgres" if request.param == "redis" else request.param)
    make_tables(database)
    found = {"database": database, "name": connections.settings[database]["NAME"]}
    if request.param == "redis":
        found |= {"redis": request.getfixturevalue("redis"), "url": servers.REDIS["redis"]}
    return found


@pytest.fixture
def prefix(place: dict[str, str]) -> Iterator[str]:
    """What the names of the test's namespaces begin with."""
    name = f"clocks-{secrets.token_hex(4)}"
    yield name
    if "redis" in place:
        client = raw_client(place["redis"])
        for key in client.scan_iter(f"django_idgen:*{name}*"):
            client.delete(key)
        client.connection_pool.disconnect()
        client.close()


def at_another_time(hours: int, place: dict[str, str], prefix: str) -> dict[str, Any]:
    """What became of a process whose wall clock is so many hours ahead."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.leases.wrong_clock", json.dumps([hours, place, prefix])],
        cwd=ROOT,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"},
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=True,
    )
    return dict(json.loads(done.stdout))


def is_now(moment_us: int) -> bool:
    return abs(moment_us - time.time_ns() // 1000) < HOUR_US


def is_now_in_ticks(tick: int) -> bool:
    return is_now(LAYOUT.epoch_us + tick * LAYOUT.tick_us)


@pytest.mark.parametrize("hours", [5, *long(-5)])
def test_the_servers_clock_decides(place: dict[str, str], prefix: str, hours: int) -> None:
    """Hazard 12: a host five hours off takes no live worker id, and gets each that has expired.

    Its windows, its stamps and the fence after a loss are at the server's time, too; and it
    renews for others those that live, and no others.
    """
    ours = {
        name: wrong_clock.registry_in(place, space)
        for name, space in wrong_clock.spaces(prefix).items()
    }
    held = {name: ours[name].acquire(holder="here").lease for name in ("held", "lost", "lapsed")}
    records = NamespaceRecord.objects.using(place["database"])
    records.filter(pk=f"{prefix}-lost").update(server="another server")

    wait_for(ours["lapsed"], held["lapsed"].until)
    theirs = at_another_time(hours, place, prefix)

    # As far off as it was meant to be: or nothing would be shown here.
    assert is_now(theirs["wall_us"] - hours * HOUR_US)
    assert all(map(is_now, [*theirs["now_us"].values(), *theirs["read_us"]]))
    assert theirs["renewed"]["held"] == 1
    assert theirs["renewed"]["fresh"] == theirs["renewed"]["lapsed"] == 0
    assert theirs["granted"]["held"] == []
    for name in ("fresh", "lost", "lapsed"):
        granted, renewed = theirs["granted"][name]
        assert all(map(is_now, (granted["registry_us"], renewed["registry_us"])))
        assert is_now_in_ticks(granted["start"])
        assert is_now_in_ticks(renewed["until"])
    assert theirs["granted"]["lapsed"][0]["start"] >= held["lapsed"].until
    if "redis" not in place:
        # Nobody knows what the lost server had promised: at most a window, by its own clock.
        fence = theirs["granted"]["lost"][0]["start"]
        assert fence >= held["lost"].until + ours["lost"].namespace.skew_ticks
    assert is_now_in_ticks(theirs["id"] >> 22)
    for name, registry in ours.items():
        survey = registry.inspect()
        assert is_now(survey.now_us)
        for inspected in survey.marks:
            off = 0 if inspected.mark.holder == "here" else hours * HOUR_US
            assert is_now(inspected.seen_us)
            if name != "fresh":  # given back: Redis keeps no more of it
                assert is_now(inspected.acquired_us)
                assert is_now(survey.now_us + inspected.offset_us - off)
    record = records.get(pk=f"{prefix}-fresh")
    assert record.largest_window * 1000 < HOUR_US
    for registry in ours.values():
        registry.close()


def wait_for(registry: Any, tick: int) -> None:
    """Come back once the registry's time is past ``tick``."""
    while registry.namespace.tick_at(registry.inspect().now_us) < tick:
        time.sleep(0.02)
