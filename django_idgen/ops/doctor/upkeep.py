"""Examination ``upkeep``: whether what a scheduler has to do is being done."""

from __future__ import annotations

from collections.abc import Iterator

from ...models import LeafAlloc
from ...process import handlers
from ...process.tags import is_row_of, source_behind_pool, source_in_use
from ..tags.outlook import outlooks
from .findings import Finding, Severity, Unexamined
from .project import Project, attempt

__all__ = ["NAME", "examine"]

NAME = "upkeep"
LOOKED_AT = 1000
"""Tags whose stock is asked for: those used most."""


def examine(project: Project) -> Iterator[Finding | Unexamined]:
    """A finding for each database whose tags are in use, while none lie ready in the pool."""
    if not source_in_use().is_pool:
        return
    for alias in source_behind_pool().databases():
        if alias in project.up() and project.has(alias, "LeafAlloc"):
            yield from attempt(NAME, f"database {alias!r}", _of_database(alias))


def _of_database(alias: str) -> Iterator[Finding]:
    outage = handlers.current_settings().segments.outage
    used = LeafAlloc.objects.using(alias).filter(rate__gt=0, paused=False).order_by("-rate")
    rows = [row for row in used[:LOOKED_AT] if row.rate * outage >= 1 and is_row_of(row.pk, alias)]
    looks = outlooks(rows, alias)
    empty = [tag for tag, look in looks.items() if look.pooled == 0]
    if looks and len(empty) == len(looks):
        yield Finding(
            NAME,
            Severity.WARNING,
            f"database {alias!r}",
            f"A pool is configured, but of none of the {len(empty)} tags in use ids lie in it.",
            "An outage of the database is felt at once.",
            "See that Celery beat runs 'preload_segments' (django_idgen.tasks.BEAT_SCHEDULE), or "
            "cron 'manage.py idgen_upkeep'.",
        )
