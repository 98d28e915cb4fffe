"""The marks beside a SQLite database."""

from __future__ import annotations

from .definition import Break

__all__ = ["BREAKS"]

MARKS = "django_idgen/db/sqlite/marks.py"
SEED = "django_idgen/db/sqlite/marks_seed.py"
SOURCE = "django_idgen/sources/sqlite.py"
PLACED = "django_idgen/sources/placed.py"
TESTS = "tests/contracts/test_marks.py"
CONTRACT = "tests/contracts/test_sqlite.py::TestSqliteSource"

BREAKS = (
    Break(
        "marks stand in the project's own SQLite file",
        "I4, hazards 32 and 57",
        "django_idgen/db/stores.py",
        'MarksFile(f"{database}{SUFFIX}", seed=mirror.seed, like=database)',
        'MarksFile(f"{database}", seed=mirror.seed, like=database)',
        ("tests/test_mirror.py::test_leases_are_to_be_seen",),
    ),
    Break(
        "a grant is undone after it was given",
        "I4",
        MARKS,
        '                db.execute("COMMIT")\n',
        "",
        (f"{CONTRACT}::test_twenty_fetches_of_one_give_one_to_twenty",),
    ),
    Break(
        "a grant may be lost with the power",
        "I4",
        MARKS,
        'db.execute("PRAGMA synchronous = EXTRA")',
        'db.execute("PRAGMA synchronous = OFF")',
        (f"{TESTS}::test_a_grant_is_on_the_disk_before_it_is_used",),
    ),
    Break(
        "a file that was replaced under a process is believed",
        "L8",
        MARKS,
        "        if identity_of(db) != self._identity:\n            raise MarksLost\n",
        "",
        (f"{TESTS}::test_a_file_deleted_under_a_process_is_seeded_again",),
    ),
    Break(
        "an old copy of the file goes on",
        "L7, hazard 61",
        SEED,
        "        if anyway or max_id > own.get(tag, 1):",
        "        if anyway:",
        (f"{TESTS}::test_an_old_copy_of_the_file_is_noticed",),
    ),
    Break(
        "a lost file starts where its mirror stood",
        "hazard 60",
        SEED,
        "steps = FAILOVER_SKIP if seed.identity is not None else 0",
        "steps = 0",
        (f"{TESTS}::test_a_lost_file_starts_past_what_the_database_knows",),
    ),
    Break(
        "a lost file forgets its namespaces",
        "L7",
        SEED,
        "        if anyway or (until > highest and not lags):",
        "        if anyway and until > highest and lags:",
        (f"{TESTS}::test_an_old_copy_under_a_living_process_lends_nothing_twice",),
    ),
    Break(
        "a new file is begun though the database can't be asked",
        "I6",
        MARKS,
        "        if not seed.readable:",
        "        if seed.readable is None:",
        (f"{TESTS}::test_a_database_that_cannot_be_asked_stops_a_new_file_only",),
    ),
    Break(
        "tags deleted from the file begin at 1",
        "hazard 61",
        SOURCE,
        "        if rows < made:",
        "        if rows < 0:",
        (f"{TESTS}::test_deleted_tags_are_asked_of_the_database",),
    ),
    Break(
        "a lease is taken of an old copy without asking",
        "L7",
        "django_idgen/leases/book_registry.py",
        "grant = self.store.run(job, compared=True)",
        "grant = self.store.run(job)",
        (f"{TESTS}::test_an_old_copy_under_a_living_process_lends_nothing_twice",),
    ),
    Break(
        "a marks file gives ids below the floor",
        "hazard 61",
        SOURCE,
        "start = max(max_id, floor)",
        "start = max_id",
        (f"{CONTRACT}::test_a_floor_above_skips",),
    ),
    Break(
        "a row raised by hand on SQLite counts for nothing",
        "hazard 24",
        PLACED,
        "            # Ahead of the marks only where somebody skipped ahead by hand.\n"
        "            floor = max(floor, row.max_id)\n",
        "",
        ("tests/test_mirror.py::test_ids_skip_ahead_where_max_id_is_raised",),
    ),
    Break(
        "ids of a test that forbids the database are left over for it",
        "I1",
        PLACED,
        "return MemorySource(default_step=1, end=MAX_ID)",
        "return MemorySource(default_step=1000, end=MAX_ID)",
        ("tests/test_stores.py::test_ids_of_a_test_without_the_database_come_one_at_a_time",),
    ),
)
