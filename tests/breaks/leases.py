"""The rules of leases, L1 to L8, as all registries but Redis' own scripts follow them."""

from __future__ import annotations

from .definition import Break

__all__ = ["BREAKS"]

LEASE = "django_idgen/core/lease.py"
LENDING = "django_idgen/core/lending.py"
CHARTER = "django_idgen/core/charter.py"
FALLBACK = "django_idgen/leases/fallback.py"
HTTP = "django_idgen/leases/http.py"
LENT_OVER_HTTP = "django_idgen/rest/lending_leases.py"
MEMORY = "tests/contracts/test_memory.py::TestMemoryLeases"
LINES = "tests/core/test_charter.py"

BREAKS = (
    # --- L1 acquire -----------------------------------------------------------
    Break(
        "a worker id is lent again a tick before its window ends",
        "L1, I1",
        LEASE,
        "not mark.token or now >= mark.until",
        "not mark.token or now >= mark.until - 1",
        (f"{MEMORY}::test_a_window_is_its_holders_until_its_last_tick",),
    ),
    Break(
        "a window starts before the end of the last one",
        "L1, hazard 4",
        LEASE,
        "start = max(now, mark.until if mark else 0, fence, not_before)",
        "start = max(now, fence, not_before)",
        (f"{MEMORY}::test_a_clock_an_hour_off_repeats_nothing",),
    ),
    Break(
        "a window starts below the fence",
        "L1, L6",
        LEASE,
        "start = max(now, mark.until if mark else 0, fence, not_before)",
        "start = max(now, mark.until if mark else 0, not_before)",
        (f"{MEMORY}::test_rows_deleted_under_a_holder_repeat_nothing",),
    ),
    Break(
        "a window starts before the caller's last tick is over",
        "L1, I2",
        LEASE,
        "start = max(now, mark.until if mark else 0, fence, not_before)",
        "start = max(now, mark.until if mark else 0, fence)",
        (f"{MEMORY}::test_a_window_starts_no_earlier_than_the_caller_can_use",),
    ),
    Break(
        "a first window reaches past the ceiling",
        "L1, L6",
        LEASE,
        "return start, min(start + namespace.window_ticks, top)",
        "return start, start + namespace.window_ticks",
        (f"{MEMORY}::test_time_past_the_end_of_the_layout_is_refused",),
    ),
    Break(
        "two leases share a token",
        "L1, hazards 13 and 51",
        LEASE,
        "return secrets.token_hex(16)",
        'return "0123456789abcdef" * 2',
        (f"{MEMORY}::test_tokens_are_new_for_every_lease",),
    ),
    Break(
        "a lease is granted past the layout's time",
        "L5, hazard 8",
        LEASE,
        "if start >= namespace.max_ticks:",
        "if start > namespace.max_ticks:",
        (f"{MEMORY}::test_time_past_the_end_of_the_layout_is_refused",),
    ),
    Break(
        "a lease is granted before the layout's epoch",
        "I7",
        LEASE,
        "    if now < 0:\n        raise ClockBeforeEpoch(",
        "    if now < -1:\n        raise ClockBeforeEpoch(",
        (f"{MEMORY}::test_a_clock_before_the_epoch_is_refused",),
    ),
    # --- L2 renew -------------------------------------------------------------
    Break(
        "a renewal lowers the mark when the clock went back",
        "L2, hazard 50",
        LEASE,
        "return max(mark.until, min(max(now, last_tick) + namespace.window_ticks, top))",
        "return min(max(now, last_tick) + namespace.window_ticks, top)",
        (f"{MEMORY}::test_a_clock_that_went_back_does_not_lower_the_end",),
    ),
    Break(
        "a renewal forgets how far its holder came",
        "L2",
        LEASE,
        "return max(mark.until, min(max(now, last_tick) + namespace.window_ticks, top))",
        "return max(mark.until, min(now + namespace.window_ticks, top))",
        (f"{MEMORY}::test_renewal_counts_from_the_last_tick_used",),
    ),
    Break(
        "a renewal reaches past the ceiling",
        "L2, L6",
        LEASE,
        "return max(mark.until, min(max(now, last_tick) + namespace.window_ticks, top))",
        "return max(mark.until, max(now, last_tick) + namespace.window_ticks)",
        (f"{MEMORY}::test_time_past_the_end_of_the_layout_is_refused",),
    ),
    Break(
        "another's token renews",
        "L2, hazard 1",
        LENDING,
        "        lease.token,\n        lease.start,\n        lease.generation,\n",
        "        mark.token,\n        lease.start,\n        lease.generation,\n",
        (f"{MEMORY}::test_another_start_or_token_is_another_lease",),
    ),
    Break(
        "a lease with another start renews",
        "L2, hazard 69",
        LENDING,
        "        lease.token,\n        lease.start,\n        lease.generation,\n",
        "        lease.token,\n        mark.start,\n        lease.generation,\n",
        (f"{MEMORY}::test_another_start_or_token_is_another_lease",),
    ),
    Break(
        "a lease of an earlier generation renews",
        "L6, hazard 52",
        LENDING,
        "        lease.generation,\n        lease.generation,\n    )",
        "        mark.generation,\n        record.generation,\n    )",
        ("tests/contracts/test_marks.py::test_a_lease_beside_a_deleted_one_is_lost_too",),
    ),
    Break(
        "a scheduler revives what has lapsed",
        "L2, I1",
        LENDING,
        "        and not is_free(mark, now)\n        and not mark.holder",
        "        and mark.token\n        and not mark.holder",
        (f"{MEMORY}::test_a_scheduler_revives_nothing",),
    ),
    # --- L3 release -----------------------------------------------------------
    Break(
        "a released mark stands on the last tick that was used",
        "L3, hazard 16",
        LEASE,
        "max(start, last_tick + 1)",
        "max(start, last_tick)",
        (f"{MEMORY}::test_a_released_worker_id_goes_to_a_newcomer",),
    ),
    Break(
        "a release puts the mark before its window",
        "L3, hazard 69",
        LEASE,
        "max(start, last_tick + 1)",
        "last_tick + 1",
        (f"{MEMORY}::test_a_release_leaves_no_mark_before_its_window",),
    ),
    Break(
        "a late release frees the next holder's lease",
        "L3, hazard 51",
        LENDING,
        '        return False\n    book.save_mark(replace(mark, token=""',
        '        pass\n    book.save_mark(replace(mark, token=""',
        (f"{MEMORY}::test_a_late_release_frees_nothing",),
    ),
    Break(
        "a DELETE of a past life frees a CosId client's machine id",
        "L3, hazard 51",
        "django_idgen/rest/compat/cosid_machines.py",
        "            if not instance.stable and self._is_settled(grant):",
        "            if not instance.stable:",
        ("tests/rest/compat/test_cosid_machines.py::test_a_late_delete_frees_nothing",),
    ),
    Break(
        "a stable CosId instance begins again where its lease did",
        "L1, hazard 80",
        "django_idgen/rest/compat/cosid_machines.py",
        "            tick = max(tick, self._latest(grant) + 1)",
        "            tick = max(tick, space.tick_at(grant.reading.registry_us))",
        (
            "tests/rest/compat/test_cosid_machines.py::"
            "test_a_stable_life_that_follows_another_instance_repeats_no_stamp",
        ),
    ),
    # --- L7, a book that lost rows ----------------------------------------------
    Break(
        "rows that were deleted are not missed",
        "L7",
        LENDING,
        "    if book.count() < record.workers_made:\n        return _reopened(",
        "    if book.count() < 0:\n        return _reopened(",
        (f"{MEMORY}::test_rows_deleted_under_a_holder_repeat_nothing",),
    ),
    Break(
        "the fence leaves the longest window out",
        "L7, hazard 49",
        LEASE,
        "max(fence, now + namespace.skew_ticks) + window",
        "max(fence, now + namespace.skew_ticks)",
        (
            "tests/server_leases/test_losses.py::test_a_loss_opens_a_new_generation[postgres-forget_server]",
        ),
    ),
    Break(
        "the fence leaves the skew of clocks out",
        "L7, hazard 49",
        LEASE,
        "max(fence, now + namespace.skew_ticks) + window",
        "max(fence, now) + window",
        (
            "tests/server_leases/test_losses.py::test_a_loss_opens_a_new_generation[postgres-forget_namespace]",
        ),
    ),
    Break(
        "the fence knows today's window only",
        "L7, hazard 49",
        LEASE,
        "window = max(largest_window, namespace.reach_ticks)",
        "window = namespace.reach_ticks",
        ("tests/server_leases/test_losses.py::test_the_fence_reckons_with_the_longest_window",),
    ),
    Break(
        "a second fence lies below the first",
        "L7, hazard 49",
        LENDING,
        "fence=max(fence, known.highest_until, book.highest_until()),",
        "fence=now,",
        (f"{MEMORY}::test_rows_deleted_under_a_holder_repeat_nothing",),
    ),
    Break(
        "the record does not follow the latest window",
        "L7, hazard 49",
        LENDING,
        "            highest_until=max(record.highest_until, mark.until),",
        "            highest_until=record.highest_until,",
        (f"{MEMORY}::test_rows_deleted_after_the_clock_went_back",),
    ),
    # --- L8 one truth -----------------------------------------------------------
    Break(
        "other settings are let in",
        "L8, I8, hazard 55",
        LENDING,
        "        if theirs.get(key) != ours.get(key):",
        "        if theirs.get(key) is ours.get(key) is None:",
        (f"{MEMORY}::test_settings_that_differ_are_refused_by_name",),
    ),
    Break(
        "the layout's bits are not in the fingerprint",
        "L8, I8",
        "django_idgen/core/layout.py",
        '            "fields": [[name, bits] for name, bits in self.fields],\n',
        "",
        ("tests/core/test_layout.py::test_the_fingerprint_changes_with_whatever_would_repeat_ids",),
    ),
    Break(
        "the kind of registry is not in the fingerprint",
        "L8, hazard 55",
        "django_idgen/factory.py",
        '{**namespace.fingerprint, "registry": _kind_of(leases)}',
        "{**namespace.fingerprint}",
        ("tests/test_fallback_leases.py::test_settings_share_the_worker_ids_out",),
    ),
    Break(
        "the worker ids are not in the fingerprint",
        "L8, I8",
        "django_idgen/factory.py",
        'fingerprint["workers"] = [namespace.workers.start, namespace.workers.stop]',
        "pass",
        ("tests/test_fallback_leases.py::test_settings_share_the_worker_ids_out",),
    ),
    # --- L6 what a registry that can forget may lend ------------------------------
    Break(
        "a new generation begins below the old ceiling",
        "L6, hazard 17",
        CHARTER,
        "max(self.fence, self.ceiling, now), self.generation + 1",
        "max(self.fence, now), self.generation + 1",
        (f"{LINES}::test_a_new_life_begins_at_the_ceiling_of_the_old_one",),
    ),
    Break(
        "a new generation has the old one's number",
        "L6",
        CHARTER,
        "max(self.fence, self.ceiling, now), self.generation + 1",
        "max(self.fence, self.ceiling, now), self.generation",
        (f"{LINES}::test_a_new_life_begins_at_the_ceiling_of_the_old_one",),
    ),
    Break(
        "a new life of the registry goes on in the old generation",
        "L6, hazard 17",
        CHARTER,
        "if self.is_laid and self.incarnation == incarnation:",
        "if self.is_laid:",
        (f"{LINES}::test_a_new_life_begins_at_the_ceiling_of_the_old_one",),
    ),
    Break(
        "an old generation raises the ceiling",
        "L6",
        CHARTER,
        "if self.serves(seen) else self",
        "if self.is_laid else self",
        (f"{LINES}::test_only_the_current_generation_is_raised",),
    ),
    Break(
        "a ceiling falls",
        "L6, hazard 50",
        CHARTER,
        "ceiling=max(self.ceiling, max(self.fence, wanted) + stride)",
        "ceiling=max(self.fence, wanted) + stride",
        (f"{LINES}::test_a_ceiling_never_falls",),
    ),
    Break(
        "what the borrower still knows is not reckoned with",
        "L6, L7",
        CHARTER,
        "fence=max(self.fence, seen.ceiling)",
        "fence=self.fence",
        (f"{LINES}::test_what_the_borrower_still_knows_is_reckoned_with",),
    ),
    # --- a fallback -----------------------------------------------------------------
    Break(
        "two registries may lend one worker id",
        "I1",
        FALLBACK,
        "if max(first.start, second.start) < min(first.stop, second.stop):",
        "if max(first.start, second.start) + 1 < min(first.stop, second.stop):",
        ("tests/test_fallback_leases.py::test_ranges_that_overlap_are_refused",),
    ),
    Break(
        "the second registry is given a worker id of the first",
        "I1",
        FALLBACK,
        "workers=range(split, workers.stop),",
        "workers=range(split - 1, workers.stop),",
        ("tests/test_fallback_leases.py::test_settings_describe_both_registries",),
    ),
    # --- over HTTP --------------------------------------------------------------------
    Break(
        "a client takes a worker id that it can't have",
        "I1, I6",
        HTTP,
        'worker = space.check_worker(number_of(words, "worker"))',
        'worker = number_of(words, "worker")',
        ("tests/http/test_wrong_answers.py::test_a_lease_that_cannot_be_right_is_refused",),
    ),
    Break(
        "a client takes a window below its last tick",
        "I2, L1",
        HTTP,
        'start = number_of(words, "start", least=not_before, most=space.max_ticks)',
        'start = number_of(words, "start", most=space.max_ticks)',
        ("tests/http/test_wrong_answers.py::test_a_lease_that_cannot_be_right_is_refused",),
    ),
    Break(
        "a renewal over HTTP may be of another lease",
        "L2, L4",
        HTTP,
        '            raise ValueError("it is another lease")',
        "            pass",
        (
            "tests/http/test_wrong_answers.py::"
            "test_a_renewal_is_of_the_same_lease_and_lowers_nothing",
        ),
    ),
    Break(
        "a renewal over HTTP lowers the end",
        "L2, hazard 50",
        HTTP,
        'until = number_of(words, "until", least=lease.until, most=self.namespace.max_ticks)',
        'until = number_of(words, "until", most=self.namespace.max_ticks)',
        (
            "tests/http/test_wrong_answers.py::"
            "test_a_renewal_is_of_the_same_lease_and_lowers_nothing",
        ),
    ),
    Break(
        "a service lends to clients of another layout",
        "L8",
        LENT_OVER_HTTP,
        "        if ours.get(key) != given.get(key):",
        "        if ours.get(key) is given.get(key) is None:",
        ("tests/rest/lending/test_leases.py::test_a_client_of_other_settings_is_refused",),
    ),
    Break(
        "a client's tick moves a mark as far as it likes",
        "hazard 71",
        LENT_OVER_HTTP,
        "        if tick > latest:",
        "        if tick > 2 * latest + 2**60:",
        ("tests/rest/lending/test_leases.py::test_a_wrong_client_cannot_use_up_a_worker_ids_time",),
    ),
)
