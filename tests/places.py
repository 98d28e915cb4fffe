"""A database of each kind, empty but for a few tables, for what has to be committed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from django.conf import settings
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import override_settings

from tests import servers, tiers
from tests.app.models import Folder, Invoice
from tests.server_tools import make_tables

SQLITE: dict[str, dict[str, Any]] = {
    "journal": {},
    "wal": {"init_command": "PRAGMA journal_mode=WAL"},
    "immediate": {"transaction_mode": "IMMEDIATE"},
}
PLACES = [*SQLITE, *servers.URLS]
# Django 6.1 has renamed it.
savepoint_create = getattr(transaction, "savepoint_create", None) or transaction.savepoint
STEP = 20
"""Ids a segment has here: few, so that fetches happen in the middle of things."""


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, django_db_blocker: Any) -> Iterator[str]:
    """The alias of a database with the tables of ``Folder`` and ``Invoice``; ids come from it."""
    if request.param in SQLITE:
        with (
            django_db_blocker.unblock(),
            TemporaryDirectory(dir=servers.fast_directory()) as directory,
            sqlite(Path(directory), request.param) as alias,
        ):
            # There to be written, at the wrong moment, by whoever would.
            make_tables(alias)
            yield alias
    else:
        alias = request.getfixturevalue(request.param)
        with using(alias):
            yield alias


@pytest.fixture(params=["sqlite", *servers.URLS])
def empty_place(
    request: pytest.FixtureRequest, tmp_path: Path, django_db_blocker: Any
) -> Iterator[str]:
    """The alias of an empty database of each kind in turn, without tables."""
    if request.param == "sqlite":
        with django_db_blocker.unblock(), empty_sqlite(tmp_path / "db.sqlite3") as alias:
            yield alias
    else:
        yield request.getfixturevalue(request.param)


@pytest.fixture(params=["default", *servers.URLS])
def alias(request: pytest.FixtureRequest) -> str:
    """The alias of a database of the run: SQLite in a file, or a server that was found."""
    if request.param != "default":
        servers.require(request.param)
    return str(request.param)


# A database that is named here is made, and each test begins a transaction in it.
_USED = [name for name in settings.DATABASES if tiers.LONG or name != "mariadb"]
on_every_database = pytest.mark.django_db(databases=_USED)


MOMENT = 1.0
ENDLESS = 400.0
"""Seconds: longer than a test may take."""


def wait_endlessly(put: Callable[[Any, str, Any], None] = setattr) -> None:
    """From here on whoever waits for a lock of SQLite for more than a moment hangs.

    So a test shows that nobody does. On a server, who waits for its own caller's lock fails
    anyway, for the caller waits for it.
    """
    connect = sqlite3.dbapi2.connect

    def patiently(*args: Any, timeout: float = 5.0, **options: Any) -> sqlite3.Connection:
        return connect(*args, timeout=ENDLESS if timeout > MOMENT else timeout, **options)

    for module in (sqlite3, sqlite3.dbapi2):
        put(module, "connect", patiently)


@contextmanager
def sqlite(directory: Path, kind: str = "journal", **options: Any) -> Iterator[str]:
    """``default`` is a SQLite file in ``directory`` for the block, with the tables of the tests."""
    with empty_sqlite(directory / "shop.sqlite3", **SQLITE[kind], **options), using("default"):
        yield "default"


@contextmanager
def empty_sqlite(path: Path, **options: Any) -> Iterator[str]:
    """``default`` is the SQLite file ``path`` for the block."""
    configuration = connections.settings["default"]
    configured = dict(configuration)
    # Django never closes a connection to a database in memory, which the tests' own may be.
    before = connections["default"]
    configuration.update(NAME=str(path), OPTIONS=options)
    connections["default"] = connections.create_connection("default")
    try:
        yield "default"
    finally:
        BaseDatabaseWrapper.close(connections["default"])
        connections["default"] = before
        configuration.clear()
        configuration.update(configured)


@contextmanager
def using(alias: str) -> Iterator[None]:
    """All ids come from the database ``alias``, in which two tables are made."""
    with connections[alias].schema_editor() as editor:
        editor.create_model(Folder)
        editor.create_model(Invoice)
    with override_settings(IDGEN=idgen_on(alias)):
        yield


class Only:
    """A router that has all rows in some databases: those without a hint in the first of them."""

    def __init__(self, *aliases: str) -> None:
        self.aliases = aliases

    def db_for_write(self, model: Any, **hints: Any) -> str:
        return self.aliases[0]

    db_for_read = db_for_write

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        return db in self.aliases


def idgen_on(alias: str) -> dict[str, Any]:
    options = {"OPTIONS": {"database": alias}}
    return {
        "GENERATORS": {"default": {"LEASES": options}},
        "SEGMENTS": {"SOURCE": options, "OPTIONS": {"default_step": STEP}},
    }
