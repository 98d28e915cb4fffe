"""A history that can't be written just now: nobody waits for it, and not much is kept for it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from django.db import connections

from django_idgen.db import dialects
from django_idgen.db.connection import own_connection
from django_idgen.leases.redis import borrowed_history
from django_idgen.leases.redis.borrowed_history import PURPOSE
from django_idgen.models import LeaseHistory, NamespaceRecord
from django_idgen.sources.server import ServerSource
from tests.redis_leases.fleet import STRIDE, Fleet
from tests.redis_servers import RedisFarm, cache_alias, eventually

LOCK = {
    "postgres": "LOCK TABLE django_idgen_leasehistory IN ACCESS EXCLUSIVE MODE",
    "mariadb": "LOCK TABLES django_idgen_leasehistory WRITE",
}
PATIENCE = 60
"""Seconds that a transaction waits for a lock here: as if the database hung."""


@pytest.fixture
def fleet(farm: RedisFarm, server_alias: str) -> Iterator[Fleet]:
    """Holders on a Redis of this test's own, with each database as its root."""
    with cache_alias("idgen", farm.server().url) as alias:
        made = Fleet(alias, server_alias)
        yield made
        made.close()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    begin: Callable[..., None] = dialects.begin
    monkeypatch.setattr(
        dialects, "begin", lambda connection, **_options: begin(connection, lock_timeout=PATIENCE)
    )


@contextmanager
def history_locked(alias: str) -> Iterator[None]:
    with closing(connections.create_connection(alias)) as blocker:
        blocker.set_autocommit(False)
        with blocker.cursor() as cursor:
            cursor.execute(LOCK[alias])
        yield
        blocker.rollback()


def settle(alias: str) -> None:
    own_connection(alias, PURPOSE).loader.submit(lambda: None).result(PATIENCE)


def test_a_history_that_hangs_holds_up_no_segment_and_no_renewal(
    fleet: Fleet, patient: None
) -> None:
    """While its table is locked, segments are loaded from that database, and a ceiling raised."""
    source = ServerSource(alias=fleet.database, timeout=5)
    source.fetch("orders")
    (first,) = fleet.hire(1)
    settle(fleet.database)
    with history_locked(fleet.database):
        fleet.hire(1)
        eventually(lambda: [each for each in borrowed_history._pending if each.running()], "a row")
        assert source.fetch("orders").start == 1001
        ceiling = fleet.check_ceiling()
        fleet.pass_ticks(STRIDE // 3)
        assert first.renew()
        assert NamespaceRecord.objects.using(fleet.database).get().ceiling > ceiling
    settle(fleet.database)
    assert LeaseHistory.objects.using(fleet.database).count() == 2
    fleet.check(ahead=0)


def test_of_a_history_that_hangs_not_all_is_kept(
    fleet: Fleet, patient: None, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """So many rows wait, the others are told in the log; leases are lent all the same."""
    monkeypatch.setattr(borrowed_history, "MOST_WAITING", 2)
    fleet.hire(1)
    settle(fleet.database)
    caplog.set_level(logging.WARNING, "django_idgen")
    with history_locked(fleet.database):
        fleet.hire(4)
        assert len(borrowed_history._pending) == 2
    settle(fleet.database)
    told = [record.getMessage() for record in caplog.records]
    assert len([words for words in told if "2 others wait" in words]) == 2
    assert LeaseHistory.objects.using(fleet.database).count() == 3
    fleet.check(ahead=0)
