"""Pear-flower's layouts: a tick of a second in batches, of which the first is any."""

from __future__ import annotations

from itertools import pairwise

import pytest

from django_idgen.core.buffered import BufferedGenerator
from django_idgen.core.errors import ConfigurationError, GeneratorClosed
from django_idgen.core.layout import BitLayout, parse_layout
from tests.simulation.world import World, layout_of

SECOND = 1_000_000
ARTICLE = parse_layout("pear_flower")
CODE = parse_layout({"time": 31, "batch": 9, "worker": 10, "sequence": 13, "tick": 1})
WORKER_LAST = parse_layout({"time": 31, "batch": 3, "sequence": 19, "worker": 10, "tick": 1})
SMALL = layout_of(("time", 31), ("batch", 3), ("worker", 2), ("sequence", 2), tick_us=SECOND)
"""32 ids a second, 4 a batch."""


@pytest.fixture
def world() -> World:
    return World(SMALL, window_ticks=100)


def test_the_splits_are_those_of_the_article_and_of_the_code() -> None:
    """31/3/10/19 under the name; 31/9/10/13 is given as bits; both have 63 and end in 68 years."""
    assert dict(ARTICLE.fields) == {"time": 31, "batch": 3, "worker": 10, "sequence": 19}
    for layout in (ARTICLE, CODE, WORKER_LAST):
        assert (layout.bits, layout.tick_us) == (63, SECOND)
        assert layout.batches * layout.sequences == 2**22


@pytest.mark.parametrize("layout", [ARTICLE, CODE, WORKER_LAST], ids=["article", "code", "last"])
def test_a_tick_has_each_of_its_batches_from_a_first_one_on(layout: BitLayout) -> None:
    """I2: the first is one of the first half; none is left out, and none comes after the last."""
    world = World(layout, window_ticks=100)
    with world.host().generator() as generator:
        generator.next_id()
        lease = generator.stats().lease
        assert lease is not None
        firsts = set()
        for _ in range(40):
            batches = generator._batches_of(lease, lease.start)[::-1]
            parts = [generator.layout.unpack(ids[0]) for ids in batches]
            assert [each.batch for each in parts] == list(range(parts[0].batch, layout.batches))
            assert all(len(ids) == layout.sequences for ids in batches)
            assert all(a[-1] < b[0] for a, b in pairwise(batches))
            firsts.add(parts[0].batch)
        assert max(firsts) < layout.batches // 2
        assert len(firsts) > 1


def test_ids_go_from_batch_to_batch_and_on_to_the_next_second(world: World) -> None:
    """Rising, each once, with 3 s of borrowing; what was loaded and not taken is not counted."""
    with world.host().generator(max_ahead=3.0) as generator:
        ids = generator.next_ids(70)
        assert all(a < b for a, b in pairwise(ids))
        ticks = {generator.decode(value).tick for value in ids}
        assert len(ticks) in (3, 4)
        assert max(ticks) - min(ticks) == len(ticks) - 1
        assert generator.stats().issued == 70


def test_a_later_second_leaves_the_batches_of_the_last_one(world: World) -> None:
    """What was not opened of it is not given out late."""
    with world.host().generator() as generator:
        first = generator.decode(generator.next_id())
        world.ns += 2 * SECOND * 1000
        second = generator.decode(generator.next_id())
        assert second.tick == first.tick + 2
        assert generator.stats().issued == 2


def test_nothing_of_a_closed_tick_is_left(world: World) -> None:
    """L3: the worker id is given back, and another one may have it from the next tick on.

    Neither ids of the batch that was open nor of those after it are given out.
    """
    generator = world.host().generator()
    generator.next_id()
    generator.close()
    assert not generator._open_batch()
    with pytest.raises(GeneratorClosed):
        generator.next_ids(10)
    with world.host().generator() as other:
        assert other.next_id() > 0


def test_a_random_start_leaves_ids_of_the_first_batch_alone(world: World) -> None:
    """``sequence_start`` counts once a tick."""
    with world.host().generator(sequence_start=4) as generator:
        generator.next_id()
        lease = generator.stats().lease
        assert lease is not None
        for _ in range(40):
            skipped = generator._first_sequence()
            first, *others = generator._batches_of(lease, lease.start, skipped)[::-1]
            assert 1 <= len(first) <= 4
            assert all(len(ids) == 4 for ids in others)


def test_what_cannot_rise_is_refused(world: World) -> None:
    """A batch below the sequence; and a buffer, which is made of whole ticks."""
    below = layout_of(("time", 40), ("worker", 10), ("sequence", 10), ("batch", 3))
    with pytest.raises(ConfigurationError, match=r"'batch' stands below 'sequence'.*Put it above"):
        World(below, window_ticks=100).host().generator()
    with pytest.raises(ConfigurationError, match=r"takes no 'batch' bits.*SnowflakeGenerator"):
        world.host().generator(kind=BufferedGenerator)
