"""Examination ``clocks``: the clocks of this host, the holders and the registries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from django.db import connections

from ...core.clock import SYSTEM_CLOCK
from ...db import dialects
from ...db.redis_checks import redis_aliases
from ...process.factory import lease_databases
from .findings import Finding, Severity, Unexamined
from .project import Project, attempt
from .redis_servers import redis_time_us
from .workers import worker_maps

_WHY = (
    "Ids stay unique, but the times in them are wrong, and a process with 'refuse_skew' does not "
    "start."
)


def examine(project: Project) -> Iterator[Finding | Unexamined]:
    """A finding for each clock that is off by more than a generator's ``skew_limit``."""
    limit = min((entry.skew_limit for entry in project.generators), default=10.0)
    for alias in lease_databases():
        if not project.connection_error(alias) and connections[alias].vendor != "sqlite":
            yield from attempt(f"database {alias!r}", _of_database(project, alias, limit))
    for alias in sorted(redis_aliases()):
        name = f"Redis {alias!r}"
        yield from attempt(name, _compare(name, partial(redis_time_us, alias), limit))
    yield from _of_holders(project)


def _of_database(project: Project, alias: str, limit: float) -> Iterator[Finding]:
    with project.reading(alias) as connection:
        yield from _compare(f"database {alias!r}", partial(dialects.now_us, connection), limit)


def _compare(name: str, read: Callable[[], int], limit: float) -> Iterator[Finding]:
    sent = SYSTEM_CLOCK.wall_ns() // 1000
    theirs = read()
    received = SYSTEM_CLOCK.wall_ns() // 1000
    # The other clock was read at any time between the two.
    off = max(sent - theirs, theirs - received, 0) / 1e6
    if off > limit:
        direction = "ahead of" if sent > theirs else "behind"
        yield Finding(
            Severity.WARNING,
            "this host",
            f"Its clock is {off:.1f} s {direction} that of {name}; the limit is {limit:g} s.",
            _WHY,
            "Correct the clock that is wrong (NTP).",
        )


def _of_holders(project: Project) -> Iterator[Finding]:
    limits = {entry.alias: entry.skew_limit for entry in project.generators}
    for found in worker_maps(project):
        if isinstance(found, Unexamined):
            continue  # the examination "workers" reports it
        limit = limits[found.alias]
        for each in found.entries.values():
            off = each.clock_offset
            if each.window_left and off is not None and abs(off) > limit:
                yield Finding(
                    Severity.WARNING,
                    f"holder {each.holder!r} of worker id {each.worker}",
                    f"Its clock was {off:+.1f} s off the registry's when it last renewed; the "
                    f"limit is {limit:g} s.",
                    _WHY,
                    "Correct that host's clock (NTP).",
                )
