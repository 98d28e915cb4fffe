"""Worker ids that the configuration names: the lock, and the mark written ahead."""

from __future__ import annotations

from .definition import Break

__all__ = ["BREAKS"]

STATIC = "django_idgen/leases/static.py"
FILES = "django_idgen/leases/static.py"
LOCKED = "django_idgen/core/files.py"
MOVE = "django_idgen/ops/doctor/move.py"
TESTS = "tests/contracts/test_static.py"
CONTRACT = f"{TESTS}::TestStaticLeases"
MOVES = "tests/ops/doctor/test_moves.py"
FILE_TESTS = "tests/core/test_files.py"

BREAKS = (
    Break(
        "two processes of a host hold one static id",
        "I1",
        LOCKED,
        "fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)",
        (f"{TESTS}::test_one_worker_id_is_lent_once",),
    ),
    Break(
        "the lock of a file that was deleted holds",
        "I1",
        LOCKED,
        "return os.path.samestat(os.stat(self.path), os.fstat(self._descriptor))",
        "return True",
        (f"{TESTS}::test_a_lock_file_that_was_replaced_is_a_loss",),
    ),
    Break(
        "a child that closes its copy frees its parent's lock",
        "I5, L9",
        LOCKED,
        "                os.close(descriptor)",
        "                fcntl.flock(descriptor, fcntl.LOCK_UN)\n"
        "                os.close(descriptor)",
        (f"{TESTS}::test_a_forked_child_neither_has_nor_frees_the_lock",),
    ),
    Break(
        "a child holds what its parent holds",
        "I5, L9",
        STATIC,
        "held = self._held.get(pid)",
        "held = next(iter(self._held.values()), None)",
        (f"{TESTS}::test_a_forked_child_neither_has_nor_frees_the_lock",),
    ),
    Break(
        "a static mark is not written ahead",
        "L1, hazard 4",
        FILES,
        '            "until": mark.until,\n',
        '            "until": mark.start,\n',
        (f"{TESTS}::test_a_killed_holder_frees_the_lock_but_not_its_window",),
    ),
    Break(
        "a mark file that was deleted takes its window along",
        "L7",
        STATIC,
        "fence = 0 if file.mark() else file.high_water()",
        "fence = 0",
        (f"{CONTRACT}::test_rows_deleted_under_a_holder_repeat_nothing",),
    ),
    Break(
        "the lock file does not follow the highest window",
        "L7",
        FILES,
        "        if restart or mark.until > self.high_water():\n",
        "        if restart:\n",
        (f"{CONTRACT}::test_rows_deleted_under_a_holder_repeat_nothing",),
    ),
    Break(
        "a static id is free before its mark is written",
        "L3",
        STATIC,
        "            if mark is not None and mark is not before.get(file.worker):\n",
        "            if mark is not None and mark.token and mark is not before.get(file.worker):\n",
        (f"{CONTRACT}::test_a_released_worker_id_goes_to_a_newcomer",),
    ),
    Break(
        "a holder whose lock file was replaced goes on",
        "I1",
        STATIC,
        "files = [each for each in held.values() if each.still_in_place()]",
        "files = list(held.values())",
        (f"{TESTS}::test_a_lock_file_that_was_replaced_is_a_loss",),
    ),
    Break(
        "a damaged mark is a fresh start",
        "I6, hazard 6",
        FILES,
        "        stored = self._parsed(text)\n",
        "        try:\n"
        "            stored = self._parsed(text)\n"
        "        except RegistryUnavailable:\n"
        "            return None\n",
        (f"{TESTS}::test_a_damaged_mark_is_no_fresh_start",),
    ),
    Break(
        "a mark of another worker id is believed",
        "I1",
        FILES,
        '        if stored["worker"] != self.worker:\n',
        "        if False:\n",
        (f"{TESTS}::test_a_mark_of_another_worker_id_is_not_believed",),
    ),
    Break(
        "static ids move to other settings while one is held",
        "I8",
        STATIC,
        'raise self._taken(file, "a running process of this host", "Stop it first.")',
        "continue",
        (f"{MOVES}::test_static_worker_ids",),
    ),
    Break(
        "a host begins below what a closed registry has lent",
        "I1",
        MOVE,
        "found = [each.stored for each in (*self.leftovers, *self.unknown)]",
        "found = [each.stored for each in self.leftovers]",
        (f"{MOVES}::test_each_host_begins_past_the_registry_before",),
    ),
    Break(
        "a namespace begins below what a second registry of an earlier version has lent",
        "I1",
        MOVE,
        "names = (entry.namespace, entry.namespace + LEFT_BEHIND)",
        "names = (entry.namespace,)",
        (f"{MOVES}::test_from_fallback_leases_of_an_earlier_version",),
    ),
    Break(
        "a closed registry opens again, whatever its successor lent",
        "I1",
        MOVE,
        "if stored and is_closed(stored) and not shown:",
        "if False:",
        (f"{MOVES}::test_back_from_static_worker_ids",),
    ),
    Break(
        "of two settings that exclude each other one wins",
        "hazard 101",
        "django_idgen/leases/static.py",
        "            if worker is not None:\n",
        "            if False:\n",
        ("tests/contracts/test_numbered.py::test_a_static_worker_id_may_be_numbered",),
    ),
    Break(
        "a mark goes where a symbolic link leads",
        "hazard 117",
        LOCKED,
        'getattr(os, "O_NOFOLLOW", 0)',
        "0",
        (f"{FILE_TESTS}::test_a_link_is_refused_in_words",),
    ),
    Break(
        "half of a mark counts",
        "hazard 117",
        LOCKED,
        "        if written != len(line):",
        "        if False:",
        (f"{FILE_TESTS}::test_a_short_write_is_an_error",),
    ),
)
