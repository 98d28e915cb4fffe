"""Examination ``clocks``: this host's, those of the holders, and those of the registries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from django.db import connections

from ...core.clock import SYSTEM_CLOCK
from ...db import dialects
from ...process.factory import lease_databases
from ...settings.config import GeneratorSettings
from .findings import Finding, Severity, Unexamined
from .project import Project, attempt
from .redis_servers import lending_aliases, redis_time_us
from .workers import maps

__all__ = ["NAME", "examine"]

NAME = "clocks"
_WHY = (
    "Uniqueness does not depend on it, but the times in ids do, and a process that refuses skew "
    "('refuse_skew') will not start."
)


def examine(project: Project) -> Iterator[Finding | Unexamined]:
    """A finding for each clock that is further off than a generator's ``skew_limit``."""
    limit = min((entry.skew_limit for entry in project.generators()), default=10.0)
    for alias in lease_databases():
        if project.why_away(alias) is None and connections[alias].vendor != "sqlite":
            yield from attempt(NAME, f"database {alias!r}", _of_database(project, alias, limit))
    for alias in lending_aliases():
        name = f"Redis {alias!r}"
        yield from attempt(NAME, name, _compare(name, partial(redis_time_us, alias), limit))
    yield from _holders(project)


def _of_database(project: Project, alias: str, limit: float) -> Iterator[Finding]:
    with project.reading(alias) as connection:
        yield from _compare(f"database {alias!r}", partial(dialects.now_us, connection), limit)


def _compare(name: str, read: Callable[[], int], limit: float) -> Iterator[Finding]:
    sent = SYSTEM_CLOCK.wall_ns() // 1000
    theirs = read()
    received = SYSTEM_CLOCK.wall_ns() // 1000
    # Whatever the way there and back took may be on either side.
    off = max(sent - theirs, theirs - received, 0) / 1e6
    if off > limit:
        ours = "ahead of" if sent > theirs else "behind"
        yield Finding(
            NAME,
            Severity.WARNING,
            "this host",
            f"Its clock is {off:.1f} s {ours} that of {name}; the limit is {limit:g} s.",
            _WHY,
            "Mend the clock of one of them (NTP).",
        )


def _holders(project: Project) -> Iterator[Finding]:
    limits = {entry.alias: entry for entry in project.generators()}
    for found in maps(project, NAME):
        if isinstance(found, Unexamined):
            continue  # the examination of worker ids says so
        entry: GeneratorSettings = limits[found.alias]
        for each in found.entries.values():
            off = each.clock_offset
            if each.window_left and off is not None and abs(off) > entry.skew_limit:
                yield Finding(
                    NAME,
                    Severity.WARNING,
                    f"holder {each.holder!r} of worker id {each.worker}",
                    f"Its clock was {off:+.1f} s off the registry's when it was seen last; the "
                    f"limit is {entry.skew_limit:g} s.",
                    _WHY,
                    "Mend that host's clock (NTP).",
                )
