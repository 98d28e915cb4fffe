"""W005, W006: the settings of the Redis that lends worker ids or keeps the pool.

A loss in Redis is noticed and repeats no id. But each loss costs a piece of the id space,
and ids are stamped ahead of time for a while. Both checks say how to lose less.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Warning  # noqa: A004

from ..core.errors import ConfigurationError
from ..settings.config import BackendSettings, SettingsError, nested_leases, read_settings

USERS = ("django_idgen.leases.redis.RedisLeases", "django_idgen.sources.pool.PoolSource")
"""Backends whose option ``alias`` names a cache."""
DEFAULT = "default"


def check_shared_redis() -> list[CheckMessage]:
    """W005."""
    return [
        Warning(
            f"django_idgen keeps data in the Redis of CACHES[{alias!r}], which is also {reason}: "
            "cache.clear() deletes that data, and a full cache may evict it.",
            hint="Give django_idgen an alias of its own, with a Redis database of its own "
            "(redis://host:6379/1) on a server with 'maxmemory-policy noeviction'.",
            id="django_idgen.W005",
        )
        for alias in sorted(redis_aliases())
        for reason in _shared_with(alias)
    ]


def check_eviction() -> list[CheckMessage]:
    """W006. Asks the servers."""
    return [
        Warning(
            f"The Redis of CACHES[{alias!r}] evicts keys when its memory is full "
            f"(maxmemory-policy {policy}): worker ids or pooled segments would be lost.",
            hint="Set 'maxmemory-policy noeviction' there, or give django_idgen a server of "
            "its own.",
            id="django_idgen.W006",
        )
        for alias in sorted(redis_aliases())
        for policy in _evicting(alias)
    ]


def redis_aliases() -> set[str]:
    """The cache aliases whose Redis the settings rely on."""
    try:
        return _aliases([read_settings().segments.source]) | lending_aliases()
    except SettingsError:
        return set()  # E001 has said so


def lending_aliases() -> set[str]:
    """The cache aliases whose Redis lends worker ids."""
    try:
        entries = read_settings().generators.values()
        return _aliases(one for entry in entries for one in _with_nested(entry.leases))
    except (SettingsError, ImportError):
        return set()  # E001 has said so


def _aliases(backends: Iterable[BackendSettings]) -> set[str]:
    return {str(one.options.get("alias", DEFAULT)) for one in backends if one.path in USERS}


def _with_nested(leases: BackendSettings) -> Iterator[BackendSettings]:
    yield leases
    for name in leases.load().nested:
        yield from _with_nested(nested_leases(leases, name))


def _shared_with(alias: str) -> Iterator[str]:
    caches: dict[str, dict[str, Any]] = settings.CACHES
    if alias == DEFAULT:
        yield "the project's default cache"
    places = _places(caches.get(alias, {}))
    for other, entry in caches.items():
        if other != alias and places & _places(entry):
            yield f"the same Redis database as CACHES[{other!r}]"


def _places(entry: dict[str, Any]) -> set[object]:
    """The Redis databases of a cache, whichever user it logs in as."""
    given = entry.get("LOCATION") or ()
    if isinstance(given, str):
        given = re.split("[;,]", given)  # as Django does
    elif not isinstance(given, list | tuple | set):
        given = [given]
    return {_place(str(one), (entry.get("OPTIONS") or {}).get("db", 0)) for one in given}


def _place(location: str, usual_db: object) -> object:
    try:
        from redis.connection import parse_url

        found = parse_url(location)  # type: ignore[no-untyped-call]
    except (ImportError, ValueError):
        return location  # no URL of a Redis
    server = found.get("path") or (found.get("host", "localhost"), found.get("port", 6379))
    return server, str(found.get("db", usual_db))


def _evicting(alias: str) -> Iterator[str]:
    from .redis_client import OwnRedis

    own = OwnRedis(alias)
    try:
        memory = own.ask(lambda client: client.info("memory"), unavailable=ConfigurationError)
    except ConfigurationError:
        return  # the code that needs the server reports it
    finally:
        own.close()
    policy = str(memory.get("maxmemory_policy", "noeviction"))
    if memory.get("maxmemory") and policy != "noeviction":
        yield policy
