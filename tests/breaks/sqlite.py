"""The file beside a SQLite database."""

from __future__ import annotations

from .definition import Break

__all__ = ["BREAKS"]

FILE = "django_idgen/db/sqlite.py"
PLACED = "django_idgen/sources/database.py"
TESTS = "tests/db/test_sqlite_file.py"

BREAKS = (
    Break(
        "grants stand in the project's own SQLite file",
        "I4, hazards 32 and 57",
        FILE,
        "    return database.with_name(database.name + SUFFIX)\n",
        "    return database\n",
        (f"{TESTS}::test_the_rows_that_people_see_are_the_ones_that_count",),
    ),
    Break(
        "a grant may be lost with the power",
        "I4",
        FILE,
        '"PRAGMA synchronous = EXTRA"',
        '"PRAGMA synchronous = OFF"',
        (f"{TESTS}::test_a_grant_is_on_the_disk_before_it_is_used",),
    ),
    Break(
        "a file that was moved to its place is believed",
        "L7, L8",
        FILE,
        "return inode != self._opened or self._was_written_over(written)",
        "return self._was_written_over(written)",
        (f"{TESTS}::test_an_old_copy_of_the_file_is_noticed[at once]",),
    ),
    Break(
        "an old copy that was written over the file is believed",
        "L7, hazard 61",
        FILE,
        "return inode != self._opened or self._was_written_over(written)",
        "return inode != self._opened",
        (f"{TESTS}::test_an_old_copy_of_the_file_is_noticed",),
    ),
    Break(
        "an old copy that kept its time is believed",
        "hazard 61",
        FILE,
        "max(found.st_mtime, found.st_ctime)",
        "found.st_mtime",
        (f"{TESTS}::test_an_old_copy_of_the_file_is_noticed",),
    ),
    Break(
        "tags of a lost file go on right above their tables' rows",
        "hazard 60",
        "django_idgen/sources/server.py",
        "lost or (installation.first_id > 1 and floor.lowest > 1)",
        "lost",
        (f"{TESTS}::test_after_a_loss_ids_begin_far_above_the_rows_of_their_table",),
    ),
    Break(
        "a lost file forgets its namespaces",
        "L7",
        FILE,
        "[tied, LOST_NAMES, ANOTHER_LIFE, LOST_STEP],",
        '[tied, "{}", ANOTHER_LIFE, LOST_STEP],',
        (f"{TESTS}::test_windows_of_a_lost_file_end_before_the_next_begin",),
    ),
    Break(
        "the file of another database is taken for one's own",
        "L8",
        FILE,
        "        if tied is not None and identity not in (None, tied):\n            return True\n",
        "",
        (f"{TESTS}::test_the_file_of_another_database_is_taken_over_once",),
    ),
    Break(
        "a new file is begun though the database can't be asked",
        "I6",
        FILE,
        "        if found is None and why:\n",
        "        if found is None and why is None:\n",
        (f"{TESTS}::test_no_file_is_begun_while_the_database_is_locked",),
    ),
    Break(
        "a row raised by hand in memory counts for nothing",
        "hazard 24",
        PLACED,
        "            floor = max(floor, row.max_id)\n",
        "",
        ("tests/process/test_tags.py::test_a_row_in_memory_counts_as_well",),
    ),
    Break(
        "ids of a test that forbids the database are left over for it",
        "I1",
        PLACED,
        "return MemorySource(default_step=1, end=MAX_ID)",
        "return MemorySource(default_step=1000, end=MAX_ID)",
        (
            "tests/db/test_connection.py::test_ids_of_a_test_without_the_database_come_one_at_a_time",
        ),
    ),
)
