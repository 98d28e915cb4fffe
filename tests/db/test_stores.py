"""Which store a database's marks are in, as test runners change databases under a process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from django_idgen import generators, next_id, segments
from django_idgen.core.errors import LeaseLost
from django_idgen.db.connection import AliasLoader, Place, Stores, home_connection
from django_idgen.db.tables import MODELS, missing_tables
from django_idgen.process import handlers
from tests import places
from tests.places import STEP
from tests.places import place as place


@pytest.fixture
def shop(directory: Path) -> Iterator[Path]:
    """A SQLite database, the default one."""
    with places.sqlite(directory):
        yield directory / "shop.sqlite3"


def another_database(alias: str, name: str) -> None:
    """What a test runner does to an alias when it starts and when it is done."""
    connections[alias].close()
    connections.settings[alias]["NAME"] = name


def test_a_store_is_made_once_for_a_place_and_a_name(shop: Path) -> None:
    """And found again when the alias means the same database again."""
    made: list[Place] = []
    stores = Stores("default", lambda place: made.append(place) or object())
    first = stores.current()
    assert stores.current() is first
    another_database("default", ":memory:")
    assert stores.current() is not first
    assert not stores.is_current(first)
    another_database("default", str(shop))
    assert stores.current() is first
    assert made == [Place.SERVER, Place.MEMORY]


def test_a_database_in_memory_has_no_background_thread(shop: Path) -> None:
    """Another thread would find another database (hazard 67); a file's it finds."""
    loader = AliasLoader("default")
    assert loader.background
    another_database("default", ":memory:")
    assert not loader.background


def test_a_server_has_one(server_alias: str) -> None:
    """There the next segment is loaded while the caller goes on."""
    assert AliasLoader(server_alias).background


def test_ids_of_a_test_without_the_database_come_one_at_a_time() -> None:
    """Nothing is left over that would be used on the database once it is allowed."""
    with_database_before = segments["t"].next_ids(3)
    assert with_database_before == sorted(set(with_database_before))
    assert segments["t"].stats().remaining == 0
    assert next_id() < next_id()
    handlers.reset()


def test_a_lease_is_not_given_back_to_another_sqlite_database(shop: Path) -> None:
    """At the end of a test run the real database is left alone: not even a file is made."""
    next_id()
    segments["t"].next_ids(STEP)
    real = shop.with_name("real.sqlite3")
    real.write_bytes(b"")
    another_database("default", str(real))
    handlers.reset()
    assert real.read_bytes() == b""
    assert not real.with_name("real.sqlite3-idgen").exists()


def test_a_dropped_sqlite_database_gets_no_new_marks(shop: Path) -> None:
    """Nor is a marks file made again beside a database that is gone."""
    next_id()
    connections["default"].close()
    shop.unlink()
    shop.with_name("shop.sqlite3-idgen").unlink()
    handlers.reset()
    assert [*shop.parent.iterdir()] == []


def test_a_lease_is_not_given_back_to_another_server_database(server_alias: str) -> None:
    """No table of ours is made in the real database at the end of a test run."""
    with places.using(server_alias):
        next_id()
        name = connections.settings[server_alias]["NAME"]
        real = f"{name}_real"
        with connections[server_alias]._nodb_cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {real}")
        another_database(server_alias, real)
        try:
            handlers.reset()
            assert len(missing_tables(home_connection(server_alias))) == len(MODELS)
        finally:
            another_database(server_alias, name)
            with connections[server_alias]._nodb_cursor() as cursor:
                cursor.execute(f"DROP DATABASE {real}")


def test_a_lease_of_another_database_is_not_renewed(shop: Path) -> None:
    """A generator that lives on takes a worker id where its ids go now."""
    next_id()
    keeper = generators["default"].keeper
    lease = keeper.lease
    another_database("default", str(shop.with_name("other.sqlite3")))
    with pytest.raises(LeaseLost, match="is no longer the server that lent"):
        keeper.registry.renew(lease, last_tick=lease.start)


def test_a_lease_stays_as_it_is_while_its_lender_is_forbidden(
    place: str, django_db_blocker: Any
) -> None:
    """A test that may not use the database neither renews nor loses what is held."""
    next_id()
    keeper = generators["default"].keeper
    with django_db_blocker.block():
        kept = keeper.registry.renew(keeper.lease, last_tick=keeper.lease.start).lease
        assert kept == keeper.lease
        assert next_id() < next_id()


def test_one_sqlite_database_has_one_marks_file(shop: Path) -> None:
    """Releases that each link to the database would else give out the same ids."""
    ids = [segments["t"].next_id()]
    release = shop.parent / "release"
    release.mkdir()
    link = release / "shop.sqlite3"
    link.symlink_to(shop)
    for name in (link, f"file:{link}?mode=rw", f"file://{shop}"):
        another_database("default", str(name))
        handlers.reset()
        ids.append(segments["t"].next_id())
        assert next_id()
    assert ids == [ids[0] + STEP * n for n in range(4)]
    assert [path.name for path in release.iterdir()] == ["shop.sqlite3"]
