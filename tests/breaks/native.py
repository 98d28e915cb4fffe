"""Sequences of the database over ids of a tag."""

from __future__ import annotations

from .definition import Break

__all__ = ["BREAKS"]

FILE = "django_idgen/ops/native.py"
INSERTS = "tests/ops/native/test_inserts.py"
UPKEEP = "tests/ops/native/test_command.py"

BREAKS = (
    Break(
        "a sequence goes on into ids that were granted to others",
        "I1",
        FILE,
        "ids[0] == position.ids[-1] + ids.step",
        "ids[0] > position.ids[-1]",
        (f"{INSERTS}::test_where_segments_adjoin_nothing_is_skipped",),
    ),
    Break(
        "a sequence begins below the rows of its table",
        "I1",
        FILE,
        "floor = max(granted, self._highest(1, HIGHEST) + 1)",
        "floor = granted",
        (f"{INSERTS}::test_a_table_with_rows_goes_on_above_them",),
    ),
    Break(
        "a sequence that was put back gives its ids again",
        "I1, hazard 61",
        FILE,
        "        if rows >= now.following:\n",
        "        if rows > position.ids[-1]:\n",
        (
            f"{UPKEEP}::test_a_sequence_that_was_put_back_leaves_its_segment",
            f"{UPKEEP}::test_the_scheduler_notices_that_too",
        ),
    ),
    Break(
        "a sequence goes on after a failover",
        "I1, L7",
        FILE,
        "if position.server and identity and position.server != identity:",
        "if not identity:",
        (f"{UPKEEP}::test_after_a_failover_it_leaves_its_segment",),
    ),
    Break(
        "a sequence and a tag that was put back give the same ids",
        "I1",
        FILE,
        "next_free_id(self.tag) <= position.ids[-1]",
        "next_free_id(self.tag) < 1",
        (f"{UPKEEP}::test_a_tag_that_was_put_back_meets_no_sequence",),
    ),
    Break(
        "a sequence that TRUNCATE puts back",
        "I1",
        FILE,
        '        self._set_default(f"nextval({_literal(name)})")\n',
        '        self._set_default(f"nextval({_literal(name)})")\n'
        '        self._run(f"ALTER SEQUENCE {name} OWNED BY {self.table}.{self.column}")\n',
        (f"{INSERTS}::test_what_resets_sequences_leaves_ours_alone",),
    ),
    Break(
        "a sequence of several databases counts by one",
        "I1",
        FILE,
        'f"INCREMENT BY {ids.step:d} MINVALUE',
        'f"INCREMENT BY 1 MINVALUE',
        (f"{INSERTS}::test_databases_that_share_the_tag",),
    ),
    Break(
        "a restore leaves the sequences in their segments",
        "I1",
        "django_idgen/ops/doctor/skipping.py",
        "*renew_native(self.tag)",
        "",
        (f"{UPKEEP}::test_after_a_restore_idgen_skip_sees_to_the_sequence",),
    ),
    Break(
        "a sequence takes a segment below the rows",
        "I1",
        FILE,
        "if ids[0] < floor or len(ids) < 2:",
        "if len(ids) < 2:",
        (f"{UPKEEP}::test_a_segment_below_the_rows_is_not_taken",),
    ),
)
