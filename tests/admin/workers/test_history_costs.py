"""What the history of worker ids must not cost those who acquire: rights, locks, signals."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from django.db import connections
from django.db.models.signals import post_delete, pre_delete

from django_idgen.core.registry import Registry
from django_idgen.db import dialects
from django_idgen.db.connection import OwnConnection
from django_idgen.leases import history as lease_history
from django_idgen.leases.server import ServerLeases
from django_idgen.models import LeaseHistory
from tests.leases.server.shop import SHOP
from tests.server_tools import at_once, execute

ONE = replace(SHOP, workers=range(1))
USER = f"idgen_guest_{os.getpid()}"
MAKE = {
    "postgres": [
        f"CREATE ROLE {USER} LOGIN",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {USER}",
        f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {USER}",
    ],
    "mariadb": [f"CREATE USER {USER}@'%'"],
}
UNMAKE = {
    "postgres": [f"DROP OWNED BY {USER}", f"DROP ROLE {USER}"],
    "mariadb": [f"DROP USER {USER}@'%'"],
}


@pytest.fixture
def trimmed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each acquire but the first ones finds a row too many."""
    monkeypatch.setattr(lease_history, "MOST", 2)
    monkeypatch.setattr(lease_history, "ONE_IN", 1)


def lend(registry: Registry, times: int) -> None:
    for number in range(times):
        lease = registry.acquire(holder=f"h{number}").lease
        registry.release(lease, last_tick=lease.start)


def rights_on_history(alias: str, *rights: str) -> Iterator[str]:
    """The statements that leave a user of ``alias`` all rights on the other tables, and these."""
    history = LeaseHistory._meta.db_table
    yield from MAKE[alias]
    if alias == "postgres":
        yield f"REVOKE ALL ON {history} FROM {USER}"
    else:
        tables = connections[alias].introspection.table_names()
        for table in set(tables) - {history}:
            yield f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {USER}@'%'"
    for right in rights:
        yield f"GRANT {right} ON {history} TO {USER}" + ("@'%'" if alias == "mariadb" else "")


@contextmanager
def as_guest(alias: str, *rights: str) -> Iterator[None]:
    settings = connections.settings[alias]
    configured = settings["USER"], settings["PASSWORD"]
    for statement in rights_on_history(alias, *rights):
        execute(alias, statement)
    settings.update(USER=USER, PASSWORD="")
    try:
        yield
    finally:
        settings.update(USER=configured[0], PASSWORD=configured[1])
        for statement in UNMAKE[alias]:
            execute(alias, statement)


def test_a_user_without_rights_on_the_table_is_lent_worker_ids(
    server_alias: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a migration by another one: ids go on, and the log names the table."""
    registry = ServerLeases(ONE, alias=server_alias)
    lend(registry, 1)
    with as_guest(server_alias), caplog.at_level(logging.WARNING, "django_idgen"):
        lend(registry, 2)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert all(LeaseHistory._meta.db_table in text and "shop/0" in text for text in told)
    assert LeaseHistory.objects.using(server_alias).count() == 1


@pytest.mark.usefixtures("trimmed")
def test_a_user_who_may_not_delete_leaves_more_rows(
    server_alias: str, caplog: pytest.LogCaptureFixture
) -> None:
    """And each acquire is noted all the same: it must not fail one day, when there are too many."""
    registry = ServerLeases(ONE, alias=server_alias)
    lend(registry, 1)
    with as_guest(server_alias, "SELECT", "INSERT"), caplog.at_level(logging.WARNING):
        lend(registry, 4)
    assert LeaseHistory.objects.using(server_alias).count() == 5
    assert "were not deleted" in caplog.text
    lend(registry, 1)
    assert LeaseHistory.objects.using(server_alias).count() == 2


@pytest.mark.usefixtures("trimmed")
def test_old_rows_go_without_the_signals_of_a_project(server_alias: str) -> None:
    """A receiver for every model, such as an audit log, may need an id for its own row."""
    registry, seen = ServerLeases(ONE, alias=server_alias), []

    def receive(sender: Any, **_: Any) -> None:
        seen.append(sender)

    for signal in (pre_delete, post_delete):
        signal.connect(receive)
    try:
        lend(registry, 5)
    finally:
        for signal in (pre_delete, post_delete):
            signal.disconnect(receive)
    assert seen == []
    assert LeaseHistory.objects.using(server_alias).count() == 2


@pytest.mark.usefixtures("trimmed")
def test_acquires_of_several_namespaces_never_meet_in_the_history(
    server_alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All lend at once, and each deletes its old rows: none loses against another."""
    lost: list[str] = []

    def is_conflict(error: BaseException, ask: Any = dialects.is_conflict) -> bool:
        found = bool(ask(error))
        if found:
            lost.append(str(error))
        return found

    spaces = [replace(SHOP, name=f"n{number}") for number in range(6)]
    lend(ServerLeases(spaces[0], alias=server_alias), 1)
    for space in spaces:
        lend(ServerLeases(space, alias=server_alias), 1)
    monkeypatch.setattr(dialects, "is_conflict", is_conflict)

    def job(number: int) -> None:
        own = OwnConnection(server_alias)
        space = spaces[number % len(spaces)]
        lend(ServerLeases(space, alias=server_alias, own=own), 5)
        own.run(lambda _connection: None, timeout=30)

    at_once(18, job)
    assert lost == []
