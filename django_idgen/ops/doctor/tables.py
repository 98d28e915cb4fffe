"""Examination ``tables``: our own tables, whole in each database that has to do with ids.

The table of tags may be another program's: its columns must hold what ours do.
"""

from __future__ import annotations

from collections.abc import Iterator

from django.db import connections

from ...db.tables import MODELS, table_of, unfit_columns
from ...process.factory import lease_databases
from ...process.tags import source_behind_pool
from .findings import Finding, Severity, Unexamined
from .project import Project

__all__ = ["NAME", "examine"]

NAME = "tables"


def examine(project: Project) -> Iterator[Finding | Unexamined]:
    """A finding for each database whose tables are missing, lack columns, or don't fit."""
    used = _used()
    for alias in project.up():
        there = [name for name in MODELS if table_of(name) in project.tables(alias)]
        # The file beside a SQLite database is made on first use.
        if not there and alias in used and connections[alias].vendor != "sqlite":
            yield _unmade(alias)
        # A table of Leaf's alone is another project's.
        if alias in used or set(there) - {"LeafAlloc"}:
            yield from _half_made(project, alias, there)
            if "LeafAlloc" in there:
                yield from _unfit(project, alias)


def _used() -> set[str]:
    source = source_behind_pool()
    return {*lease_databases(), *(() if source.is_routed else source.databases())}


def _unmade(alias: str) -> Finding:
    return Finding(
        NAME,
        Severity.ERROR,
        f"database {alias!r}",
        "It has none of our tables yet.",
        "Ids can't be taken before they are there.",
        _migrate(alias),
    )


def _half_made(project: Project, alias: str, there: list[str]) -> Iterator[Finding]:
    missing = [table_of(name) for name in MODELS if name not in there] if there else []
    columns = [column for name in there for column in project.lacks(alias, name)]
    if columns:
        yield _lacking(alias, columns + missing, Severity.ERROR, "Ids can't be taken with these.")
    elif missing:
        yield _lacking(alias, missing, Severity.ERROR, "What needs them fails.")


def _unfit(project: Project, alias: str) -> Iterator[Finding]:
    with project.reading(alias) as connection:
        wrong = unfit_columns(connection)
    if wrong:
        yield Finding(
            NAME,
            Severity.ERROR,
            f"table {table_of('LeafAlloc')!r} in database {alias!r}",
            f"Its columns don't fit: {'; '.join(wrong)}.",
            "Ids can't be taken with these, or would repeat.",
            "Stop what writes to it, and change that.",
        )


def _lacking(alias: str, what: list[str], severity: Severity, why: str) -> Finding:
    return Finding(
        NAME,
        severity,
        f"database {alias!r}",
        f"It is half-migrated: it lacks {', '.join(what)}.",
        why,
        _migrate(alias),
    )


def _migrate(alias: str) -> str:
    return f"Run 'manage.py migrate django_idgen --database {alias}'."
