"""What ``manage.py idgen_doctor`` examines, one examination a module, and what it can fix."""

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
    services,
    sqlite_files,
    tables,
    tags,
    upkeep,
    workers,
)
from .findings import Diagnosis, Finding, Unexamined
from .project import Project, attempt

EXAMINATIONS: Mapping[str, Callable[[Project], Iterator[Finding | Unexamined]]] = {
    "tables": tables.examine,
    "settings": namespaces.examine,
    "tags": tags.examine,
    "future": future.examine,
    "marks": marks.examine,
    "native": native.examine,
    "columns": columns.examine,
    "workers": workers.examine,
    "clocks": clocks.examine,
    "exhaustion": exhaustion.examine,
    "databases": databases.examine,
    "redis": redis_servers.examine,
    "services": services.examine,
    "sqlite": sqlite_files.examine,
    "upkeep": upkeep.examine,
}
"""By the name that ``--only`` takes, in the order in which they run."""


def diagnose(project: Project, only: Collection[str] = ()) -> Diagnosis:
    """Run all examinations, or ``only`` some. A failing one does not stop the others."""
    diagnosis = Diagnosis()
    for alias in project.databases:
        if error := project.connection_error(alias):
            diagnosis.add("databases", Unexamined(f"database {alias!r}", error))
    for name, examine in EXAMINATIONS.items():
        if not only or name in only:
            for found in attempt("all of it", examine(project)):
                diagnosis.add(name, found)
    diagnosis.findings.sort(key=lambda finding: -finding.severity)
    return diagnosis
