"""Ids as numbers and texts, layouts, and what is moved, skipped or taken over by hand."""

from __future__ import annotations

from .definition import Break

__all__ = ["BREAKS"]

LAYOUT = "django_idgen/core/layout.py"
FIELDS = "django_idgen/core/layout.py"
ENCODING = "django_idgen/core/encoding.py"
SUCCESSION = "django_idgen/core/stored.py"
EDITS = "django_idgen/ops/tags/edits.py"
SCRAMBLING = "django_idgen/core/encoding.py"
SCRAMBLED = "tests/core/test_scrambling.py"
TESTS = "tests/core/test_layout.py"
TEXTS = "tests/core/test_encoding.py"
MOVING = "tests/ops/doctor/test_moving.py"

BREAKS = (
    Break(
        "two scrambled ids share a text",
        "I7, hazard 91",
        SCRAMBLING,
        "            left, right = right, left ^ _mixed(keyed, right)",
        "            left, right = right, _mixed(keyed, left ^ right)",
        (f"{SCRAMBLED}::test_a_text_is_read_as_the_id_that_it_was_written_of",),
    ),
    Break(
        "a text of an older key is read with the newest",
        "hazard 91",
        SCRAMBLING,
        "_scrambling(keys[version], self.name)\n        if digits[-1]",
        "_scrambling(list(keys.values())[-1], self.name)\n        if digits[-1]",
        (f"{SCRAMBLED}::test_texts_of_an_older_key_are_read_after_a_rotation",),
    ),
    Break(
        "a wrong key is not noticed",
        "hazard 91",
        SCRAMBLING,
        "base, total = len(self._digits), scrambling.offset",
        "base, total = len(self._digits), 0",
        (f"{SCRAMBLED}::test_a_wrong_key_reads_another_row_in_no_more_than_one_of_fifty",),
    ),
    Break(
        "a scrambled id is taken as a number from outside",
        "what outsiders can count",
        SCRAMBLING,
        "        if isinstance(value, int) or (isinstance(value, str) and is_number(value)):",
        "        if isinstance(value, float):",
        (f"{SCRAMBLED}::test_numbers_from_outside_are_refused",),
    ),
    Break(
        "a worker id leaks into its neighbour field",
        "I7, hazard 9",
        LAYOUT,
        "        if not is_int(worker) or worker not in self.workers:",
        "        if not is_int(worker) or worker < 0:",
        (f"{TESTS}::test_a_part_that_does_not_fit_is_refused",),
    ),
    Break(
        "a sequence leaks into its neighbour field",
        "I7, hazards 9 and 37",
        LAYOUT,
        "        if not is_int(value) or not 0 <= value < end:",
        "        if not is_int(value) or not 0 <= value <= end:",
        (f"{TESTS}::test_a_part_that_does_not_fit_is_refused",),
    ),
    Break(
        "a tick past the time bits is packed",
        "I7, hazard 8",
        LAYOUT,
        "        if tick >= self._end_tick:\n            raise TimeExhausted(",
        "        if tick > self._end_tick:\n            raise TimeExhausted(",
        (f"{TESTS}::test_a_tick_past_the_time_bits_is_refused",),
    ),
    Break(
        "a layout of 64 bits makes negative ids",
        "I7, hazard 8",
        FIELDS,
        "    if total > MAX_BITS:",
        "    if total > MAX_BITS + 1:",
        (f"{TESTS}::test_impossible_fields_are_refused",),
    ),
    Break(
        "a sequence above the time makes ids that don't rise",
        "I2",
        FIELDS,
        'if name in names and names.index(name) < names.index("time"):',
        "if name in names and names.index(name) < 0:",
        (f"{TESTS}::test_impossible_fields_are_refused",),
    ),
    Break(
        "an epoch in the future makes negative ids",
        "I7",
        LAYOUT,
        "        if self.epoch_us > now_us:",
        "        if self.epoch_us > 2 * now_us:",
        (f"{TESTS}::test_an_epoch_in_the_future_is_refused",),
    ),
    Break(
        "what is no id is read as one",
        "I7",
        LAYOUT,
        '        if value <= 0:\n            raise InvalidId(value, "ids begin at 1")',
        '        if value < 0:\n            raise InvalidId(value, "ids begin at 1")',
        (f"{TESTS}::test_what_is_no_id_is_refused",),
    ),
    Break(
        "a number past the sign bit is written as an id",
        "I7",
        ENCODING,
        "        check_id(value)\n        if not self.width:",
        "        check_id(min(value, MAX_ID))\n        if not self.width:",
        (f"{TEXTS}::test_only_ids_are_written",),
    ),
    Break(
        "a text past the last id is read",
        "I7",
        ENCODING,
        '        if not 1 <= value <= MAX_ID:\n            raise InvalidId(text, "ids are 1',
        '        if value < 1:\n            raise InvalidId(text, "ids are 1',
        (f"{TEXTS}::test_a_text_past_the_last_id_is_refused",),
    ),
    Break(
        "two texts are one id",
        "I1",
        ENCODING,
        '        elif len(digits) > 1 and digits[0] == "0":',
        '        elif len(digits) > 99 and digits[0] == "0":',
        (f"{TEXTS}::test_leading_zeros_make_no_second_text",),
    ),
    Break(
        "another layout begins amid the ids of the last one",
        "I8",
        SUCCESSION,
        "return max(0, -(-missing >> layout.time_shift))",
        "return max(0, missing >> layout.time_shift)",
        (f"{MOVING}::test_no_id_from_that_tick_on_was_made_before",),
    ),
    Break(
        "the same layout begins before the last one ended",
        "I8",
        SUCCESSION,
        "        return era.until\n",
        "        return era.until - 1\n",
        (f"{MOVING}::test_the_same_layout_goes_on_where_the_old_one_ended",),
    ),
    Break(
        "the highest id of a layout leaves its sequences out",
        "I8",
        SUCCESSION,
        "        | layout.sequences - 1 << layout.sequence_shift\n",
        "",
        (f"{MOVING}::test_no_id_from_that_tick_on_was_made_before",),
    ),
    Break(
        "a skip goes back",
        "I1, hazard 72",
        EDITS,
        "    if not lowest < target <= min(stands + most, MAX_ID):",
        "    if not 0 < target <= min(stands + most, MAX_ID):",
        ("tests/rest/tags/test_tags.py::test_a_tag_never_goes_back",),
    ),
    Break(
        "a skip lowers a row that has gone on since",
        "I1, hazard 72",
        EDITS,
        'changes["max_id"] = Greatest(F("max_id"), max_id)',
        'changes["max_id"] = max_id',
        ("tests/ops/test_tag_edits.py::test_a_row_that_moved_on_meanwhile_is_not_set_back",),
    ),
    Break(
        "a tag that is taken over begins amid the old server's ids",
        "I1",
        "django_idgen/contrib/adopt/takeover.py",
        "        first = theirs.first_free + distance\n",
        "        first = theirs.first_free - distance\n",
        ("tests/contrib/adopt/test_takeover.py::test_what_is_taken_over",),
    ),
    Break(
        "one of the databases of a divided tag is left out of a takeover",
        "I1, hazard 58",
        "django_idgen/contrib/adopt/takeover.py",
        "if places != [(first.delta, number) for number in range(first.delta)]:",
        "if not places:",
        ("tests/contrib/adopt/test_takeover.py::test_tinyid_that_is_divided",),
    ),
    Break(
        "an old counter goes past its fence",
        "I1, hazard 89",
        "django_idgen/contrib/adopt/counters.py",
        "AS bigint MAXVALUE {last:d}{restart}",
        "AS bigint NO MAXVALUE{restart}",
        ("tests/contrib/adopt/test_keys.py::test_the_counter_stops_at_the_fence",),
    ),
    Break(
        "a scrambled text may hold more than 64 bits",
        "hazard 91",
        SCRAMBLING,
        "if number >> 2 * HALF == 0 else 0",
        "if True else 0",
        (f"{SCRAMBLED}::test_an_id_has_one_text",),
    ),
    Break(
        "a scrambled text may be of any length",
        "hazard 91",
        SCRAMBLING,
        "        self._check_length(text, digits)\n        self._value(text, digits)  # every",
        "        self._value(text, digits)  # every",
        (f"{SCRAMBLED}::test_an_id_has_one_text",),
    ),
    Break(
        "a copy of a field makes ids",
        "hazard 107",
        "django_idgen/fields/base.py",
        "if value is None and add and self.copied_from is None:",
        "if value is None and add:",
        ("tests/test_user_projects.py::test_a_history_holds_copies_of_fields",),
    ),
)
