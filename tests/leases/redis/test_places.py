"""Where the root is: beside a SQLite file, in memory, or nowhere in a test that forbids it."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings

from django_idgen.core.errors import LeaseLost
from django_idgen.db.connection import Place
from django_idgen.leases import forbidden
from django_idgen.leases.forbidden import UnlessForbidden
from django_idgen.leases.redis.registry import RedisLeases
from tests.leases.redis.fleet import SHOP, STRIDE, WINDOW, Fleet
from tests.places import empty_sqlite, make_tables
from tests.redis_servers import RedisFarm, cache_alias

PATH = "django_idgen.leases.redis.RedisLeases"


@pytest.fixture
def on_a_file(farm: RedisFarm, tmp_path: Path, django_db_blocker: Any) -> Iterator[Fleet]:
    """A fleet whose project is on a SQLite file."""
    farm.first = farm.server()
    with (
        django_db_blocker.unblock(),
        empty_sqlite(tmp_path / "shop.sqlite3"),
        cache_alias("idgen", farm.first.url) as alias,
    ):
        make_tables("default")
        fleet = Fleet(alias, "default")
        yield fleet
        fleet.close()


def no_marks(marks: Path) -> None:
    marks.unlink()


def old_marks(marks: Path) -> None:
    """A copy of before most of what was lent, and older than that."""
    copy = marks.with_name("copy")
    with closing(sqlite3.connect(copy)) as db, db:
        db.execute("UPDATE django_idgen_file SET written = written - 60")
    shutil.copy(copy, marks)


@pytest.mark.parametrize("loss", [no_marks, old_marks])
def test_a_file_that_was_lost_is_made_good(
    on_a_file: Fleet,
    farm: RedisFarm,
    tmp_path: Path,
    loss: Callable[[Path], None],
) -> None:
    """The file that takes its place opens a new generation, though Redis has forgotten as well."""
    fleet, marks = on_a_file, tmp_path / "shop.sqlite3-idgen"
    fleet.hire(8)
    shutil.copy(marks, tmp_path / "copy")
    fleet.go_on(6, WINDOW // 2)
    loss(marks)
    farm.first.run("FLUSHALL")
    fleet.hire(8)
    fleet.go_on()
    fleet.check(ahead=10 * STRIDE)


def test_an_in_memory_project_gets_ids_through_redis(
    farm: RedisFarm, django_db_blocker: Any
) -> None:
    """A test suite on an in-memory database needs no more than the Redis it names."""
    from django_idgen.process.maps import generators

    options = {"alias": "idgen", "window": 60}
    idgen = {"GENERATORS": {"shop": {"LEASES": {"BACKEND": PATH, "OPTIONS": options}}}}
    server = farm.server()
    with (
        django_db_blocker.unblock(),
        empty_sqlite(Path(":memory:")),
        cache_alias("idgen", server.url),
        override_settings(IDGEN=idgen),
    ):
        first = generators["shop"].next_ids(3)
        generators.close()
        server.run("FLUSHALL")
        assert generators["shop"].next_id() > max(first)
        generators.close()


def test_a_test_without_the_database_needs_no_redis() -> None:
    """Where the test forbids the database, worker ids come from memory."""
    leases = UnlessForbidden(RedisLeases(SHOP, alias="nowhere"))
    lease = leases.acquire(holder="a").lease
    assert leases.renew(lease, last_tick=lease.start).lease.until >= lease.until
    assert leases.renew_seen(idle_after=60) == 1
    assert leases.release(lease, last_tick=None)
    leases.close()


def test_a_lease_outlives_a_test_that_forbids_the_database(
    on_a_file: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays as it is, can be used to its end, and goes on when the database may be used."""
    fleet = on_a_file
    (holder,) = fleet.hire(1)
    lease = holder.lease
    assert lease is not None
    holder.registry = UnlessForbidden(holder.registry)
    with monkeypatch.context() as forbidding:
        forbidding.setattr(forbidden, "place_of", lambda alias: Place.FORBIDDEN)
        assert holder.registry.renew(lease, last_tick=fleet.now).lease == lease
        assert not holder.registry.release(lease, last_tick=fleet.now)
        with pytest.raises(LeaseLost):
            holder.registry.renew(lease, last_tick=lease.until)
    assert holder.renew()
    fleet.check(ahead=0)
