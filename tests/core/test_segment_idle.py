"""Tags that nobody uses: they give back what they hold, and ids go on rising all the same."""

from __future__ import annotations

import gc
import threading
import tracemalloc
import weakref
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

from django_idgen.core.clock import SYSTEM_CLOCK
from django_idgen.core.errors import GeneratorClosed
from django_idgen.core.loader import Loader, inline_loader
from django_idgen.core.segment_generator import LOOKS, SegmentAllocator, Segments
from django_idgen.sources.memory import MemorySource
from tests.segment_tools import LIMIT, STILL, ManualLoader, ScriptedSource, Time, manual

IDLE = 900.0


def made(**options):
    generator, source, loader, events, time = manual(step=100, **options)
    return generator._services, source, loader, events, time


def use(allocator, tag: str) -> int:
    """Through the map alone: no one holds the generator."""
    return allocator.segments[tag].next_id()


def pass_idle(allocator, time: Time) -> None:
    """Longer than a tag may be unused, with the sweeps that come in that time."""
    for _ in range(2):
        time.now += IDLE + 1
        allocator.sweep()


def test_an_idle_tag_gives_its_ids_back_and_is_dropped():
    """After 15 minutes without use nothing is held, and the tag takes no memory but its floor."""
    allocator, source, _, events, time = made()
    assert use(allocator, "order") == 1
    gone = weakref.ref(allocator.segments["order"])
    pass_idle(allocator, time)
    assert "order" not in allocator.segments
    assert source.returned == [("order", range(2, 101))]
    assert ("segment_given_back", {"tag": "order", "ids": 99}) in events
    gc.collect()
    assert gone() is None


def test_a_dropped_tag_that_was_not_taken_back_yet_is_closed_with_the_rest(monkeypatch):
    """Who kept it gets ids before the allocator takes it back; a close in between ends it, too."""
    allocator, _, _, _, time = made()
    held = allocator.generator("order")
    held.next_id()
    pass_idle(allocator, time)
    monkeypatch.setattr(Segments, "adopt", lambda *_: None)
    held.next_id()
    assert "order" not in allocator.segments
    allocator.close()
    assert held.closed
    with pytest.raises(GeneratorClosed):
        held.next_id()


def test_whoever_waits_for_a_first_segment_gets_it():
    """Also of a tag that was held for 15 minutes before it was asked: its ids begin at 1."""
    source, time = ScriptedSource(100), Time()
    # In whose submit() a load ends, and looks around, before its caller goes on.
    allocator = SegmentAllocator(source, inline_loader(), clock=time.clock, growth=STILL)
    held = allocator.generator("order")
    time.now += IDLE + 1
    assert held.next_id() == 1
    assert source.returned == []
    pass_idle(allocator, time)
    assert source.returned == [("order", range(2, 101))]


def test_a_tag_that_was_loaded_and_never_used_gives_its_ids_back():
    """Somebody who had it loaded may not have come at all."""
    allocator, source, _, _, time = made()
    loader = allocator.loader
    held = allocator.generator("order")
    held.preload()
    loader.run()
    pass_idle(allocator, time)
    assert source.returned == [("order", range(1, 101))]


def test_a_tag_in_use_is_kept():
    """One id in 15 minutes is enough."""
    allocator, source, _, _, time = made()
    for number in range(1, 20):
        assert use(allocator, "order") == number
        time.now += IDLE
        allocator.sweep()
    assert source.returned == []


def test_ids_of_a_dropped_tag_go_on_above_also_after_a_flush():
    """Hazard 61: of a generator that is gone the floor stays known."""
    allocator, source, _, _, time = made()
    use(allocator, "order")
    pass_idle(allocator, time)
    gc.collect()
    source.flush()
    assert use(allocator, "order") == 101
    assert source.floors[-1] == 101


@pytest.mark.parametrize("used", [False, True])
def test_a_dropped_generator_that_is_looked_up_is_the_same_while_it_lives(used):
    """I1, I2: whether it was used in between or not, there are never two of one tag."""
    allocator, _, _, _, time = made()
    held = allocator.segments["order"]
    held.next_id()
    pass_idle(allocator, time)
    assert "order" not in allocator.segments
    assert not used or held.next_id() == 101
    assert allocator.segments["order"] is held
    assert held.next_id() == 101 + used
    pass_idle(allocator, time)
    assert "order" not in allocator.segments  # it is looked at again once it came back


def test_a_closed_generator_is_replaced_after_a_while():
    """Closing one tag is not for ever; the new one's ids are above."""
    allocator, _, _, _, time = made()
    held = allocator.segments["order"]
    held.next_id()
    held.close()
    pass_idle(allocator, time)
    assert use(allocator, "order") == 101


def test_a_tag_with_a_load_under_way_is_not_idle():
    """Somebody waits for it."""
    allocator, _, loader, _, time = made()
    allocator.segments["order"].next_ids(11)
    assert len(loader.jobs) == 1
    pass_idle(allocator, time)
    assert "order" in allocator.segments
    loader.run()


def test_loads_of_other_tags_sweep(monkeypatch):
    """There is no thread for it: whoever loads takes a few looks, in the loader's queue."""
    allocator, source, loader, _, time = made()
    for number in range(3 * LOOKS):
        use(allocator, f"t{number}")
    for _ in range(2):
        time.now += IDLE + 1
        use(allocator, "busy")
        allocator.segments["busy"].next_ids(100)
        jobs = 0
        while loader.jobs:
            loader.jobs.popleft()()
            jobs += 1
        assert jobs >= 3  # not all in one go
    assert set(allocator.segments) == {"busy"}
    assert len(source.returned) == 3 * LOOKS


def test_inline_loads_sweep_a_few_each():
    """Without a loader's thread a caller looks at a bounded number of tags."""
    time = Time()
    allocator = SegmentAllocator(MemorySource(10), inline_loader(), clock=time.clock, growth=STILL)
    for number in range(2 * LOOKS):
        use(allocator, f"t{number}")
    for _ in range(2):
        time.now += IDLE + 1
        for _ in range(4):
            allocator.segments["busy"].next_ids(10)
            time.now += 2.0
    assert set(allocator.segments) == {"busy"}


def test_the_owner_of_another_map_hears_of_what_is_dropped():
    """The process-wide ``segments`` drops it, too."""
    heard = []
    allocator, _, _, _, time = made(on_drop=lambda tag, generator: heard.append((tag, generator)))
    held = allocator.segments["order"]
    pass_idle(allocator, time)
    assert heard == [("order", held)]


def test_a_child_of_a_fork_sweeps_its_own():
    """Also if the parent was in the middle of looking at the fork."""
    allocator, source, _, _, time = made()
    use(allocator, "order")
    allocator.segments._in_turn.clear()
    allocator.forget()
    assert use(allocator, "order") == 101
    pass_idle(allocator, time)
    assert source.returned == [("order", range(102, 201))]


def test_threads_that_go_on_while_tags_are_dropped_never_share_an_id():
    """I1, I2 under sweeps as fast as they go: each thread's ids rise, each id comes once."""
    source = ScriptedSource(20)
    allocator = SegmentAllocator(
        source, Loader(), timeout=LIMIT, growth=STILL, idle_after=1e-6, on_drop=None
    )
    stop = threading.Event()

    def work(seed: int) -> dict[str, list[int]]:
        rows: dict[str, list[int]] = {"a": [], "b": []}
        until = SYSTEM_CLOCK.stopwatch() + LIMIT
        turns = count(seed)
        while len(rows["a"]) < 750 or len(source.returned) < 20:
            tag = "ab"[next(turns) % 2]
            rows[tag].append(use(allocator, tag))
            if len(rows["a"]) % 50 == 0:
                SYSTEM_CLOCK.sleep(0.001)  # nobody's turn: so that some are found idle
                assert SYSTEM_CLOCK.stopwatch() < until
        return rows

    def sweep() -> None:
        while not stop.wait(0.0005):
            allocator.sweep()

    with ThreadPoolExecutor(5) as pool:
        sweeping = pool.submit(sweep)
        working = [pool.submit(work, seed) for seed in range(4)]
        try:
            rows = [future.result(3 * LIMIT) for future in working]
        finally:
            stop.set()
        sweeping.result(LIMIT)
    for tag in "ab":
        out = [value for row in rows for value in row[tag]]
        back = [value for name, ids in source.returned if name == tag for value in ids]
        assert len(set(out)) == len(out)
        assert set(out).isdisjoint(back)
        assert all(row[tag] == sorted(row[tag]) for row in rows)
    allocator.close()


def test_a_hundred_thousand_dropped_tags_take_little():
    """What stays of a tag is its floor: a fraction of a kibibyte."""
    time = Time()
    allocator = SegmentAllocator(MemorySource(10), ManualLoader(), clock=time.clock)
    tags = [f"tag-{n}" for n in range(1000)]
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for tag in tags:
            use(allocator, tag)
        allocator.loader.jobs.clear()
        allocator.source.flush()
        pass_idle(allocator, time)
        gc.collect()
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(allocator.segments) == 0
    assert used / len(tags) < 256
