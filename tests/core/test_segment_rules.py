"""How long segments are, how many are ahead, and what is left of them: the pure rules."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_idgen.core.errors import ConfigurationError
from django_idgen.core.segment import LONGEST_STEP, STEP, Demand, Segment, drained, joined, runs
from django_idgen.core.segment_generator import CALM, Chain, Growth

MINUTE = 60.0
LEAF = Growth()
POWERS = st.integers(0, 20).map(lambda power: 2**power)


# --- the step: Leaf's rules ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "after"),
    [
        (0.0, 8),
        (15 * MINUTE - 0.001, 8),
        (15 * MINUTE, 4),
        (30 * MINUTE, 4),
        (30 * MINUTE + 0.001, 2),
        (24 * 60 * MINUTE, 2),
    ],
)
def test_a_segment_aims_at_fifteen_minutes(seconds, after):
    """Used up in less, double; in 15 to 30 minutes, both ends included, keep; in more, halve."""
    assert LEAF.after(4, 1000, seconds) == after


@pytest.mark.parametrize(
    ("times", "step", "after"),
    [(512, 1000, 512), (256, 1000, 512), (500_000, 1, 1_000_000), (500_001, 1, 500_001)],
)
def test_no_segment_is_doubled_past_a_million(times, step, after):
    """Exactly a million is still allowed, one more is not."""
    assert LEAF.after(times, step, 0.0) == after


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


@pytest.mark.parametrize(
    "options",
    [
        {"duration": 0},
        {"duration": float("inf")},
        {"duration": float("nan")},
        {"longest_step": 0},
        {"longest_step": 1_000_001},
        {"longest_step": 10.0},
        {"longest_chain": 0},
        {"longest_chain": 65},
        {"longest_chain": True},
    ],
)
def test_impossible_limits_are_refused(options):
    """The error names the value."""
    with pytest.raises(ConfigurationError, match=str(next(iter(options.values())))):
        Growth(**options)


# --- the chain: CosId's safe distance -------------------------------------------------------


def segments(count: int, start: int = 1, length: int = 10) -> list[Segment]:
    stops = range(start, start + count * length, length)
    return [Segment("t", each, each + length, 10) for each in stops]


def run_dry(chain: Chain, now: float, growth: Growth = LEAF) -> None:
    """Use one segment up, with nothing behind it and someone waiting."""
    chain.append(segments(1)[0])
    chain.open_next(now)
    chain.use_up(now, growth)
    chain.hunger(now, 10, growth)


def test_one_is_kept_ahead_from_the_mark_on():
    """Before the preload mark nothing more is loaded, past it one."""
    chain = Chain()
    assert chain.is_short(past_mark=False)
    chain.append(segments(1)[0])
    assert not chain.is_short(past_mark=True)
    chain.open_next(0.0)
    assert not chain.is_short(past_mark=False)
    assert chain.is_short(past_mark=True)


def test_hunger_doubles_the_distance_at_once_up_to_the_longest():
    """1, 2, 4, 8 and no further; each time it is counted."""
    chain = Chain()
    distances = []
    for _ in range(5):
        run_dry(chain, 100.0)
        distances.append(chain.distance)
    assert distances == [2, 4, 8, 8, 8]
    assert chain.hungers == 5


def test_all_who_wait_for_one_load_are_one_hunger():
    """A thousand tasks that find nothing left at the same moment don't make a thousand."""
    chain = Chain()
    run_dry(chain, 0.0)
    for _ in range(1000):
        chain.hunger(0.0, 10, LEAF)
    assert (chain.distance, chain.hungers) == (2, 1)


def test_the_first_who_uses_a_tag_is_not_hungry():
    """Waiting for the first segment says nothing of the pace."""
    chain = Chain()
    chain.hunger(0.0, 10, LEAF)
    assert (chain.distance, chain.times, chain.hungers) == (1, 1, 0)


def test_hunger_and_a_quick_pace_double_the_step_once():
    """What was used up quickly and then waited for is asked for twice as long, not four times."""
    chain = Chain()
    run_dry(chain, 0.0)
    assert chain.times == 2
    slow = Chain()
    slow.append(segments(1)[0])
    slow.open_next(0.0)
    slow.use_up(20 * MINUTE, LEAF)
    assert slow.times == 1
    slow.hunger(20 * MINUTE, 10, LEAF)
    assert slow.times == 2


def test_calm_halves_the_distance_again():
    """When nobody was hungry for a while the chain shrinks, down to one, once in each while."""
    chain = Chain()
    for _ in range(3):
        run_dry(chain, 100.0)
    assert chain.distance == 8
    for each in segments(8):
        chain.append(each)
    distances = []
    for now in (100.0, 100.0 + CALM - 0.1, 100.0 + CALM, 101.0 + CALM, 100.0 + 2 * CALM, 500.0):
        chain.open_next(now)
        chain.use_up(now, LEAF)
        distances.append(chain.distance)
    assert distances == [8, 8, 4, 4, 2, 1]


def test_a_chain_of_equal_segments_doubles_the_step_once():
    """Those that were asked for before the step was doubled don't double it again."""
    chain = Chain()
    for each in segments(8):
        chain.append(each)
    times = []
    for now in range(8):
        chain.open_next(now)
        chain.use_up(now, LEAF)
        times.append(chain.times)
    assert times == [2, 4, 4, 4, 4, 4, 4, 4]


def test_the_second_load_takes_the_rows_step_and_then_it_doubles():
    """As Leaf's: s, s, 2s, 4s, 8s, with one ahead and a quick pace."""
    chain = Chain()
    lengths = [chain.demand(1, 0, LEAF).length(10)]
    start = 1
    for now in range(4):
        length = lengths[-1]
        if not chain.segments and chain._opened is None:
            chain.append(Segment("t", start, start + length, 10))
            start += length
            chain.open_next(now)
        lengths.append(chain.demand(1, 10, LEAF).length(10))  # past the mark
        chain.append(Segment("t", start, start + lengths[-1], 10))
        start += lengths[-1]
        chain.use_up(now, LEAF)
        chain.open_next(now)
    assert lengths == [10, 10, 20, 40, 80]


def test_a_plain_demand_is_the_plain_step():
    """So that a source's shortest statement serves it."""
    assert Chain().demand(1, 10, LEAF) == STEP
    assert Chain().demand(0, 10, LEAF) == STEP
    assert Chain().demand(70, 10, LEAF) == Demand(1, 70)


@pytest.mark.parametrize(
    ("start", "stop", "delta"), [(0, 5, 1), (-3, 5, 1), (5, 5, 1), (1, 2**63 + 1, 1), (1, 5, 0)]
)
def test_a_segment_has_ids_and_only_such(start, stop, delta):
    """I7: whatever a source answers, every id of a segment is one of 1 to 2**63 - 1."""
    with pytest.raises(ConfigurationError, match="not within"):
        Segment("t", start, stop, 10, delta)


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
