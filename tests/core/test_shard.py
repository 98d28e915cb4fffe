"""Which ids of a tag a database gives out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_idgen.core.segment import MAX_DELTA, Shard

shards = st.integers(1, MAX_DELTA).flatmap(
    lambda delta: st.builds(Shard, st.just(delta), st.integers(0, delta - 1))
)


@given(shards, st.integers(1, 2**62))
def test_the_first_id_is_the_lowest_that_fits(shard: Shard, base: int) -> None:
    """At or above the base, by less than delta, and with the remainder."""
    first = shard.first(base)
    assert base <= first < base + shard.delta
    assert first % shard.delta == shard.remainder


@pytest.mark.parametrize("pair", [(0, 0), (-1, 0), (2, 2), (2, -1), (MAX_DELTA + 1, 0)])
def test_impossible_grids_are_not_sound(pair: tuple[int, int]) -> None:
    """A delta of 1 to 1024, and a remainder below it."""
    assert not Shard(*pair).sound
    assert Shard().sound
