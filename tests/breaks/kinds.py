"""Ids that are prepared ahead, that come without a lease, and that need no clock."""

from __future__ import annotations

from .definition import Break

__all__ = ["BREAKS"]

SNOWFLAKE = "django_idgen/core/snowflake.py"
DEGRADED = "django_idgen/core/snowflake.py"
BUFFERED = "django_idgen/core/buffered.py"
SERIAL = "django_idgen/core/tag_generator.py"
FILES = "django_idgen/sources/file.py"
WITHOUT = "tests/core/test_degraded.py"
BUFFERS = "tests/core/test_buffered.py"
TAGS = "tests/process/test_tag_generators.py"
MARKS = "tests/contracts/test_file.py"

BREAKS = (
    # --- without a lease ---
    Break(
        "ids without a lease are of a worker id that is lent",
        "I1",
        DEGRADED,
        "worker not in layout.workers or worker in lent:",
        "worker not in layout.workers:",
        (f"{WITHOUT}::test_a_worker_id_that_is_lent_is_refused",),
    ),
    Break(
        "a sequence is drawn twice in a tick without a lease",
        "I1",
        DEGRADED,
        "if sequence not in self._used:",
        "if sequence >= 0:",
        (f"{WITHOUT}::test_ids_without_a_lease_meet_none_of_a_lease",),
    ),
    Break(
        "without a lease a clock that goes back opens a tick again",
        "I1",
        DEGRADED,
        "= max(now, self._tick + 1), set()",
        "= now, set()",
        (f"{WITHOUT}::test_a_clock_that_goes_back_opens_no_tick_again",),
    ),
    Break(
        "a closed generator gives ids without a lease",
        "I3, I6",
        SNOWFLAKE,
        "                and not self._closed\n",
        "",
        (f"{WITHOUT}::test_a_closed_generator_gives_none_of_them",),
    ),
    # --- prepared ahead ---
    Break(
        "a tick in the buffer has one id more than was granted",
        "I3",
        BUFFERED,
        "range(first, first + count * unit, unit)",
        "range(first, first + (count + 1) * unit, unit)",
        (f"{BUFFERS}::test_ids_of_every_layout_rise_and_lie_in_the_lease",),
    ),
    Break(
        "a buffer is filled past its bound",
        "I3",
        BUFFERED,
        "return tick <= max(now + self._lead(), lease.start)",
        "return tick > 0",
        (f"{BUFFERS}::test_no_id_lies_further_ahead_than_the_bound",),
    ),
    Break(
        "what was prepared before a pause is given out after it",
        "hazard 28",
        BUFFERED,
        "while self._buffer and self._seconds_fresh(self._buffer[0][0]) <= 0:",
        "while self._buffer and self._seconds_fresh(self._buffer[0][0]) is None:",
        (f"{BUFFERS}::test_after_a_pause_ids_are_of_the_present",),
    ),
    Break(
        "a closed generator goes on with its buffer",
        "L3",
        BUFFERED,
        "            self._buffer.clear()\n            self._ready = 0\n",
        "            self._ready = 0\n",
        (f"{BUFFERS}::test_close_gives_back_past_all_that_was_prepared",),
    ),
    # --- serial ---
    Break(
        "a mark is written when its ids are used up, and not ahead",
        "I1",
        FILES,
        "_write(files, stop, step)\n        return",
        "_write(files, start, step)\n        return",
        (f"{MARKS}::test_processes_share_a_file_and_one_that_is_killed_leaves_a_gap",),
    ),
    Break(
        "a damaged mark begins again at the first id",
        "I1",
        FILES,
        "            mark, step = file.read()\n",
        "            mark, step = file.peek() or 0, self.default_step\n",
        (f"{MARKS}::test_a_damaged_file_is_never_a_fresh_start",),
    ),
    Break(
        "a tag file that can't be read counts as one of a new tag",
        "hazard 117",
        "django_idgen/core/files.py",
        "        except (OSError, ValueError, IndexError):\n            return None\n",
        "        except (OSError, ValueError, IndexError):\n            return 0\n",
        ("tests/contracts/test_files_of_others.py",),
    ),
    Break(
        "a process takes a file that another one has locked",
        "L9, hazard 117",
        "django_idgen/core/files.py",
        "            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "",
        ("tests/contracts/test_files_of_others.py",),
    ),
    Break(
        "a serial counter goes on into the ids of the next worker",
        "I1, I3",
        SERIAL,
        "min(found.stop, end) + self._base",
        "found.stop + self._base",
        (f"{TAGS}::test_a_counter_ends_where_the_next_workers_begins",),
    ),
    Break(
        "a child goes on with its parent's serial ids",
        "I5",
        SERIAL,
        "        self._allocator.forget()\n        super().forget()\n",
        "",
        (f"{TAGS}::test_a_forked_child_takes_a_segment_of_its_own",),
    ),
    Break(
        "what one file of a tag has lost, its copy does not tell",
        "I1",
        FILES,
        "return max(map(self._read, files))",
        "return self._read(files[0])",
        (f"{MARKS}::test_one_file_of_a_tag_may_be_lost_under_running_processes",),
    ),
    Break(
        "a process that finds the files of a tag lost goes on at its own last id",
        "I1, hazard 61",
        FILES,
        "start = max(floor, min(floor + LOSS_SKIP, MAX_ID))",
        "start = floor",
        (f"{MARKS}::test_both_files_of_a_tag_are_lost_under_running_processes",),
    ),
    Break(
        "without a thread an open tick never grows old",
        "I6",
        BUFFERED,
        "if self._clock.stopwatch() < self._fresh_until:\n            if self._thread",
        "if True:\n            if self._thread",
        (f"{BUFFERS}::test_what_is_left_of_an_open_tick_grows_old_too[singly]",),
    ),
    Break(
        "a batch is taken of a tick that is too old",
        "I6",
        BUFFERED,
        "fresh = HAS_GIL and self._clock.stopwatch() < self._fresh_until",
        "fresh = HAS_GIL",
        (f"{BUFFERS}::test_what_is_left_of_an_open_tick_grows_old_too[in a batch]",),
    ),
    Break(
        "a period is that of whoever asks",
        "hazard 90",
        "django_idgen/contrib/periods.py",
        "self._time_zone or timezone.get_default_timezone()",
        "self._time_zone or timezone.get_current_timezone()",
        ("tests/ops/test_periods.py::test_the_active_time_zone_has_no_say",),
    ),
    Break(
        "a wrong reading of the clock binds a process",
        "hazard 111",
        "django_idgen/contrib/periods.py",
        "if not self._period_at(now) <= self._last <= self._period_at(now + STEP_BACK):",
        "if self._period_at(now) > self._last:",
        ("tests/ops/test_periods.py::test_one_wrong_reading_of_the_clock_binds_nobody",),
    ),
    Break(
        "ids of a quiet process have one remainder",
        "hazard 110",
        SNOWFLAKE,
        "            start = half\n",
        "            start = 0\n",
        ("tests/core/test_snowflake.py::test_ids_of_a_quiet_process_spread_over_every_modulus",),
    ),
)
