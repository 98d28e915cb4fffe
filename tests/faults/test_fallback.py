"""Redis lends the worker ids, and the database while it is away: real outages under load."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from django_idgen.core.layout import parse_layout
from tests.redis_servers import RedisServer, redis_farm
from tests.tiers import LONG

from .diaries import assert_no_repeats, latest, written
from .processes import Running, Site, database_settings

CHILDREN = 4
LAYOUT = parse_layout("standard", epoch=None)
REDIS_RANGE = range(768)
DATABASE_RANGE = range(768, 1024)
WINDOW = 20.0 if LONG else 1.0
RETRY_AFTER = 5.0 if LONG else 0.5
OUTAGES = {"stopped": 600.0, "hung": 60.0, "emptied": 60.0} if LONG else {}
"""Seconds, at least, after all have gone over to the database; a second unless told."""
PAUSE = 0.05 if LONG else 0.005
NURSERY = f"""
from functools import partial
from tests.faults.site.nursery import Nursery, take
nursery = Nursery("diaries", {CHILDREN}, partial(take, tag="orders", pause={PAUSE}))
nursery.wait_for("leave")
nursery.kill_all()
"""


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    """A Redis that keeps its data on disk."""
    with redis_farm() as farm:
        yield farm.server(appendonly="yes", appendfsync="always")


@pytest.fixture
def fallback_site(postgres: str, redis_server: RedisServer, tmp_path: Path) -> Site:
    """A site whose worker ids come from Redis, and meanwhile from PostgreSQL."""
    site = Site(tmp_path, database_settings(postgres), postgres)
    site.environment["DJANGO_SETTINGS_MODULE"] = "tests.faults.site.redis_settings"
    caches = {"idgen": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": redis_server.url}}
    site.environment["SITE_CACHES"] = json.dumps(caches)
    redis_leases = {
        "BACKEND": "django_idgen.leases.redis.RedisLeases",
        "OPTIONS": {"alias": "idgen", "timeout": 1.0},
    }
    options = {"primary": redis_leases, "window": WINDOW, "retry_after": RETRY_AFTER}
    leases = {"BACKEND": "django_idgen.leases.fallback.FallbackLeases", "OPTIONS": options}
    site.set_idgen(
        {
            "GENERATORS": {"default": {"LEASES": leases}},
            "SEGMENTS": {"OPTIONS": {"timeout": 30}},
        }
    )
    return site


@pytest.mark.parametrize("how", ["stopped", "hung", "emptied"])
def test_ids_go_on_without_redis(fallback_site: Site, redis_server: RedisServer, how: str) -> None:
    """All go over to the database's worker ids when their windows are over, and come back.

    No call fails, and no id comes twice: over all processes, before, during and after.
    """
    site = fallback_site
    with site.python(NURSERY) as nursery:
        wait_for_range(nursery, site, REDIS_RANGE)
        gone = time.monotonic()
        redis_server.pause() if how == "hung" else redis_server.kill()
        wait_for_range(nursery, site, DATABASE_RANGE)
        over = time.monotonic()
        nursery.wait_until(lambda: time.monotonic() > over + OUTAGES.get(how, 1.0))
        wait_for_range(nursery, site, DATABASE_RANGE)
        back = time.monotonic()
        bring_back(redis_server, how)
        wait_for_range(nursery, site, REDIS_RANGE)
        home = time.monotonic()
        (site.directory / "leave").touch()
        assert nursery.finish() == 0, nursery.output
    diaries = site.directory / "diaries"
    counts = [assert_no_repeats(written(diaries, kind)) for kind in ("snowflake", "segment")]
    slowest = max((took for diary in written(diaries, "slow") for took in diary), default=0)
    print(
        f"Redis {how} for {back - gone:.1f} s: {counts[0]} snowflakes of {CHILDREN} processes; "
        f"all were on the database's after {over - gone:.1f} s, and on Redis' again after "
        f"{home - back:.1f} s; the slowest call took {slowest / 1e9:.2f} s"
    )
    assert sum(map(len, written(diaries, "refused"))) == 0


def bring_back(server: RedisServer, how: str) -> None:
    if how == "hung":
        server.resume()
    elif how == "stopped":
        server.start()
    else:
        server.restart_empty()


def wait_for_range(nursery: Running, site: Site, workers: range) -> None:
    """Come back once each of the children has taken more ids, of such worker ids."""
    diaries = site.directory / "diaries"
    before = dict(latest(diaries, "snowflake"))

    def all_do() -> bool:
        ids = dict(latest(diaries, "snowflake"))
        return len(ids) == CHILDREN and all(
            value > before.get(child, 0) and LAYOUT.unpack(value).worker in workers
            for child, value in ids.items()
        )

    nursery.wait_until(all_do)
