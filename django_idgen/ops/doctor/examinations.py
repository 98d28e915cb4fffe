"""All examinations, and running them: what stops one doesn't stop the others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from . import (
    clocks,
    columns,
    databases,
    exhaustion,
    future,
    marks,
    namespaces,
    native,
    redis_servers,
    sqlite_files,
    tables,
    tags,
    upkeep,
    workers,
)
from .findings import Diagnosis, Finding, Unexamined
from .project import Project, attempt

__all__ = ["EXAMINATIONS", "diagnose"]

Examination = Callable[[Project], Iterator[Finding | Unexamined]]

EXAMINATIONS: Mapping[str, Examination] = {
    module.NAME: module.examine
    for module in (
        tables,
        namespaces,
        tags,
        future,
        marks,
        native,
        columns,
        workers,
        clocks,
        exhaustion,
        databases,
        redis_servers,
        sqlite_files,
        upkeep,
    )
}
"""By the name that ``--only`` takes, in the order in which they are run."""


def diagnose(project: Project, only: Collection[str] = ()) -> Diagnosis:
    """Run the examinations, or ``only`` some. Never raises for what is wrong with a project."""
    diagnosis = Diagnosis()
    for alias in project.databases:
        if why := project.why_away(alias):
            diagnosis.add(Unexamined("databases", f"database {alias!r}", why))
    for name, examine in EXAMINATIONS.items():
        if not only or name in only:
            for found in attempt(name, "all of it", examine(project)):
                diagnosis.add(found)
    diagnosis.findings.sort(key=lambda finding: -finding.severity)
    return diagnosis
