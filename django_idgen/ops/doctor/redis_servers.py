"""Examination ``redis``: the servers that lend worker ids or keep the pool."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from django.core.checks import CheckMessage

from ...core.errors import ConfigurationError, RegistryUnavailable
from ...db.redis_checks import check_eviction, check_shared_redis, lending_aliases, redis_aliases
from ...settings.config import GeneratorSettings
from .findings import Finding, Severity, Unexamined
from .project import Project, attempt

OLDEST = (7, 0)
"""The version that the scripts were verified on."""


def examine(project: Project) -> Iterator[Finding | Unexamined]:
    """A finding for each server whose configuration loses ids or costs worker ids."""
    for message in check_shared_redis():
        yield _of_check(message)
    aliases = sorted(redis_aliases())
    lending = lending_aliases()
    for alias in aliases:
        yield from attempt(f"Redis {alias!r}", _of_server(alias, lends=alias in lending))
    for entry in project.generators:
        yield from attempt(f"generator {entry.alias!r}", _forgotten(project, entry))
    if aliases:
        for message in check_eviction():
            yield _of_check(message)


def redis_time_us(alias: str) -> int:
    """The server's clock, µs since 1970. Raises :class:`RegistryUnavailable`."""
    seconds, micros = _ask(alias, lambda client: client.time())
    return int(seconds) * 1_000_000 + int(micros)


def _ask(alias: str, call: Any) -> Any:
    # Imported here, since only projects that use Redis have django-redis.
    from ...db.redis_client import OwnRedis

    own = OwnRedis(alias)
    try:
        return own.ask(call, unavailable=RegistryUnavailable)
    finally:
        own.close()


def _forgotten(project: Project, entry: GeneratorSettings) -> Iterator[Finding]:
    """The namespace, if Redis has forgotten it, though it lent worker ids."""
    book = project.book(entry)
    stored = book.read() if book else None
    if book and stored and stored.highest and not book.is_whole():
        yield Finding(
            Severity.INFO,
            f"namespace {book.namespace.name!r}",
            f"{book.place}, which has no record of the worker ids that were lent.",
            "The namespace was moved there and not used since; or the record was lost, as by a "
            "restart or a flush. The next process opens a new generation, and no id repeats.",
        )


def _of_server(alias: str, *, lends: bool) -> Iterator[Finding]:
    subject = f"Redis {alias!r}"
    info: dict[str, Any] = {}
    try:
        for section in ("server", "replication", "persistence"):
            info |= _ask(alias, lambda client, name=section: client.info(name))
    except ConfigurationError as error:
        yield Finding(
            Severity.ERROR,
            subject,
            str(error),
            "It can't lend worker ids or keep a pool.",
            "Add the rule, or name an alias of django-redis.",
        )
        return
    version = str(info.get("redis_version", "0"))
    if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < OLDEST:
        yield Finding(
            Severity.WARNING,
            subject,
            f"Its version is {version}.",
            "django_idgen is tested with Redis 7 and later.",
            "Upgrade it.",
        )
    if info.get("role") != "master":
        yield Finding(
            Severity.ERROR,
            subject,
            "It is a replica.",
            "A replica can't lend worker ids or keep a pool.",
            "Point LOCATION at the primary, or at the Sentinels.",
        )
    if not lends:
        return  # a pool may lose everything, and begins no generation
    saves = None
    with suppress(ConfigurationError):  # the ACL refuses CONFIG
        saves = _ask(alias, lambda client: client.config_get("save")).get("save")
    if not info.get("aof_enabled") and saves == "":
        yield Finding(
            Severity.INFO,
            subject,
            "It keeps nothing on disk.",
            "A restart repeats no id, but each one opens a new generation.",
        )


def _of_check(message: CheckMessage) -> Finding:
    return Finding(Severity.WARNING, f"check {message.id}", message.msg, "", message.hint or "")
