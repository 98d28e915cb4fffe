"""The marks file beside a SQLite database: loss, seeding, trouble, and forks."""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from django_idgen.core.clock import SYSTEM_CLOCK
from django_idgen.core.errors import (
    LeaseLost,
    RegistryUnavailable,
    SegmentExhausted,
    SegmentUnavailable,
)
from django_idgen.core.segment import MAX_ID
from django_idgen.db.sqlite import marks as marks_module
from django_idgen.db.sqlite.marks import MarksError, MarksFile, Seed
from django_idgen.leases.sqlite import SqliteLeases
from django_idgen.sources.sqlite import SqliteSource

from .lease_contract import in_threads
from .lenders import NAMESPACE, START_US, WINDOW
from .test_sqlite import execute
from .test_static import in_child

NOW = NAMESPACE.tick_at(START_US)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "db.sqlite3-idgen"


def source_at(path: Path, seed: Seed | None = None) -> SqliteSource:
    marks = MarksFile(path, None if seed is None else lambda: seed)
    return SqliteSource(marks=marks, default_step=10)


def registry_at(path: Path, seed: Seed | None = None, **changes: object) -> SqliteLeases:
    marks = MarksFile(path, None if seed is None else lambda: seed)
    namespace = replace(NAMESPACE, **changes)  # type: ignore[arg-type]
    return SqliteLeases(namespace, marks=marks, read_now_us=lambda: START_US)


def test_a_first_use_has_no_gap(path: Path) -> None:
    """A database that never knew ids starts at 1, and now, with a new identity."""
    assert source_at(path, Seed()).fetch("t").start == 1
    assert registry_at(path, Seed()).acquire(holder="a").lease.start == NOW
    identity = MarksFile(path).snapshot().identity
    assert identity is not None
    assert len(identity) == 32


def test_a_lost_file_starts_past_what_the_database_knows(path: Path) -> None:
    """A new file skips three steps past each mirrored tag and a fence past each window."""
    seed = Seed("i" * 32, {"t": (1001, 500)}, {"contract": (NOW + 5000, 2 * WINDOW)})
    assert source_at(path, seed).fetch("t").start == 1001 + 3 * 500
    lease = registry_at(path, seed).acquire(holder="a").lease
    assert lease.start >= NOW + 5000
    assert lease.start >= NOW + NAMESPACE.skew_ticks + 2 * WINDOW
    assert MarksFile(path).snapshot().identity == "i" * 32


def test_a_tag_mirrored_as_unused_is_skipped_too(path: Path) -> None:
    """A mirror that lags behind the first fetch doesn't bring 1 again."""
    assert source_at(path, Seed("i" * 32, {"t": (1, 10)})).fetch("t").start == 31


def test_a_file_of_another_database_is_taken_over_once(path: Path) -> None:
    """Marks of a file with another identity only rise, and the next process sees no change."""
    source_at(path, Seed("old")).fetch("t", floor=10_000)
    seed = Seed("new", {"t": (51, 10), "u": (51, 10)})
    source = source_at(path, seed)
    assert source.fetch("t").start == 10_010
    assert source.fetch("u").start == 81
    assert source_at(path, seed).fetch("u").start == 91
    mirrored = Seed("new", {"t": (10_020, 10), "u": (101, 10)})
    assert source_at(path, mirrored).fetch("u").start == 101


def test_a_namespace_of_another_database_goes_on_past_both(path: Path) -> None:
    """Where file and database disagree, windows start past the later of the two."""
    own = registry_at(path, Seed("old"))
    lease = own.acquire(holder="a").lease
    own.release(lease, last_tick=lease.start)
    seed = Seed("new", {}, {"contract": (NOW + 5000, WINDOW)})
    after = registry_at(path, seed).acquire(holder="a").lease
    assert after.start >= NOW + 5000
    assert after.generation > lease.generation


def test_a_database_that_cannot_be_asked_stops_a_new_file_only(path: Path) -> None:
    """Without an answer a new file is not begun, and one that is there goes on."""
    unknown = Seed(readable=False)
    with pytest.raises(SegmentUnavailable, match="could not be asked"):
        source_at(path, unknown).fetch("t")
    assert source_at(path, Seed("i" * 32, {"t": (51, 10)})).fetch("t").start == 81
    assert source_at(path, unknown).fetch("t").start == 91


def test_a_file_that_is_its_databases_is_left_alone(path: Path) -> None:
    """With the same identity and marks at or past the mirror's there is no gap."""
    source_at(path, Seed()).fetch("t")
    first = registry_at(path, Seed())
    lease = first.acquire(holder="a").lease
    first.release(lease, last_tick=None)
    mirrored = MarksFile(path).snapshot()
    assert source_at(path, mirrored).fetch("t").start == 11
    assert registry_at(path, mirrored).acquire(holder="a").lease.start == lease.start


def test_an_old_copy_of_the_file_is_noticed(path: Path) -> None:
    """A file put back from a backup is behind its own mirror, and skips past it."""
    source_at(path, Seed()).fetch("t")
    backup = path.read_bytes()
    for _ in range(50):
        source_at(path).fetch("t")
    registry_at(path).acquire(holder="a")
    mirrored = MarksFile(path).snapshot()
    path.write_bytes(backup)
    assert source_at(path, mirrored).fetch("t").start >= 511
    assert registry_at(path, mirrored).acquire(holder="a").lease.start >= NOW + WINDOW


def test_a_record_that_may_lag_is_fenced_by_the_clock(path: Path) -> None:
    """What a mirror knows may be less than an old copy's file had lent: the clock decides (L7)."""
    registry = registry_at(path, Seed())
    until = registry.acquire(holder="a").lease.until
    identity = MarksFile(path).snapshot().identity
    assert identity is not None
    known = Seed(identity, {}, {"contract": (until + 1, WINDOW)})
    after = registry_at(path, known).acquire(holder="b").lease
    assert after.start >= NOW + NAMESPACE.skew_ticks + WINDOW


def test_an_old_copy_under_a_living_process_lends_nothing_twice(path: Path) -> None:
    """Before it lends a worker id it asks the database how far the marks had come (hazard 10)."""
    known = Seed()
    registry = SqliteLeases(
        NAMESPACE, marks=MarksFile(path, lambda: known), read_now_us=lambda: START_US
    )
    registry.release(registry.acquire(holder="a").lease, last_tick=None)
    backup = path.read_bytes()
    steps = [NOW + number * WINDOW for number in (1, 2, 3)]
    promised = [registry.acquire(holder="a", not_before=step).lease.until for step in steps]
    known = MarksFile(path).snapshot()  # what the lambda above tells from now on
    path.write_bytes(backup)
    assert registry.acquire(holder="a").lease.start >= max(promised)


def test_a_file_deleted_under_a_process_is_seeded_again(path: Path) -> None:
    """A running process that finds the file gone asks the database before it goes on."""
    source = source_at(path, Seed("i" * 32, {"t": (1, 10)}))
    end = source.fetch("t").stop
    path.unlink()
    assert source.fetch("t").start >= end or source.fetch("t").start >= 31


def test_deleted_tags_are_asked_of_the_database(path: Path) -> None:
    """A tag whose row was deleted by hand goes on past what the mirror says."""
    seed = Seed("i" * 32, {"t": (5001, 10)})
    source = source_at(path, seed)
    source.fetch("t")
    execute(path, "DELETE FROM segments")
    assert source.fetch("t").start == 5031
    assert source.fetch("new").start == 1


def test_a_deleted_namespace_is_a_loss(path: Path) -> None:
    """With its record gone, a namespace starts past its rows, and past any window without."""
    held = registry_at(path, window_ticks=20 * WINDOW).acquire(holder="a").lease
    execute(path, "DELETE FROM namespaces")
    new = registry_at(path).acquire(holder="b").lease
    assert new.start >= held.until
    assert new.generation > held.generation
    execute(path, "DELETE FROM namespaces")
    execute(path, "DELETE FROM leases")
    last = registry_at(path).acquire(holder="c").lease
    assert last.start >= NOW + NAMESPACE.skew_ticks + WINDOW
    assert last.generation > new.generation


def test_a_deleted_installation_keeps_its_rows(path: Path) -> None:
    """Somebody who empties one table doesn't make the others start over."""
    held = registry_at(path).acquire(holder="a").lease
    source = source_at(path)
    source.fetch("t")
    execute(path, "DELETE FROM installation")
    assert source.fetch("t").start == 11
    execute(path, "DELETE FROM namespaces")
    execute(path, "DELETE FROM installation")
    assert registry_at(path).acquire(holder="a").lease.start >= held.until


def test_a_window_of_old_tokens_is_void_after_a_loss(path: Path) -> None:
    """One deleted row ends every lease of its generation; all worker ids are free at once."""
    registry = registry_at(path)
    old = [registry.acquire(holder=f"h{n}").lease for n in range(4)]
    execute(path, f"DELETE FROM leases WHERE worker = {old[0].worker}")
    new = [registry.acquire(holder=f"h{n}").lease for n in range(4)]
    assert sorted(lease.worker for lease in new) == [0, 1, 2, 3]
    assert min(lease.start for lease in new) >= max(lease.until for lease in old)


def test_a_lease_beside_a_deleted_one_is_lost_too(path: Path) -> None:
    """Its row is still there, but of a generation that has ended with the loss (L6)."""
    registry = registry_at(path)
    left, gone = (registry.acquire(holder=holder).lease for holder in "ab")
    execute(path, f"DELETE FROM leases WHERE worker = {gone.worker}")
    newer = registry.acquire(holder="c", avoid=left.worker).lease
    with pytest.raises(LeaseLost):
        registry.renew(left, last_tick=left.start)
    assert registry.release(left, last_tick=None) is False
    assert registry.renew(newer, last_tick=newer.start).lease == newer


def test_the_end_of_a_tag_is_computed_exactly(path: Path) -> None:
    """Close to 2**63, where SQLite would go over to floats, the mark stays a whole number."""
    source = source_at(path)
    assert source.fetch("t", floor=MAX_ID - 3).stop == MAX_ID
    assert execute(path, "SELECT typeof(max_id), max_id FROM segments") == [("integer", MAX_ID)]
    with pytest.raises(SegmentExhausted):
        source.fetch("t")
    seeded = source_at(path.with_name("other"), Seed("i", {"t": (MAX_ID - 1, 10**9)}))
    with pytest.raises(SegmentExhausted):
        seeded.fetch("t")


# --- trouble --------------------------------------------------------------


def check_refused(path: Path, words: str) -> None:
    """Both the registry and the source name the file and the way out."""
    for attempt, kind in (
        (lambda: registry_at(path).acquire(holder="a"), RegistryUnavailable),
        (lambda: source_at(path).fetch("t"), SegmentUnavailable),
    ):
        with pytest.raises(kind, match=words) as caught:
            attempt()
        assert isinstance(caught.value.__cause__, MarksError)
        assert str(path) in str(caught.value)


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    """A directory that is not there is an error with the path in it."""
    check_refused(tmp_path / "nowhere" / "m", "directory must exist")


def test_a_directory_in_its_place_is_named(path: Path) -> None:
    """A directory of that name can't hold marks."""
    path.mkdir()
    check_refused(path, "can't be opened|directory")


@pytest.mark.parametrize("content", [b"no database at all, but long enough" * 40, b"x" * 4096])
def test_a_file_that_is_no_database_is_left_alone(path: Path, content: bytes) -> None:
    """Some other file of that name is neither used nor overwritten."""
    path.write_bytes(content)
    check_refused(path, "not a SQLite database.*Move it away")
    assert path.read_bytes() == content


def test_a_damaged_file_is_named(path: Path) -> None:
    """Pages that were overwritten are no marks."""
    source = source_at(path)
    for n in range(200):
        source.fetch(f"tag-{n}")
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    path.write_bytes(content)
    check_refused(path, "damaged|not a SQLite database")


def test_a_file_that_may_not_be_written_is_named(path: Path) -> None:
    """A read-only file is an error that says what right is missing."""
    source_at(path).fetch("t")
    with (
        closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db,
        pytest.raises(sqlite3.OperationalError) as caught,
    ):
        db.execute("DELETE FROM segments")
    assert "may not write" in marks_module._reason(path, caught.value)


def test_a_newer_protocol_is_left_alone(path: Path) -> None:
    """A file written by a later version asks for an upgrade."""
    source_at(path).fetch("t")
    execute(path, "UPDATE installation SET protocol = 99")
    check_refused(path, "protocol 99.*Upgrade")


def test_a_file_locked_for_too_long_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who keeps the file locked is waited for, and then named as the cause."""
    source_at(path).fetch("t")
    monkeypatch.setattr(marks_module, "BUSY_TIMEOUT", 0.05)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        check_refused(path, "kept the file locked")
        db.execute("ROLLBACK")
    assert source_at(path).fetch("t").start == 11


def test_a_job_that_fails_changes_nothing(path: Path) -> None:
    """What a job wrote before it raised is undone."""
    source = source_at(path)
    source.fetch("t")

    def job(db: sqlite3.Connection) -> None:
        db.execute("UPDATE segments SET max_id = 999")
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        source.marks.run(job)
    assert source.max_id("t") == 11


def test_no_file_is_left_beside_it(path: Path) -> None:
    """Neither a journal nor a write-ahead log stays behind, and no file stays open."""
    source_at(path).fetch("t")
    registry_at(path).acquire(holder="a")
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    assert str(path) not in open_files()


def open_files() -> list[str]:
    found = Path("/proc/self/fd").iterdir()
    return [os.readlink(fd) for fd in found if os.path.lexists(fd)]


def test_a_grant_is_on_the_disk_before_it_is_used(path: Path) -> None:
    """Each transaction waits for the disk, and for the end of its journal: a power cut takes
    nothing back that was granted (EXTRA is 3).
    """
    marks = MarksFile(path)
    for _ in range(2):
        assert marks.run(lambda db: db.execute("PRAGMA synchronous").fetchone()) == (3,)


def test_a_writer_in_the_main_database_does_not_block(tmp_path: Path) -> None:
    """While the caller's transaction writes, and after it rolled back, grants stand (hazard 57)."""
    main = tmp_path / "db.sqlite3"
    source = source_at(tmp_path / "db.sqlite3-idgen")
    execute(main, "CREATE TABLE t (id)")
    with closing(sqlite3.connect(main, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO t VALUES (1)")
        assert source.fetch("t").start == 1
        db.execute("ROLLBACK")
    assert source.fetch("t").start == 11


def test_the_database_is_asked_while_nothing_is_locked(path: Path) -> None:
    """A database that itself needs the marks file to answer is no deadlock."""
    other = MarksFile(path)

    def seed() -> Seed:
        other.snapshot()
        return Seed("i" * 32)

    assert SqliteSource(marks=MarksFile(path, seed)).fetch("t").start >= 1


def test_first_use_by_many_makes_one_installation(path: Path) -> None:
    """Threads that find no file agree on one identity."""
    found = in_threads(16, lambda _: MarksFile(path).snapshot().identity)
    assert len(set(found)) == 1


def test_forks_during_grants_leave_the_child_free_to_grant(path: Path) -> None:
    """A child forked while other threads were writing can take grants of its own."""
    source = source_at(path)
    stop = threading.Event()
    granted: list[int] = []

    def fetch() -> int:
        # SQLite polls for its lock: it may be another's each time that it looks. A lock
        # that came with the fork would be there for ever.
        deadline = SYSTEM_CLOCK.stopwatch() + 60
        while True:
            try:
                return source.fetch("t").start
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
        for _ in range(12):
            said = in_child(fetch)
            assert said.isdigit(), said
            granted.append(int(said))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert len(granted) == len(set(granted))


def test_a_new_file_belongs_to_whom_the_database_belongs(tmp_path: Path) -> None:
    """Marks made by root beside a site's database are the site's user's to write."""
    database, marks = tmp_path / "db.sqlite3", tmp_path / "db.sqlite3-idgen"
    database.touch(0o660)
    database.chmod(0o660)
    mine = os.geteuid() != 0
    if not mine:
        os.chown(database, 1234, 1234)
    SqliteSource(marks=MarksFile(marks, like=database)).fetch("tea")
    found = marks.stat()
    assert found.st_mode & 0o777 == 0o660
    assert found.st_uid == database.stat().st_uid
    assert mine or found.st_uid == 1234
