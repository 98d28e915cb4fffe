"""Occasions: a mirror is caught up on, and what a dropped test database leaves is removed.

What a transaction kept from the rows that mirror a SQLite database's marks (see
:mod:`.mirror`) is written when a request or ``migrate`` has ended. Django's test
runners remove the files of their databases; the marks file beside each of them is
removed by us at exit, once the database is gone.
"""

from __future__ import annotations

import atexit
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.core.signals import request_finished
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.models.signals import post_migrate

from ..connection import Place, place_of
from ..stores import SUFFIX, catch_up, database_of_alias

__all__ = ["remove_leftovers", "watch"]

_configured: dict[str, str] = {}
_test_databases: set[Path] = set()


def watch() -> None:
    """Connect to the occasions (done when the app is ready, before ids can be taken)."""
    for alias in connections.settings:
        _configured[alias] = _name(alias)
    request_finished.connect(_on_request_finished, dispatch_uid="django_idgen")
    post_migrate.connect(_on_migrated, dispatch_uid="django_idgen")
    atexit.register(remove_leftovers)


def _on_request_finished(**_kwargs: Any) -> None:
    for alias in connections.settings:
        if connections.settings[alias]["ENGINE"].endswith("sqlite3"):
            catch_up(alias)


def _on_migrated(*, using: str = DEFAULT_DB_ALIAS, **_kwargs: Any) -> None:
    # As Django's own receivers: who sends the signal by hand may say nothing else.
    # Sent once for each app; what is not pending costs nothing.
    if place_of(using) is Place.FILE and _configured.get(using) != _name(using):
        # Only a test runner gives an alias another name.
        _test_databases.add(database_of_alias(using))
    catch_up(using)


def remove_leftovers() -> None:
    """Remove the marks files of test databases that are gone, copies for parallel runs too."""
    for database in _test_databases:
        for marks in _marks_of_copies(database):
            if not marks.with_name(marks.name.removesuffix(SUFFIX)).exists():
                with suppress(OSError):
                    marks.unlink()


def _marks_of_copies(database: Path) -> Iterator[Path]:
    # Django calls the copies test_1.sqlite3, test_2.sqlite3 and so on.
    stem, extension = os.path.splitext(database.name)
    pattern = re.escape(stem) + r"(_\d+)?" + re.escape(extension + SUFFIX)
    with suppress(OSError):
        for path in database.parent.iterdir():
            if re.fullmatch(pattern, path.name):
                yield path


def _name(alias: str) -> str:
    return str(connections.settings[alias].get("NAME") or "")
