"""All examinations, and running them: what stops one doesn't stop the others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from django.db import Error as AnyDatabaseError

from ...core.errors import IdgenError
from . import (
    behind,
    clocks,
    columns,
    exhaustion,
    future,
    marks,
    namespaces,
    redis_servers,
    scheduling,
    schema,
    several,
    sqlite_files,
    workers,
)
from .findings import Finding, Severity, Unexamined
from .project import Project, unexamined

__all__ = ["EXAMINATIONS", "Diagnosis", "diagnose"]

Examination = Callable[[Project], Iterator[Finding | Unexamined]]

EXAMINATIONS: Mapping[str, Examination] = {
    module.NAME: module.examine
    for module in (
        schema,
        namespaces,
        behind,
        future,
        marks,
        columns,
        workers,
        clocks,
        exhaustion,
        several,
        redis_servers,
        sqlite_files,
        scheduling,
    )
}
"""By the name that ``--only`` takes, in the order in which they are run."""


@dataclass(slots=True)
class Diagnosis:
    """What came of all examinations."""

    findings: list[Finding] = field(default_factory=list)
    unexamined: list[Unexamined] = field(default_factory=list)

    @property
    def worst(self) -> Severity:
        return max((finding.severity for finding in self.findings), default=Severity.INFO)


def diagnose(project: Project, only: Collection[str] = ()) -> Diagnosis:
    """Run the examinations, or ``only`` some. Never raises for what is wrong with a project."""
    diagnosis = Diagnosis()
    for alias in project.databases:
        if why := project.why_away(alias):
            diagnosis.unexamined.append(Unexamined("databases", f"database {alias!r}", why))
    for name, examine in EXAMINATIONS.items():
        if not only or name in only:
            _run(diagnosis, name, examine, project)
    diagnosis.findings.sort(key=lambda finding: -finding.severity)
    return diagnosis


def _run(diagnosis: Diagnosis, name: str, examine: Examination, project: Project) -> None:
    try:
        for found in examine(project):
            if isinstance(found, Finding):
                diagnosis.findings.append(found)
            else:
                diagnosis.unexamined.append(found)
    except (IdgenError, AnyDatabaseError, OSError, TimeoutError) as error:
        diagnosis.unexamined.append(unexamined(name, "all of it", error))
