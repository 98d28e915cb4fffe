"""Examination ``sqlite``: the id file beside a SQLite database."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.db import connections

from ...db.sqlite import database_of, file_beside
from .findings import Finding, Severity, Unexamined
from .project import Project, unexamined

__all__ = ["NAME", "examine"]

NAME = "sqlite"
_LAZY = re.compile(r"synchronous\s*=\s*['\"]?(normal|off|0|1)\b", re.IGNORECASE)


def examine(project: Project) -> Iterator[Finding | Unexamined]:
    """What there is to say of each id file."""
    for alias in project.up():
        database = database_of(alias)
        if database is None or "django_idgen_identity" not in project.tables(alias):
            continue
        try:
            yield from _of_database(alias, database, file_beside(database))
        except OSError as error:
            yield unexamined(NAME, f"database {alias!r}", error)


def _of_database(alias: str, database: Path, path: Path) -> Iterator[Finding]:
    if not path.exists():
        yield _gone(alias, path)
        return
    yield from _permissions(alias, database, path)
    if _LAZY.search(str(connections.settings[alias].get("OPTIONS") or "")):
        yield _lazy(alias)


def _finding(alias: str, severity: Severity, **words: Any) -> Finding:
    return Finding(NAME, severity, f"database {alias!r}", **words)


def _gone(alias: str, path: Path) -> Finding:
    return _finding(
        alias,
        Severity.WARNING,
        what=f"Its id file {str(path)!r} is gone.",
        why="The next process makes a new one, in which tags begin a distance above the rows of "
        "their tables: there may have been ids that no row has.",
        todo="Move the file along with the database; see what deletes it.",
    )


def _permissions(alias: str, database: Path, path: Path) -> Iterator[Finding]:
    refused = [each for each in (path, path.parent) if not os.access(each, os.W_OK)]
    if refused:
        yield _finding(
            alias,
            Severity.ERROR,
            what=f"This user may not write to {', '.join(map(repr, map(str, refused)))}.",
            why="No id can be had where the file, and SQLite's journal, can't be written.",
            todo="Give the user of the site both rights.",
        )
    if path.stat().st_dev != database.stat().st_dev:
        yield _finding(
            alias,
            Severity.WARNING,
            what=f"The id file {str(path)!r} is on another file system than the database.",
            why="A snapshot or a backup of the one doesn't have the other.",
            todo="Keep both on one file system.",
        )


def _lazy(alias: str) -> Finding:
    return _finding(
        alias,
        Severity.INFO,
        what="It is written with PRAGMA synchronous below FULL.",
        why="A power cut may take its last transactions, but nothing of the id file: ids of "
        "those rows are not given out again.",
        todo="",
    )
