"""The keeper of a lease, and the ticks that a generator walks inside of it."""

from __future__ import annotations

from .definition import Break

__all__ = ["BREAKS"]

KEEPER = "django_idgen/core/keeper.py"
WALK = "django_idgen/core/snowflake.py"
SNOWFLAKE = "django_idgen/core/snowflake.py"
CLOCK = "django_idgen/core/clock.py"
KEPT = "tests/core/test_keeper.py"
TESTS = "tests/core/test_snowflake.py"
TIME = "tests/core/test_snowflake_time.py"

BREAKS = (
    Break(
        "a lease is asked for from before the last tick",
        "L1, I2",
        KEEPER,
        "holder=self.holder, not_before=self.last_tick + 1, avoid=avoid",
        "holder=self.holder, not_before=self.last_tick, avoid=avoid",
        (f"{KEPT}::test_a_new_lease_starts_after_the_last_tick_loaded",),
    ),
    Break(
        "a late answer to a renewal counts for another lease",
        "L4",
        KEEPER,
        "if self.lease is None or self.lease.token != asked.token:\n                return None",
        "if self.lease is None:\n                return None",
        (f"{KEPT}::test_a_late_renewal_counts_for_nothing_after_a_new_acquire",),
    ),
    Break(
        "a renewal does not say how far its holder came",
        "L2",
        KEEPER,
        "latest = max(self.last_tick, self.now_tick(), lease.start, tick)",
        "latest = lease.start",
        (f"{KEPT}::test_the_window_goes_on_rising_after_the_registrys_clock_went_back",),
    ),
    Break(
        "a release does not say which tick was loaded last",
        "L3, hazard 16",
        KEEPER,
        "last_tick=last_tick if last_tick >= 0 else None",
        "last_tick=None",
        (f"{KEPT}::test_release_leaves_the_mark_past_the_last_tick_loaded",),
    ),
    Break(
        "a lease is held on to after its release",
        "L3",
        KEEPER,
        "            lease, self.lease = self.lease, None\n",
        "            lease = self.lease\n",
        (f"{KEPT}::test_release_can_be_called_twice_and_without_a_lease",),
    ),
    Break(
        "a lost lease is renewed as if it were held",
        "L6, hazard 11",
        KEEPER,
        "        if lease is None or self.lost:\n            return None\n        try:",
        "        if lease is None:\n            return None\n        try:",
        (f"{KEPT}::test_a_lost_lease_is_told_once_and_not_renewed_again",),
    ),
    Break(
        "ids are stamped past the end of the window",
        "I3, hazard 18",
        WALK,
        "            elif tick >= lease.until:",
        "            elif tick > lease.until:",
        (f"{TIME}::test_the_last_tick_of_a_window_is_the_last_that_is_stamped",),
    ),
    Break(
        "ids are stamped past the layout's time",
        "L5, I7, hazard 8",
        WALK,
        "            if tick >= self.layout.max_ticks:",
        "            if tick > self.layout.max_ticks:",
        (f"{TIME}::test_time_ends_exactly_after_the_last_tick",),
    ),
    Break(
        "a clock that went back makes a tick come again",
        "I1, hazard 4",
        WALK,
        "            tick = max(current, last + 1)",
        "            tick = current",
        (f"{TIME}::test_a_clock_that_goes_back_a_little_is_waited_for",),
    ),
    Break(
        "a sequence runs over into the worker id",
        "I1, I7, hazards 9 and 37",
        WALK,
        "first + layout.sequences * unit, unit)",
        "first + (layout.sequences + 1) * unit, unit)",
        (f"{TESTS}::test_a_tick_holds_all_of_its_sequence",),
    ),
    Break(
        "a random start of the sequence runs over its end",
        "I1, I7, hazards 9 and 37",
        WALK,
        "batches[0] = batches[0][skipped:]",
        "batches[0] = range(batches[0][skipped], batches[0].stop + skipped * unit, unit)",
        (f"{TESTS}::test_a_random_start_ends_with_the_sequence",),
    ),
    Break(
        "id 0 is issued",
        "L5, I7, hazard 22",
        WALK,
        "if not batches[0][0]:",
        "if batches[0][0] < 0:",
        (f"{TESTS}::test_id_0_is_never_issued",),
    ),
    Break(
        "a tick is written down after its ids can be taken",
        "L3, hazard 54",
        WALK,
        "        self.keeper.last_tick = tick\n        self._open_batch()\n",
        "        self._open_batch()\n        self.keeper.last_tick = tick\n",
        (f"{TESTS}::test_a_block_is_marked_as_loaded_before_anyone_can_take_from_it",),
    ),
    Break(
        "a window from the past is used",
        "I2, I6",
        WALK,
        "        if changed.start <= self.keeper.last_tick:",
        "        if changed.start < 0:",
        (f"{TIME}::test_a_registry_that_lends_the_past_is_an_error_not_a_loop",),
    ),
    Break(
        "a lease that ended too soon is used",
        "I3",
        WALK,
        "        if tick >= lease.until:\n            raise LeaseExpired(",
        "        if tick > 2 * lease.until:\n            raise LeaseExpired(",
        (f"{TIME}::test_an_answer_that_takes_longer_than_the_window_is_an_error_not_a_loop",),
    ),
    Break(
        "a closed generator goes on with the batches that were not opened",
        "L3",
        SNOWFLAKE,
        "        self._rest = []\n        self._fresh = NEVER\n\n    def forget",
        "        self._fresh = NEVER\n\n    def forget",
        ("tests/core/test_batches.py::test_nothing_of_a_closed_tick_is_left",),
    ),
    Break(
        "batches wrap round within a tick",
        "I2",
        SNOWFLAKE,
        "for batch in range(start, layout.batches):",
        "for batch in (*range(start, layout.batches), *range(start)):",
        ("tests/core/test_batches.py::test_a_tick_has_each_of_its_batches_from_a_first_one_on",),
    ),
    Break(
        "a generator gives out what was open when it was closed",
        "L3, hazard 54",
        SNOWFLAKE,
        "            self._closed = True\n            self._discard()\n",
        "            self._closed = True\n",
        (f"{TESTS}::test_a_closed_generator_gives_nothing_of_the_tick_that_was_open",),
    ),
    Break(
        "a generator goes on after it was closed",
        "L3",
        SNOWFLAKE,
        "            self._closed = True\n",
        "",
        (f"{TESTS}::test_a_closed_generator_says_so_and_has_given_its_worker_id_back",),
    ),
    Break(
        "marks of another layout are walked",
        "I8",
        "django_idgen/core/snowflake.py",
        "    if (space.tick_us, space.epoch_us, space.max_ticks) != (",
        "    if (space.tick_us,) != (layout.tick_us,) and () != (",
        (f"{TESTS}::test_a_registry_that_does_not_fit_the_layout_is_refused",),
    ),
    Break(
        "worker ids that the layout has no room for are walked",
        "I1, hazard 9",
        "django_idgen/core/snowflake.py",
        "if space.workers.stop > len(layout.workers):",
        "if space.workers.start > len(layout.workers):",
        (f"{TESTS}::test_a_registry_that_does_not_fit_the_layout_is_refused",),
    ),
    Break(
        "a reading past the skew limit moves the time",
        "hazard 12",
        CLOCK,
        "        if abs(offset) > max(self.skew_limit_us, reading.round_trip_us):\n"
        "            return offset\n",
        "",
        ("tests/core/test_clock.py::test_a_reading_past_the_skew_limit_is_refused_and_told",),
    ),
    Break(
        "the start-up check of the clock is swallowed",
        "hazard 6",
        KEEPER,
        "        if self.refuse_skew:\n",
        "        if self.refuse_skew is None:\n",
        (f"{KEPT}::test_refuse_skew_keeps_the_process_from_starting",),
    ),
)
