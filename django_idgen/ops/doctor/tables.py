"""Examination ``tables``: whether each database that we use has our tables, complete.

The table of tags may belong to another program: its columns must hold what ours do.
"""

from __future__ import annotations

from collections.abc import Iterator

from django.db import connections

from ...db.tables import MODELS, table_of, unfit_columns
from ...process.factory import lease_databases
from ...process.tags import source_behind_pool
from .findings import Finding, Severity, Unexamined
from .project import Project


def examine(project: Project) -> Iterator[Finding | Unexamined]:
    """A finding for each database whose tables are missing, incomplete or don't fit."""
    source = source_behind_pool()
    used = {*lease_databases(), *(() if source.is_routed else source.databases())}
    for alias in project.reachable():
        existing = [name for name in MODELS if table_of(name) in project.tables(alias)]
        # The file beside a SQLite database is made on first use.
        if not existing and alias in used and connections[alias].vendor != "sqlite":
            yield Finding(
                Severity.ERROR,
                f"database {alias!r}",
                "It has none of the django_idgen tables yet.",
                "No ids can be taken without them.",
                _migrate(alias),
            )
        # A database with Leaf's table alone belongs to another project.
        if alias in used or set(existing) - {"LeafAlloc"}:
            yield from _incomplete(project, alias, existing)
            if "LeafAlloc" in existing:
                yield from _unfit(project, alias)


def _incomplete(project: Project, alias: str, existing: list[str]) -> Iterator[Finding]:
    columns = [column for name in existing for column in project.missing(alias, name)]
    tables = [table_of(name) for name in MODELS if existing and name not in existing]
    if columns or tables:
        yield Finding(
            Severity.ERROR,
            f"database {alias!r}",
            f"It is half-migrated: it lacks {', '.join([*columns, *tables])}.",
            "Ids can't be taken from it." if columns else "Features that need them fail.",
            _migrate(alias),
        )


def _unfit(project: Project, alias: str) -> Iterator[Finding]:
    with project.reading(alias) as connection:
        wrong = unfit_columns(connection)
    if wrong:
        yield Finding(
            Severity.ERROR,
            f"table {table_of('LeafAlloc')!r} in database {alias!r}",
            f"Its columns don't fit: {'; '.join(wrong)}.",
            "Ids can't be taken from it, or would repeat.",
            "Stop the programs that write to it, and change the columns.",
        )


def _migrate(alias: str) -> str:
    return f"Run 'manage.py migrate django_idgen --database {alias}'."
