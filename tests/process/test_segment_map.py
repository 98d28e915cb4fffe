"""The process-wide ``segments``: what becomes of tags that nobody uses."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from dataclasses import replace

import pytest

from django_idgen import segments
from django_idgen.core.clock import SYSTEM_CLOCK
from django_idgen.testing import fixed_ids, no_registry


class Hands:
    """A stopwatch that a test moves on."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def read(self) -> float:
        return SYSTEM_CLOCK.stopwatch() + self.ahead

    def pass_idle(self) -> None:
        allocator = segments.allocator()
        for _ in range(2):
            self.ahead += allocator.idle_after + 1
            allocator.sweep()


@pytest.fixture
def hands() -> Iterator[Hands]:
    with no_registry():
        moved = Hands()
        segments.allocator().clock = replace(SYSTEM_CLOCK, stopwatch=moved.read)
        yield moved


def test_an_idle_tag_leaves_the_map(hands: Hands) -> None:
    """It takes no memory any more, and its next id is higher than all before."""
    assert segments["order"].next_id() == 1
    gone = weakref.ref(segments["order"])
    hands.pass_idle()
    assert "order" not in segments
    gc.collect()
    assert gone() is None
    assert segments["order"].next_id() > 1


def test_a_generator_that_is_still_held_is_found_again(hands: Hands) -> None:
    """Who kept it in a variable and who looks it up take from one generator."""
    held = segments["order"]
    held.next_id()
    hands.pass_idle()
    found = segments["order"]
    assert found is held
    assert found.next_id() < held.next_id() < segments["order"].next_id()


def test_what_stands_in_for_a_tag_in_a_test_stays(hands: Hands) -> None:
    """Only the generator that went idle is dropped from the map."""
    segments["order"].next_id()
    with fixed_ids(7, tag="order"):
        hands.pass_idle()
        assert segments["order"].next_id() == 7
    assert segments["order"].next_id() > 1
