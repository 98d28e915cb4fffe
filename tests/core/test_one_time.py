"""Generators that read the clock once: ticks are counted on, inside the lease."""

from __future__ import annotations

from itertools import pairwise

import pytest

from django_idgen.core.errors import GeneratorClosed
from django_idgen.core.one_time import OneTimeGenerator
from tests.simulation.world import World, layout_of

SMALL = layout_of(("time", 34), ("worker", 2), ("sequence", 2))
"""Four ids a tick of 1 ms."""


@pytest.fixture
def world() -> World:
    return World(SMALL, window_ticks=10_000)


def one_time(world: World, **options: float) -> OneTimeGenerator:
    generator = world.host().generator(kind=OneTimeGenerator, **options)
    assert isinstance(generator, OneTimeGenerator)
    return generator


def test_a_rest_leaves_no_tick_out(world: World) -> None:
    """After an hour, too, the next id is the next number; its time is that of the lease."""
    with one_time(world) as generator:
        ids = generator.next_ids(6)
        began = generator.decode(ids[0]).tick
        world.ns += 5_000_000_000
        ids += generator.next_ids(6)
        assert [(generator.decode(value).tick - began) for value in ids] == [
            n // SMALL.sequences for n in range(12)
        ]


def test_a_clock_that_goes_back_is_not_noticed(world: World) -> None:
    """Nothing waits for it, as long as there are ticks that were due before."""
    host = world.host()
    with host.generator(kind=OneTimeGenerator) as generator:
        generator.next_id()
        world.ns += 3_000_000_000
        host.wall_offset_ns -= 3_600_000_000_000
        ids = generator.next_ids(2000)
        assert all(a < b for a, b in pairwise(ids))
        assert generator.stats().backwards == 0


def test_ids_come_no_faster_than_the_layout_has_them(world: World) -> None:
    """Rate control: in all, from the start of the lease on, and ``max_ahead`` more."""
    with one_time(world, max_ahead=0.5) as generator:
        first = generator.next_id()
        began = world.ns
        count = 4000
        ids = generator.next_ids(count)
        passed = (world.ns - began) / 1e9
        assert count / SMALL.sequences / 1000 - 0.5 - 0.01 <= passed < 1.0
        assert ids[-1] > first


def test_a_new_one_goes_on_behind_the_last() -> None:
    """I1 and I2: by the lease alone; nothing is given out after the end."""
    alone = layout_of(("time", 34), ("worker", 0), ("sequence", 2))
    host = World(alone, window_ticks=10_000).host()
    first = host.generator(kind=OneTimeGenerator, max_ahead=10.0)
    ids = first.next_ids(999)
    first.close()
    with pytest.raises(GeneratorClosed):
        first.next_id()
    with host.generator(kind=OneTimeGenerator, max_ahead=10.0) as second:
        assert second.next_id() > ids[-1]
