"""Buffered generators, whose ticks are prepared ahead, and those that read the clock once."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import pytest

from django_idgen.core.buffered import BufferedGenerator
from django_idgen.core.clock import SYSTEM_CLOCK
from django_idgen.core.errors import ConfigurationError, GeneratorClosed, RegistryUnavailable
from django_idgen.core.layout import PRESETS, BitLayout, parse_layout
from django_idgen.core.one_time import OneTimeGenerator
from django_idgen.core.snowflake import SnowflakeGenerator
from django_idgen.leases.memory import MemoryLeases
from tests.segment_tools import in_child
from tests.simulation.world import World, layout_of
from tests.snowflake_tools import space_of
from tests.tables import refused

G = TypeVar("G", bound=SnowflakeGenerator)
LIMIT = 60
TINY = layout_of(("time", 41), ("worker", 2), ("sequence", 2))
"""Four ids a tick of 1 ms."""
WIDE = layout_of(("time", 38), ("worker", 2), ("sequence", 8), tick_us=10_000)


def real(layout: BitLayout, **options: Any) -> BufferedGenerator:
    return BufferedGenerator(layout, MemoryLeases(space_of(layout)), **options)


@pytest.fixture
def world() -> World:
    return World(TINY, window_ticks=10_000)


def made(world: World, kind: type[G], **options: Any) -> G:
    generator = world.host().generator(kind=kind, **options)
    assert isinstance(generator, kind)
    return generator


buffered = partial(made, kind=BufferedGenerator)


def eventually(is_so: Callable[[], bool]) -> None:
    deadline = SYSTEM_CLOCK.stopwatch() + LIMIT
    while not is_so():
        assert SYSTEM_CLOCK.stopwatch() < deadline
        SYSTEM_CLOCK.sleep(0.001)


def ticks_of(generator: BufferedGenerator, ids: list[int]) -> list[int]:
    return [generator.layout.unpack(value).tick for value in ids]


# --- ids ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(PRESETS.keys() - {"pear_flower"}))
def test_ids_of_every_layout_rise_and_lie_in_the_lease(name: str) -> None:
    """I1, I2, I3, I7: over many ticks, singly and in batches."""
    layout = parse_layout(name)
    world = World(layout, window_ticks=1000)
    with buffered(world, boost_power=2) as generator:
        count = min(layout.sequences * 3 + 1, 3000)
        ids = [generator.next_id(), *generator.next_ids(count), generator.next_id()]
        assert all(a < b for a, b in pairwise(ids))
        lease = generator.stats().lease
        assert lease is not None
        for parts in map(generator.decode, ids):
            assert parts.worker == lease.worker
            assert lease.start <= parts.tick < lease.until


def test_the_buffer_is_filled_at_the_first_use(world: World) -> None:
    """As many whole ticks as ``2**boost_power``, the one of now first."""
    with buffered(world, boost_power=3) as generator:
        now = world.registry_tick()
        ids = generator.next_ids(32)
        assert ticks_of(generator, ids) == [now + number // 4 for number in range(32)]
        stats = generator.stats()
        assert (stats.issued, stats.ticks, stats.capacity, stats.dry) == (32, 8, 32, 0)


@pytest.mark.parametrize("power", [0, 1, 3])
def test_no_id_lies_further_ahead_than_the_bound(world: World, power: int) -> None:
    """Hazard 92: a caller that wants more waits for the next tick; each wait is counted."""
    with buffered(world, boost_power=power) as generator:
        for _ in range(200):
            value = generator.next_id()
            assert generator.layout.unpack(value).tick <= world.registry_tick() + 2**power
        assert generator.stats().dry > 0
        assert generator.stats().waits > 0


@pytest.mark.parametrize("idle", [10, 100, 5000])
def test_after_a_pause_ids_are_of_the_present(world: World, idle: int) -> None:
    """Hazard 28: what was prepared before it is thrown away, if it lies too far behind."""
    with buffered(world, boost_power=3) as generator:
        take = generator.next_id
        take()
        world.pass_ticks(idle)
        for _ in range(40):
            tick = generator.layout.unpack(take()).tick
            assert tick >= world.registry_tick() - 8
        stats = generator.stats()
        assert stats.outdated > 0
        assert stats.issued == 41


@pytest.mark.parametrize("taken", ["singly", "in a batch"])
def test_what_is_left_of_an_open_tick_grows_old_too(world: World, taken: str) -> None:
    """Without a thread the caller looks at the clock, for each way to take ids."""
    with buffered(world, boost_power=1) as generator:
        generator.next_id()
        next_id = generator.next_id  # kept by its caller
        world.ns += 100_000_000
        value = next_id() if taken == "singly" else generator.next_ids(1)[0]
        (tick,) = ticks_of(generator, [value])
        now = (generator.keeper.now_us() - world.layout.epoch_us) // world.layout.tick_us
        assert tick >= now - 2


def test_the_thread_throws_away_what_grew_too_old() -> None:
    """Hazard 28, where a caller looks at no clock: through a ``next_id`` that was kept."""
    with real(WIDE, boost_power=1) as generator:
        generator.next_id()
        take = generator.next_id
        first = generator.layout.unpack(take()).tick
        eventually(lambda: generator.stats().outdated > 0)
        now = generator.keeper.now_tick()
        tick = generator.layout.unpack(take()).tick
        assert tick >= now - 2 > first - 2
        eventually(lambda: generator.stats().outdated > 256)  # and again, once it has slept


def test_the_thread_keeps_it_filled() -> None:
    """Below ``padding_factor`` it is filled, by one thread, while callers go on."""
    with real(parse_layout("uid"), boost_power=4, padding_factor=90) as generator:
        generator.next_ids(100)
        eventually(lambda: len(named("idgen-filler-real")) == 1)
        generator.next_ids(3 * 8192)
        eventually(lambda: generator.stats().buffered >= 12 * 8192)
        assert generator.stats().dry == 0


def test_it_is_filled_on_schedule_though_nothing_is_taken() -> None:
    """``schedule_interval``; without it, what nothing takes is not prepared again."""
    with real(WIDE, boost_power=0, schedule_interval=0.005) as generator:
        generator.next_id()
        began = generator.stats().ticks
        eventually(lambda: generator.stats().ticks > began + 5)


# --- full and empty ---------------------------------------------------------------------


def test_on_empty_may_refuse(world: World) -> None:
    """What it raises goes to the caller, as uid-generator's default does; then ids go on."""
    asked: list[BufferedGenerator] = []

    def refuse(generator: BufferedGenerator) -> None:
        asked.append(generator)
        raise LookupError("the buffer is empty")

    with buffered(world, boost_power=1, on_empty=refuse) as generator:
        ids = generator.next_ids(12)  # the tick of now, and two ahead
        with pytest.raises(LookupError, match="the buffer is empty"):
            generator.next_id()
        assert asked == [generator]
        world.pass_ticks(1)
        assert generator.next_id() > ids[-1]


def test_on_empty_that_returns_waits_as_usual(world: World) -> None:
    """The policy is told; the caller gets its id."""
    asked: list[object] = []
    with buffered(world, boost_power=1, on_empty=asked.append) as generator:
        generator.next_ids(13)
    assert asked == [generator]


def test_on_full_is_told_and_can_break_nothing(world: World, caplog: Any) -> None:
    """At the end of each filling; what it raises is logged."""
    told: list[object] = []

    def complain(generator: BufferedGenerator) -> None:
        told.append(generator)
        raise LookupError("full")

    with buffered(world, boost_power=1, on_full=complain) as generator:
        assert len(generator.next_ids(12)) == 12
    assert told[0] is generator
    assert "on_full of namespace 'simulated' failed" in caplog.text


def nothing(generator: BufferedGenerator) -> None:
    """What a setting names."""


def test_policies_may_be_dotted_paths(world: World) -> None:
    """As settings have them."""
    path = f"{__name__}.nothing"
    with buffered(world, on_full=path, on_empty=path, boost_power=0) as generator:
        assert len(generator.next_ids(20)) == 20


WRONG_OPTIONS: dict[str, tuple[Any, ...]] = {
    "boost_power": (-1, 17, True, 1.5),
    "padding_factor": (0, 100, "50"),
    "schedule_interval": (0, -1, "5m"),
    "on_full": ("no.such.thing",),
    "on_empty": ("os.path.nothing", 3),
    "sequence_start": ("next", "spread"),
}


def test_what_can_t_work_is_refused(world: World) -> None:
    """By name, with the value and what is allowed."""
    for name, values in WRONG_OPTIONS.items():
        for value in values:
            options = {name: value}
            error = refused(ConfigurationError, buffered, world, match=name, **options)
            assert repr(value) in str(error)


def test_how_far_ahead_it_reaches() -> None:
    """In seconds, so that the registry lends windows that are long enough."""
    uid, standard = parse_layout("uid"), parse_layout("standard")
    assert BufferedGenerator.reach(uid, {}) == 8.0
    assert BufferedGenerator.reach(uid, {"boost_power": 0}) == 1.0
    assert BufferedGenerator.reach(standard, {"boost_power": 5}) == 0.032
    assert BufferedGenerator.reach(standard, {"boost_power": "x"}) == 0.0


# --- threads, forks, ends ------------------------------------------------------------------


def named(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


@pytest.mark.parametrize("background", [True, False])
@pytest.mark.parametrize("keep", [True, False])
def test_no_repeats_on_a_buffer_that_runs_dry(background: bool, keep: bool) -> None:
    """I1, I2, hazard 27: eight threads, by the attribute and by one that was kept."""
    with real(TINY, boost_power=1, background=background) as generator:
        kept = generator.next_id

        def work(number: int) -> list[int]:
            take = kept if keep else lambda: generator.next_id()
            ids = [take() for _ in range(150)]
            return ids + generator.next_ids(50) if number % 2 else ids

        with ThreadPoolExecutor(8) as pool:
            rows = list(pool.map(work, range(8)))
        assert generator.stats().dry > 0
    assert all(a < b for row in rows for a, b in pairwise(row))
    ids = [value for row in rows for value in row]
    assert len(ids) == len(set(ids)) == 8 * 150 + 4 * 50
    assert generator.stats().issued == len(ids)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("hook", [True, False])
def test_a_child_gives_out_nothing_of_its_parents(hook: bool) -> None:
    """I5, hazard 36: neither by the attribute nor by one that was kept, with hooks or without."""
    with real(parse_layout("uid")) as generator:
        first = generator.next_id()
        take = generator.next_id
        worker = generator.layout.unpack(first).worker

        def work() -> list[int]:
            if hook:
                generator.forget()
            return [take(), generator.next_id(), *generator.next_ids(9000)]

        theirs = in_child(work)
        ours = [take(), generator.next_id(), *generator.next_ids(9000)]
        assert {generator.layout.unpack(value).worker for value in theirs} != {worker}
        assert not {first, *ours} & set(theirs)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_the_thread_is_there_again_after_a_fork() -> None:
    """And what lay open while it was not is given out by nobody (hazard 28)."""
    with real(parse_layout("uid")) as generator:
        generator.next_id()
        take = generator.next_id
        eventually(lambda: len(named("idgen-filler-real")) == 1)
        in_child(lambda: [1])
        assert named("idgen-filler-real") == []
        assert generator.stats().outdated > 8000
        take()
        assert len(named("idgen-filler-real")) == 1


def test_close_gives_back_past_all_that_was_prepared(world: World) -> None:
    """L3: the mark is the end of the last tick that was prepared, taken or not."""
    generator = buffered(world, boost_power=3)
    last = generator.layout.unpack(generator.next_id()).tick
    take = generator.next_id
    generator.close()
    generator.close()
    assert generator.stats().issued == 1
    (mark,) = world.rows().values()
    assert (mark.token, mark.until) == ("", last + 8)
    for call in (take, generator.next_id, lambda: generator.next_ids(2)):
        with pytest.raises(GeneratorClosed):
            call()


def test_one_that_is_dropped_leaves_no_thread() -> None:
    """As its lease's thread it ends, though nobody closed it."""
    real(WIDE).next_id()
    assert len(named("idgen-filler-real")) == 1
    with pytest.warns(ResourceWarning, match="dropped without close"):
        eventually(lambda: gc.collect() >= 0 and named("idgen-filler-real") == [])


def test_a_registry_that_fails_is_told_to_the_caller(world: World) -> None:
    """I6: and the next call tries again."""
    generator = buffered(world)
    world.down = True
    with pytest.raises(RegistryUnavailable):
        generator.next_id()
    world.down = False
    assert generator.next_id() > 0
    generator.close()


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    eventually(lambda: named("idgen-filler-real") == [])


# --- the clock is read once: ticks are counted on, inside the lease -----------------------


def test_a_rest_leaves_no_tick_out(world: World) -> None:
    """After an hour, too, the next id is the next number; its time is that of the lease."""
    with made(world, OneTimeGenerator) as generator:
        ids = generator.next_ids(6)
        began = generator.decode(ids[0]).tick
        world.ns += 5_000_000_000
        ids += generator.next_ids(6)
        assert [(generator.decode(value).tick - began) for value in ids] == [
            n // TINY.sequences for n in range(12)
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
    with made(world, OneTimeGenerator, max_ahead=0.5) as generator:
        first = generator.next_id()
        began = world.ns
        count = 4000
        ids = generator.next_ids(count)
        passed = (world.ns - began) / 1e9
        assert count / TINY.sequences / 1000 - 0.5 - 0.01 <= passed < 1.0
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
