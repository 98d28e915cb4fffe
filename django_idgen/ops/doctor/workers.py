"""Examination ``workers``: how many worker ids are left, for how long, and overdue holders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from ...core.errors import IdgenError, NotSeenFromHere, one_line
from ...core.inspection import WorkerEntry, WorkerMap, WorkerState
from ..workers import worker_map
from .findings import Finding, Severity, Unexamined
from .project import Project

NEARLY_ALL = 0.9
"""A warning if so large a share of the worker ids is held."""
USED_UP = 0.8
"""A warning if so large a share of the worker ids that are lent once is used."""
LONG_AGO = timedelta(days=1)
SOON_DAYS = 90
NEXT_DAYS = 7
LAST_DAYS = 7
"""The days over which their consumption is measured."""


def examine(project: Project) -> Iterator[Finding | Unexamined]:
    """The findings about each generator's worker ids."""
    for found in worker_maps(project):
        if isinstance(found, Unexamined):
            yield found
            continue
        subject = f"generator {found.alias!r}"
        if found.kind != "static":
            yield from _left(found, subject)
        yield from _used_up(found, subject)
        yield from _overdue(found, subject)
        yield from _expired(found, subject)


def worker_maps(project: Project) -> Iterator[WorkerMap | Unexamined]:
    """The worker ids of each generator whose registry shows them."""
    for entry in project.generators:
        try:
            yield worker_map(entry.alias)
        except NotSeenFromHere:
            continue
        except IdgenError as error:
            yield Unexamined(f"generator {entry.alias!r}", one_line(error))


def _left(found: WorkerMap, subject: str) -> Iterator[Finding]:
    counts = found.counts()
    total = len(found.lent)
    held = counts[WorkerState.HELD] + counts[WorkerState.OVERDUE]
    if total > 1 and held >= NEARLY_ALL * total:
        yield Finding(
            Severity.WARNING if held < total else Severity.ERROR,
            subject,
            f"Of its {total} worker ids {held} are held, and {total - held} left.",
            "When none is left, a process that starts can't make ids.",
            "Stop processes that are idle, share generators between threads, or choose a layout "
            "with more worker bits. Worker ids of killed processes become free when their windows "
            "are over.",
        )


def _used_up(found: WorkerMap, subject: str) -> Iterator[Finding]:
    total, used = len(found.lent), len(found.used)
    if not used:
        return
    lent = [each for each in found.entries.values() if each.worker in found.lent]
    left = total - used
    a_day = _lent_a_day(lent, found.read_at)
    days = left / a_day if a_day else None
    if used < USED_UP * total and (days is None or days >= SOON_DAYS):
        return
    lasts = ""
    if days is not None:
        plural = "" if round(days) == 1 else "s"
        lasts = f": about {days:.0f} day{plural} at the rate of the last {LAST_DAYS} days"
    yield Finding(
        Severity.WARNING if left and (days is None or days >= NEXT_DAYS) else Severity.ERROR,
        subject,
        f"Of its {total} worker ids, each of which is lent once, {used} "
        f"({used / total:.0%}) are used, and {left} left{lasts}.",
        "When none is left, a process that starts can't make ids.",
        "Set 'recycle': True in OPTIONS of LEASES: then worker ids of ended processes are lent "
        "again. Or choose a layout with more worker bits, or DatabaseLeases, which lend the "
        "worker ids of ended processes at once. For both, idgen_doctor --fix moves the namespace.",
    )


def _lent_a_day(lent: Iterable[WorkerEntry], now: datetime) -> float:
    """How many worker ids were lent a day recently, measured over at least one day."""
    since = now - timedelta(days=LAST_DAYS)
    moments = [each.acquired_at for each in lent if each.acquired_at is not None]
    span = now - max(since, min(moments, default=now))
    return sum(at >= since for at in moments) / max(1.0, span / timedelta(days=1))


def _overdue(found: WorkerMap, subject: str) -> Iterator[Finding]:
    entries = [each for each in found.entries.values() if each.state is WorkerState.OVERDUE]
    if entries:
        names = ", ".join(f"{each.worker} ({each.holder or 'unknown'})" for each in entries[:5])
        more = f" and {len(entries) - 5} more" if len(entries) > 5 else ""
        yield Finding(
            Severity.INFO,
            subject,
            f"Renewals are overdue: worker ids {names}{more}.",
            "The processes were killed, or are blocked. For a blocked process, the scheduled "
            "renewal (Celery beat, or idgen_upkeep) keeps the worker id.",
        )


def _expired(found: WorkerMap, subject: str) -> Iterator[Finding]:
    old = [
        each
        for each in found.entries.values()
        if each.state is WorkerState.EXPIRED
        and each.until is not None
        and found.read_at - each.until > LONG_AGO
    ]
    if old:
        yield Finding(
            Severity.INFO,
            subject,
            f"Leases that expired more than a day ago and were never released: {len(old)}.",
            "Their processes were killed, or their machines disappeared. The worker ids are free.",
        )
