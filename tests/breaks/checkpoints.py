"""Leases that a file of the host keeps over a restart."""

from __future__ import annotations

from .definition import Break

__all__ = ["BREAKS"]

LEASES = "django_idgen/leases/checkpointed.py"
HISTORIES = "tests/simulation/test_checkpoint_histories.py::TestCheckpointHistories"
TESTS = "tests/contracts/test_checkpointed.py"

BREAKS = (
    Break(
        "a lease is resumed from its start",
        "I1, L1",
        LEASES,
        "held = _Held(file, grant.lease, max(kept.mark, not_before), grant.reading)",
        "held = _Held(file, grant.lease, max(grant.lease.start, not_before), grant.reading)",
        (f"{TESTS}::test_a_killed_process_goes_on_under_its_worker_id_from_its_mark", HISTORIES),
    ),
    Break(
        "a holder stamps past its mark",
        "L5",
        LEASES,
        "return Grant(replace(held.lease, start=held.start, until=held.mark), reading)",
        "return Grant(replace(held.lease, start=held.start), reading)",
        (f"{TESTS}::test_a_process_may_stamp_up_to_its_mark_and_no_further",),
    ),
    Break(
        "a lease that was given back is resumed",
        "L3",
        LEASES,
        "            held.file.save(None, 0)  # first, so that no process resumes the lease\n",
        "",
        (f"{TESTS}::test_a_lease_that_was_given_back_is_not_resumed",),
    ),
    Break(
        "a release frees the ticks of an earlier process",
        "L3, hazard 69",
        LEASES,
        "used = max(held.start - 1, -1 if last_tick is None else last_tick)",
        "used = -1 if last_tick is None else last_tick",
        (f"{TESTS}::test_a_lease_that_was_given_back_is_not_resumed",),
    ),
    Break(
        "an older state of the files is resumed",
        "I1",
        LEASES,
        "return kept if ours and known == place else None",
        "return kept if ours else None",
        (f"{TESTS}::test_an_older_state_of_the_files_is_not_resumed",),
    ),
    Break(
        "a file of another host is resumed",
        "I1",
        LEASES,
        "        if host != socket.gethostname():\n",
        "        if not host:\n",
        (f"{TESTS}::test_a_file_that_is_not_understood_is_refused",),
    ),
    Break(
        "a lease of another layout is resumed",
        "L8",
        LEASES,
        "ours = fingerprint == self._fingerprint",
        "ours = bool(fingerprint)",
        (f"{TESTS}::test_another_layout_is_not_resumed",),
    ),
    Break(
        "a mark counts before it is on the disk",
        "I1",
        LEASES,
        "            held.file.save(held.lease, until)\n            held.mark = until\n",
        "            held.mark = until\n            held.file.save(held.lease, until)\n",
        (f"{TESTS}::test_a_full_disk_lends_nothing",),
    ),
    Break(
        "a process whose lock file was replaced goes on",
        "I1",
        LEASES,
        "        if not self.still_in_place():\n",
        "        if not self.is_open:\n",
        (f"{TESTS}::test_a_lock_file_that_was_deleted_is_noticed",),
    ),
    Break(
        "two processes of a host resume one lease",
        "I1, L9",
        LEASES,
        "            if not file.lock():\n                continue\n",
        "            file.lock()\n",
        (f"{TESTS}::test_processes_of_a_host_have_a_file_each",),
    ),
    Break(
        "a mark is not put on the disk",
        "I1",
        "django_idgen/core/files.py",
        "        os.fsync(file.fileno())\n    os.replace",
        "    os.replace",
        (f"{TESTS}::test_a_mark_is_on_the_disk_before_it_counts",),
    ),
    Break(
        "a resumed lease begins below the process' own last tick",
        "I2, L1",
        LEASES,
        "held = _Held(file, grant.lease, max(kept.mark, not_before), grant.reading)",
        "held = _Held(file, grant.lease, kept.mark, grant.reading)",
        (f"{TESTS}::test_a_resumed_lease_begins_past_what_the_process_has_stamped",),
    ),
    Break(
        "a lease without a tick is resumed",
        "I3",
        LEASES,
        "return held if held.start < grant.lease.until else None",
        "return held",
        (f"{TESTS}::test_a_window_that_is_used_up_is_not_resumed",),
    ),
)
