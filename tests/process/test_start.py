"""Starting where the database is not ready, and getting going once it is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from django.db import connections
from django.test import override_settings

from django_idgen import generators, segments
from django_idgen.core.errors import LeaseError, RegistryUnavailable, SegmentUnavailable
from django_idgen.models import LeafAlloc
from django_idgen.process import maps
from tests.own_servers import eventually
from tests.places import Invoice, Only, idgen_on, using
from tests.server_tools import unreachable


@pytest.fixture
def server(server_alias: str) -> Iterator[str]:
    maps.reset()  # rows that other tests have loaded are none here
    with using(server_alias):
        yield server_alias
        maps.reset()


def test_a_server_that_is_down_is_named_and_ids_flow_once_it_is_up(
    server: str, shipped_timeout: float
) -> None:
    """An error that says what to do, never an id; no restart is needed (hazards 23, 30).

    Naming a generator or a tag opens nothing.
    """
    with unreachable(server):
        generator: Any = generators["default"]
        assert generator.layout.bits == 63
        assert segments["tea"].stats()
        with pytest.raises(RegistryUnavailable, match=f"Database '{server}' failed: .*Check that"):
            generators["default"].next_id()
        with pytest.raises(SegmentUnavailable, match=r"tag 'tea'.*within 0.5 s") as raised:
            segments["tea"].next_id()
        assert isinstance(raised.value.__cause__, SegmentUnavailable)
    assert _once_it_is_up(generators["default"].next_id) > 0
    assert _once_it_is_up(segments["tea"].next_id) == 1


def test_a_field_begins_above_its_rows_once_the_database_is_up(
    server: str, shipped_timeout: float
) -> None:
    """While no database says whether its tag is new, there are no ids; afterwards none of a row."""
    Invoice.objects.using(server).create(pk=500)
    with unreachable(server), pytest.raises(SegmentUnavailable):
        Invoice._meta.pk.next_value()
    with override_settings(DATABASE_ROUTERS=[Only(server)]):
        assert _once_it_is_up(Invoice._meta.pk.next_value) == 501


def _once_it_is_up(take: Callable[[], int]) -> int:
    # A failure is remembered for a moment, so that callers don't queue up for it.
    return int(eventually(take, "an id", LeaseError, SegmentUnavailable))


LOCK = {
    "postgres": "LOCK TABLE {} IN ACCESS EXCLUSIVE MODE",
    "mariadb": "SELECT * FROM {} FOR UPDATE",
}


def test_a_slow_start_is_no_failure(server: str, shipped_timeout: float) -> None:
    """A process' first segment of a tag is waited for longer than 0.5 s."""
    patient = idgen_on(server)
    patient["SEGMENTS"]["OPTIONS"]["first_timeout"] = 60
    assert segments["tea"].next_id() == 1
    with (
        override_settings(IDGEN=patient),
        closing(connections.create_connection(server)) as other,
    ):
        other.set_autocommit(False)
        with other.cursor() as cursor:
            cursor.execute(LOCK[server].format(LeafAlloc._meta.db_table))
        freed = threading.Event()  # a timer's own is set after what it calls

        def unlock() -> None:
            freed.set()
            other.connection.rollback()

        free = threading.Timer(2 * shipped_timeout, unlock)
        free.start()
        try:
            assert segments["tea"].next_id() > 1
            assert freed.is_set()
        finally:
            free.join()
