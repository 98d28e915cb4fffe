"""Segment generators under threads and forks: no id twice, and none of the parent's."""

from __future__ import annotations

import pydoc
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from django_idgen.core import segment_generator
from django_idgen.core.buffered import BufferedGenerator
from django_idgen.core.clock import SYSTEM_CLOCK
from django_idgen.core.errors import GeneratorClosed
from django_idgen.core.generator import walk
from django_idgen.core.loader import Loader, inline_loader
from django_idgen.core.segment_generator import (
    LockedSegmentGenerator,
    SegmentAllocator,
    SegmentGenerator,
)
from django_idgen.core.tag_generator import SerialGenerator
from django_idgen.sources.memory import MemorySource
from tests.segment_tools import (
    LIMIT,
    STILL,
    ScriptedSource,
    in_child,
    interrupt_again_and_again,
    manual,
)
from tests.tiers import long

# --- threads ---------------------------------------------------------------------------------


class PauseInRange:
    """Stands in for an iterator without a GIL: it lets go between reading and stepping."""

    def __init__(self, values: list[int]) -> None:
        self.values, self.index = values, 0

    def __iter__(self):
        return self

    def __length_hint__(self) -> int:
        return len(self.values) - self.index

    def __next__(self) -> int:
        index = self.index
        SYSTEM_CLOCK.sleep(0)
        if index >= len(self.values):
            raise StopIteration
        self.index = index + 1
        return self.values[index]


class SteppingGenerator(LockedSegmentGenerator):
    """A generator for interpreters without a GIL, on iterators that need its lock."""

    __slots__ = ()

    def _open_part(self, now):
        ready = super()._open_part(now)
        if ready and not isinstance(self._ids, PauseInRange):
            self._ids = PauseInRange(list(self._ids))
        return ready


@pytest.mark.parametrize("loader", [Loader(), inline_loader()])
@pytest.mark.parametrize("kind", [SegmentGenerator, SteppingGenerator])
def test_threads_never_share_an_id_and_each_sees_its_own_rise(monkeypatch, loader, kind):
    """I1, I2, hazard 27: 16 threads through hundreds of segments: each id once, in order."""
    monkeypatch.setattr(segment_generator, "_GENERATOR", kind)
    generator = SegmentAllocator(MemorySource(53), loader, timeout=LIMIT).generator("order")
    rounds = 60 if kind is SteppingGenerator else 600

    def worker(seed: int) -> list[int]:
        rng, ids = random.Random(seed), []
        for _ in range(rounds):
            ids.append(generator.next_id())
            ids += generator.next_ids(rng.choice((0, 1, 2, 7, 60)))
        return ids

    with ThreadPoolExecutor(16) as pool:
        rows = list(pool.map(worker, range(16)))
    assert all(a < b for row in rows for a, b in pairwise(row))
    ids = sorted(value for row in rows for value in row)
    assert ids == list(range(1, len(ids) + 1))


# --- forks -------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("loader", [Loader(), inline_loader()])
def test_a_child_that_forgets_never_issues_what_its_parent_holds(loader):
    """I5: what the parent has left, on hand or loaded, is the parent's alone."""
    source = ScriptedSource(100)
    allocator = SegmentAllocator(source, loader, timeout=LIMIT)
    generator = allocator.generator("order")
    generator.next_ids(30)
    assert generator.preload(LIMIT)
    assert generator.stats().ahead == 1
    floor = generator.stats().floor

    def work() -> list[int]:
        allocator.forget()
        assert source.abandoned == 1
        return generator.next_ids(150)

    assert min(in_child(work)) >= floor
    assert generator.next_ids(70) == list(range(31, 101))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_next_id_that_was_kept_gives_a_child_nothing_of_its_parents():
    """I5: ``take = segments["order"].next_id`` before the fork, called after it."""
    allocator = SegmentAllocator(MemorySource(100), inline_loader(), timeout=LIMIT)
    take = allocator.generator("order").next_id
    assert [take() for _ in range(13)] == list(range(1, 14))  # it is on a range of its parent's

    def work() -> list[int]:
        allocator.forget()
        return [take() for _ in range(150)]

    assert min(in_child(work)) > 100
    assert [take() for _ in range(87)] == list(range(14, 101))


@pytest.mark.parametrize("step", [1, 2, 3, 17, 50])
def test_a_next_id_that_was_kept_goes_on_rightly(step):
    """I1, I2, hazard 27: past its part, through failures, among threads, and after a close."""
    source = ScriptedSource(step)
    allocator = SegmentAllocator(source, inline_loader(), timeout=LIMIT, growth=STILL)
    generator = allocator.generator("order")
    kept = generator.next_id
    assert [kept() for _ in range(120)] == list(range(1, 121))

    with ThreadPoolExecutor(8) as pool:
        rows = list(pool.map(lambda _: [kept() for _ in range(500)], range(8)))
    assert all(a < b for row in rows for a, b in pairwise(row))
    assert sorted(value for row in rows for value in row) == list(range(121, 4121))
    assert generator.next_id is kept

    generator.clear()
    later = kept()
    assert later > 4120
    generator.close()
    for _ in range(2):
        with pytest.raises(GeneratorClosed):
            kept()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("loader", [Loader, inline_loader])
@pytest.mark.parametrize("step", [1, *long(2, 3, 17)])
def test_an_interrupt_ends_one_call_and_no_more(step, loader):
    """Hazard 121: signals at any moment, of which the handler raises. No id comes twice."""
    generator = SegmentAllocator(MemorySource(step), loader(), timeout=LIMIT).generator("order")
    kept = generator.next_id

    def work() -> list[int]:
        last = [0]

        def take() -> None:
            number = kept()
            assert number > last[0]
            last[0] = number

        interrupt_again_and_again(1000, take)
        return [kept() > last[0]]

    assert in_child(work) == [1]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_an_interrupt_does_not_end_what_next_id_walks():
    """Hazard 121: it is C code; a generator in the chain would be over after an exception."""

    def work() -> list[int]:
        opened: dict[None, Iterator[int]] = {}

        def slow() -> int:
            opened[None] = iter(range(7, 8))
            raise StopIteration

        take = walk(opened.pop, None, slow)
        interrupt_again_and_again(300, take)
        return [take()]

    assert in_child(work) == [7]


@pytest.mark.parametrize("kind", [SegmentGenerator, SerialGenerator, BufferedGenerator])
def test_the_attribute_explains_itself(kind):
    """``help()`` of each class has the words and the signature of ``next_id``."""
    text = pydoc.render_doc(kind)
    assert "next_id() -> int" in text
    assert "The next id, " in text


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_without_hooks_stops_at_its_first_slow_path():
    """I5, hazard 56: without fork hooks only the open iterator is inherited, and even if
    another thread held the lock, and the load, at the fork."""
    generator, source, loader, _, _ = manual(step=100)
    generator.next_ids(12)
    loader.run()
    generator.next_ids(83)
    held = list(range(101, 201))  # loaded behind the current one
    with generator._lock:
        ids = in_child(lambda: [*generator.next_ids(50), source.abandoned])
    assert ids[:5] == [96, 97, 98, 99, 100]  # what only a hook could have prevented
    assert not set(ids[:50]) & set(held)
    assert ids[50] == 1
    assert generator.next_ids(5) == [96, 97, 98, 99, 100]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_does_not_wait_for_its_parents_load():
    """I5: the load that was under way at the fork belongs to a thread the child lacks."""
    source = ScriptedSource(10)
    generator = SegmentAllocator(source, Loader(), timeout=LIMIT).generator("order")
    source.gate.clear()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(generator.next_id)
        assert source.entered.acquire(timeout=LIMIT)

        def work() -> list[int]:
            source.gate = threading.Event()
            source.gate.set()
            source.entered = threading.Semaphore(0)
            return generator.next_ids(20)

        try:
            assert len(in_child(work)) == 20
        finally:
            source.gate.set()
        assert waiting.result(LIMIT) == 1
