"""The rows of ``LeafAlloc`` that people see and edit; on SQLite they mirror a file's marks."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.core.signals import request_finished
from django.db import connections, transaction
from django.db.models.signals import post_migrate
from django.db.utils import OperationalError

from django_idgen import next_id, segments
from django_idgen.core.errors import SegmentUnavailable
from django_idgen.db.sqlite.marks_seed import FAILOVER_SKIP
from django_idgen.db.stores import catch_up
from django_idgen.db.tables import make_missing_tables
from django_idgen.models import Installation, LeafAlloc, NamespaceRecord, WorkerLease
from django_idgen.process import handlers
from tests import places
from tests.places import STEP, place

__all__ = ["place"]


@pytest.fixture
def tagged(place: str) -> str:
    """The alias of a database with our tables, where the tag "t" is in use."""
    make_missing_tables(connections[place])
    # The first fetch may take its time on a busy machine.
    assert segments["t"].preload(60)  # type: ignore[attr-defined]
    segments["t"].next_ids(STEP)
    return place


@pytest.fixture
def shop(tmp_path: Path, django_db_blocker: Any) -> Iterator[Path]:
    """A SQLite database, the default one, with our tables."""
    with django_db_blocker.unblock(), places.sqlite(tmp_path) as alias:
        make_missing_tables(connections[alias])
        yield tmp_path / "shop.sqlite3"


def row(alias: str = "default", tag: str = "t") -> LeafAlloc:
    return LeafAlloc.objects.using(alias).get(pk=tag)


def edit(alias: str, **changes: int) -> None:
    LeafAlloc.objects.using(alias).filter(pk="t").update(**changes)


def marks(database: Path) -> Path:
    return database.with_name(f"{database.name}-idgen")


def migrated(**said: object) -> None:
    """As ``migrate`` says for each app; this one has no models that others would look at."""
    config = apps.get_app_config("messages")
    post_migrate.send(config, app_config=config, **said)


# --- on every database ----------------------------------------------------------


def test_the_row_stands_where_the_marks_stand(tagged: str) -> None:
    """``max_id`` is the first id that nobody was given, ``step`` what a fetch takes."""
    stop = segments["t"].stats().current.stop
    assert row(tagged).max_id >= stop
    assert row(tagged).step == STEP


@pytest.mark.parametrize("atomic", [False, True], ids=["autocommit", "atomic"])
def test_a_step_edited_reaches_the_next_fetch(tagged: str, atomic: bool) -> None:
    """It needs no restart, also where every edit and every id is inside a transaction."""
    if atomic:
        with transaction.atomic(using=tagged):
            edit(tagged, step=7)
    else:
        edit(tagged, step=7)
    steps = set()
    for _ in range(5):
        if atomic:
            with transaction.atomic(using=tagged):
                segments["t"].next_ids(STEP)
        else:
            segments["t"].next_ids(STEP)
        steps.add(segments["t"].stats().current.step)
    assert segments["t"].stats().current.step == 7
    assert steps <= {7, STEP}


def test_an_edit_by_save_counts_too(tagged: str) -> None:
    """As ``ModelAdmin`` and scripts make it."""
    found = row(tagged)
    found.step = 9
    found.save(update_fields=["step"])
    segments["t"].next_ids(5 * STEP)
    assert segments["t"].stats().current.step == 9


@pytest.mark.parametrize("atomic", [False, True], ids=["autocommit", "atomic"])
def test_ids_skip_ahead_where_max_id_is_raised(tagged: str, atomic: bool) -> None:
    """A ``max_id`` raised by hand counts from the next fetch on."""
    edit(tagged, max_id=1_000_000)
    if atomic:
        with transaction.atomic(using=tagged):
            ids = segments["t"].next_ids(5 * STEP)
    else:
        ids = segments["t"].next_ids(5 * STEP)
    assert ids[-1] >= 1_000_000
    segments["t"].next_ids(STEP)
    assert row(tagged).max_id > ids[-1]


def test_a_step_that_can_not_be_is_named(shipped_timeout: float, tagged: str) -> None:
    """A step of 0 gives an error with the tag and the way out, and nothing is lost."""
    edit(tagged, step=0)
    with pytest.raises(SegmentUnavailable, match="Tag 't' has step 0 in leaf_alloc"):
        segments["t"].next_ids(5 * STEP)
    edit(tagged, step=STEP)
    assert segments["t"].next_id() > STEP


# --- SQLite: what is written, and when ---------------------------------------------


def test_leases_are_to_be_seen(shop: Path) -> None:
    """Namespace, worker id and installation stand in the database as in the marks."""
    next_id()
    lease = handlers.generators["default"].stats().lease
    assert NamespaceRecord.objects.get().name == lease.namespace
    assert WorkerLease.objects.get().until == lease.until
    with closing(sqlite3.connect(marks(shop))) as db:
        (identity,) = db.execute("SELECT identity FROM installation").fetchone()
    assert Installation.objects.get().identity == identity


def test_nothing_is_written_in_the_callers_transaction(shop: Path) -> None:
    """What a transaction held up is written by the first fetch after it."""
    with suppress(ZeroDivisionError), transaction.atomic():
        segments["t"].next_ids(2 * STEP)
        assert not LeafAlloc.objects.exists()
        raise ZeroDivisionError
    segments["other"].next_id()
    assert row().max_id == 2 * STEP + 1


@pytest.mark.parametrize("occasion", ["request", "migrate", "signal", "close"])
def test_an_occasion_catches_up(shop: Path, occasion: str) -> None:
    """So it is at the end of a request, of ``migrate``, and of the process.

    And where ``post_migrate`` is sent by hand, without the database's alias: it is the default.
    """
    with transaction.atomic():
        segments["t"].next_ids(2 * STEP)
        next_id()
    assert not LeafAlloc.objects.exists()
    if occasion == "request":
        request_finished.send(object)
        # Closes the connection, as it would after any request.
    elif occasion == "migrate":
        migrated(verbosity=0, interactive=False, using="default", apps=apps)
    elif occasion == "signal":
        migrated()
    else:
        handlers.reset()
    assert row().max_id == 2 * STEP + 1
    assert WorkerLease.objects.exists()


def test_a_locked_database_is_caught_up_on_later(shop: Path) -> None:
    """While somebody else has it locked, nobody waits for the mirror."""
    with closing(sqlite3.connect(shop, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        segments["t"].next_ids(2 * STEP)
        other.execute("ROLLBACK")
    assert not LeafAlloc.objects.exists()
    catch_up("default")
    assert row().max_id == 2 * STEP + 1


def test_the_callers_connection_is_left_as_it_was(shop: Path) -> None:
    """It waits for locks as long as before, is in no transaction, and reads on."""
    connections["default"].ensure_connection()
    raw = connections["default"].connection
    (before,) = raw.execute("PRAGMA busy_timeout").fetchone()
    reading = raw.execute("SELECT 1 UNION SELECT 2 UNION SELECT 3")
    assert next(reading) == (1,)
    segments["t"].next_ids(2 * STEP)
    assert [*reading] == [(2,), (3,)]
    assert raw.execute("PRAGMA busy_timeout").fetchone() == (before,)
    assert not raw.in_transaction


def test_a_lowered_max_id_lowers_nothing(shop: Path) -> None:
    """The marks never go down, whatever is written into the mirror."""
    highest = segments["t"].next_ids(3 * STEP)[-1]
    edit("default", max_id=1)
    handlers.reset()
    assert segments["t"].next_id() > highest


# --- SQLite: what is lost ------------------------------------------------------------


@pytest.mark.parametrize("running", [True, False], ids=["running", "restarted"])
def test_lost_marks_are_taken_from_the_mirror_with_a_distance(shop: Path, running: bool) -> None:
    """Without the marks file ids go on some segments after the mirror's."""
    ids = segments["t"].next_ids(3 * STEP)
    stamped = [next_id()]
    marks(shop).unlink()
    if not running:
        handlers.reset()
        marks(shop).unlink(missing_ok=True)
    more = segments["t"].next_ids(3 * STEP)
    assert more[0] > ids[-1]
    assert more[-1] >= ids[-1] + FAILOVER_SKIP * STEP
    assert next_id() > stamped[0]


def test_marks_that_lagged_in_the_mirror_do_not_come_again(shop: Path) -> None:
    """What the mirror had not seen yet lies within the distance."""
    segments["t"].next_ids(STEP)
    with transaction.atomic():
        unseen = segments["t"].next_ids(FAILOVER_SKIP * STEP)
        marks(shop).unlink()
        more = segments["t"].next_ids(3 * STEP)
    assert not set(unseen) & set(more)


def test_a_copy_without_its_marks_starts_at_a_distance(shop: Path) -> None:
    """A database that was copied alone repeats none of the ids that are in it."""
    ids = segments["t"].next_ids(3 * STEP)
    copy = shop.with_name("copy.sqlite3")
    connections["default"].close()
    shutil.copy(shop, copy)
    connections.settings["default"]["NAME"] = str(copy)
    handlers.reset()
    assert segments["t"].next_id() == ids[-1] + 1 + FAILOVER_SKIP * STEP
    assert marks(copy).exists()


def test_ids_go_on_when_the_database_is_deleted(shop: Path) -> None:
    """The marks stay: an emptied database doesn't get old numbers."""
    ids = segments["t"].next_ids(3 * STEP)
    stamped = next_id()
    connections["default"].close()
    shop.unlink()
    assert segments["t"].next_ids(2 * STEP)[0] > ids[-1]
    handlers.reset()
    make_missing_tables(connections["default"])
    assert segments["t"].next_id() > ids[-1]
    assert next_id() > stamped


def test_no_marks_are_made_up_while_the_database_is_locked(
    shop: Path, shipped_timeout: float
) -> None:
    """Where what it knows can't be read, and there is no marks file, no id is given."""
    ids = segments["t"].next_ids(3 * STEP)
    handlers.reset()
    connections["default"].close()
    marks(shop).unlink()
    with closing(sqlite3.connect(shop, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(SegmentUnavailable, match="can't be read while"):
            segments["t"].next_id()
        other.execute("ROLLBACK")
    assert segments["t"].next_id() > ids[-1]


def test_no_table_of_ours_is_needed(tmp_path: Path, django_db_blocker: Any) -> None:
    """Ids are given before ``migrate`` has come to our tables, and mirrored after."""
    with django_db_blocker.unblock(), places.sqlite(tmp_path) as alias:
        ids = segments["t"].next_ids(2 * STEP)
        assert ids[0] == 1
        with pytest.raises(OperationalError):
            LeafAlloc.objects.exists()
        make_missing_tables(connections[alias])
        segments["t"].next_ids(STEP)
        assert row().max_id == segments["t"].stats().floor > 3 * STEP


# --- SQLite in memory ------------------------------------------------------------------


@pytest.fixture
def in_memory(tmp_path: Path, django_db_blocker: Any) -> Iterator[None]:
    with django_db_blocker.unblock(), places.sqlite(tmp_path):
        connections["default"].close()
        name = f"file:{tmp_path.name}?mode=memory&cache=shared"
        connections.settings["default"]["NAME"] = name
        handlers.reset()
        make_missing_tables(connections["default"])
        yield


@pytest.mark.usefixtures("in_memory")
def test_a_row_in_memory_counts_as_well() -> None:
    """A test that makes a tag by hand sees its step and its start."""
    LeafAlloc.objects.create(biz_tag="t", max_id=500, step=7)
    assert segments["t"].next_ids(8)[0] == 500
    assert segments["t"].stats().current.step == 7


@pytest.mark.usefixtures("in_memory")
def test_migrate_leaves_rows_in_memory() -> None:
    """A copy of the database, in another process, goes on where the migrations left off."""
    with transaction.atomic():
        segments["t"].next_ids(STEP + 1)
    migrated()
    assert row().max_id == segments["t"].stats().floor > STEP + 1
