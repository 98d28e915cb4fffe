"""Checks of worker ids, and of the clocks that their holders stamp by."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from functools import partial

from django.core.checks import CheckMessage, Error, Warning  # noqa: A004
from django.db import connections, transaction

from ...core.clock import SYSTEM_CLOCK
from ...core.errors import NotSeenFromHere, RegistryUnavailable
from ...core.inspection import WorkerEntry, WorkerMap, WorkerState
from ...db import dialects
from ...db.redis_checks import asked, redis_aliases
from ...process.factory import lease_databases
from ...settings.config import GeneratorSettings
from ..workers import worker_map
from .project import Project, attempt

NEARLY_ALL = 0.9
"""A warning if so large a share of the worker ids is held."""
USED_UP = 0.8
"""A warning if so large a share of the worker ids that are lent once is used."""
SOON_DAYS = 90
NEXT_DAYS = 7
LAST_DAYS = 7
"""The days over which their consumption is measured."""


def examine_workers(project: Project) -> Iterator[CheckMessage]:
    """W025, E025, W026: few worker ids are left; a holder's clock is off."""
    for entry in project.generators:
        yield from attempt(f"generator {entry.alias!r}", _of_generator(entry))


def _of_generator(entry: GeneratorSettings) -> Iterator[CheckMessage]:
    try:
        found = worker_map(entry.alias)
    except NotSeenFromHere:
        return
    subject = f"generator {entry.alias!r}"
    if found.used:
        yield from _used_up(found, subject)
    elif found.kind != "static":
        yield from _left(found, subject)
    for each in found.entries.values():
        off = each.clock_offset
        if each.window_left and off is not None and abs(off) > entry.skew_limit:
            yield _clock(
                f"holder {each.holder!r} of worker id {each.worker}",
                f"was {off:+.1f} s off the registry's when it last renewed",
                entry.skew_limit,
            )


def _left(found: WorkerMap, subject: str) -> Iterator[CheckMessage]:
    counts = found.counts()
    total, held = len(found.lent), counts[WorkerState.HELD] + counts[WorkerState.OVERDUE]
    if total > 1 and held >= NEARLY_ALL * total:
        yield _few_left(
            subject,
            f"Of its {total} worker ids {held} are held, and {total - held} left.",
            "Stop processes that are idle, share generators between threads, or choose a layout "
            "with more worker bits. Worker ids of killed processes become free when their windows "
            "are over.",
            is_error=held == total,
        )


def _used_up(found: WorkerMap, subject: str) -> Iterator[CheckMessage]:
    total, used = len(found.lent), len(found.used)
    lent = [each for each in found.entries.values() if each.worker in found.lent]
    a_day = _lent_a_day(lent, found.read_at)
    days = (total - used) / a_day if a_day else math.inf
    if used >= USED_UP * total or days < SOON_DAYS:
        lasts = f", for about {days:.0f} days at the rate of the last {LAST_DAYS}" if a_day else ""
        yield _few_left(
            subject,
            f"Of its {total} worker ids, each of which is lent once, {used} ({used / total:.0%}) "
            f"are used, and {total - used} left{lasts}.",
            "Set 'recycle': True in OPTIONS of LEASES: then worker ids of ended processes are lent "
            "again. Or choose a layout with more worker bits, or DatabaseLeases, which lend the "
            "worker ids of ended processes at once. For both, 'manage.py idgen_doctor --fix' moves "
            "the namespace.",
            is_error=used == total or days < NEXT_DAYS,
        )


def _lent_a_day(lent: Iterable[WorkerEntry], now: datetime) -> float:
    """How many worker ids were lent a day recently, measured over at least one day."""
    since = now - timedelta(days=LAST_DAYS)
    moments = [each.acquired_at for each in lent if each.acquired_at is not None]
    span = now - max(since, min(moments, default=now))
    return sum(at >= since for at in moments) / max(1.0, span / timedelta(days=1))


def _few_left(subject: str, what: str, hint: str, *, is_error: bool) -> CheckMessage:
    return (Error if is_error else Warning)(
        f"{what} When none is left, a process that starts can't make ids.",
        hint=hint,
        obj=subject,
        id=f"django_idgen.{'E025' if is_error else 'W025'}",
    )


# --- clocks ---------------------------------------------------------------------------


def examine_clocks(project: Project) -> Iterator[CheckMessage]:
    """W026: this host's clock differs from a registry's by more than a ``skew_limit``."""
    limit = min((entry.skew_limit for entry in project.generators), default=10.0)
    for alias in lease_databases():
        if not project.connection_error(alias) and connections[alias].vendor != "sqlite":
            name = f"database {alias!r}"
            yield from attempt(name, _compare(name, partial(_database_us, alias), limit))
    for alias in sorted(redis_aliases()):
        name = f"Redis {alias!r}"
        yield from attempt(name, _compare(name, partial(_redis_us, alias), limit))


def _database_us(alias: str) -> int:
    with transaction.atomic(using=alias):
        return dialects.now_us(connections[alias])


def _redis_us(alias: str) -> int:
    seconds, micros = asked(alias, lambda client: client.time(), RegistryUnavailable)
    return int(seconds) * 1_000_000 + int(micros)


def _compare(name: str, read: Callable[[], int], limit: float) -> Iterator[CheckMessage]:
    sent = SYSTEM_CLOCK.wall_ns() // 1000
    theirs = read()
    received = SYSTEM_CLOCK.wall_ns() // 1000
    # The other clock was read at any time between the two.
    off = max(sent - theirs, theirs - received, 0) / 1e6
    if off > limit:
        direction = "ahead of" if sent > theirs else "behind"
        yield _clock("this host", f"is {off:.1f} s {direction} that of {name}", limit)


def _clock(subject: str, state: str, limit: float) -> CheckMessage:
    return Warning(
        f"Its clock {state}; the limit is {limit:g} s. Ids stay unique, but the times in them are "
        f"wrong, and a process with 'refuse_skew' does not start.",
        hint="Correct the clock that is wrong (NTP).",
        obj=subject,
        id="django_idgen.W026",
    )
