"""Segment generators over any order of what can happen: each id once, and none unaccounted."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from django_idgen.core.errors import GeneratorClosed, SegmentUnavailable
from django_idgen.core.pace import Growth
from django_idgen.core.segment import STEP, Segment
from django_idgen.core.segment_generator import STALE_AFTER
from django_idgen.sources.memory import MemorySource
from tests.segment_tools import manual

GROWTH = Growth(duration=60.0, longest_step=200)


class Histories(RuleBasedStateMachine):
    """I1, I2, I3 over any order of calls, failures, flushes, other buyers, late answers, idling
    and forks; and every id that was fetched is given out, given back, held, or known as lost."""

    def __init__(self) -> None:
        super().__init__()
        made = manual(step=7, growth=GROWTH, idle_after=100.0)
        self.generator, self.source, self.loader, self.events, self.time = made
        self.allocator = self.generator._services
        self.granted: set[int] = set()
        self.out: set[int] = set()
        self.last = self.lost = self.issued = 0
        self.outages = self.backwards = 0
        self.meanwhile: Callable[[Segment], None] | None = None
        self.source.fetch = self.fetch

    def fetch(self, tag, *, floor=0, demand=STEP):
        if self.outages:
            self.outages -= 1
            raise OSError("down")
        if self.backwards and floor:
            self.backwards -= 1
            return Segment(tag, max(1, floor - 5), floor + 2, 7)
        segment = MemorySource.fetch(self.source, tag, floor=floor, demand=demand)
        assert self.granted.isdisjoint(segment.ids())
        self.granted.update(segment.ids())
        deed, self.meanwhile = self.meanwhile, None
        if deed is not None:
            deed(segment)
        return segment

    def accept(self, ids: list[int]) -> None:
        for value in ids:
            assert value > self.last
            assert value in self.granted
            self.last = value
        self.out.update(ids)
        self.issued += len(ids)

    @property
    def returned(self) -> list[int]:
        return [value for _, ids in self.source.returned for value in ids]

    # --- callers ------------------------------------------------------------------

    @rule()
    def take_one(self) -> None:
        with suppress(SegmentUnavailable):
            self.accept([self.generator.next_id()])

    @rule(n=st.integers(0, 40))
    def take_many(self, n: int) -> None:
        self.meanwhile = None  # between calls that overlap there is no order to check
        before = self.generator.stats().issued
        try:
            self.accept(self.generator.next_ids(n))
        except SegmentUnavailable:
            lost = self.generator.stats().issued - before  # with the batch
            self.lost += lost
            self.issued += lost

    @rule()
    def preload(self) -> None:
        self.generator.preload()

    @rule()
    def clear(self) -> None:
        held = self.generator.stats().remaining
        assert self.generator.clear() == held
        assert self.generator.stats().remaining == 0

    @rule()
    def close(self) -> None:
        self.generator.close()
        with pytest.raises(GeneratorClosed):
            self.generator.next_id()
        self.idle(held=False, found=True)

    @rule(held=st.booleans(), found=st.booleans())
    def idle(self, held: bool, found: bool) -> None:
        """Nobody uses the tag for a long time; somebody may still hold its generator."""
        for _ in range(2):
            self.time.now += 101
            self.allocator.sweep()
        if not held:
            before, self.generator = weakref.ref(self.generator), None
            self.generator = self.allocator.generator("order")
            self.issued = self.issued if before() is self.generator else 0
        elif found:
            assert self.allocator.generator("order") is self.generator
        assert self.generator.stats().remaining == 0 or self.loader.jobs

    @rule()
    def two_look_it_up(self) -> None:
        """However it was dropped, there is one generator that can give ids."""
        with suppress(SegmentUnavailable):
            self.accept([self.generator.next_id()])
            assert self.allocator.generator("order") is self.generator

    # --- the source -----------------------------------------------------------------

    @rule(step=st.integers(1, 30))
    def edit_step(self, step: int) -> None:
        self.source.set_step("order", step)

    @rule()
    def load_in_background(self) -> None:
        self.loader.run()

    @rule(n=st.integers(1, 12))
    def outage(self, n: int) -> None:
        self.outages = n

    @rule(n=st.integers(1, 12))
    def source_goes_back(self, n: int) -> None:
        self.backwards = n

    @rule()
    def flush(self) -> None:
        self.source.flush()

    @rule()
    def another_process_takes_a_segment(self) -> None:
        MemorySource.fetch(self.source, "order", floor=self.generator.stats().floor)

    @rule(seconds=st.sampled_from([1.0, 40.0, 200.0]))
    def time_passes(self, seconds: float) -> None:
        self.time.now += seconds

    # --- what can happen while an answer is on its way ------------------------------

    @precondition(lambda self: self.meanwhile is None)
    @rule(deed=st.sampled_from(["cleared", "cleared_and_used", "stale", "forked"]))
    def during_the_next_fetch(self, deed: str) -> None:
        self.meanwhile = getattr(self, f"_{deed}")

    def _cleared(self, segment: Segment) -> None:
        self.generator.clear()

    def _cleared_and_used(self, segment: Segment) -> None:
        self.generator.clear()
        self._go_on(segment)

    def _stale(self, segment: Segment) -> None:
        self.time.now += STALE_AFTER + 1
        load = self.generator._arm(self.time.now)  # as the next one does who needs a segment
        if load is not None:
            self.generator._submit(load, urgent=False)
        self._forsake(segment)

    def _go_on(self, segment: Segment) -> None:
        floor = self.generator.floor
        with suppress(SegmentUnavailable):
            self.accept([self.generator.next_id()])
        if self.generator.floor > floor:  # so the answer is below it by now
            self._forsake(segment)

    def _forked(self, segment: Segment) -> None:
        self.fork()
        self._forsake(segment)

    def _forsake(self, segment: Segment) -> None:
        """Its answer is late: nobody has these ids, so that a flushed source may grant them."""
        self.granted.difference_update(segment.ids())

    @rule()
    def fork(self) -> None:
        self.lost += self.generator.stats().remaining
        self.allocator.forget()
        self.issued = 0

    # --- the books --------------------------------------------------------------------

    @invariant()
    def books_balance(self) -> None:
        stats = self.generator.stats()
        returned = self.returned
        assert stats.issued == self.issued
        assert self.out.isdisjoint(returned)
        assert len(set(returned)) == len(returned)
        assert self.granted.issuperset(returned)
        assert len(self.granted) == len(self.out) + len(returned) + stats.remaining + self.lost
        assert stats.floor > self.last or not self.out
        assert stats.ahead <= 1
        assert stats.times & (stats.times - 1) == 0

    def teardown(self) -> None:
        """However it went on, the tag is alive; and what it holds at the end goes back."""
        self.outages = self.backwards = 0
        self.meanwhile = None
        self.accept([self.generator.next_id()])
        self.allocator.close()
        assert len(self.granted) == len(self.out) + len(self.returned) + self.lost


TestHistories = Histories.TestCase
TestHistories.settings = settings(stateful_step_count=40, deadline=None)
