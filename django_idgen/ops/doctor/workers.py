"""Examination ``workers``: how many worker ids are left, and who has let go of theirs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from ...core.errors import IdgenError, NotSeenFromHere
from ..worker_map import WorkerMap, WorkerState, worker_map
from .findings import Finding, Severity, Unexamined
from .project import Project, unexamined

__all__ = ["NAME", "examine", "maps"]

NAME = "workers"
NEARLY = 0.9
"""Of the worker ids: so many held are a warning."""
LONG_AGO = timedelta(days=1)
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
