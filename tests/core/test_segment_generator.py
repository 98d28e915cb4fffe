"""Segment generators: each id once, rising, never outside a grant, and never stuck."""

from __future__ import annotations

import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from itertools import count

import pytest

from django_idgen.core import segment_generator
from django_idgen.core.clock import SYSTEM_CLOCK
from django_idgen.core.errors import (
    ConfigurationError,
    GeneratorClosed,
    InvalidTag,
    NamespaceMismatch,
    SegmentExhausted,
    SegmentUnavailable,
)
from django_idgen.core.generator import MAX_BATCH, Watch
from django_idgen.core.loader import Loader, inline_loader
from django_idgen.core.segment import MAX_ID, Segment
from django_idgen.core.segment_generator import STALE_AFTER, SegmentAllocator, SegmentGenerator
from django_idgen.sources.memory import MemorySource
from tests.segment_tools import LIMIT, ManualLoader, ScriptedSource, Time, manual
from tests.tables import refused

# --- values and order ----------------------------------------------------------------


@pytest.mark.parametrize("loader", [inline_loader(), Loader()])
@pytest.mark.parametrize("step", [1, 2, 3, 9, 10, 1000])
def test_ids_begin_at_one_and_have_no_gaps(loader, step):
    """I2: one process alone gets 1, 2, 3 and so on, whatever the step."""
    generator = SegmentAllocator(MemorySource(step), loader, timeout=LIMIT).generator("a")
    assert [generator.next_id() for _ in range(50)] == list(range(1, 51))
    assert generator.next_ids(50) == list(range(51, 101))


class NewTable(Watch):
    """Finds a table with rows up to 5000 between two parts of a segment."""

    def __init__(self, generator: SegmentGenerator) -> None:
        self.generator, self.due = generator, False

    def follow(self, field, using=None): ...

    def is_due(self) -> bool:
        return self.due

    def find(self) -> None:
        self.due = False
        self.generator.pass_rows(frozenset(["new"]), 5000)

    def look(self, tables): ...

    async def in_thread(self, ask): ...


@pytest.mark.parametrize("how", ["kept", "looked up", "ranges"])
def test_a_table_that_comes_later_is_looked_at_before_the_next_part(how):
    """Hazard 102: also where the part is loaded, and its ids are on hand."""
    generator, source, *_ = manual(step=100)
    generator.watch = watch = NewTable(generator)
    take = {
        "kept": generator.next_id,
        "looked up": lambda: generator.next_id(),
        "ranges": lambda: generator.next_ranges(1)[0][0],
    }[how]
    assert [take() for _ in range(10)] == list(range(1, 11))  # the first tenth
    watch.due = True
    source.answers.append(Segment("order", 5001, 5101, 100))
    assert take() == 5001


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


def test_a_count_that_is_none_is_refused():
    """The message names the value and what is allowed; nothing is fetched."""
    generator, source, *_ = manual()
    for n in (True, 1.0, "3", None):
        refused(TypeError, generator.next_ids, n, match=repr(n))
    for n in (-1, MAX_BATCH + 1, 2**63):
        refused(ValueError, generator.next_ids, n, match=f"{n} .* 0 to {MAX_BATCH}")
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
    generator = SegmentAllocator(source, inline_loader()).generator("order")
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
    fetch, source.fetch = source.fetch, lambda tag, floor, demand: Segment(tag, 50, 60, 10)
    assert generator.next_ids(2) == [10, 50]
    source.fetch = fetch
    source.gate.set()
    thread.join(LIMIT)
    assert generator.next_ids(9) == list(range(51, 60))
    assert generator.stats().loads == 2


def test_an_answer_below_what_was_granted_meanwhile_is_not_used():
    """Two loads of several threads; a look at a table's rows comes between their answers."""
    generator, source, loader, _, _ = manual(step=10)
    answers = [Segment("order", 22_000, 22_010, 10), Segment("order", 3000, 3010, 10)]
    gates, entered, turns = [threading.Event(), threading.Event()], threading.Semaphore(0), count()

    def fetch(tag, **_options):
        turn = next(turns)
        entered.release()
        assert gates[turn].wait(LIMIT)
        return answers[turn]

    used, source.fetch = source.fetch, fetch
    threads = []
    for _ in range(2):
        generator.clear()
        generator.preload()
        threads.append(threading.Thread(target=loader.jobs.popleft()))
        threads[-1].start()
        assert entered.acquire(timeout=LIMIT)
    gates[0].set()
    threads[0].join(LIMIT)
    generator.go_past(5000)
    gates[1].set()
    threads[1].join(LIMIT)
    source.fetch = used
    assert generator.next_id() == 22_010


# --- waiting -----------------------------------------------------------------------------


@pytest.mark.parametrize("step", [100, 3])
def test_all_waiters_are_served(step):
    """Hazards 19, 20: many callers with nothing left; one fetch; each gets an id.

    Who finds the new segment empty already waits for the one after it.
    """
    source = ScriptedSource(step)
    source.gate.clear()
    generator = SegmentAllocator(source, Loader(), timeout=LIMIT).generator("order")
    with ThreadPoolExecutor(16) as pool:
        waiting = [pool.submit(generator.next_id) for _ in range(16)]
        assert source.entered.acquire(timeout=LIMIT)
        source.gate.set()
        assert sorted(future.result(LIMIT) for future in waiting) == list(range(1, 17))
    assert generator.stats().issued == 16
    assert step == 3 or len(source.floors) <= 2  # the second one is the preload, past the mark


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


def test_an_inline_fetch_longer_than_the_timeout_still_counts():
    """What was fetched is given out, even if fetching took longer than the deadline."""
    source, time = ScriptedSource(10), Time()
    allocator = SegmentAllocator(source, inline_loader(), clock=time.clock)
    fetch = source.fetch

    def slow(tag, **asked):
        time.now += 10
        return fetch(tag, **asked)

    source.fetch = slow
    assert allocator.generator("order").next_ids(25) == list(range(1, 26))


def test_what_waiting_does_not_mend_is_raised_at_once():
    """A tag that can't ever work says so without using up the deadline."""
    generator, source, _, _, time = manual()
    for error in (
        SegmentExhausted("no more"),
        InvalidTag("order", "the column is too short"),
        NamespaceMismatch("n", "delta", 1, 2),
        ConfigurationError("no such database"),
    ):
        source.failures.append(error)
        assert refused(type(error), generator.next_id) is error
    assert time.sleeps == []
    assert generator.next_id() == 1


# --- the floor -------------------------------------------------------------------------


def test_each_fetch_names_the_end_of_the_highest_grant():
    """Hazard 61: a source that was flushed is told what this process has already."""
    generator, source, loader, *_ = manual(step=10)
    generator.next_ids(5)
    loader.run()
    source.flush()
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
    """Listeners hear what happened, with the tag and the values.

    Hazard 19: the caller notices nothing of a short outage with nothing left.
    """
    generator, source, _, events, _ = manual(step=10)
    down = OSError("down")
    source.failures.append(down)
    assert generator.next_id() == 1
    stats = generator.stats()
    assert (stats.waits, stats.failures, stats.loads) == (1, 1, 1)
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

    allocator = SegmentAllocator(MemorySource(10), inline_loader(), on_event=listen)
    assert (allocator.generator("order").next_id(), got) == (1, [2])


# --- the mapping ---------------------------------------------------------------------------


def test_64_threads_at_first_use_get_one_generator(monkeypatch):
    """Hazard 29: a generator per tag, though all ask at the same moment."""

    def make(tag, services, floor):
        SYSTEM_CLOCK.sleep(0)  # here the others come in
        return SegmentGenerator(tag, services, floor)

    monkeypatch.setattr(segment_generator, "_GENERATOR", make)
    allocator = SegmentAllocator(MemorySource(), inline_loader())
    barrier = threading.Barrier(64)

    def first_use(_: int) -> list[SegmentGenerator]:
        barrier.wait(LIMIT)
        return [allocator.segments[f"tag-{n}"] for n in range(50)]

    with ThreadPoolExecutor(64) as pool:
        rows = list(pool.map(first_use, range(64)))
    assert all(len({id(row[n]) for row in rows}) == 1 for n in range(50))


def test_a_tag_that_can_not_be_stored_is_refused_and_not_kept():
    """I6: the error comes before any fetch, and leaves no generator behind."""
    allocator = SegmentAllocator(MemorySource(), inline_loader())
    for tag in ("", " a", "x" * 129, "a\0", 5, b"a", None):
        refused(InvalidTag, allocator.segments.__getitem__, tag)
    assert len(allocator.segments) == 0


def test_a_string_of_a_subclass_is_the_same_tag():
    """An enum's member and its value share one generator."""

    class Kind(str, Enum):  # noqa: UP042 - the older kind, too
        ORDER = "order"

    allocator = SegmentAllocator(MemorySource(), inline_loader())
    assert allocator.generator(Kind.ORDER) is allocator.generator("order")
    assert type(allocator.generator("order").tag) is str


def test_impossible_options_are_refused():
    """The error names the value."""
    wrong = {"timeout": (0, float("inf")), "first_timeout": (0,), "preload_at": (0, 1)}
    wrong["idle_after"] = (0, -1, float("inf"))
    for name, values in wrong.items():
        for value in values:
            options = {name: value, "match": str(value)}
            refused(
                ConfigurationError, SegmentAllocator, MemorySource(), inline_loader(), **options
            )


def test_a_tag_takes_less_than_two_kibibytes():
    """100,000 tags in a process are fine: also when each has two segments loaded."""
    allocator = SegmentAllocator(MemorySource(10_000), ManualLoader())
    tags = [f"tag-{n}" for n in range(1000)]
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
