"""Examination ``workers``: how many worker ids are left, for how long, and who let go of theirs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from ...core.errors import IdgenError, NotSeenFromHere
from ..worker_map import WorkerEntry, WorkerMap, WorkerState, worker_map
from .findings import Finding, Severity, Unexamined
from .project import Project, unexamined

__all__ = ["NAME", "examine", "maps"]

NAME = "workers"
NEARLY = 0.9
"""Of the worker ids: so many held are a warning."""
LONG_AGO = timedelta(days=1)
USED_UP = 0.8
"""Of the worker ids that are lent once: so many used are a warning."""
SOON_DAYS = 90
NEXT_DAYS = 7
LAST_DAYS = 7
"""Over which the rate of their use is measured."""
_HELD = (WorkerState.HELD, WorkerState.OVERDUE)


def examine(project: Project) -> Iterator[Finding | Unexamined]:
    """What there is to say of each generator's worker ids."""
    for found in maps(project, NAME):
        if isinstance(found, Unexamined):
            yield found
            continue
        for part, why in found.unseen.items():
            words = f"generator {found.alias!r}, worker ids {part.start} to {part.stop - 1}"
            yield Unexamined(NAME, words, why)
        if found.kind != "static":
            yield from _left(found)
        for workers in found.once:
            yield from _used_up(found, workers)
        yield from _overdue(found)
        yield from _expired(found)


def maps(project: Project, name: str) -> Iterator[WorkerMap | Unexamined]:
    """The worker ids of each generator whose registry can be seen from here."""
    for entry in project.generators():
        try:
            yield worker_map(entry.alias)
        except NotSeenFromHere:
            continue
        except IdgenError as error:
            yield unexamined(name, f"generator {entry.alias!r}", error)


def _left(found: WorkerMap) -> Iterator[Finding]:
    counts = found.counts()
    total = sum(len(part) for part in found.lent)
    held = sum(counts[state] for state in _HELD)
    left = total - held
    if total < 2 or held < NEARLY * total:
        return
    yield Finding(
        NAME,
        Severity.WARNING if left else Severity.ERROR,
        f"generator {found.alias!r}",
        f"Of its {total} worker ids {held} are held, and {left} left.",
        "A process that starts gets none when there is none left.",
        "Stop processes that are idle, share generators between threads, or choose a layout with "
        "more worker bits. Worker ids of processes that were killed come free when their "
        "windows are over.",
    )


def _used_up(found: WorkerMap, workers: range) -> Iterator[Finding]:
    # Not by the number of rows: old ones may be deleted.
    lent = [each for each in found.entries.values() if each.worker in workers]
    if not lent:
        return
    used = workers.index(max(each.worker for each in lent)) + 1
    left = len(workers) - used
    a_day = _lent_a_day(lent, found.read_at)
    days = left / a_day if a_day else None
    soon = days is not None and days < SOON_DAYS
    if used < USED_UP * len(workers) and not soon:
        return
    lasts = "" if days is None else f": about {days:.0f} days at the rate of the last {LAST_DAYS}"
    yield Finding(
        NAME,
        Severity.WARNING if left and (days is None or days >= NEXT_DAYS) else Severity.ERROR,
        f"generator {found.alias!r}",
        f"Of its {len(workers)} worker ids, each of which is lent once, {used} "
        f"({used / len(workers):.0%}) are used, and {left} left{lasts}.",
        "From then on a process that starts gets none.",
        "Set 'recycle': True in OPTIONS of LEASES: then the worker id that is free longest is lent "
        "again, from the end of its last window. Or choose a layout with more worker bits, or "
        "DatabaseLeases, which lend those of ended processes at once: idgen_doctor --fix moves "
        "the namespace.",
    )


def _lent_a_day(lent: Iterable[WorkerEntry], now: datetime) -> float:
    """How many worker ids were lent a day of late; at least a day is looked at."""
    since = now - timedelta(days=LAST_DAYS)
    moments = [each.acquired_at for each in lent if each.acquired_at is not None]
    span = now - max(since, min(moments, default=now))
    return sum(at >= since for at in moments) / max(1.0, span / timedelta(days=1))


def _overdue(found: WorkerMap) -> Iterator[Finding]:
    entries = [each for each in found.entries.values() if each.state is WorkerState.OVERDUE]
    if entries:
        names = ", ".join(f"{each.worker} ({each.holder or 'unknown'})" for each in entries[:5])
        more = f" and {len(entries) - 5} more" if len(entries) > 5 else ""
        yield Finding(
            NAME,
            Severity.INFO,
            f"generator {found.alias!r}",
            f"The renewal of {len(entries)} leases is overdue: worker ids {names}{more}.",
            "The processes were killed, or are blocked; in that case the scheduled renewal "
            "(Celery beat, or idgen_upkeep) keeps their worker ids for them.",
            "",
        )


def _expired(found: WorkerMap) -> Iterator[Finding]:
    old = [
        each
        for each in found.entries.values()
        if each.state is WorkerState.EXPIRED
        and not any(each.worker in once for once in found.once)
        and each.until is not None
        and found.read_at - each.until > LONG_AGO
    ]
    if old:
        yield Finding(
            NAME,
            Severity.INFO,
            f"generator {found.alias!r}",
            f"{len(old)} leases expired more than a day ago without being given back.",
            "Their processes were killed, or their machines went away. The worker ids are free.",
            "",
        )
