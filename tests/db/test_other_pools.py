"""An ENGINE that pools connections by itself (hazard 106)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from dj_db_conn_pool.core import pool_container
from django.db import connections, transaction
from django.test import override_settings

from django_idgen import segments
from django_idgen.db.connection import own_connection
from django_idgen.testing.contracts.lenders import at_once
from tests.places import idgen_on
from tests.server_tools import make_tables, wait_for_threads

CALLERS = 2


@pytest.fixture
def pooled(postgres: str) -> Iterator[str]:
    """The alias of PostgreSQL by such an engine, with as many connections as callers."""
    make_tables(postgres)
    settings = connections.settings[postgres]
    connections.settings["pooled"] = {
        **settings,
        "ENGINE": "dj_db_conn_pool.backends.postgresql",
        "POOL_OPTIONS": {"POOL_SIZE": CALLERS, "MAX_OVERFLOW": 0, "TIMEOUT": 5},
    }
    try:
        with override_settings(IDGEN=idgen_on("pooled")):
            yield "pooled"
    finally:
        segments.close()
        wait_for_threads("pooled")  # or their connections stay
        connections["pooled"].close()
        if pool_container.has("pooled"):  # once a connection was taken from it
            pool_container.pop("pooled").dispose()
        del connections["pooled"]
        del connections.settings["pooled"]


def test_callers_that_hold_the_whole_pool_get_ids(pooled: str) -> None:
    """Each waits for ids in a transaction on one of its connections; ours is none of them."""

    def work(_: int) -> list[int]:
        try:
            with transaction.atomic(using=pooled), connections[pooled].cursor() as cursor:
                cursor.execute("SELECT 1")
                return segments["orders"].next_ids(50)
        finally:
            connections[pooled].close()

    ids = [number for some in at_once(CALLERS, work) for number in some]
    assert len(set(ids)) == len(ids) == CALLERS * 50


def test_what_else_the_engine_does_stays(pooled: str) -> None:
    """Our connection is one of the engine's class, made and closed as Django does."""
    found = own_connection(pooled).run(
        lambda connection: (
            isinstance(connection, type(connections[pooled])),
            type(connection.connection).__module__,
        ),
        timeout=30,
    )
    assert found == (True, "psycopg") or found == (True, "builtins")
