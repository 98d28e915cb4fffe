"""What the checks say of a Redis that django_idgen relies on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import run_checks
from django.test import override_settings

from tests import warm
from tests.redis_servers import RedisFarm, cache_alias, redis_farm

REDIS = "django_redis.cache.RedisCache"
LEASES = {"BACKEND": "django_idgen.leases.redis.RedisLeases", "OPTIONS": {"alias": "ids"}}
CHECKPOINTED = "django_idgen.leases.checkpointed.CheckpointedLeases"


@pytest.fixture
def farm() -> Iterator[RedisFarm]:
    with redis_farm() as farm:
        yield farm


def entry(location: Any) -> dict[str, Any]:
    return {"BACKEND": REDIS, "LOCATION": location}


def said(identity: str, caches: dict[str, Any], leases: dict[str, Any]) -> list[str]:
    idgen = {"GENERATORS": {"default": {"LEASES": leases}}}
    with override_settings(CACHES=caches, IDGEN=idgen):
        return [found.msg for found in run_checks(tags=["caches"]) if found.id == identity]


@pytest.fixture
def caches() -> dict[str, Any]:
    return {"default": entry("redis://127.0.0.1:1/0"), "ids": entry("redis://127.0.0.1:1/1")}


def test_an_alias_of_its_own_is_well(caches: dict[str, Any]) -> None:
    """A Redis database that nothing else uses is what the check asks for."""
    assert said("django_idgen.W005", caches, LEASES) == []


def test_an_alias_that_is_the_default_cache_is_named(caches: dict[str, Any]) -> None:
    """``cache.clear()`` would empty it."""
    (message,) = said("django_idgen.W005", caches, {**LEASES, "OPTIONS": {}})
    assert "CACHES['default']" in message
    assert "default cache" in message


def test_a_place_is_one_place_for_every_user(caches: dict[str, Any]) -> None:
    """Two aliases of it are named, whoever logs in, and however the address is written."""
    for location in (
        "redis://127.0.0.1:1/1",
        "redis://ids:secret@127.0.0.1:1/1",
        "rediss://127.0.0.1:1?db=1",
        ["redis://127.0.0.2:1/1", "redis://:secret@127.0.0.1:1/1"],
        "redis://127.0.0.2:1/1,redis://127.0.0.1:1/1",
    ):
        caches["sessions"] = entry(location)
        (message,) = said("django_idgen.W005", caches, LEASES)
        assert "the same Redis database as CACHES['sessions']" in message


def test_another_place_is_none_of_its_business(caches: dict[str, Any]) -> None:
    """Another database, another server, and a cache that is no Redis."""
    for location in (
        "redis://127.0.0.1:1/2",
        "redis://127.0.0.1:1/2,redis://127.0.0.2:1/2",
        "redis://ids@127.0.0.1:2/1",
        "unix:///a?db=1",
        "/tmp/cache",
        Path("/tmp/cache"),
    ):
        caches["sessions"] = entry(location)
        assert said("django_idgen.W005", caches, LEASES) == []


def test_a_registry_within_another_is_found(caches: dict[str, Any]) -> None:
    """As that of a host's checkpoints."""
    caches["ids"] = caches["default"]
    leases = {"BACKEND": CHECKPOINTED, "OPTIONS": {"directory": "/tmp", "registry": LEASES}}
    assert len(said("django_idgen.W005", caches, leases)) == 1


def test_without_redis_nothing_is_said(caches: dict[str, Any]) -> None:
    """A project whose worker ids come from its database may use its caches as it likes."""
    assert said("django_idgen.W005", caches, {}) == []


def said_of_eviction(location: str, databases: list[str] | None) -> list[str]:
    idgen = {"GENERATORS": {"default": {"LEASES": LEASES}}}
    with cache_alias("ids", location), override_settings(IDGEN=idgen):
        # Since Django 6.1 all databases are meant where none is named, but for what has a tag.
        tags = None if databases is None else ["database"]
        found = run_checks(tags=tags, databases=databases)
    return [one.msg for one in found if one.id == "django_idgen.W006"]


@pytest.mark.parametrize(
    ("policy", "memory", "warned"),
    [("allkeys-lru", "10mb", True), ("noeviction", "10mb", False), ("allkeys-lru", "0", False)],
)
def test_a_server_that_evicts_is_named(
    farm: RedisFarm, django_db_blocker: Any, policy: str, memory: str, warned: bool
) -> None:
    """Once its memory is full, it would drop worker ids as if they were cached pages."""
    server = farm.server(maxmemory_policy=policy, maxmemory=memory)
    with django_db_blocker.unblock():
        messages = said_of_eviction(server.url, ["default"])
    assert [policy in message for message in messages] == [True] * warned


def test_manage_check_warns_of_both(farm: RedisFarm, tmp_path: Path) -> None:
    """In a process of its own, which has imported nothing of Redis before its checks run."""
    server = farm.server(maxmemory_policy="allkeys-lru", maxmemory="10mb")
    code = f"""
from django.conf import settings
settings.configure(
    INSTALLED_APPS=["django_idgen"],
    DATABASES={{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": "{tmp_path}/db"}}}},
    CACHES={{name: {entry(server.url)!r} for name in ("default", "ids")}},
    IDGEN={{"GENERATORS": {{"default": {{"LEASES": {LEASES!r}}}}}}},
)
from django.core.management import execute_from_command_line
execute_from_command_line(["manage.py", "check", "--database", "default"])
"""
    done = warm.run(["-c", code], cwd=warm.FOLDER)
    assert re.findall(r"django_idgen\.(\w+)", done.stderr) == ["W005", "W006"], done.stderr


def test_a_server_is_only_asked_where_databases_are(farm: RedisFarm) -> None:
    """A plain ``check`` opens no connection."""
    server = farm.server(maxmemory_policy="allkeys-lru", maxmemory="10mb")
    assert said_of_eviction(server.url, None) == []


def test_a_dead_server_fails_no_check(django_db_blocker: Any) -> None:
    """Whoever needs it will say so."""
    with django_db_blocker.unblock():
        assert said_of_eviction("redis://127.0.0.1:1/0", ["default"]) == []
