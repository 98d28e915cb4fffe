"""Fixtures: an empty database on each server, for what has to be committed to be seen."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import OperationalError, connections

from django_idgen.settings import config as conf
from tests import servers, tiers
from tests.patience import SHIPPED_TIMEOUT
from tests.server_tools import wait_for_threads

SERVERS = ("postgres", "mariadb")
DATABASE = f"idgen_test_{os.getpid()}"

tiers.load_hypothesis_profile()


ONE_SITE = {
    "tests/admin/test_in_browser.py",
    "tests/example/test_example_pages.py",
}
"""Of each, a worker runs all tests with one parameter: it starts a site, and a browser, once."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each test to whichever worker is free, but for :data:`ONE_SITE`."""
    if config.getvalue("dist") != "loadgroup":
        return None
    # Its own groups are lost where pytest 9.2 makes the tests' names.
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if "zookeeper" in nodeid.lower() or "test_query_caches" in nodeid:
                return "zookeeper"  # each worker would start one, which takes 10 s
            path, _, name = nodeid.partition("::")
            return path + name.partition("[")[2] if path in ONE_SITE else nodeid

    return Scheduling(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not tiers.LONG:
        long = {item for item in items if tiers.is_long(item)}
        config.hook.pytest_deselected(items=list(long))
        items[:] = [item for item in items if item not in long]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test whose mark names a server that is not there is skipped, before its fixtures."""
    for mark in item.iter_markers("django_db"):
        for name in mark.kwargs.get("databases") or ():
            if name in SERVERS:
                servers.require(name)


@pytest.fixture(scope="session")
def _databases(django_db_blocker: Any) -> Iterator[set[str]]:
    """Names of the servers on which this process has made its database."""
    made: set[str] = set()
    yield made
    with django_db_blocker.unblock():
        for name in made:
            _drop_database(name)


@contextmanager
def _empty_database(name: str, made: set[str], blocker: Any) -> Iterator[str]:
    servers.require(_server_of(name))
    with blocker.unblock():
        if name not in made:
            _drop_database(name)
            _execute(name, f"CREATE DATABASE {_name_of(name)}")
            made.add(name)
        settings = connections.settings[name]
        configured = dict(settings)
        connections[name].close()
        settings["NAME"] = _name_of(name)
        try:
            _connect(name)
            _drop_tables(name)
            yield name
        finally:
            # What is written behind a test's back is written before its database is another's.
            wait_for_threads(name)
            connections[name].close()
            settings.update(configured)


@pytest.fixture
def postgres(_databases: set[str], django_db_blocker: Any) -> Iterator[str]:
    """The alias of an empty PostgreSQL database, without tables."""
    with _empty_database("postgres", _databases, django_db_blocker) as alias:
        yield alias


@pytest.fixture
def mariadb(_databases: set[str], django_db_blocker: Any) -> Iterator[str]:
    """The alias of an empty MariaDB database, without tables."""
    with _empty_database("mariadb", _databases, django_db_blocker) as alias:
        yield alias


@pytest.fixture
def another(postgres: str, _databases: set[str], django_db_blocker: Any) -> Iterator[str]:
    """The alias of a second empty PostgreSQL database, without tables."""
    connections.settings["another"] = dict(connections.settings[postgres])
    try:
        with _empty_database("another", _databases, django_db_blocker) as alias:
            yield alias
    finally:
        del connections["another"]
        del connections.settings["another"]


@pytest.fixture(params=SERVERS)
def server_alias(request: pytest.FixtureRequest) -> str:
    """The alias of an empty database, without tables, on each server in turn."""
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def redis() -> Iterator[str]:
    """The cache alias of a Redis that is shared: keep to keys of the test's own."""
    servers.require("redis")
    from tests.redis_servers import cache_alias

    with cache_alias("redis", servers.REDIS["redis"]) as alias:
        yield alias


@pytest.fixture
def farm() -> Iterator[Any]:
    """Redis servers of the test's own, a new one for each ``farm.server()``."""
    from tests.redis_servers import redis_farm

    with redis_farm() as farm:
        yield farm


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[Any]:
    """A ZooKeeper that the tests of a worker share: keep to namespaces of the test's own."""
    from tests.zookeeper_servers import zookeeper

    with zookeeper() as server:
        yield server


@pytest.fixture
def no_tags(db: None) -> None:
    """The test's own database has no tags: tests without a transaction leave theirs.

    Their tables are left out of a flush, or ids would come again.
    """
    from django_idgen.models import LeafAlloc
    from django_idgen.process import maps

    maps.reset()
    LeafAlloc.objects.all().delete()


@pytest.fixture
def shipped_timeout(monkeypatch: pytest.MonkeyPatch) -> float:
    """Seconds that callers wait for ids in a project that says nothing about it."""
    monkeypatch.setattr(conf, "DEFAULT_TIMEOUT", SHIPPED_TIMEOUT)
    return SHIPPED_TIMEOUT


def _connect(name: str) -> None:
    """Connect once the server has room: the last test may have ended 64 processes."""
    for _ in range(100):
        try:
            connections[name].ensure_connection()
        except OperationalError:
            time.sleep(0.1)
        else:
            return
    connections[name].ensure_connection()


def _drop_tables(name: str) -> None:
    connection = connections[name]
    with connection.constraint_checks_disabled(), connection.cursor() as cursor:
        found = connection.introspection.get_table_list(cursor)
        for kind, what in (("v", "VIEW"), ("t", "TABLE")):
            tables = [connection.ops.quote_name(each.name) for each in found if each.type == kind]
            if names := ", ".join(tables):
                cursor.execute(f"DROP {what} {names} CASCADE")


def _server_of(name: str) -> str:
    return name if name in SERVERS else "postgres"


def _name_of(name: str) -> str:
    return DATABASE if name in SERVERS else f"{DATABASE}_{name}"


def _drop_database(name: str) -> None:
    force = "" if name == "mariadb" else " WITH (FORCE)"
    _execute(name, f"DROP DATABASE IF EXISTS {_name_of(name)}{force}")


def _execute(name: str, statement: str) -> None:
    with connections[_server_of(name)]._nodb_cursor() as cursor:
        cursor.execute(statement)
