"""Checks of the servers besides databases: Redis, services over HTTP, and the scheduler."""

from __future__ import annotations

from collections.abc import Iterator

from django.core.checks import CheckMessage, Error, Warning  # noqa: A004

from ...core.errors import (
    ConfigurationError,
    IdgenError,
    RegistryUnavailable,
    SegmentRefused,
    sentence,
)
from ...db.redis_checks import asked, redis_aliases
from ...models import LeafAlloc
from ...process import maps
from ...process.maps import registries
from ...process.tags import is_row_of, source_behind_pool, source_in_use
from ..tags.outlook import outlooks
from .project import Project, attempt

OLDEST = (7, 0)
"""The version of Redis that the scripts were verified on."""
MOST_TAGS = 1000
"""The busiest tags, whose stock in the pool is read."""


def examine_redis(_project: Project) -> Iterator[CheckMessage]:
    """W006, W031, E031: the Redis that lends worker ids or keeps the pool."""
    for alias in sorted(redis_aliases()):
        yield from attempt(f"Redis {alias!r}", _of_redis(alias))


def _of_redis(alias: str) -> Iterator[CheckMessage]:
    subject = f"Redis {alias!r}"
    try:
        info = asked(alias, lambda client: client.info(), RegistryUnavailable)
    except ConfigurationError as error:
        yield Error(str(error), obj=subject, id="django_idgen.E031")
        return
    if info.get("role") != "master":
        yield Error(
            "It is a replica, which can't lend worker ids or keep a pool.",
            hint="Point LOCATION at the primary, or at the Sentinels.",
            obj=subject,
            id="django_idgen.E031",
        )
    version = str(info.get("redis_version", "0"))
    if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < OLDEST:
        yield Warning(
            f"Its version is {version}; django_idgen is tested with Redis 7 and later.",
            hint="Upgrade it.",
            obj=subject,
            id="django_idgen.W031",
        )
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if info.get("maxmemory") and policy != "noeviction":
        yield Warning(
            f"It evicts keys when its memory is full (maxmemory-policy {policy}): worker ids or "
            f"pooled segments would be lost.",
            hint="Set 'maxmemory-policy noeviction' there, or give django_idgen a server of "
            "its own.",
            obj=subject,
            id="django_idgen.W006",
        )


def examine_services(project: Project) -> Iterator[CheckMessage]:
    """E032: a service over HTTP that refuses a generator or a field's tag."""
    for entry in project.generators:
        try:
            registries[entry.alias].check_access()
        except IdgenError as error:
            yield _refused(f"generator {entry.alias!r}", error)
    source = source_behind_pool()
    for tag in sorted(maps.segments.fields):
        try:
            source.check_access(tag)
        except IdgenError as error:
            yield _refused(f"tag {tag!r}", error)
            if not isinstance(error, SegmentRefused):
                return  # no service answers: each tag would take the timeout


def _refused(subject: str, error: IdgenError) -> CheckMessage:
    hint = "Give this project the settings that the service has."
    if not isinstance(error, ConfigurationError):
        hint = (
            "See that the service answers, that its 'manage.py idgen_token list' shows the access "
            "token with the right, and that it has the tag ('manage.py idgen_tag create')."
        )
    what = f"{sentence(error)} Processes that start can't take its ids."
    return Error(what, hint=hint, obj=subject, id="django_idgen.E032")


def examine_upkeep(project: Project) -> Iterator[CheckMessage]:
    """W034: tags are in use while the pool has none of their ids."""
    if source_in_use().is_pool:
        for alias in source_behind_pool().databases():
            if alias in project.reachable() and project.has(alias, "LeafAlloc"):
                yield from attempt(f"database {alias!r}", _pooled(alias))


def _pooled(alias: str) -> Iterator[CheckMessage]:
    outage = maps.current_settings().segments.outage
    used = LeafAlloc.objects.using(alias).filter(rate__gt=0, paused=False).order_by("-rate")
    rows = [row for row in used[:MOST_TAGS] if row.rate * outage >= 1 and is_row_of(row.pk, alias)]
    found = outlooks(rows, alias)
    if found and all(each.pooled == 0 for each in found.values()):
        yield Warning(
            f"A pool is configured, but it has no ids of any tag in use ({len(found)}): an outage "
            f"of the database stops ids at once.",
            hint="Make sure that Celery beat runs 'preload_segments' "
            "(django_idgen.tasks.BEAT_SCHEDULE), or cron 'manage.py idgen_upkeep'.",
            obj=f"database {alias!r}",
            id="django_idgen.W034",
        )
