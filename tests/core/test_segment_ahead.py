"""What is kept ahead: the next segment, batches in one fetch, preloading, giving back."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from operator import length_hint

import pytest

from django_idgen.core import segment_generator
from django_idgen.core.errors import GeneratorClosed, SegmentExhausted, SegmentUnavailable
from django_idgen.core.loader import Loader, inline_loader
from django_idgen.core.pace import Growth
from django_idgen.core.segment import STEP, Demand, Segment
from django_idgen.core.segment_generator import SegmentAllocator, SegmentGenerator
from django_idgen.sources.memory import MemorySource
from tests.segment_tools import LIMIT, STILL, ManualLoader, ScriptedSource, Time, manual

LEAF = Growth()


# --- the step and the next segment -------------------------------------------------------------


def test_segments_grow_with_a_quick_pace():
    """Leaf's rule end to end: s, s, 2s, 4s, with the load of each at the tenth before it."""
    generator, source, loader, _, _ = manual(step=100, growth=LEAF)
    while len(source.demands) < 5:
        generator.next_id()
        loader.run()
    assert [demand.times for demand in source.demands] == [1, 1, 2, 4, 8]
    assert generator.stats().times == 8
    assert generator.stats().waits == 1  # the first use


def test_segments_shrink_with_a_slow_pace_but_not_below_the_rows_step():
    """Used up in more than half an hour, a segment is followed by one half as long."""
    generator, source, loader, _, time = manual(step=100, growth=LEAF)
    generator._pace.times = 4
    while len(source.demands) < 7:
        generator.next_id()
        loader.run()
        time.now += 60.0
    assert [demand.times for demand in source.demands] == [4, 4, 2, 1, 1, 1, 1]


def test_an_edited_step_counts_from_the_next_load_up_and_down():
    """Hazard 24: what was multiplied is the row's step as it is then."""
    generator, source, loader, _, _ = manual(step=100, growth=LEAF)
    lengths = []
    for step in (100, 1000, 10):
        source.set_step("order", step)
        generator._pace.times = 4
        generator.preload()
        loader.run()
        lengths.append(len(generator.stats().held[-1].ids()))
        generator.next_ids(generator.stats().remaining)
    assert lengths == [400, 4000, 40]


def test_a_step_raised_by_hand_does_not_make_endless_segments():
    """From 1 to 1,000,000 while a process asks for 512 times the row's: one too long at most."""
    generator, source, loader, _, _ = manual(step=1, growth=LEAF)
    generator._pace.times = 512
    source.set_step("order", 1_000_000)
    generator.preload()
    loader.run()
    assert generator.stats().remaining == 1_000_000
    generator.preload()
    generator.next_ids(200_000)
    loader.run()
    assert source.demands[-1] == STEP


def test_a_caller_who_waited_gets_longer_segments_at_once():
    """The load that it waits for is the first of twice the length."""
    generator, source, loader, _, time = manual(step=10, growth=LEAF)
    generator.next_ids(10)
    loader.jobs.clear()  # no thread runs the preload: the caller waits for it
    time.now += 20 * 60.0  # no pace to double for
    generator.next_id()
    assert [demand.times for demand in source.demands] == [1, 2]


def test_the_next_segment_is_used_after_the_current_one():
    """Hazard 25: whenever it is loaded, and no id of it twice."""
    generator, _, loader, _, _ = manual(step=10)
    ids = []
    for _ in range(80):
        ids.append(generator.next_id())
        generator.preload()
        loader.run()
        assert generator.stats().ahead == 1
    assert ids == list(range(1, 81))


def test_an_inline_loader_loads_nothing_ahead_and_waiting_doubles_nothing():
    """Where the caller's thread loads, every segment's end is waited for: that says nothing."""
    time = Time()
    allocator = SegmentAllocator(ScriptedSource(10), inline_loader(), clock=time.clock)
    generator = allocator.generator("order")
    for _ in range(35):
        generator.next_id()
        time.now += 120.0  # no pace to double for
    stats = generator.stats()
    assert (stats.waits, stats.times, stats.ahead) == (4, 1, 0)


def test_a_preload_that_fails_is_tried_again_before_the_segment_ends():
    """Hazard 21: nobody waits for the end to find that the next one isn't there."""
    generator, source, loader, _, time = manual(step=1000)
    generator.next_ids(101)
    source.failures.append(OSError("down"))
    loader.run()
    tries = 0
    while not generator.stats().ahead:
        generator.next_id()
        time.now += 0.01
        loader.run()
        tries += 1
    assert tries < 300
    generator.next_ids(1000)
    assert generator.stats().waits == 1  # the first use


@pytest.mark.parametrize("outage", [1, 60, 600])
def test_ids_flow_again_within_a_second_of_the_sources_return(outage):
    """However long it was away: nobody has to do more than to call."""
    generator, source, _, _, time = manual(timeout=0.5)
    generator.next_ids(10)
    back = time.now + outage
    fetch = source.fetch

    def away(tag, **asked):
        if time.now < back:
            raise OSError("down")
        return fetch(tag, **asked)

    source.fetch = away
    got = []
    while not got:
        with suppress(SegmentUnavailable):
            got.append(generator.next_id())
    assert got == [11]
    assert back <= time.now < back + 1.0


# --- batches --------------------------------------------------------------------------------


@pytest.mark.parametrize("held", [0, 5, 15])
def test_a_batch_longer_than_the_step_is_one_fetch(held):
    """What is held is used up, and what is missing is asked for at once."""
    generator, source, loader, _, _ = manual(step=10)
    assert generator.next_ids(held) == list(range(1, held + 1))
    loader.run()
    before, remaining = len(source.demands), generator.stats().remaining
    assert generator.next_ids(5000)[-1] == held + 5000
    new = source.demands[before:]
    # The preload that the batch itself armed, if there was one, is asked for what is missing.
    assert new == [Demand(1, 5000 - remaining)]


def test_a_batch_that_runs_into_its_own_preload_asks_for_all_by_it():
    """The load that is armed at the mark, on the way, knows what the caller will miss."""
    generator, source, loader, _, _ = manual(step=1000)
    generator.next_id()
    generator.next_ids(5000)
    assert [demand.at_least for demand in source.demands] == [1, 4001]
    loader.run()


def test_waiters_add_up_what_they_wait_for():
    """Hazards 19, 20: sixteen callers, each for more than a step, are served by one load."""
    source = ScriptedSource(10)
    source.gate.clear()
    generator = SegmentAllocator(source, Loader(), timeout=LIMIT, growth=STILL).generator("order")
    busy, blocker = threading.Event(), threading.Event()
    generator._services.loader.submit(lambda: busy.set() or blocker.wait(LIMIT))
    assert busy.wait(LIMIT)  # or an urgent load would go before
    with ThreadPoolExecutor(16) as pool:
        waiting = [pool.submit(generator.next_ids, 25) for _ in range(16)]
        while generator._pending is None or generator._pending.at_least < 16 * 25:
            assert not any(future.done() for future in waiting)
        blocker.set()
        source.gate.set()
        rows = [future.result(LIMIT) for future in waiting]
    assert sorted(value for row in rows for value in row) == list(range(1, 401))
    assert source.demands[0] == Demand(1, 400)


# --- preload ----------------------------------------------------------------------------------


def test_preloading_an_unused_tag_makes_its_first_id_come_without_waiting():
    """With a background, it is begun and not waited for unless asked."""
    generator, source, loader, _, _ = manual(step=10)
    assert generator.preload() is False
    loader.run()
    assert generator.preload() is True
    assert generator.next_id() == 1
    assert (generator.stats().waits, source.floors) == (0, [0])


def test_preloading_with_a_timeout_waits_until_it_is_there():
    """Also where the loads run in another thread; all of what is to be ahead."""
    allocator = SegmentAllocator(MemorySource(10), Loader())
    assert allocator.generator("order").preload(LIMIT) is True
    assert allocator.preload(["order", "invoice"], timeout=LIMIT) is True
    assert allocator.generator("invoice").stats().ahead == 1


def test_preloading_inline_loads_at_once():
    """SQLite and memory have no thread: the caller's does it."""
    allocator = SegmentAllocator(MemorySource(10), inline_loader())
    assert allocator.generator("order").preload() is True
    assert allocator.generator("order").stats().loads == 1
    assert allocator.preload(["order", "invoice"]) is True


def test_preloading_names_what_went_wrong():
    """I6: past the timeout the cause is chained; without one, False; what is final, at once."""
    generator, source, _, _, _ = manual()
    down = OSError("down")
    source.failures.extend([down] * 1000)
    with pytest.raises(SegmentUnavailable, match=r"within 0\.3 s.*down") as caught:
        generator.preload(0.3)
    assert caught.value.__cause__ is down
    source.failures.clear()
    source.failures.append(SegmentExhausted("the end"))
    with pytest.raises(SegmentExhausted):
        generator.preload(0.3)
    generator.close()
    with pytest.raises(GeneratorClosed):
        generator.preload()


# --- clear, close, and giving back ------------------------------------------------------------


def test_clearing_gives_back_what_is_held_and_the_next_id_is_higher():
    """The open part, the rest and the next segment go back as one range; the ids go on above."""
    generator, source, loader, events, _ = manual(step=100)
    generator.next_ids(30)
    loader.run()
    assert generator.clear() == 170
    assert source.returned == [("order", range(31, 201))]
    assert ("segment_given_back", {"tag": "order", "ids": 170}) in events
    assert generator.next_id() == 201
    stats = generator.stats()
    assert (stats.issued, stats.given_back, stats.remaining) == (31, 170, 99)


def test_clearing_a_tag_that_holds_nothing_tells_nobody():
    """There is nothing to give back."""
    generator, source, _, events, _ = manual()
    assert generator.clear() == 0
    assert (source.returned, events) == ([], [])


def test_ranges_of_another_delta_keep_it():
    """Every seventh id goes back as every seventh."""
    generator, source, loader, _, _ = manual()
    source.answers += [Segment("order", 3, 703, 100, delta=7), Segment("order", 703, 710, 1, 7)]
    generator.next_ids(20)
    loader.run()
    generator.clear()
    held = [value for _, ids in source.returned for value in ids]
    assert held == list(range(3, 710, 7))[20:]


def test_an_answer_to_a_load_that_was_called_off_goes_back():
    """A preload under way at the close is no gap; the caller is not kept by it."""
    generator, source, loader, _, _ = manual(step=10)
    generator.next_ids(9)
    late = loader.jobs.popleft()
    source.gate.clear()
    source.entered = threading.Semaphore(0)
    thread = threading.Thread(target=late)
    thread.start()
    assert source.entered.acquire(timeout=LIMIT)
    generator.close()
    assert source.returned == [("order", range(10, 11))]
    source.gate.set()
    thread.join(LIMIT)
    assert source.returned[1:] == [("order", range(11, 21))]


def test_an_answer_that_went_back_is_never_accepted_again():
    """A source flushed meanwhile may grant the very range anew: it is below the floor by then."""
    generator, source, loader, _, _ = manual(step=10)
    generator.next_ids(2)
    fetch = source.fetch

    def cleared_meanwhile(tag, **asked):
        segment = fetch(tag, **asked)
        generator.clear()
        return segment

    source.fetch = cleared_meanwhile
    loader.run()
    source.fetch = fetch
    assert source.returned[-1] == ("order", range(11, 21))
    source.flush()
    assert generator.next_id() == 21


class LoaderEach:
    """Runs each job in a thread of its own, as the threads before several databases do."""

    background = True

    def submit(self, fn, *, urgent=False):
        return Loader().submit(fn, urgent=urgent)


@pytest.mark.parametrize("loader", [Loader(), LoaderEach()])
def test_a_close_waits_for_what_is_under_way_in_any_thread(monkeypatch, loader):
    """A preload's answer goes back before the source is closed, whichever thread has it."""
    monkeypatch.setattr(segment_generator, "LEAVE_WITHIN", LIMIT)
    source = ScriptedSource(10)
    allocator = SegmentAllocator(source, loader, timeout=LIMIT, growth=STILL)
    generator = allocator.generator("order")
    assert generator.next_id() == 1
    assert source.entered.acquire(timeout=LIMIT)
    source.gate.clear()
    assert generator.next_ids(4) == [2, 3, 4, 5]
    assert source.entered.acquire(timeout=LIMIT)
    close, order = source.close, []
    source.close = lambda: (order.extend(source.returned), close())
    closing = threading.Thread(target=allocator.close)
    closing.start()
    closing.join(0.1)
    assert closing.is_alive()
    source.gate.set()
    closing.join(LIMIT)
    assert order == [("order", range(6, 11)), ("order", range(11, 21))]


def test_leaving_takes_no_longer_than_its_time(monkeypatch):
    """A place for the ids that doesn't answer holds up the exit once, not once a tag."""
    generator, source, _, _, time = manual()
    allocator = generator._services
    for n in range(100):
        allocator.generator(f"t{n}").next_id()
    calls = []

    def slow(tag, ranges):
        calls.append(tag)
        time.now += 1.5

    source.give_back = slow
    allocator.close()
    assert len(calls) == 1 + segment_generator.LEAVE_WITHIN // 1.5


def test_a_source_that_fails_to_take_ids_back_fails_no_one(caplog):
    """They are a gap, and the log says so."""
    generator, source, _, _, _ = manual()
    generator.next_id()

    def broken(tag, ranges):
        raise RuntimeError("a bug")

    source.give_back = broken
    generator.close()
    assert "'order'" in caplog.text


LEAVING = {
    "cleared": SegmentGenerator.clear,
    "closed": SegmentGenerator.close,
    "idle": lambda generator: generator._services.sweep(),
}


@pytest.mark.parametrize("leave", LEAVING.values(), ids=LEAVING.keys())
def test_nothing_is_given_back_that_a_thread_has_in_hand(leave):
    """Hazard 54: it was stopped inside next_id() with the iterator read, and goes on later."""
    generator, source, _, _, time = manual(step=100)
    generator.next_ids(4)
    held = generator._ids
    assert length_hint(held) == 6  # the first tenth, less those
    for _ in range(2):  # a tag is idle at the second look
        time.now += generator._services.idle_after + 1
        leave(generator)
    back = [value for _, ids in source.returned for value in ids]
    assert back == list(range(5, 101))
    assert list(held) == []


def test_a_manual_loader_never_holds_up_the_end():
    """Loads that were never begun are not waited for."""
    allocator = SegmentAllocator(MemorySource(10), ManualLoader())
    allocator.generator("order").next_ids(5)
    allocator.close()


# --- ids that rows from elsewhere have (hazard 97) ----------------------------------------


def test_ids_of_loaded_rows_are_passed_over():
    """What is held up to them is a gap; what lies above goes back to the source."""
    generator, source, loader, _, _ = manual(step=10)
    assert generator.next_ids(3) == [1, 2, 3]
    loader.run()  # 11 to 20 is ahead
    generator.go_past(12)
    assert source.returned == [("order", range(13, 21))]
    assert generator.next_id() == 21
    assert source.floors[-1] == 21


def test_rows_below_what_is_held_change_nothing():
    """Nor those below what it was granted last, when nothing is left."""
    generator, source, loader, _, _ = manual(step=10)
    generator.next_ids(10)
    loader.run()
    assert generator.next_id() == 11
    generator.go_past(10)
    assert generator.next_ids(9) == list(range(12, 21))
    generator.go_past(20)
    assert generator.next_id() == 21
    assert source.returned == []


def test_the_source_hears_how_much_of_the_floor_was_granted():
    """A row below the rest of it was not flushed."""
    generator, source, _, _, _ = manual(step=10)
    generator.next_ids(10)
    generator.go_past(5000)
    assert generator.next_id() == 5001
    assert (source.floors[-1], source.demands[-1].granted) == (5001, 11)
    generator.next_ids(10)
    assert (source.floors[-1], source.demands[-1].granted) == (5011, None)


@pytest.mark.parametrize(("top", "returned"), [(15, []), (5, [("order", range(11, 21))])])
def test_a_load_under_way_brings_none_of_them(top, returned):
    """Its answer goes back if it lies above them all, and else is a gap."""
    generator, source, loader, _, _ = manual(step=10)
    source.raise_mark("order", 11)
    asked = source.fetch

    def meanwhile(tag, **options):
        segment = asked(tag, **options)
        generator.go_past(top)
        return segment

    source.fetch = meanwhile
    generator.preload()
    loader.run()
    source.fetch = asked
    assert source.returned == returned
    assert generator.next_id() == 21


def test_a_tag_that_was_dropped_keeps_them_in_mind():
    """As it does what it was granted: by its floor."""
    generator, _, _, _, time = manual(step=10)
    allocator = generator._services
    generator.go_past(70)
    time.now += 1000.0
    allocator.sweep()
    assert not allocator.segments
    del generator
    assert allocator.generator("order").next_id() == 71
