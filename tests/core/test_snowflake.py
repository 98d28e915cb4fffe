"""Snowflake generators: what an id is, in every layout, and what else can be asked of one."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from functools import partial
from itertools import groupby, islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_idgen.core.clock import SYSTEM_CLOCK
from django_idgen.core.errors import (
    ConfigurationError,
    GeneratorClosed,
    InvalidId,
    RegistryUnavailable,
)
from django_idgen.core.generator import MAX_BATCH
from django_idgen.core.layout import PRESETS, parse_layout
from django_idgen.core.lease import Namespace
from django_idgen.core.snowflake import (
    SnowflakeGenerator,
    locked_next_id,
    locked_next_ids,
    take_none,
)
from django_idgen.leases.memory import MemoryLeases
from tests.simulation.world import EPOCH_US, World, layout_of
from tests.snowflake_tools import STANDARD, real, space_of
from tests.tables import refused

LAYOUTS = {
    **{name: parse_layout(name) for name in PRESETS},
    "worker on top": layout_of(("worker", 10), ("time", 41), ("sequence", 12)),
    "worker lowest": layout_of(("time", 41), ("sequence", 12), ("worker", 10)),
    "no sequence": layout_of(("time", 41), ("worker", 10), ("sequence", 0)),
    "no worker": layout_of(("time", 41), ("worker", 0), ("sequence", 12)),
    "batches of Bee's code": layout_of(
        ("time", 31), ("batch", 9), ("worker", 10), ("sequence", 13), tick_us=1_000_000
    ),
    "batches, worker lowest": layout_of(
        ("time", 31), ("batch", 3), ("sequence", 5), ("worker", 10), tick_us=1_000_000
    ),
    "63 bits of time and sequence": layout_of(("time", 45), ("worker", 0), ("sequence", 18)),
}
TINY = layout_of(("time", 41), ("worker", 2), ("sequence", 2))
LIMIT = 60  # seconds after which a test gives up on a thread; never reached when all is well


@pytest.fixture
def world():
    return World(TINY, window_ticks=10_000)


# --- ids ----------------------------------------------------------------------


@pytest.mark.parametrize("name", LAYOUTS)
def test_ids_of_every_layout_rise_and_say_where_they_come_from(name):
    """I1, I2, I7: over many ticks each id is new, and made by this lease."""
    layout = LAYOUTS[name]
    world = World(layout, window_ticks=1000)
    with world.host().generator() as generator:
        began = world.registry_tick()
        count = min(layout.sequences * 3 + 1, 3000)
        ids = [generator.next_id(), *generator.next_ids(count), generator.next_id()]
        assert all(a < b for a, b in pairwise(ids))
        assert ids[0] > 0
        assert ids[-1] < 1 << layout.bits
        lease = generator.stats().lease
        for parts in map(generator.decode, ids):
            assert parts.worker == lease.worker
            assert max(began, lease.start) <= parts.tick < lease.until


@pytest.mark.parametrize("bits", [0, 2])
def test_id_0_is_never_issued(bits):
    """In tick 0 of worker 0 the sequence starts at 1; without a sequence, in tick 1."""
    world = World(layout_of(("time", 41), ("worker", 0), ("sequence", bits)))
    world.ns = EPOCH_US * 1000
    with world.host().generator() as generator:
        assert generator.next_ids(3) == [1, 2, 3]
        assert generator.stats().issued == 3


def test_a_tick_holds_all_of_its_sequence(world):
    """Four ids, then the next tick."""
    with world.host().generator() as generator:
        ids = generator.next_ids(8)
        first = generator.decode(ids[0]).tick
        places = [(p.tick - first, p.sequence) for p in map(generator.decode, ids)]
        assert places == [(t, s) for t in (0, 1) for s in range(4)]


def test_sequence_start_spreads_rarely_issued_ids(world):
    """Each tick starts at a random sequence below it, so that shards fill evenly."""
    with world.host().generator(sequence_start=3) as generator:
        seen = []
        for _ in range(200):
            world.pass_ticks(1)
            seen.append(generator.decode(generator.next_id()).sequence)
        assert set(seen) == {0, 1, 2}


def test_a_random_start_ends_with_the_sequence(world):
    """Hazard 37: whichever a tick starts at, it ends at the last, below the worker id."""
    with world.host().generator(sequence_start=3) as generator:
        parts = [generator.decode(value) for value in generator.next_ids(400)]
    assert len({part.worker for part in parts}) == 1
    ticks = [[each.sequence for each in of] for _, of in groupby(parts, lambda part: part.tick)]
    assert {sequences[-1] for sequences in ticks[:-1]} == {TINY.sequences - 1}
    assert {sequences[0] for sequences in ticks} == {0, 1, 2}


def test_a_batch_keeps_no_other_thread_waiting_for_its_end():
    """Where few ids fit a tick, one large batch would else stop the whole process."""
    generator = real(LAYOUTS["no sequence"])
    with ThreadPoolExecutor(1) as pool:
        batch = pool.submit(generator.next_ids, MAX_BATCH)  # of hours, an id a millisecond
        while generator.stats().issued < 10:
            SYSTEM_CLOCK.sleep(0.001)
        assert generator.next_id() > 0
        assert not batch.done()
        generator.close()
        with pytest.raises(GeneratorClosed):
            batch.result(LIMIT)


def test_a_count_that_is_none_is_refused(world):
    """Before anything is asked of the registry, as it is for no ids at all."""
    generator = world.host().generator()
    for take in (generator.next_ids, partial(locked_next_ids, generator)):
        for count in (-1, MAX_BATCH + 1):
            refused(ConfigurationError, take, count, match=f"{count} ids")
        for count in ("3", 3.0, True, None):
            refused(TypeError, take, count, match="number of ids")
        assert take(0) == []
    assert world.rows() == {}


def test_without_a_gil_ids_come_from_under_the_lock_and_are_the_same():
    """What free-threaded builds use gives the ids that the others give."""
    usual, locked = (World(TINY, window_ticks=10_000).host().generator() for _ in range(2))
    expected = [usual.next_id() for _ in range(10)] + usual.next_ids(30) + [usual.next_id()]
    got = [locked_next_id(locked) for _ in range(10)]
    got += [*locked_next_ids(locked, 30), locked_next_id(locked)]
    lowest = 1 << TINY.worker_shift
    assert [v % lowest for v in got] == [v % lowest for v in expected]
    assert all(a < b for a, b in pairwise(got))
    usual.close()
    locked.close()
    with pytest.raises(GeneratorClosed):
        locked_next_id(locked)


# --- decode -------------------------------------------------------------------


def test_its_own_ids_can_be_decoded_however_far_ahead_they_are(world):
    """Borrowed ticks, and a lease that had to start in the future."""
    with world.host().generator(max_ahead=1.0) as generator:
        ids = generator.next_ids(4000)
        world.registry_offset_us -= 3_600_000_000
        generator.keeper.acquire()
        ids += generator.next_ids(40)
        assert [generator.decode(value).id for value in ids] == ids


NO_IDS = [
    (0, "begin at 1"),
    (-5, "begin at 1"),
    (2**63, "end at"),
    (True, "bool"),
    ("12", "str"),
    (TINY.base(TINY.max_ticks - 1, 0), "in the future"),
    (1 << 50, "has 45 bits"),
]


def test_what_can_be_no_id_of_this_generator_is_refused(world):
    """Before and after the first id, with the reason."""
    with world.host().generator() as generator:
        for _ in range(2):
            for value, words in NO_IDS:
                refused(InvalidId, generator.decode, value, match=words)
            generator.next_id()


def test_a_tick_of_centuries_does_not_upset_decode():
    """The latest moment that is possible is past the year 9999."""
    year_us = 31_536_000_000_000
    layout = layout_of(("time", 4), ("worker", 2), ("sequence", 8), tick_us=4000 * year_us)
    world = World(layout, window_ticks=3, skew_ticks=2)
    with world.host().generator() as generator:
        assert generator.decode(generator.next_id()).tick == 0


# --- stats --------------------------------------------------------------------

steps = st.lists(
    st.one_of(
        st.tuples(st.just("ids"), st.integers(0, 9)),
        st.tuples(st.just("one"), st.just(1)),
        st.tuples(st.just("pass"), st.integers(0, 5)),
    ),
    max_size=30,
)


@given(steps=steps, spread=st.integers(0, 4), ahead=st.sampled_from([0.0, 0.003]))
def test_the_count_of_ids_issued_is_exact(steps, spread, ahead):
    """Whatever was left of a tick, and after the close."""
    world = World(TINY, window_ticks=7)
    generator = world.host().generator(sequence_start=spread, max_ahead=ahead)
    issued = 0
    for what, number in steps:
        if what == "pass":
            world.pass_ticks(number)
            continue
        got = generator.next_ids(number) if what == "ids" else [generator.next_id()]
        issued += len(got)
        assert generator.stats().issued == issued
    generator.close()
    assert generator.stats().issued == issued


# --- the end ------------------------------------------------------------------


def test_a_closed_generator_says_so_and_has_given_its_worker_id_back(world):
    """The mark that it leaves is past its last tick; a second close does nothing."""
    generator = world.host().generator()
    last = generator.decode(generator.next_ids(9)[-1])
    generator.close()
    generator.close()
    mark = world.rows()[last.worker]
    assert (mark.token, mark.until) == ("", last.tick + 1)
    for ask in (generator.next_id, lambda: generator.next_ids(1)):
        with pytest.raises(GeneratorClosed, match="'simulated' is closed"):
            ask()
    assert generator.stats().lease is None


def test_a_closed_generator_gives_nothing_of_the_tick_that_was_open():
    """Though it has ids left, in a tick of a minute that could be taken without a question."""
    with real(parse_layout({"time": 30, "worker": 10, "sequence": 12, "tick": 60})) as generator:
        generator.next_id()
    for ask in (generator.next_id, lambda: generator.next_ids(1)):
        with pytest.raises(GeneratorClosed):
            ask()


def test_a_generator_that_was_never_used_closes_without_a_word(world):
    """Nothing was asked of the registry, so nothing is given back."""
    host = world.host()
    link = host.link()
    with host.generator(link):
        pass
    assert link.calls == []


def test_ids_that_a_thread_still_holds_after_the_close_stay_its_own(world):
    """L3, hazard 54: the mark covers the block that was opened, not only the ids taken."""
    host = world.host()
    generator = host.generator()
    first = generator.next_id()
    held = generator._block  # what a thread has that was stopped inside next_id()
    generator.close()
    with host.generator() as successor:
        theirs = successor.next_ids(20)
    late = list(islice(held, 10))
    assert len(late) == 3
    assert not {first, *late} & set(theirs)
    assert max(late) < min(theirs)


def test_a_block_is_marked_as_loaded_before_anyone_can_take_from_it():
    """L3: a release that comes in between would leave its ticks to the successor."""
    seen = []

    class Watched(SnowflakeGenerator):
        """Looks at the mark whenever a block is put where threads take from."""

        __slots__ = ()

        @property
        def _block(self):
            return SnowflakeGenerator._block.__get__(self)

        @_block.setter
        def _block(self, ids):
            for first in copy(ids):
                seen.append((first >> STANDARD.time_shift, self.keeper.last_tick))
                break
            SnowflakeGenerator._block.__set__(self, ids)

    with Watched(STANDARD, MemoryLeases(space_of(STANDARD))) as generator:
        ids = generator.next_ids(10_000)
    assert len(seen) >= 3
    assert [tick for tick, _ in seen] == [marked for _, marked in seen]
    assert len(set(ids)) == 10_000


# --- events -------------------------------------------------------------------


def test_a_listener_may_ask_for_an_id(world):
    """Nothing is told from under the lock, so this hangs nowhere; the ids are new."""
    heard = []

    def listen(name, /, **values):
        heard.append((name, generator.next_id()))

    generator = world.host().generator(emit=listen)
    ids = [generator.next_id() for _ in range(5)]
    generator.keeper.renew_in_background()
    assert [name for name, _ in heard] == ["lease_acquired", "lease_renewed"]
    assert len({*ids, *(value for _, value in heard)}) == 7
    generator._outbox._sink = lambda name, /, **values: heard.append((name, 0))
    generator.close()
    assert heard[-1][0] == "lease_released"


# --- options ------------------------------------------------------------------


WRONG_OPTIONS = {
    "max_ahead": (-1, float("nan"), "1", True),
    "skew_limit": (-0.1, float("inf")),
    "wait_limit": ("no",),
}


def test_an_option_that_cannot_work_is_refused(world):
    """When the generator is made, naming the option, its value and what is allowed."""
    make = world.host().generator
    for name, values in WRONG_OPTIONS.items():
        for value in values:
            refused(ConfigurationError, make, match=f"{name} must be", **{name: value})
    for start in (5, -1, 1.0, "Spread", [0]):
        refused(ConfigurationError, make, match="0 to 4", sequence_start=start)
    words = r"longer than a tick \(0.001 s\)"
    refused(ConfigurationError, make, match=words, wait_limit=0.001)


def test_a_registry_that_does_not_fit_the_layout_is_refused(world):
    """Marks in other ticks, or worker ids that would change other bits."""
    shorter = layout_of(("time", 40), ("worker", 2), ("sequence", 2))
    slower = layout_of(("time", 41), ("worker", 2), ("sequence", 2), tick_us=2000)
    narrower = layout_of(("time", 41), ("worker", 1), ("sequence", 2))
    link = world.host().link()
    refused(ConfigurationError, SnowflakeGenerator, shorter, link, match="not those of layout")
    refused(ConfigurationError, SnowflakeGenerator, slower, link, match="not those")
    refused(ConfigurationError, SnowflakeGenerator, narrower, link, match="Worker ids up to 3")


def test_one_refusal_answers_for_all_who_stood_in_line(world):
    """A registry that takes seconds to fail is not asked by each caller in turn."""
    asked, gate = [], threading.Event()

    class Slow(MemoryLeases):
        def acquire(self, **wanted):
            asked.append(wanted)
            assert gate.wait(LIMIT)
            raise RegistryUnavailable("no answer")

    class Line:
        """The generator's lock, before which callers are counted."""

        def __init__(self, lock):
            self.lock, self.came = lock, threading.Semaphore(0)

        def __enter__(self):
            self.came.release()
            self.lock.acquire()

        def __exit__(self, *exc):
            self.lock.release()

    generator = SnowflakeGenerator(world.layout, Slow(world.namespace), background=False)
    line = generator._lock = Line(generator._lock)
    with ThreadPoolExecutor(16) as pool:
        calls = [pool.submit(generator.next_id) for _ in range(16)]
        for _ in calls:
            assert line.came.acquire(timeout=LIMIT)
        gate.set()
        for call in calls:
            with pytest.raises(RegistryUnavailable, match="no answer"):
                call.result(LIMIT)
    assert len(asked) == 1
    with pytest.raises(RegistryUnavailable):
        generator.next_id()
    assert len(asked) == 2  # who comes afterwards asks anew
    generator.close()


@pytest.mark.parametrize("pause_ms", [1, 2, 5, 10, 100])
def test_ids_of_a_quiet_process_spread_over_every_modulus(pause_ms):
    """Hazard 110: ``id % n`` has no bucket that is empty or too full, at one id each pause."""
    random.seed(pause_ms)
    world = World(parse_layout("standard"), window_ticks=10**7)
    host, ids = world.host(), []
    options = {"clock": host.clock, "background": False}
    with SnowflakeGenerator(world.layout, host.link(), **options) as generator:
        for _ in range(6400):
            ids.append(generator.next_id())
            world.ns += pause_ms * 1_000_000
    for modulus in range(2, 65):
        found = Counter(value % modulus for value in ids)
        assert len(found) == modulus
        assert min(found.values()) * modulus / len(ids) > 0.5
        assert max(found.values()) * modulus / len(ids) < 1.5
    assert ids == sorted(set(ids))


def test_a_busy_tick_is_used_whole_though_sequences_spread(world):
    """After a tick that was used past its middle the next one begins at 0."""
    with world.host().generator(sequence_start="spread") as generator:
        generator.next_ids(2 * TINY.sequences)  # the first tick begins anywhere in its half
        ids = generator.next_ids(10 * TINY.sequences)
    per_tick = Counter(generator.decode(value).tick for value in ids)
    assert set(list(per_tick.values())[1:-1]) == {TINY.sequences}


def test_sequences_may_go_on_from_tick_to_tick():
    """``sequence_start="next"``: up to the half; then a tick begins at 0, and has room again."""
    layout = layout_of(("time", 41), ("worker", 2), ("sequence", 3))
    world = World(layout, window_ticks=10_000)
    with world.host().generator(sequence_start="next") as generator:
        found = []
        for _ in range(12):
            found.append(generator.decode(generator.next_id()).sequence)
            world.ns += 1_000_000
        assert found == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]
        ids = generator.next_ids(100)
        assert all(a < b for a, b in pairwise(ids))


# --- coroutines: the loop goes on while a lease or the next tick is waited for -----------


class SlowLeases(MemoryLeases):
    """A registry that answers when its test says so."""

    def __init__(self, space: Namespace) -> None:
        super().__init__(space)
        self.gate, self.asked = threading.Event(), threading.Event()

    def acquire(self, **asked):
        self.asked.set()
        assert self.gate.wait(LIMIT)
        return super().acquire(**asked)


def test_coroutines_get_rising_ids():
    """One at a time and in batches over many ticks."""

    async def work() -> list[int]:
        with real() as generator:
            ids = [await generator.anext_id() for _ in range(50)]
            ids += await generator.anext_ids(20_000)
            return [*ids, *await generator.anext_ids(0), await generator.anext_id()]

    ids = asyncio.run(work())
    assert len(ids) == 20_051
    assert all(a < b for a, b in pairwise(ids))


def test_the_loop_goes_on_while_the_lease_is_waited_for():
    """A registry that is slow holds up those who want ids, and no one else."""
    registry = SlowLeases(space_of(STANDARD))

    async def work() -> int:
        with SnowflakeGenerator(STANDARD, registry) as generator:
            waiting = asyncio.create_task(generator.anext_id())
            assert await asyncio.to_thread(registry.asked.wait, LIMIT)
            for _ in range(20):
                await asyncio.sleep(0)
                assert not waiting.done()
            registry.gate.set()
            return await waiting

    assert asyncio.run(work()) > 0


@pytest.mark.parametrize("locked", [False, True])
def test_many_tasks_never_share_an_id(monkeypatch, locked):
    """A thousand tasks and a few ticks; also where there is no GIL."""
    if locked:
        monkeypatch.setattr(SnowflakeGenerator, "_take_fresh", take_none)

    async def work() -> list[int]:
        with real() as generator:
            rows = await asyncio.gather(*(generator.anext_ids(20) for _ in range(1000)))
        return [value for row in rows for value in row]

    ids = asyncio.run(work())
    assert len(set(ids)) == 20_000


def test_coroutines_hear_what_is_wrong():
    """A wrong count, and a closed generator, as without them."""
    generator = real()
    with pytest.raises(TypeError):
        asyncio.run(generator.anext_ids("3"))
    with pytest.raises(ConfigurationError):
        asyncio.run(generator.anext_ids(-1))
    generator.close()
    with pytest.raises(GeneratorClosed):
        asyncio.run(generator.anext_id())
