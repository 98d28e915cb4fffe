"""Examination ``sqlite``: the marks file beside a SQLite database."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from django.db import Error as AnyDatabaseError
from django.db import connections

from ...db.connection import Place, place_of
from ...db.forking import no_fork
from ...db.sqlite.marks_seed import identity_of
from ...db.stores import catch_up, database_of_alias, marks_of
from ...models import Installation, LeafAlloc
from .findings import Finding, Severity, Unexamined
from .project import Project, unexamined

__all__ = ["NAME", "examine"]

NAME = "sqlite"
_LAZY = re.compile(r"synchronous\s*=\s*['\"]?(normal|off|0|1)\b", re.IGNORECASE)


def examine(project: Project) -> Iterator[Finding | Unexamined]:
    """What there is to say of each marks file."""
    for alias in project.up():
        if place_of(alias) is not Place.FILE or not project.has(alias, "Installation"):
            continue
        try:
            yield from _of_database(project, alias)
        except (AnyDatabaseError, sqlite3.Error, OSError) as error:
            yield unexamined(NAME, f"database {alias!r}", error)


def _of_database(project: Project, alias: str) -> Iterator[Finding]:
    catch_up(alias)
    row = Installation.objects.using(alias).filter(pk=1).first()
    path = marks_of(alias).path
    known = _known_tags(project, alias)
    if not path.exists():
        if row is not None and known:
            yield _gone(alias, path)
        return
    yield from _permissions(alias, path)
    with no_fork(), closing(_opened(path)) as db:
        identity = identity_of(db)
        marks = dict(db.execute("SELECT tag, max_id FROM segments")) if identity else {}
    if row is not None and identity is not None and identity != row.identity:
        yield _foreign(alias, path)
        return
    behind = sorted(tag for tag, max_id in known.items() if max_id > marks.get(tag, 1))
    if behind:
        yield _behind(alias, path, behind)
    if _LAZY.search(str(connections.settings[alias].get("OPTIONS") or "")):
        yield _lazy(alias)


def _known_tags(project: Project, alias: str) -> dict[str, int]:
    if not project.has(alias, "LeafAlloc"):
        return {}
    rows = LeafAlloc.objects.using(alias).filter(max_id__gt=1)
    return dict(rows.values_list("pk", "max_id"))


def _opened(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=5.0)


def _finding(alias: str, severity: Severity, **words: Any) -> Finding:
    return Finding(NAME, severity, f"database {alias!r}", **words)


def _gone(alias: str, path: Path) -> Finding:
    return _finding(
        alias,
        Severity.WARNING,
        what=f"Its marks file {str(path)!r} is gone.",
        why="The next process makes a new one out of what the database knows, and skips ahead: "
        "there may have been ids that the database knew nothing of.",
        todo="Move the file along with the database; see what deletes it.",
    )


def _foreign(alias: str, path: Path) -> Finding:
    return _finding(
        alias,
        Severity.WARNING,
        what=f"The marks file {str(path)!r} is of another database.",
        why="One of the two was replaced. The next process takes over what both know, and skips "
        "ahead.",
        todo="If the database was put back from a backup, put the marks file of the same moment "
        "beside it only if nothing was given out since; else leave it as it is.",
    )


def _behind(alias: str, path: Path, tags: list[str]) -> Finding:
    names = ", ".join(map(repr, tags[:5]))
    return _finding(
        alias,
        Severity.WARNING,
        what=f"{len(tags)} tags stand higher in the database than in the marks file "
        f"{str(path)!r}, such as {names}.",
        why="Either they were raised there by hand, which counts from the next fetch on, or the "
        "file is an old copy; then the next process skips ahead.",
        todo="If the file was put back from a backup, restart the processes, and run "
        "'manage.py idgen_skip --all --generators'.",
    )


def _permissions(alias: str, path: Path) -> Iterator[Finding]:
    refused = [each for each in (path, path.parent) if not os.access(each, os.W_OK)]
    database = database_of_alias(alias)
    if refused:
        yield _finding(
            alias,
            Severity.ERROR,
            what=f"This user may not write to {', '.join(map(repr, map(str, refused)))}.",
            why="No id can be had where the marks, and SQLite's journal, can't be written.",
            todo="Give the user of the site both rights.",
        )
    if path.stat().st_dev != database.stat().st_dev:
        yield _finding(
            alias,
            Severity.WARNING,
            what=f"The marks file {str(path)!r} is on another file system than the database.",
            why="A snapshot or a backup of the one doesn't have the other.",
            todo="Keep both on one file system.",
        )


def _lazy(alias: str) -> Finding:
    return _finding(
        alias,
        Severity.INFO,
        what="It is written with PRAGMA synchronous below FULL.",
        why="A power cut may take its last transactions, but no mark: ids of those rows are not "
        "given out again.",
        todo="",
    )
