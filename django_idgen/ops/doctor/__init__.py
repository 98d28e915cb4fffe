"""What ``manage.py idgen_doctor`` examines, and what it can fix.

Examinations that only read are system checks, too: ``manage.py check --deploy --database ALIAS``
runs them. They make no table, file or row, and none raises.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from django.core.checks import CheckMessage

from ...core.clock import SYSTEM_CLOCK
from ...settings.config import SettingsError, read_settings
from . import databases, future, marks, namespaces, servers, tables, tags, workers
from .findings import Diagnosis, Finding, not_examined
from .project import Project, attempt

CHECKS: Mapping[str, Callable[[Project], Iterator[CheckMessage]]] = {
    "tables": tables.examine_tables,
    "columns": tables.examine_columns,
    "native": tables.examine_sequences,
    "exhaustion": databases.examine_exhaustion,
    "databases": databases.examine_databases,
    "sqlite": databases.examine_files,
    "workers": workers.examine_workers,
    "clocks": workers.examine_clocks,
    "redis": servers.examine_redis,
    "services": servers.examine_services,
    "upkeep": servers.examine_upkeep,
}
"""The examinations that only read."""
EXAMINATIONS: Mapping[str, Callable[[Project], Iterator[Finding | CheckMessage]]] = {
    "settings": namespaces.examine,
    "tags": tags.examine,
    "future": future.examine,
    "marks": marks.examine,
    **CHECKS,
}
"""By the name that ``--only`` takes, in the order in which they run."""


def check(aliases: Sequence[str]) -> list[CheckMessage]:
    """What the examinations that only read find in the databases ``aliases``, and elsewhere."""
    try:
        project = Project(read_settings(), databases=aliases)
    except SettingsError:
        return []  # E001 reports it
    found = [*_unreachable(project)]
    for name, examine in CHECKS.items():
        found += attempt(f"examination {name!r}", examine(project))
    return found


def diagnose(project: Project, only: Collection[str] = ()) -> Diagnosis:
    """Run all examinations, or ``only`` some. A failing one does not stop the others."""
    diagnosis = Diagnosis(project.assurances)
    chosen = [(name, each) for name, each in EXAMINATIONS.items() if not only or name in only]
    for name, examine in [("databases", _unreachable), *chosen]:
        began = SYSTEM_CLOCK.stopwatch()
        for found in attempt("all of it", examine(project)):
            diagnosis.add(name, found)
        taken = SYSTEM_CLOCK.stopwatch() - began
        diagnosis.seconds[name] = diagnosis.seconds.get(name, 0.0) + taken
    diagnosis.findings.sort(key=lambda finding: -finding.severity)
    return diagnosis


def _unreachable(project: Project) -> Iterator[CheckMessage]:
    for alias in project.databases:
        if error := project.connection_error(alias):
            yield not_examined(f"database {alias!r}", error)
