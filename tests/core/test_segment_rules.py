"""How long segments are, and what is left of them: the pure rules."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_idgen.core.errors import ConfigurationError
from django_idgen.core.pace import Growth, Pace
from django_idgen.core.segment import (
    LONGEST_STEP,
    MAX_DELTA,
    STEP,
    Demand,
    Segment,
    Shard,
    drained,
    joined,
    runs,
)
from tests.tables import refused

MINUTE = 60.0
LEAF = Growth()
POWERS = st.integers(0, 20).map(lambda power: 2**power)


# --- the step: Leaf's rules ---------------------------------------------------------------


PACES = {
    8: (0.0, 15 * MINUTE - 0.001),
    4: (15 * MINUTE, 30 * MINUTE),
    2: (30 * MINUTE + 0.001, 24 * 60 * MINUTE),
}


def test_a_segment_aims_at_fifteen_minutes():
    """Used up in less, double; in 15 to 30 minutes, both ends included, keep; in more, halve."""
    for after, moments in PACES.items():
        for seconds in moments:
            assert LEAF.after(4, 1000, seconds) == after


def test_no_segment_is_doubled_past_a_million():
    """Exactly a million is still allowed, one more is not."""
    assert [LEAF.after(times, 1000, 0.0) for times in (512, 256)] == [512, 512]
    assert [LEAF.after(times, 1, 0.0) for times in (500_000, 500_001)] == [1_000_000, 500_001]


def test_a_row_whose_own_step_is_longer_keeps_it():
    """Only what follows consumption has the bound."""
    assert LEAF.after(1, 5_000_000, 0.0) == 1
    assert Demand(times=1).length(5_000_000) == 5_000_000


@given(POWERS, st.integers(1, 10**9), st.floats(0, 1e6))
def test_the_step_never_falls_below_the_rows_nor_grows_past_the_longest(times, step, seconds):
    """Whatever the pace; and it stays a power of two."""
    after = LEAF.after(times, step, seconds)
    assert after >= 1
    assert after & (after - 1) == 0
    assert after <= times or step * after <= LONGEST_STEP
    assert after in {times, times * 2, times // 2}


@given(POWERS, st.integers(1, 10**9))
def test_a_raised_step_is_fitted_to_the_longest(times, step):
    """An edit of the row from 1 to 1000 does not make segments of a thousand million."""
    fitted = LEAF.fitted(times, step)
    assert fitted == 1 or step * fitted <= LONGEST_STEP
    assert fitted == times or step * fitted * 2 > LONGEST_STEP


def test_growth_can_be_switched_off():
    """With a longest step of 1 all segments have the row's."""
    still = Growth(longest_step=1)
    assert still.after(1, 1, 0.0) == still.fitted(4, 7) == 1


def test_impossible_limits_are_refused():
    """The error names the value."""
    for duration in (0, float("inf"), float("nan")):
        refused(ConfigurationError, Growth, duration=duration, match=str(duration))
    for longest in (0, 1_000_001, 10.0, True):
        refused(ConfigurationError, Growth, longest_step=longest, match=str(longest))


# --- the pace: a caller who waits, and segments of other lengths ---------------------------


def segment(start: int = 1, length: int = 10) -> Segment:
    return Segment("t", start, start + length, 10)


def run_dry(pace: Pace, seconds: float = 0.0, waiters: int = 1) -> None:
    """Use one segment up in so many seconds, with nothing behind it and someone waiting."""
    pace.open(segment(), 100.0)
    pace.use_up(100.0 + seconds, LEAF)
    for _ in range(waiters):
        pace.wait(10, LEAF)


@pytest.mark.parametrize("waiters", [1, 1000])
@pytest.mark.parametrize("seconds", [0.0, 20 * MINUTE])
def test_waiting_doubles_the_step_at_once_and_once(seconds, waiters):
    """Also after a slow segment; not twice after a quick one, nor for each who waits."""
    pace = Pace()
    run_dry(pace, seconds, waiters)
    assert pace.times == 2
    run_dry(pace, seconds, waiters)
    assert pace.times == 4


def test_the_first_use_of_a_tag_doubles_nothing():
    """Waiting for the first segment says nothing of the pace."""
    pace = Pace()
    pace.wait(10, LEAF)
    assert pace.times == 1


def test_who_waits_after_the_next_is_open_doubles_nothing():
    """Nothing was missing."""
    pace = Pace()
    pace.open(segment(), 0.0)
    pace.use_up(20 * MINUTE, LEAF)
    pace.open(segment(), 20 * MINUTE)
    pace.wait(10, LEAF)
    assert pace.times == 1


def test_short_pieces_do_not_double_the_step_again_and_again():
    """What a pool hands out is shorter than asked for, and says nothing of a whole segment."""
    pace = Pace()
    times = []
    for now in range(8):
        pace.open(segment(), now)
        pace.use_up(now, LEAF)
        times.append(pace.times)
    assert times == [2, 4, 4, 4, 4, 4, 4, 4]


def test_a_long_batch_does_not_halve_the_step():
    """A segment that was asked for by one large call lasts longer than the next one will."""
    pace = Pace()
    pace.times = 4
    pace.open(segment(length=5000), 0.0)
    pace.use_up(60 * MINUTE, LEAF)
    assert pace.times == 4


def test_a_plain_demand_is_the_plain_step():
    """So that a source's shortest statement serves it."""
    assert Pace().demand(1, 10, LEAF) == STEP
    assert Pace().demand(0, 10, LEAF) == STEP
    assert Pace().demand(70, 10, LEAF) == Demand(1, 70)


def test_a_segment_has_ids_and_only_such():
    """I7: whatever a source answers, every id of a segment is one of 1 to 2**63 - 1."""
    for start, stop, delta in ((0, 5, 1), (-3, 5, 1), (5, 5, 1), (1, 2**63 + 1, 1), (1, 5, 0)):
        refused(ConfigurationError, Segment, "t", start, stop, 10, delta, match="not within")


# --- tails ------------------------------------------------------------------------------------


@given(st.integers(1, 50), st.integers(1, 7), st.integers(0, 60), st.integers(0, 40))
def test_what_is_drained_is_what_was_left(start, delta, length, taken):
    """Whatever was taken from an iterator before, the rest comes back as one range."""
    ids = range(start, start + length * delta, delta)
    iterator = iter(ids)
    for _ in range(taken):
        next(iterator, None)
    assert [value for each in drained(iterator, delta) for value in each] == list(ids[taken:])
    assert next(iterator, None) is None


@given(st.sets(st.integers(0, 60), min_size=1), st.integers(1, 4))
def test_values_that_others_took_are_left_out(numbers, delta):
    """Ranges hold exactly the values that came out, and as few ranges as there are gaps."""
    values = [1 + number * delta for number in sorted(numbers)]
    found = list(runs(values, delta))
    assert [value for each in found for value in each] == values
    gaps = sum(b - a != delta for a, b in pairwise(values))
    assert len(found) == gaps + 1
    assert joined(found) == found


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=8), st.integers(1, 3))
def test_joining_changes_no_id(pieces, delta):
    """Neighbours become one range, gaps stay, the empty go."""
    ranges, at = [], 1
    for gap, length in pieces:
        at += gap * delta
        ranges.append(range(at, at + length * delta, delta))
        at += length * delta
    found = joined(ranges)
    assert [v for each in found for v in each] == [v for each in ranges for v in each]
    assert all(found)
    assert all(a[-1] + delta < b[0] for a, b in pairwise(found))


# --- which ids of a tag a database gives out ---------------------------------------------------

shards = st.integers(1, MAX_DELTA).flatmap(
    lambda delta: st.builds(Shard, st.just(delta), st.integers(0, delta - 1))
)


@given(shards, st.integers(1, 2**62))
def test_the_first_id_is_the_lowest_that_fits(shard, base):
    """At or above the base, by less than delta, and with the remainder."""
    first = shard.first(base)
    assert base <= first < base + shard.delta
    assert first % shard.delta == shard.remainder


def test_impossible_grids_are_not_sound():
    """A delta of 1 to 1024, and a remainder below it."""
    assert not any(Shard(*pair).sound for pair in ((0, 0), (-1, 0), (2, 2), (2, -1), (1025, 0)))
    assert MAX_DELTA == 1024
    assert Shard().sound
