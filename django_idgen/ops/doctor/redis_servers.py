"""Examination ``redis``: the servers that lend worker ids, or keep the pool."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from django.core.checks import CheckMessage

from ...core.errors import ConfigurationError, RegistryUnavailable
from ...db.redis_checks import check_eviction, check_shared_redis, redis_aliases
from ...settings.config import GeneratorSettings
from .findings import Finding, Severity, Unexamined
from .move import books_of
from .project import Project, attempt

__all__ = ["NAME", "examine", "lending_aliases", "redis_time_us"]

NAME = "redis"
OLDEST = (7, 0)
"""The version that the scripts were verified on."""


def examine(project: Project) -> Iterator[Finding | Unexamined]:
    """What each server's settings cost, or would."""
    for message in check_shared_redis():
        yield _of_check(message)
    aliases = sorted(redis_aliases())
    for alias in aliases:
        yield from attempt(NAME, f"Redis {alias!r}", _of_server(alias))
    for entry in project.generators():
        yield from attempt(NAME, f"generator {entry.alias!r}", _forgotten(project, entry))
    if aliases:
        for message in check_eviction(databases=project.databases):
            yield _of_check(message)


def lending_aliases() -> list[str]:
    """The cache aliases whose Redis we rely on."""
    return sorted(redis_aliases())


def redis_time_us(alias: str) -> int:
    """The server's clock, µs since 1970. Raises :class:`RegistryUnavailable`."""
    seconds, micros = _asked(alias, lambda client: client.time())
    return int(seconds) * 1_000_000 + int(micros)


def _info(alias: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for section in ("server", "replication", "persistence"):
        found |= _asked(alias, lambda client, name=section: client.info(name))
    with suppress(ConfigurationError):  # it is for a hint alone
        found["saves"] = _asked(alias, lambda client: client.config_get("save")).get("save")
    return found


def _asked(alias: str, call: Any) -> Any:
    # Not at the top: it needs what only those have who use Redis.
    from ...db.redis_client import OwnRedis

    own = OwnRedis(alias)
    try:
        return own.ask(call, unavailable=RegistryUnavailable)
    finally:
        own.close()


def _forgotten(project: Project, entry: GeneratorSettings) -> Iterator[Finding]:
    """Namespaces of which Redis has nothing, though ids were lent."""
    for book in books_of(project, entry):
        stored = book.read()
        if stored is not None and stored.highest and not book.is_whole():
            yield Finding(
                NAME,
                Severity.INFO,
                f"namespace {book.namespace.name!r}",
                f"{book.place}: of what was lent there Redis knows nothing any more.",
                "It was flushed, evicted or restarted. The next process opens a new generation "
                "past it; no id repeats.",
                "",
            )


def _of_server(alias: str) -> Iterator[Finding]:
    subject = f"Redis {alias!r}"
    try:
        info = _info(alias)
    except ConfigurationError as error:
        yield Finding(
            NAME,
            Severity.ERROR,
            subject,
            str(error),
            "Worker ids and pooled segments can't be had from it.",
            "Add the rule, or name an alias of django-redis.",
        )
        return
    version = str(info.get("redis_version", "0"))
    if _parts(version) < OLDEST:
        yield Finding(
            NAME,
            Severity.WARNING,
            subject,
            f"It is of version {version}.",
            "What we rely on was verified from Redis 7 on.",
            "Upgrade it.",
        )
    if info.get("role") != "master":
        yield Finding(
            NAME,
            Severity.ERROR,
            subject,
            "It is a replica.",
            "A replica lends nothing, and keeps no pool.",
            "Point LOCATION at the primary, or at the Sentinels.",
        )
    if not info.get("aof_enabled") and info.get("saves") == "":
        yield Finding(
            NAME,
            Severity.INFO,
            subject,
            "It keeps nothing on a disk.",
            "A restart repeats no id, but each one opens a new generation.",
            "",
        )


def _of_check(message: CheckMessage) -> Finding:
    return Finding(
        NAME, Severity.WARNING, f"check {message.id}", message.msg, "", message.hint or ""
    )


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
