"""W005, and what other checks need of the Redis that lends worker ids or keeps the pool.

A loss in Redis is noticed and repeats no id. But each loss costs a piece of the id space,
and ids are stamped ahead of time for a while.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Warning  # noqa: A004

from ..core.errors import IdgenError
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


def redis_aliases() -> set[str]:
    """The cache aliases whose Redis the settings rely on."""
    try:
        read = read_settings()
        leases = [one for each in read.generators.values() for one in _with_nested(each.leases)]
    except (SettingsError, ImportError):
        return set()  # E001 has said so
    backends = [read.segments.source, *leases]
    return {str(one.options.get("alias", DEFAULT)) for one in backends if one.path in USERS}


def asked(alias: str, call: Callable[[Any], Any], unavailable: type[IdgenError]) -> Any:
    """What the server of ``alias`` answers. Raises as :meth:`.OwnRedis.ask`."""
    # Imported here, since only projects that use Redis have django-redis.
    from .redis_client import OwnRedis

    own = OwnRedis(alias)
    try:
        return own.ask(call, unavailable=unavailable)
    finally:
        own.close()


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
