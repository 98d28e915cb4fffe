"""Worker ids that the configuration names: the lock, and the mark written ahead."""

from __future__ import annotations

from .definition import Break

__all__ = ["BREAKS"]

STATIC = "django_idgen/leases/static.py"
FILES = "django_idgen/leases/worker_files.py"
TESTS = "tests/contracts/test_static.py"
CONTRACT = f"{TESTS}::TestStaticLeases"

BREAKS = (
    Break(
        "two processes of a host hold one static id",
        "I1",
        FILES,
        "fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)",
        (f"{TESTS}::test_one_worker_id_is_lent_once",),
    ),
    Break(
        "the lock of a file that was deleted holds",
        "I1",
        FILES,
        "return os.path.samestat(os.stat(self.path), os.fstat(self._descriptor))",
        "return True",
        (f"{TESTS}::test_a_lock_file_that_was_replaced_is_a_loss",),
    ),
    Break(
        "a child that closes its copy frees its parent's lock",
        "I5, L9",
        FILES,
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
        STATIC,
        "        MarkFile(self.directory, self.namespace, mark.worker).write(mark)\n\n",
        "        written = replace(mark, until=mark.start)\n"
        "        MarkFile(self.directory, self.namespace, mark.worker).write(written)\n\n",
        (f"{TESTS}::test_a_killed_holder_frees_the_lock_but_not_its_window",),
    ),
    Break(
        "a mark file that was deleted takes its window along",
        "L7",
        STATIC,
        "fence=0 if old else lock.high_water(),",
        "fence=0,",
        (f"{CONTRACT}::test_rows_deleted_under_a_holder_repeat_nothing",),
    ),
    Break(
        "the lock file does not follow the highest window",
        "L7",
        STATIC,
        "        lock.raise_high_water(mark.until)\n",
        "",
        (f"{CONTRACT}::test_rows_deleted_under_a_holder_repeat_nothing",),
    ),
    Break(
        "a static lease with another token or start renews",
        "L2, hazard 69",
        STATIC,
        "if mark is None or (mark.token, mark.start) != (lease.token, lease.start):",
        "if mark is None:",
        (f"{CONTRACT}::test_another_start_or_token_is_another_lease",),
    ),
    Break(
        "a static id is free before its mark is written",
        "L3",
        STATIC,
        "            self._write(locks[mark.worker], given_back)\n"
        "            # Only now: whoever locks it next must see the lowered mark.\n"
        "            locks.pop(mark.worker).close()\n",
        "            self._write(locks[mark.worker], mark)\n"
        "            locks.pop(mark.worker).close()\n",
        (f"{CONTRACT}::test_a_released_worker_id_goes_to_a_newcomer",),
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
        'if stored["worker"] != self.worker or not isinstance',
        "if not isinstance",
        (f"{TESTS}::test_a_mark_of_another_worker_id_is_not_believed",),
    ),
    Break(
        "static ids move to other settings while one is held",
        "I8",
        STATIC,
        "                        raise self._held(worker)\n",
        "                        continue\n",
        ("tests/doctor/test_moves.py::test_static_worker_ids",),
    ),
)
