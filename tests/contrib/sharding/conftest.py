"""Several databases, each a real one with rows of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.db import connections

from django_idgen.contrib.sharding import source as several
from django_idgen.db.tables import MODELS, _make_identity
from tests import servers
from tests.conftest import _drop_tables, _execute
from tests.server_tools import make_tables, wait_for_threads

PLACES = {"east": "postgres", "west": "mariadb", "north": "postgres", "south": "mariadb"}


def _name(alias: str) -> str:
    return f"idgen_{alias}_{os.getpid()}"


def _drop(alias: str, server: str) -> None:
    force = " WITH (FORCE)" if server == "postgres" else ""
    _execute(server, f"DROP DATABASE IF EXISTS {_name(alias)}{force}")


@pytest.fixture(scope="session")
def _shards(django_db_blocker: Any) -> Iterator[None]:
    for server in servers.URLS:
        servers.require(server)
    with django_db_blocker.unblock():
        for alias, server in PLACES.items():
            _drop(alias, server)
            _execute(server, f"CREATE DATABASE {_name(alias)}")
    yield
    with django_db_blocker.unblock():
        for alias, server in PLACES.items():
            _drop(alias, server)


def _empty(alias: str) -> None:
    """As after ``migrate``: tables that the test before has left as they were lose their rows."""
    connection = connections[alias]
    ours = {apps.get_model("django_idgen", name)._meta.db_table for name in MODELS}
    with connection.cursor() as cursor:
        if set(connection.introspection.table_names(cursor)) == ours:
            for table in ours:
                cursor.execute(f"DELETE FROM {table}")
            _make_identity(connection)
            return
    _drop_tables(alias)
    make_tables(alias)


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No database is passed over because the machine is slow: each has its turn."""
    monkeypatch.setattr(several, "SKIP_AFTER", 60.0)


@pytest.fixture
def shards(_shards: None, django_db_blocker: Any) -> Iterator[list[str]]:
    """The aliases of four empty databases, migrated: two of each server."""
    with django_db_blocker.unblock():
        for alias, server in PLACES.items():
            connections.settings[alias] = {**connections.settings[server], "NAME": _name(alias)}
            _empty(alias)
        try:
            yield list(PLACES)
        finally:
            wait_for_threads(*PLACES)
            for alias in PLACES:
                connections[alias].close()
                del connections[alias]
                del connections.settings[alias]
