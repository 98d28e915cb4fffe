"""Which ids of a tag a database gives out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_idgen.core.segment import ALONE, MAX_DELTA, Shard

shards = st.integers(1, MAX_DELTA).flatmap(
    lambda delta: st.builds(Shard, st.just(delta), st.integers(0, delta - 1))
)


@given(shards, st.integers(1, 2**62))
def test_the_first_id_is_the_lowest_that_fits(shard: Shard, base: int) -> None:
    """At or above the base, by less than delta, and with the remainder."""
    first = shard.first(base)
    assert base <= first < base + shard.delta
    assert first % shard.delta == shard.remainder


@given(shards, st.integers(1, 8), st.integers(0, 7))
def test_a_part_of_a_shard_lies_within_it(shard: Shard, times: int, part: int) -> None:
    """As when n databases become more of them: every id of the part is one of the whole."""
    finer = Shard(shard.delta * times, shard.remainder + shard.delta * (part % times))
    assert finer.within(shard)
    assert finer.within(ALONE)
    assert finer.first(1) % shard.delta == shard.remainder


@given(shards, shards)
def test_what_lies_within_has_no_other_ids(one: Shard, other: Shard) -> None:
    """Looked at id by id, over one period of both."""
    end = 1 + one.delta * other.delta
    ids = range(one.first(1), end, one.delta)
    assert one.within(other) == all(number % other.delta == other.remainder for number in ids)


@pytest.mark.parametrize("pair", [(0, 0), (-1, 0), (2, 2), (2, -1), (MAX_DELTA + 1, 0)])
def test_impossible_grids_are_not_sound(pair: tuple[int, int]) -> None:
    """A delta of 1 to 1024, and a remainder below it."""
    assert not Shard(*pair).sound
    assert Shard().sound
