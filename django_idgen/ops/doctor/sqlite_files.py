"""Examination ``sqlite``: the id file beside a SQLite database."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from django.db import connections

from ...db.sqlite import database_of, file_beside
from .findings import Finding, Severity, Unexamined
from .project import Project, attempt

_LAZY = re.compile(r"synchronous\s*=\s*['\"]?(normal|off|0|1)\b", re.IGNORECASE)


def examine(project: Project) -> Iterator[Finding | Unexamined]:
    """A finding for each id file that is gone, or whose loss the database would not share."""
    for alias in project.reachable():
        database = database_of(alias)
        if database is not None and "django_idgen_identity" in project.tables(alias):
            yield from attempt(f"database {alias!r}", _of_database(alias, database))


def _of_database(alias: str, database: Path) -> Iterator[Finding]:
    path, subject = file_beside(database), f"database {alias!r}"
    if not path.exists():
        yield Finding(
            Severity.WARNING,
            subject,
            f"Its id file {str(path)!r} is gone.",
            "The next process makes a new one, in which tags begin a distance above the rows of "
            "their tables, because some ids may be in no row.",
            "Move the file along with the database; find out what deletes it.",
        )
        return
    refused = [each for each in (path, path.parent) if not os.access(each, os.W_OK)]
    if refused:
        yield Finding(
            Severity.ERROR,
            subject,
            f"This user may not write to {', '.join(map(repr, map(str, refused)))}.",
            "Ids need write access to the file and, for SQLite's journal, to its directory.",
            "Give the user of the site both rights.",
        )
    if path.stat().st_dev != database.stat().st_dev:
        yield Finding(
            Severity.WARNING,
            subject,
            f"The id file {str(path)!r} is on another file system than the database.",
            "A snapshot or backup of one does not contain the other.",
            "Keep both on one file system.",
        )
    if _LAZY.search(str(connections.settings[alias].get("OPTIONS") or "")):
        yield Finding(
            Severity.INFO,
            subject,
            "It is written with PRAGMA synchronous below FULL.",
            "A power cut may lose its last transactions, but nothing of the id file: the ids of "
            "those rows are not given out again.",
        )
