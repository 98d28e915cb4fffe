"""The file beside a SQLite database, in which our tables stand: losses, copies, trouble, forks."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from django.db import connections, transaction

from django_idgen import generators, next_id, segments
from django_idgen.core.clock import SYSTEM_CLOCK
from django_idgen.core.errors import (
    LeaseLost,
    RegistryUnavailable,
    SegmentUnavailable,
)
from django_idgen.db import sqlite
from django_idgen.db.connection import home_of, own_connection
from django_idgen.db.sqlite import file_of
from django_idgen.db.transactions import Transactions
from django_idgen.models import Installation, LeafAlloc, NamespaceRecord, WorkerLease
from django_idgen.process import factory, maps
from django_idgen.testing.contracts.lenders import at_once as in_threads
from tests import places, tiers
from tests.app.models import Invoice
from tests.contracts.test_static import in_child
from tests.own_servers import eventually
from tests.places import STEP, make_tables

SKIP = 50 * 2 * STEP
"""What a tag skips whose rows are those of an earlier life."""
LOST = 50 * sqlite.LOST_STEP
"""What it skips where the file is lost."""


@pytest.fixture
def shop(directory: Path) -> Iterator[Path]:
    """The file of a SQLite database, the default one, after ``migrate``."""
    with places.sqlite(directory) as alias:
        make_tables(alias)
        yield directory / "shop.sqlite3"
        connections[alias].close()


def beside(database: Path) -> Path:
    return database.with_name(f"{database.name}-idgen")


def restart() -> None:
    """What this process knows is gone, as after a restart."""
    maps.reset()
    connections["default"].close()


def row(tag: str = "t") -> LeafAlloc:
    return LeafAlloc.objects.get(pk=tag)


def inside() -> sqlite3.Connection:
    """What somebody does with the sqlite3 command."""
    return sqlite3.connect(beside(Path(connections.settings["default"]["NAME"])))


# --- where the rows are --------------------------------------------------------------------


def test_the_rows_that_people_see_are_the_ones_that_count(shop: Path) -> None:
    """The models find them in the file; the database has a table with its identity alone."""
    next_id()
    segments["t"].next_id()  # not so many that the next segment is loaded meanwhile
    lease = generators["default"].stats().lease  # type: ignore[attr-defined]
    assert NamespaceRecord.objects.get().name == lease.namespace
    assert WorkerLease.objects.get().until == lease.until
    assert row().max_id == segments["t"].stats().floor  # type: ignore[attr-defined]
    with closing(sqlite3.connect(shop)) as db:
        assert db.execute("SELECT identity FROM django_idgen_identity").fetchall() == [
            (Installation.objects.get().identity,)
        ]
    names = connections["default"].introspection.table_names()
    assert sorted(names) == ["app_folder", "app_invoice", "django_idgen_identity"]


def test_no_alias_more_is_to_be_seen(shop: Path) -> None:
    """Test runners, ``migrate`` and ``close_old_connections`` know those of the settings alone."""
    before = [*connections]
    found = row_made()
    assert home_of("default") != "default"
    assert [*connections] == before
    assert found._state.db == "default"
    found.description = "new"
    found.save()
    assert row().description == "new"
    found.delete()
    assert not LeafAlloc.objects.exists()


def row_made() -> LeafAlloc:
    segments["t"].next_id()
    return row()


def test_a_row_is_kept_by_another_thread_and_rolled_back_by_nobody(shop: Path) -> None:
    """Rows are read and saved in any thread; the caller's transaction takes no grant back."""
    with suppress(ZeroDivisionError), transaction.atomic():
        segments["t"].next_ids(2 * STEP)
        found = row()
        raise ZeroDivisionError
    assert row().max_id >= found.max_id > 2 * STEP  # more, if one was preloaded meanwhile
    found.description = "elsewhere"
    in_threads(2, lambda _: found.save())
    assert row().description == "elsewhere"


@pytest.mark.parametrize(("row", "file"), [(2, 4), (8, 8)])
def test_a_transaction_waits_for_the_file_as_for_a_row(shop: Path, row: int, file: int) -> None:
    """As long as for a row on a server, and not less than 4 s: each locks the whole file."""

    def waits_ms(connection: Any) -> int:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA busy_timeout")
            return int(cursor.fetchone()[0])

    own = own_connection("default")
    models = ("LeafAlloc", "Installation")
    jobs = Transactions(
        own, timeout=10, models=models, unavailable=RegistryUnavailable, lock_timeout=row
    )
    assert jobs.run(waits_ms) == file * 1000


def test_the_callers_connection_is_left_as_it_was(shop: Path) -> None:
    """It is in no transaction, and reads on."""
    connections["default"].ensure_connection()
    raw = connections["default"].connection
    reading = raw.execute("SELECT 1 UNION SELECT 2 UNION SELECT 3")
    assert next(reading) == (1,)
    segments["t"].next_ids(2 * STEP)
    assert row()
    assert connections["default"].connection is raw
    assert [*reading] == [(2,), (3,)]
    assert not raw.in_transaction


def test_ids_are_given_before_migrate_and_kept_by_it(directory: Path) -> None:
    """The file is made at the first use; ``migrate`` has the database know whose it is."""
    with places.sqlite(directory) as alias:
        assert segments["t"].next_ids(2 * STEP)[0] == 1
        stands = row().max_id
        make_tables(alias)
        assert row().max_id >= stands
        assert segments["t"].next_id() == 2 * STEP + 1


# --- what is lost, copied, or put back -------------------------------------------------------


@pytest.mark.parametrize("running", [True, False], ids=["running", "restarted"])
def test_a_lost_file_is_begun_at_a_distance(shop: Path, running: bool) -> None:
    """Ids go on above the rows of the tag's table, and past what processes may still hold."""
    invoice = Invoice.objects.create()
    held = segments["app.invoice"].next_ids(3 * STEP)
    stamped = next_id()
    beside(shop).unlink()
    if not running:
        restart()
        beside(shop).unlink(missing_ok=True)
    more = segments["app.invoice"].next_ids(20 * STEP)
    assert more[-1] >= invoice.pk + LOST
    assert not {*held} & {*more}
    assert next_id() > stamped
    assert segments["another"].next_ids(2 * STEP)[-1] > LOST


def test_windows_of_a_lost_file_end_before_the_next_begin(shop: Path) -> None:
    """Nothing that the lost file may have lent is lent again (L7)."""
    registry = factory.build_registry(maps.generator_settings("default"))
    before = [registry.acquire(holder=str(n)).lease for n in range(3)]
    beside(shop).unlink()
    after = registry.acquire(holder="a").lease
    assert after.start >= max(lease.until for lease in before)


HOUR = 3600


def aged(content: bytes, scratch: Path) -> bytes:
    """The content of a file as if it had been written an hour ago."""
    scratch.write_bytes(content)
    with closing(sqlite3.connect(scratch)) as db, db:
        db.execute(f"UPDATE django_idgen_file SET written = written - {HOUR}")
    content = scratch.read_bytes()
    scratch.unlink()
    return content


@pytest.mark.parametrize("way", ["over", "over, as it was", "moved", "moved, as it was", "at once"])
def test_an_old_copy_of_the_file_is_noticed(shop: Path, way: str) -> None:
    """However it was put there, what was granted since it was made is skipped.

    Put back at once, no time tells it; it is another file than the one that was written.
    """
    segments["t"].next_ids(STEP)
    registry = factory.build_registry(maps.generator_settings("default"))
    registry.acquire(holder="first")
    old = beside(shop).read_bytes()
    if way != "at once":
        old = aged(old, shop.with_name("scratch"))
    was = beside(shop).stat().st_mtime - HOUR
    held = segments["t"].next_ids(4 * STEP)
    leases = [registry.acquire(holder=str(n)).lease for n in range(3)]
    restart()
    copy = beside(shop) if way.startswith("over") else shop.with_name("copy")
    copy.write_bytes(old)
    if way.endswith("as it was"):
        os.utime(copy, (was, was))
    copy.replace(beside(shop))
    assert segments["t"].next_id() > held[-1]
    assert registry.acquire(holder="next").lease.start >= max(lease.until for lease in leases)


def test_a_copy_from_before_the_first_lease_is_noticed(shop: Path) -> None:
    """It knows no namespace: what was lent in one since is not lent again (L7)."""
    old = beside(shop).read_bytes()
    registry = factory.build_registry(maps.generator_settings("default"))
    leases = [registry.acquire(holder=str(n)).lease for n in range(3)]
    restart()
    shop.with_name("copy").write_bytes(old)
    shop.with_name("copy").replace(beside(shop))
    assert registry.acquire(holder="next").lease.start >= max(lease.until for lease in leases)


def test_a_file_system_with_a_clock_of_its_own_skips_nothing(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its times are compared with its own clock, which is an hour ahead here."""
    real = Path.stat

    def stat(path: Path, **options: Any) -> Any:
        found = real(path, **options)
        if "-idgen" not in path.name:
            return found
        names = ("st_ino", "st_size", "st_mode")
        words = {name: getattr(found, name) for name in names}
        ahead = dict.fromkeys(("st_mtime", "st_ctime"), found.st_mtime + 3600)
        return type("Stat", (), words | ahead)

    monkeypatch.setattr(Path, "stat", stat)
    for _ in range(3):
        assert segments["t"].next_ids(STEP)[-1] < SKIP
        restart()


def test_a_copy_of_the_database_alone_repeats_none_of_its_ids(shop: Path) -> None:
    """Nor of those that processes on the first one still hold."""
    invoice = Invoice.objects.create()
    copy = shop.with_name("copy.sqlite3")
    connections["default"].close()
    shutil.copy(shop, copy)
    connections.settings["default"]["NAME"] = str(copy)
    maps.reset()
    assert segments["app.invoice"].next_id() >= invoice.pk + LOST
    assert beside(copy).exists()


def test_after_a_loss_ids_begin_far_above_the_rows_of_their_table(shop: Path) -> None:
    """However high those are: processes may have held ids above them."""
    high = Invoice.objects.create(pk=20_000_000).pk
    held = segments["app.invoice"].next_ids(4 * STEP)
    assert held[0] == high + 1
    restart()
    beside(shop).unlink()
    assert segments["app.invoice"].next_id() >= held[0] + LOST


def test_the_file_of_another_database_is_taken_over_once(shop: Path) -> None:
    """What stands in it only rises; the next process sees no change."""
    invoice = Invoice.objects.create()
    segments["t"].next_ids(3 * STEP)
    stamped = next_id()
    restart()
    with closing(sqlite3.connect(shop)) as db, db:
        db.execute("UPDATE django_idgen_identity SET identity = 'another'")
    assert segments["t"].next_id() > 3 * STEP + SKIP
    assert Invoice.objects.create().pk > invoice.pk + SKIP
    assert next_id() > stamped
    assert Installation.objects.get().identity == "another"
    generation = NamespaceRecord.objects.get().generation
    stands = row().max_id
    restart()
    next_id()
    assert segments["t"].next_id() <= stands
    assert NamespaceRecord.objects.get().generation == generation


def test_ids_go_on_when_the_database_is_deleted(shop: Path) -> None:
    """The file stays: an emptied database doesn't get old numbers."""
    ids = segments["t"].next_ids(3 * STEP)
    stamped = next_id()
    connections["default"].close()
    shop.unlink()
    assert segments["t"].next_ids(2 * STEP)[0] > ids[-1]
    maps.reset()
    make_tables("default")
    assert segments["t"].next_id() > ids[-1]
    assert next_id() > stamped


def test_no_file_is_begun_while_the_database_is_locked(shop: Path) -> None:
    """Where it can't be read whether there was one before, no id is given."""
    ids = segments["t"].next_ids(3 * STEP)
    restart()
    beside(shop).unlink()
    with closing(sqlite3.connect(shop, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(SegmentUnavailable, match="can't be read"):
            segments.allocator().source.fetch("t")
        other.execute("ROLLBACK")
    assert segments["t"].next_id() > ids[-1]


def test_a_file_that_is_there_goes_on_while_the_database_is_locked(shop: Path) -> None:
    """No caller waits for it, whichever process has it locked, and for however long (hazard 57)."""
    first = segments["t"].next_ids(STEP)
    restart()
    with closing(sqlite3.connect(shop, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert first[-1] < segments["t"].next_ids(2 * STEP)[0] < SKIP
        assert next_id()
        other.execute("ROLLBACK")


def test_a_lease_beside_a_deleted_one_is_lost_too(shop: Path) -> None:
    """Its row is still there, but of a generation that has ended with the loss (L6)."""
    registry = factory.build_registry(maps.generator_settings("default"))
    kept = registry.acquire(holder="kept").lease
    gone = registry.acquire(holder="gone").lease
    WorkerLease.objects.filter(worker=gone.worker).delete()
    registry.acquire(holder="next")
    with pytest.raises(LeaseLost):
        registry.renew(kept, last_tick=kept.start)


# --- trouble ----------------------------------------------------------------------------------


def check_refused(path: Path, words: str) -> None:
    """Both the registry and the source name the file and the way out."""
    restart()
    registry = factory.build_registry(maps.generator_settings("default"))
    source = segments.allocator().source
    with pytest.raises(RegistryUnavailable, match=words) as unavailable:
        registry.acquire(holder="a")
    with pytest.raises(SegmentUnavailable, match=words) as caught:
        source.fetch("t")
    assert str(path) in str(unavailable.value)
    assert str(path) in str(caught.value)


def test_a_missing_directory_is_named(shop: Path) -> None:
    """A directory that is not there is an error with the path in it."""
    nowhere = shop.parent / "nowhere" / "shop.sqlite3"
    connections.settings["default"]["NAME"] = str(nowhere)
    check_refused(beside(nowhere), "directory must exist")


def test_what_is_no_database_is_left_alone(shop: Path) -> None:
    """Some other file of that name is neither used nor overwritten, nor is a directory."""
    for content in (b"no database at all, but long enough" * 40, b"x" * 4096):
        beside(shop).write_bytes(content)
        check_refused(beside(shop), "not a SQLite database.*Move it away")
        assert beside(shop).read_bytes() == content
    beside(shop).unlink()
    beside(shop).mkdir()
    check_refused(beside(shop), "is a directory")


def test_a_damaged_file_is_named(shop: Path) -> None:
    """Pages that were overwritten give no ids."""
    segments["t"].next_id()
    restart()
    content = bytearray(beside(shop).read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    beside(shop).write_bytes(content)
    check_refused(beside(shop), "damaged|not a SQLite database")


def test_a_file_that_may_not_be_written_is_named(shop: Path) -> None:
    """A read-only file is an error that says what right is missing."""
    with (
        closing(sqlite3.connect(f"file:{beside(shop)}?mode=ro", uri=True)) as db,
        pytest.raises(sqlite3.OperationalError) as caught,
    ):
        db.execute("DELETE FROM leaf_alloc")
    error = Exception()
    error.__cause__ = caught.value
    assert "may not write" in sqlite.reason_of(error, shop, waited=0)


def test_a_file_locked_for_too_long_is_named(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who keeps the file locked is waited for, and then named as the cause."""
    wait = sqlite.FileConnection.wait_for_writers
    monkeypatch.setattr(sqlite.FileConnection, "wait_for_writers", lambda own, _: wait(own, 0.05))
    with closing(inside()) as db:
        db.isolation_level = None
        db.execute("BEGIN IMMEDIATE")
        check_refused(beside(shop), "kept the file locked")
        db.execute("ROLLBACK")
    assert segments["t"].next_id() == 1


def test_no_file_is_left_beside_it(shop: Path) -> None:
    """Neither a journal nor a write-ahead log stays behind, and no file stays open."""
    segments["t"].next_id()
    next_id()
    own_connection("default").run(lambda _connection: None, timeout=60)
    maps.reset()
    assert {each.name for each in shop.parent.iterdir()} == {shop.name, beside(shop).name}
    eventually(lambda: str(beside(shop)) not in open_files(), "the file is closed")


def open_files() -> list[str]:
    found = []
    for fd in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.append(os.readlink(fd))
    return found


def test_a_grant_is_on_the_disk_before_it_is_used(shop: Path) -> None:
    """Each transaction waits for the disk, and for the end of its journal: a power cut takes
    nothing back that was granted (EXTRA is 3).
    """

    def ask(connection: Any) -> object:
        with connection.cursor() as cursor:
            return cursor.execute("PRAGMA synchronous").fetchone()

    for _ in range(2):
        assert own_connection("default").run(ask, timeout=60) == (3,)


def test_first_use_by_many_makes_one_installation(directory: Path) -> None:
    """Threads that find no file agree on one identity."""

    def identity(_number: int) -> str:
        return Installation.objects.get().identity

    with places.sqlite(directory):
        # In the file alone, which each thread opens for itself.
        connections.settings["default"]["NAME"] = str(directory / "other.sqlite3")
        assert len(set(in_threads(16, identity))) == 1


def test_forks_during_grants_leave_the_child_free_to_grant(shop: Path) -> None:
    """A child forked while other threads were writing can take grants of its own."""
    source = segments.allocator().source
    stop = threading.Event()
    granted: list[int] = []

    def fetch() -> int:
        deadline = SYSTEM_CLOCK.stopwatch() + 60
        while True:
            try:
                return int(source.fetch("t").start)
            except SegmentUnavailable:
                if SYSTEM_CLOCK.stopwatch() > deadline:
                    raise

    def busy() -> None:
        while not stop.wait(0.005):
            granted.append(fetch())

    threads = [threading.Thread(target=busy) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(12 if tiers.LONG else 4):
            said = in_child(fetch)
            assert said.isdigit(), said
            granted.append(int(said))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert len(granted) == len(set(granted))


def test_a_new_file_belongs_to_whom_the_database_belongs(shop: Path) -> None:
    """One that root made beside a site's database is the site's user's to write."""
    shop.chmod(0o660)
    mine = os.geteuid() != 0
    if not mine:
        os.chown(shop, 1234, 1234)
    beside(shop).unlink()
    segments["t"].next_id()
    found = beside(shop).stat()
    assert found.st_mode & 0o777 == 0o660
    assert mine or found.st_uid == 1234


# --- which file a NAME means, compared with what SQLite opens -----------------


FILES = [
    "shop.db",
    "./below/../shop.db",
    "link.db",
    "linked/shop.db",
    "file:shop.db",
    "file:link.db?mode=rwc&cache=shared",
    "file:a%20shop%3F.db#part",
    "file://{here}/shop.db",
    "file://localhost{here}/linked/shop.db?x=1",
    "{here}/shop.db",
]
NONE = [":memory:", "", "file::memory:", "file::memory:?cache=shared", "file:x?mode=memory"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a database and, beside it, links to a file and to a directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "below").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "linked").symlink_to("elsewhere")
    (tmp_path / "link.db").symlink_to("elsewhere/shop.db")
    return tmp_path


def opened_by_sqlite(name: str) -> str:
    with closing(sqlite3.connect(name, uri=True)) as db:
        db.execute("CREATE TABLE t (x)")
        return str(db.execute("PRAGMA database_list").fetchone()[2])


def test_it_is_the_file_that_sqlite_opens(here: Path) -> None:
    """However the name is written, the marks lie beside the one database it means."""
    for name in (each.format(here=here) for each in FILES):
        assert file_of(name) == Path(opened_by_sqlite(name)).resolve()
        file_of(name).unlink()


def test_a_database_without_a_file_has_none(here: Path) -> None:
    """Its marks stand in memory, as it does: no file is left in the working directory."""
    for name in NONE:
        assert file_of(name) is None
        assert opened_by_sqlite(name) == ""


def test_a_path_and_nothing_will_do(here: Path) -> None:
    """Django takes a ``Path``, and an alias may have no name."""
    assert file_of(Path("link.db")) == here / "elsewhere" / "shop.db"
    assert file_of(None) is None
