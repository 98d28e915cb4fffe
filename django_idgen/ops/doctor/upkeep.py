"""Examination ``upkeep``: whether a scheduler keeps the pool filled."""

from __future__ import annotations

from collections.abc import Iterator

from ...models import LeafAlloc
from ...process import maps
from ...process.tags import is_row_of, source_behind_pool, source_in_use
from ..tags.outlook import outlooks
from .findings import Finding, Severity, Unexamined
from .project import Project, attempt

MOST_TAGS = 1000
"""The busiest tags, whose stock is read."""


def examine(project: Project) -> Iterator[Finding | Unexamined]:
    """A finding for each database whose tags are in use while the pool has none of their ids."""
    if not source_in_use().is_pool:
        return
    for alias in source_behind_pool().databases():
        if alias in project.reachable() and project.has(alias, "LeafAlloc"):
            yield from attempt(f"database {alias!r}", _of_database(alias))


def _of_database(alias: str) -> Iterator[Finding]:
    outage = maps.current_settings().segments.outage
    used = LeafAlloc.objects.using(alias).filter(rate__gt=0, paused=False).order_by("-rate")
    rows = [row for row in used[:MOST_TAGS] if row.rate * outage >= 1 and is_row_of(row.pk, alias)]
    found = outlooks(rows, alias)
    if found and all(each.pooled == 0 for each in found.values()):
        yield Finding(
            Severity.WARNING,
            f"database {alias!r}",
            f"A pool is configured, but it has no ids of any tag in use ({len(found)}).",
            "An outage of the database stops ids at once.",
            "Make sure that Celery beat runs 'preload_segments' "
            "(django_idgen.tasks.BEAT_SCHEDULE), or cron 'manage.py idgen_upkeep'.",
        )
