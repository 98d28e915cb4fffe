"""Segment generators: each id once, rising, never outside a grant, and never stuck."""

from __future__ import annotations

import os
import random
import signal
import threading
import tracemalloc
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from django_idgen.core import segment_allocator
from django_idgen.core.clock import SYSTEM_CLOCK
from django_idgen.core.counts import MAX_BATCH
from django_idgen.core.errors import (
    ConfigurationError,
    GeneratorClosed,
    InvalidTag,
    NamespaceMismatch,
    SegmentExhausted,
    SegmentUnavailable,
)
from django_idgen.core.loader import InlineLoader, Loader
from django_idgen.core.segment import MAX_ID, STEP, Segment
from django_idgen.core.segment_allocator import SegmentAllocator
from django_idgen.core.segment_generator import LockedSegmentGenerator, SegmentGenerator
from django_idgen.core.segment_loads import STALE_AFTER
from django_idgen.sources.memory import MemorySource

LIMIT = 20  # seconds after which a test gives up on a thread; never reached when all is well


class ManualLoader:
    """Has a background, but it runs when the test says so; an urgent job runs at once."""

    background = True

    def __init__(self) -> None:
        self.jobs: deque[Callable[[], object]] = deque()

    def submit(self, fn, *, urgent=False):
        future: Future[object] = Future()
        if urgent:
            future.set_result(fn())
        else:
            self.jobs.append(fn)
        return future

    def run(self) -> None:
        while self.jobs:
            self.jobs.popleft()()


class ScriptedSource(MemorySource):
    """A memory source that fails, answers or is held up as its test wishes."""

    def __init__(self, step: int = 10) -> None:
        super().__init__(step)
        self.failures: deque[BaseException] = deque()
        self.answers: deque[Segment] = deque()
        self.floors: list[int] = []
        self.entered = threading.Semaphore(0)
        self.gate = threading.Event()
        self.gate.set()
        self.abandoned = self.closed = 0

    def fetch(self, tag, *, floor=0, demand=STEP):
        self.floors.append(floor)
        self.entered.release()
        assert self.gate.wait(LIMIT)
        if self.failures:
            raise self.failures.popleft()
        if self.answers:
            return self.answers.popleft()
        return super().fetch(tag, floor=floor)

    def abandon(self):
        self.abandoned += 1

    def close(self):
        self.closed += 1


class Time:
    """A clock whose hands only sleeping moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.sleeps: list[float] = []
        self.clock = replace(SYSTEM_CLOCK, stopwatch=lambda: self.now, sleep=self.sleep)

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += max(seconds, 1e-6)


class Events(list):
    def __call__(self, name, /, **values):
        self.append((name, values))

    def names(self) -> list[str]:
        return [name for name, _ in self]


def manual(step: int = 10, **options):
    source, loader, events, time = ScriptedSource(step), ManualLoader(), Events(), Time()
    allocator = SegmentAllocator(source, loader, clock=time.clock, on_event=events, **options)
    return allocator.generator("order"), source, loader, events, time


# --- values and order ----------------------------------------------------------------


@pytest.mark.parametrize("loader", [InlineLoader(), Loader()])
@pytest.mark.parametrize("step", [1, 2, 3, 9, 10, 1000])
def test_ids_begin_at_one_and_have_no_gaps(loader, step):
    """I2: one process alone gets 1, 2, 3 and so on, whatever the step."""
    generator = SegmentAllocator(MemorySource(step), loader, timeout=LIMIT).generator("a")
    assert [generator.next_id() for _ in range(50)] == list(range(1, 51))
    assert generator.next_ids(50) == list(range(51, 101))


def test_delta_and_the_end_of_the_segment_are_respected():
    """I3: only integers of range(start, stop, delta) are given out."""
    generator, source, *_ = manual()
    source.answers += [Segment("order", 3, 23, 10, delta=7), Segment("order", 30, 31, 1)]
    assert generator.next_ids(4) == [3, 10, 17, 30]


def test_the_last_id_is_the_highest_and_then_it_says_so():
    """I7: 2**63-1 is given out; past it comes an error, at once and each time."""
    generator, source, _, _, time = manual(step=4)
    source.answers.append(Segment("order", MAX_ID - 9, MAX_ID - 2, 7))
    assert generator.next_ids(10) == list(range(MAX_ID - 9, MAX_ID + 1))
    for _ in range(2):
        with pytest.raises(SegmentExhausted, match="order"):
            generator.next_id()
    assert time.sleeps == []


@pytest.mark.parametrize("n", [True, 1.0, "3", None])
def test_a_count_that_is_no_int_is_a_type_error(n):
    """The message names the value."""
    with pytest.raises(TypeError, match=repr(n)):
        manual()[0].next_ids(n)


@pytest.mark.parametrize("n", [-1, MAX_BATCH + 1, 2**63])
def test_a_count_out_of_range_is_a_value_error(n):
    """The message names the value and what is allowed; nothing is fetched."""
    generator, source, *_ = manual()
    with pytest.raises(ValueError, match=f"{n} .* 0 to {MAX_BATCH}"):
        generator.next_ids(n)
    assert generator.next_ids(0) == []
    assert source.floors == []


def test_a_batch_that_fails_half_way_gives_nothing_out_twice():
    """I1: ids taken for a batch that failed are lost, never given to another."""
    generator, source, loader, *_ = manual(step=10)
    assert generator.next_ids(5) == [1, 2, 3, 4, 5]
    source.failures += [SegmentExhausted("gone")]
    loader.run()
    source.failures += [SegmentExhausted("gone")]
    with pytest.raises(SegmentExhausted):
        generator.next_ids(10)
    assert generator.next_id() == 11


# --- the preload mark ------------------------------------------------------------------


def test_the_next_segment_is_loaded_after_a_tenth():
    """The load starts with the id past the 10 % mark, one segment ahead and no more."""
    generator, source, loader, *_ = manual(step=100)
    assert generator.next_ids(10)[-1] == 10
    assert not loader.jobs
    assert generator.next_id() == 11
    assert len(loader.jobs) == 1
    loader.run()
    generator.next_ids(89)
    assert (len(source.floors), generator.stats().waits) == (2, 1)
    assert generator.next_id() == 101


def test_an_inline_loader_does_not_preload():
    """Where the caller's thread does the I/O, it does so only when nothing is left."""
    source = ScriptedSource(10)
    generator = SegmentAllocator(source, InlineLoader()).generator("order")
    generator.next_ids(10)
    assert len(source.floors) == 1
    assert generator.next_id() == 11


def test_a_failed_preload_is_armed_again_by_the_caller_that_needs_it():
    """Hazard 21: a preload that fails just as the last id goes doesn't leave the tag dead."""
    generator, source, loader, events, _ = manual(step=10)
    generator.next_ids(9)
    source.failures.append(OSError("down"))
    assert generator.next_id() == 10
    loader.run()
    assert "segment_load_failed" in events.names()
    assert generator.next_ids(15) == list(range(11, 26))


def test_a_preload_that_fails_under_a_waiting_caller_is_armed_again():
    """Hazard 21: the caller who waits for the very load that fails gets its id by the next."""
    source = ScriptedSource(10)
    generator = SegmentAllocator(source, Loader(), timeout=LIMIT).generator("order")
    generator.next_ids(1)
    source.entered.acquire()
    source.gate.clear()
    source.failures += [OSError("down"), OSError("down"), OSError("still down")]
    generator.next_ids(9)
    assert source.entered.acquire(timeout=LIMIT)  # the preload is under way
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(generator.next_id) for _ in range(4)]
        source.gate.set()
        assert sorted(future.result(LIMIT) for future in waiting) == [11, 12, 13, 14]


def test_a_preload_stuck_behind_others_is_moved_up_by_the_first_who_needs_it():
    """First use goes before preloads, also when it began as a preload."""
    generator, _, loader, *_ = manual(step=10)
    generator.next_ids(10)
    assert len(loader.jobs) == 1  # never run: it stands behind a thousand others
    assert generator.next_id() == 11
    loader.run()
    assert generator.stats().loads == 2


def test_a_load_whose_submission_was_interrupted_is_submitted_by_the_next():
    """Hazard 21: an interrupt between arming and submitting doesn't leave the tag dead."""
    generator, _, loader, *_ = manual()
    submit = loader.submit

    def interrupted(fn, *, urgent=False):
        raise KeyboardInterrupt

    loader.submit = interrupted
    with pytest.raises(KeyboardInterrupt):
        generator.next_id()
    loader.submit = submit
    assert generator.next_id() == 1


def test_an_interrupt_during_an_inline_fetch_reaches_the_caller():
    """Ctrl-C ends the call that fetches, and only that call."""
    source = ScriptedSource(10)
    generator = SegmentAllocator(source, InlineLoader()).generator("order")
    source.failures.append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        generator.next_id()
    assert generator.next_id() == 1


def test_a_load_that_never_answers_is_given_up_and_its_answer_ignored():
    """L4: after a minute another load is made; the late answer is a lost segment."""
    generator, source, loader, _, time = manual(step=10)
    generator.next_ids(9)
    late = loader.jobs.popleft()
    source.gate.clear()
    source.entered = threading.Semaphore(0)
    thread = threading.Thread(target=late)
    thread.start()
    assert source.entered.acquire(timeout=LIMIT)
    time.now += STALE_AFTER + 1
    source.answers.append(Segment("order", 11, 21, 10))
    fetch, source.fetch = source.fetch, lambda tag, floor: Segment(tag, 50, 60, 10)
    assert generator.next_ids(2) == [10, 50]
    source.fetch = fetch
    source.gate.set()
    thread.join(LIMIT)
    assert generator.next_ids(9) == list(range(51, 60))
    assert generator.stats().loads == 2


# --- waiting -----------------------------------------------------------------------------


def test_all_waiters_are_served_by_one_load():
    """Hazards 19, 20: many callers with nothing left; one fetch; each gets an id."""
    source = ScriptedSource(100)
    source.gate.clear()
    generator = SegmentAllocator(source, Loader(), timeout=LIMIT).generator("order")
    with ThreadPoolExecutor(16) as pool:
        waiting = [pool.submit(generator.next_id) for _ in range(16)]
        assert source.entered.acquire(timeout=LIMIT)
        source.gate.set()
        assert sorted(future.result(LIMIT) for future in waiting) == list(range(1, 17))
    assert generator.stats().issued == 16
    assert len(source.floors) <= 2  # the second one is the preload, past the mark


def test_more_waiters_than_a_segment_has_ids_are_all_served():
    """Hazard 20: who finds the new segment empty already waits for the one after it."""
    source = ScriptedSource(3)
    source.gate.clear()
    generator = SegmentAllocator(source, Loader(), timeout=LIMIT).generator("order")
    with ThreadPoolExecutor(16) as pool:
        waiting = [pool.submit(generator.next_id) for _ in range(16)]
        assert source.entered.acquire(timeout=LIMIT)
        source.gate.set()
        assert sorted(future.result(LIMIT) for future in waiting) == list(range(1, 17))


def test_past_the_deadline_the_error_names_tag_time_and_cause():
    """I6: the error says what could not be had, for how long it was tried, and why."""
    generator, source, _, events, time = manual(timeout=0.5)
    down = OSError("connection refused")
    source.failures.extend([down] * 100)
    with pytest.raises(SegmentUnavailable, match=r"'order'.*0\.5 s.*connection refused") as caught:
        generator.next_id()
    assert caught.value.__cause__ is down
    assert time.now == pytest.approx(100.5)
    assert events[-1][0] == "segment_waited"


def test_retries_back_off_from_10_ms_to_a_quarter_of_a_second():
    """A source that is down is asked ever less often, up to four times a second."""
    generator, source, _, _, time = manual(timeout=2.0)
    source.failures.extend([OSError("down")] * 100)
    with pytest.raises(SegmentUnavailable):
        generator.next_id()
    assert time.sleeps[:7] == pytest.approx([0.01, 0.02, 0.04, 0.08, 0.16, 0.25, 0.25])


def test_a_source_that_recovers_within_the_deadline_is_not_noticed():
    """Hazard 19: a short outage with nothing left is waited out."""
    generator, source, *_ = manual()
    source.failures.extend([OSError("down")] * 3)
    assert generator.next_id() == 1
    stats = generator.stats()
    assert (stats.waits, stats.failures, stats.loads) == (1, 3, 1)


@pytest.mark.parametrize("timeout", [0.001, 0.5])
def test_a_tag_lives_again_as_soon_as_its_source_does(timeout):
    """Hazard 21: after any number of failed calls the next call tries again."""
    generator, source, *_ = manual(timeout=timeout)
    for _ in range(20):
        source.failures.extend([OSError("down")] * 100)
        with pytest.raises(SegmentUnavailable):
            generator.next_id()
        source.failures.clear()
        assert generator.next_id()
        generator.next_ids(generator.stats().remaining)


def test_an_inline_fetch_longer_than_the_timeout_still_counts():
    """What was fetched is given out, even if fetching took longer than the deadline."""
    source, time = ScriptedSource(10), Time()
    allocator = SegmentAllocator(source, InlineLoader(), clock=time.clock)
    fetch = source.fetch

    def slow(tag, *, floor=0):
        time.now += 10
        return fetch(tag, floor=floor)

    source.fetch = slow
    assert allocator.generator("order").next_ids(25) == list(range(1, 26))


@pytest.mark.parametrize(
    "error",
    [
        SegmentExhausted("no more"),
        InvalidTag("order", "the column is too short"),
        NamespaceMismatch("n", "delta", 1, 2),
        ConfigurationError("no such database"),
    ],
)
def test_what_waiting_does_not_mend_is_raised_at_once(error):
    """A tag that can't ever work says so without using up the deadline."""
    generator, source, _, _, time = manual()
    source.failures.append(error)
    with pytest.raises(type(error)) as caught:
        generator.next_id()
    assert (caught.value, time.sleeps) == (error, [])
    assert generator.next_id() == 1


# --- the floor -------------------------------------------------------------------------


def test_each_fetch_names_the_end_of_the_highest_grant():
    """Hazard 61: a source that was flushed is told what this process has already."""
    generator, source, loader, *_ = manual(step=10)
    generator.next_ids(5)
    loader.run()
    source.clear()
    assert generator.next_ids(20)[-1] == 25
    assert source.floors == [0, 11, 21]


def test_a_segment_below_the_floor_is_refused_and_another_one_fetched():
    """I1: a source that goes back can't make an id repeat; it is counted and told."""
    generator, source, loader, events, _ = manual(step=10)
    generator.next_ids(10)
    source.answers += [Segment("order", 1, 11, 10), Segment("other", 21, 31, 10)]
    loader.run()
    assert generator.next_id() == 11
    refused = [str(values["error"]) for name, values in events if name == "segment_load_failed"]
    assert ["[1, 11)" in refused[0], "'other'" in refused[1]] == [True, True]
    assert generator.stats().failures == 2


def test_a_source_that_only_goes_back_is_an_error_not_a_loop():
    """I6: refusing has an end, and the error says what is wrong."""
    generator, source, loader, *_ = manual(step=10)
    generator.next_ids(10)
    loader.jobs.clear()
    source.answers.extend([Segment("order", 1, 11, 10)] * 1000)
    with pytest.raises(SegmentUnavailable, match="flushed or restored"):
        generator.next_id()
    source.answers.clear()
    assert generator.next_id() == 11


# --- close and stats -------------------------------------------------------------------


def test_a_closed_generator_refuses_and_closing_twice_is_fine():
    """I3: nothing is issued after close, held ids included."""
    generator, *_ = manual(step=100)
    with generator:
        generator.next_id()
    generator.close()
    for call in (generator.next_id, lambda: generator.next_ids(2)):
        with pytest.raises(GeneratorClosed, match="order"):
            call()
    assert (generator.stats().issued, generator.stats().remaining) == (1, 0)


def test_a_waiting_caller_is_told_at_once_that_the_generator_was_closed():
    """Closing doesn't leave callers waiting for a load that no one will use."""
    source = ScriptedSource()
    source.gate.clear()
    generator = SegmentAllocator(source, Loader(), timeout=3600).generator("order")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(generator.next_id)
        assert source.entered.acquire(timeout=LIMIT)
        generator.close()
        with pytest.raises(GeneratorClosed):
            waiting.result(LIMIT / 4)  # the load itself is given up after LIMIT
        source.gate.set()


def test_a_closed_allocator_closes_all_tags_and_the_source():
    """Tags that were never used before are refused, too."""
    generator, source, *_ = manual()
    generator.next_id()
    generator._services.close()
    for closed in (generator, generator._services.segments["new"]):
        with pytest.raises(GeneratorClosed):
            closed.next_id()
    assert source.closed == 1


def test_stats_add_up():
    """Issued and remaining ids are those of the segments granted."""
    generator, _, loader, *_ = manual(step=100)
    generator.next_ids(30)
    loader.run()
    stats = generator.stats()
    assert (stats.tag, stats.issued, stats.remaining, stats.loads) == ("order", 30, 170, 2)
    assert (stats.floor, stats.current) == (201, Segment("order", 1, 101, 100))


def test_events_tell_loads_failures_and_waits():
    """Listeners hear what happened, with the tag and the values."""
    generator, source, _, events, _ = manual(step=10)
    down = OSError("down")
    source.failures.append(down)
    generator.next_id()
    assert events == [
        ("segment_load_failed", {"tag": "order", "error": down}),
        ("segment_loaded", {"tag": "order", "segment": Segment("order", 1, 11, 10), "seconds": 0}),
        ("segment_waited", {"tag": "order", "seconds": pytest.approx(0.01)}),
    ]


def test_a_listener_may_ask_for_ids():
    """No lock is held while a listener runs."""
    got: list[int] = []

    def listen(name, /, **values):
        if name == "segment_waited":
            got.append(allocator.generator("order").next_id())

    allocator = SegmentAllocator(MemorySource(10), InlineLoader(), on_event=listen)
    assert (allocator.generator("order").next_id(), got) == (1, [2])


# --- the mapping ---------------------------------------------------------------------------


def test_64_threads_at_first_use_get_one_generator(monkeypatch):
    """Hazard 29: a generator per tag, though all ask at the same moment."""

    def make(tag, services):
        SYSTEM_CLOCK.sleep(0)  # here the others come in
        return SegmentGenerator(tag, services)

    monkeypatch.setattr(segment_allocator, "_GENERATOR", make)
    allocator = SegmentAllocator(MemorySource(), InlineLoader())
    barrier = threading.Barrier(64)

    def first_use(_: int) -> list[SegmentGenerator]:
        barrier.wait(LIMIT)
        return [allocator.segments[f"tag-{n}"] for n in range(50)]

    with ThreadPoolExecutor(64) as pool:
        rows = list(pool.map(first_use, range(64)))
    assert all(len({id(row[n]) for row in rows}) == 1 for n in range(50))


@pytest.mark.parametrize("tag", ["", " a", "x" * 129, "a\0", 5, b"a", None])
def test_a_tag_that_can_not_be_stored_is_refused_and_not_kept(tag):
    """I6: the error comes before any fetch, and leaves no generator behind."""
    allocator = SegmentAllocator(MemorySource(), InlineLoader())
    with pytest.raises(InvalidTag):
        allocator.segments[tag]
    assert len(allocator.segments) == 0


def test_a_string_of_a_subclass_is_the_same_tag():
    """An enum's member and its value share one generator."""

    class Kind(str, Enum):  # noqa: UP042 - the older kind, too
        ORDER = "order"

    allocator = SegmentAllocator(MemorySource(), InlineLoader())
    assert allocator.generator(Kind.ORDER) is allocator.generator("order")
    assert type(allocator.generator("order").tag) is str


@pytest.mark.parametrize(
    "options", [{"timeout": 0}, {"timeout": float("inf")}, {"preload_at": 0}, {"preload_at": 1}]
)
def test_impossible_options_are_refused(options):
    """The error names the value."""
    with pytest.raises(ConfigurationError, match=str(next(iter(options.values())))):
        SegmentAllocator(MemorySource(), InlineLoader(), **options)


def test_a_tag_takes_less_than_two_kibibytes():
    """100,000 tags in a process are fine: also when each has two segments loaded."""
    allocator = SegmentAllocator(MemorySource(10_000), ManualLoader())
    tags = [f"tag-{n}" for n in range(5000)]
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for tag in tags:
            allocator.segments[tag].next_ids(1001)
        allocator.loader.run()
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert allocator.segments[tags[0]].stats().loads == 2
    assert used / len(tags) < 2048


# --- threads ---------------------------------------------------------------------------------


class PauseInRange:
    """Stands in for an iterator without a GIL: it lets go between reading and stepping."""

    def __init__(self, values: range) -> None:
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

    def _open(self, count):
        super()._open(count)
        self._ids = PauseInRange(range(next(self._ids), self._current.stop)[:count])


@pytest.mark.parametrize("loader", [Loader(), InlineLoader()])
@pytest.mark.parametrize("kind", [SegmentGenerator, SteppingGenerator])
def test_threads_never_share_an_id_and_each_sees_its_own_rise(monkeypatch, loader, kind):
    """I1, I2: 16 threads through hundreds of segments: each id once, each thread's in order."""
    monkeypatch.setattr(segment_allocator, "_GENERATOR", kind)
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


def in_child(work: Callable[[], list[int]]) -> list[int]:
    """The numbers that ``work`` gives in a forked child."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(LIMIT)  # a child that waits for its parent's lock fails, not hangs
        with suppress(BaseException):
            os.write(write, " ".join(map(str, work())).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    assert answer, "the child failed"
    return [int(word) for word in answer.split()]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("loader", [Loader(), InlineLoader()])
def test_a_child_that_forgets_never_issues_what_its_parent_holds(loader):
    """I5: what the parent has left, on hand or loaded, is the parent's alone."""
    source = ScriptedSource(100)
    allocator = SegmentAllocator(source, loader, timeout=LIMIT)
    generator = allocator.generator("order")
    generator.next_ids(30)
    floor = generator.stats().floor

    def work() -> list[int]:
        allocator.forget()
        assert source.abandoned == 1
        return generator.next_ids(150)

    assert min(in_child(work)) >= floor
    assert generator.next_ids(70) == list(range(31, 101))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_without_hooks_stops_at_its_first_slow_path():
    """I5, hazard 56: without fork hooks only the open iterator is inherited, and even if
    another thread held the lock, and the load, at the fork."""
    generator, source, loader, _, _ = manual(step=100)
    generator.next_ids(95)
    loader.run()
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


def test_a_late_answer_after_forgetting_is_ignored():
    """L4: the answer to a load from before the fork is no one's."""
    generator, _, loader, *_ = manual(step=10)
    generator.next_ids(9)
    generator.forget()
    loader.run()
    assert generator.stats().loads == 0
    assert generator.next_id() == 11
    assert generator.stats().issued == 1


# --- all together ----------------------------------------------------------------------------


class Histories(RuleBasedStateMachine):
    """I1, I2, I3 over any order of calls, failures, flushes, other buyers and forks."""

    def __init__(self) -> None:
        super().__init__()
        self.generator, self.source, self.loader, self.events, self.time = manual(step=7)
        self.last = self.issued = 0
        self.granted: set[int] = set()
        fetch = MemorySource.fetch

        def watched(tag, *, floor=0):
            segment = fetch(self.source, tag, floor=floor)
            self.granted.update(segment.ids())
            return segment

        self.grant = watched
        self.outages = 0
        self.backwards = 0
        self.source.fetch = self.fetch

    def fetch(self, tag, *, floor=0, demand=STEP):
        if self.outages:
            self.outages -= 1
            raise OSError("down")
        if self.backwards and floor:
            self.backwards -= 1
            return Segment(tag, max(1, floor - 5), floor + 2, 7)
        return self.grant(tag, floor=floor)

    def accept(self, ids: list[int]) -> None:
        for value in ids:
            assert value > self.last
            assert value in self.granted
            self.last = value
        self.issued += len(ids)

    @rule()
    def take_one(self) -> None:
        with suppress(SegmentUnavailable):
            self.accept([self.generator.next_id()])

    @rule(n=st.integers(0, 40))
    def take_many(self, n: int) -> None:
        before = self.generator.stats().issued
        try:
            self.accept(self.generator.next_ids(n))
        except SegmentUnavailable:
            self.issued += self.generator.stats().issued - before  # lost with the batch

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
        self.source.clear()

    @rule()
    def another_process_takes_a_segment(self) -> None:
        MemorySource.fetch(self.source, "order", floor=self.generator.stats().floor)

    @rule()
    def fork(self) -> None:
        self.generator.forget()
        self.issued = 0

    @precondition(lambda self: self.issued > 50)
    @rule()
    def close(self) -> None:
        self.generator.close()
        with pytest.raises(GeneratorClosed):
            self.generator.next_id()
        floor = self.generator.stats().floor
        allocator = SegmentAllocator(self.source, self.loader, clock=self.time.clock)
        self.generator = allocator.generator("order")
        self.generator._floor = floor  # a flush that no one is left to notice is another matter
        self.issued = 0

    @invariant()
    def books_balance(self) -> None:
        stats = self.generator.stats()
        assert stats.issued == self.issued
        assert stats.floor > self.last or not stats.loads

    def teardown(self) -> None:
        """However it went on, the tag is alive."""
        self.outages = self.backwards = 0
        self.accept([self.generator.next_id()])


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
