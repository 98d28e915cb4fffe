"""Snowflake generators and time: waiting, borrowing, going back, ending."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_idgen.core.errors import (
    ClockBeforeEpoch,
    ClockMovedBackwards,
    LeaseExpired,
    LeaseLost,
    NoFreeWorker,
    RegistryUnavailable,
    TimeExhausted,
)
from django_idgen.core.snowflake import whole_ticks
from tests.core.running import TINY, WINDOW, Running
from tests.simulation.world import EPOCH_US, World, layout_of

ONE_WORKER = layout_of(("time", 41), ("worker", 0), ("sequence", 2))
SECOND = 1_000_000  # µs


# --- within now ---------------------------------------------------------------


def test_without_max_ahead_no_id_is_of_the_future():
    """Twitter's way: a full tick waits for the next, by sleeping just as long."""
    run = Running()
    for _ in range(100):
        assert run.next_tick() <= run.now()
    assert run.generator.stats().waits == len(run.host.slept) == 24
    assert max(run.host.slept) <= 0.001
    assert run.generator.stats().backwards == 0


@given(
    ahead=st.integers(0, 50),
    moves=st.lists(st.tuples(st.integers(1, 300), st.integers(0, 100)), max_size=10),
)
def test_max_ahead_is_a_bound(ahead, moves):
    """Hazards 16 and 38: no burst, and no row of bursts, drifts further than that."""
    run = Running(max_ahead=ahead / 1000)
    for burst, pause in moves:
        for value in run.generator.next_ids(burst):
            assert run.tick_of(value) <= run.now() + ahead
        run.world.pass_ticks(pause)


def test_max_ahead_is_borrowed_without_waiting_and_given_back_by_idling():
    """As many ticks as were not used by now are there again."""
    run = Running(max_ahead=0.01)
    run.generator.next_ids(44)
    assert run.host.slept == []
    assert run.generator.stats().borrowed == 10
    run.world.pass_ticks(4)
    run.generator.next_ids(16)
    assert run.host.slept == []
    run.generator.next_id()
    assert len(run.host.slept) == 1


def test_max_ahead_is_counted_in_whole_ticks():
    """0.29 s are 29 ticks of 10 ms, though 0.29 / 0.01 is a little less in floats."""
    assert (whole_ticks(0.29, 0.01), whole_ticks(0.003, 0.001)) == (29, 3)


# --- a lease that starts in the future ----------------------------------------


def fenced(ticks: int, **options) -> Running:
    """The worker ids' last windows end so many ticks from now."""
    world = World(ONE_WORKER, window_ticks=ticks)
    before = world.host().generator()
    before.next_id()
    before.keeper.lease = None  # killed
    world.rows()[0] = type(world.rows()[0])(0, "", 0, world.registry_tick() + ticks, 1, "host")
    world.window_ticks = WINDOW
    return Running(world=world, **options)


@pytest.mark.parametrize("ahead", [0, 20, 200])
def test_a_lease_that_starts_in_the_future_gives_ids_at_the_layouts_rate(ahead):
    """They begin at its start at once, then flow, one tick a tick, never faster."""
    run = fenced(100, max_ahead=ahead / 1000)
    began = run.now()
    for _ in range(1000):
        tick = run.next_tick()
        assert began + 100 <= tick <= run.now() + max(100, ahead)
    assert run.generator.stats().backwards == 0
    assert run.generator.stats().worker_changes == 0


def test_ids_fall_back_in_line_for_good():
    """What a pause won back is not borrowed again: only max_ahead is."""
    run = fenced(100, max_ahead=0.01)
    run.generator.next_ids(40)
    run.world.pass_ticks(60)
    lead = run.next_tick() - run.now()
    assert lead < 60
    for _ in range(500):
        assert run.next_tick() <= run.now() + lead + 10
    run.world.pass_ticks(500)
    assert run.next_tick() == run.now()
    for _ in range(500):
        assert run.next_tick() <= run.now() + 10


def test_new_leases_do_not_add_up_what_was_borrowed():
    """Each starts after the last id; the bound stays where it was."""
    run = Running(max_ahead=0.05, window=1000)
    for turn in range(1, 20):
        run.generator.next_ids(400)
        run.generator.keeper.acquire()
        assert run.next_tick() <= run.now() + 50 + turn


# --- back in time -------------------------------------------------------------


def test_a_clock_that_goes_back_a_little_is_waited_for():
    """The last tick's ids first; then a bounded sleep. Counted and told (hazard 7)."""
    run = Running()
    first = run.generator.next_id()
    lease = run.generator.stats().lease
    run.world.registry_offset_us -= 50_000
    run.renew()
    on_tick = [run.generator.next_id() for _ in range(3)]
    assert {run.tick_of(value) for value in on_tick} == {run.tick_of(first)}
    assert run.host.slept == []
    after = run.generator.next_id()
    assert run.tick_of(after) == run.tick_of(first) + 1
    assert sum(run.host.slept) == pytest.approx(0.051, abs=0.002)
    assert run.generator.stats().backwards == 4 == run.heard("clock_moved_backwards")
    assert run.generator.stats().lease.token == lease.token


def test_a_clock_that_goes_back_5_s_costs_another_worker_id_and_no_wait():
    """Stay on the last tick; then another worker id, whose ids go on rising (hazard 15)."""
    run = Running()
    ids = [run.generator.next_id()]
    old = run.generator.stats().lease
    run.world.registry_offset_us -= 5 * SECOND
    run.renew()
    ids += [run.generator.next_id() for _ in range(40)]
    new = run.generator.stats().lease
    assert all(a < b for a, b in pairwise(ids))
    assert new.worker != old.worker
    assert new.start == run.tick_of(ids[0]) + 1
    assert run.generator.stats().worker_changes == 1 == run.heard("worker_changed")
    assert sum(run.host.slept) < 0.02
    assert run.world.rows()[old.worker].token == ""


def test_going_back_within_max_ahead_is_no_event():
    """It is borrowed, as a burst would."""
    run = Running(max_ahead=6.0)
    run.generator.next_ids(4)
    run.world.registry_offset_us -= 5 * SECOND
    run.renew()
    run.generator.next_ids(400)
    assert run.host.slept == []
    assert run.generator.stats().backwards == 0


def test_without_another_worker_id_going_back_is_an_error_that_ends_by_itself():
    """``ClockMovedBackwards`` with the cause; once the time has come, ids go on rising."""
    run = Running(ONE_WORKER)
    last = run.generator.next_ids(4)[-1]
    run.world.registry_offset_us -= 5 * SECOND
    run.renew()
    with pytest.raises(ClockMovedBackwards, match=r"5\.00\d s behind.*wait_limit \(0\.1 s\)") as e:
        run.generator.next_id()
    assert isinstance(e.value.__cause__, NoFreeWorker)
    run.world.pass_seconds(5)
    assert run.generator.next_id() > last


def test_a_registry_that_lends_the_past_is_an_error_not_a_loop():
    """One that ignores ``not_before`` can't help a clock that went back; it is named."""
    run = Running()
    run.generator.next_ids(4)
    run.world.registry_offset_us -= 5 * SECOND
    run.renew()
    lend = run.link.acquire
    run.link.acquire = lambda *, holder, not_before, avoid: lend(holder=holder, avoid=avoid)
    with pytest.raises(ClockMovedBackwards, match="must respect 'not_before'"):
        run.generator.next_id()


def test_wait_limit_is_how_long_a_caller_waits():
    """With a longer one the same step back is sat out."""
    run = Running(ONE_WORKER, wait_limit=6.0)
    run.generator.next_ids(4)
    run.world.registry_offset_us -= 5 * SECOND
    run.renew()
    run.generator.next_id()
    assert sum(run.host.slept) == pytest.approx(5.0, abs=0.01)


@pytest.mark.parametrize("hours", [-2, -1, 1, 2])
def test_a_stepped_wall_clock_changes_nothing(hours):
    """Stamps are the registry's time plus elapsed time."""
    run = Running()
    run.generator.next_id()
    run.host.wall_offset_ns = hours * 3600 * 10**9
    run.world.pass_ticks(100)
    run.renew()
    assert run.next_tick() == run.now()


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_registry_whose_clock_was_stepped_by_an_hour_stops_nobody(hours):
    """Window after window, through renewals and a new lease, ids go on rising."""
    run = Running()
    ids = [run.generator.next_id()]
    run.world.registry_offset_us += hours * 3600 * SECOND
    for _ in range(10):
        run.world.pass_ticks(WINDOW // 3)
        run.renew()
        ids += run.generator.next_ids(6)
    run.world.rows().clear()
    for _ in range(10):
        run.world.pass_ticks(WINDOW // 3)
        run.renew()
        ids += run.generator.next_ids(6)
    assert all(a < b for a, b in pairwise(ids))


# --- the end of a window ------------------------------------------------------


def test_an_outage_is_survived_for_what_is_left_of_the_window():
    """Then ``LeaseExpired`` with its cause; once the registry is back, ids go on."""
    run = Running()
    last = run.generator.next_id()
    until = run.generator.stats().lease.until
    run.world.down = True
    while run.now() + 997 < until:
        run.world.pass_ticks(997)
        value = run.generator.next_id()
        assert value > last
        assert run.tick_of(value) < until
        last = value
    run.world.pass_ticks(997)
    for _ in range(3):
        with pytest.raises(LeaseExpired, match=rf"worker \d until tick {until}") as caught:
            run.generator.next_id()
        assert isinstance(caught.value.__cause__, RegistryUnavailable)
    assert run.now() >= until
    run.world.down = False
    assert run.generator.next_id() > last


def test_the_last_tick_of_a_window_is_the_last_that_is_stamped():
    """I3: all of its ids are given, and not one of the tick at which the window ends."""
    run = Running(window=3)
    ids = [run.generator.next_id()]
    lease = run.generator.stats().lease
    run.world.down = True
    ids += [run.generator.next_id() for _ in range(3 * TINY.sequences - 1)]
    with pytest.raises(LeaseExpired):
        run.generator.next_id()
    assert len(set(ids)) == len(ids)
    assert {run.tick_of(value) for value in ids} == {*range(lease.start, lease.until)}


def test_a_process_that_was_stopped_for_an_hour_does_not_go_on_in_its_window():
    """Hazard 18: another has its worker id by then; it takes a new lease."""
    run = Running(ONE_WORKER)
    last = run.generator.next_id()
    run.world.pass_seconds(3600)
    with Running(world=run.world).generator as other:
        theirs = other.next_ids(10)
        with pytest.raises(LeaseExpired) as caught:
            run.generator.next_id()
        assert isinstance(caught.value.__cause__, NoFreeWorker)
    ours = run.generator.next_ids(10)
    assert last < min(theirs) < max(theirs) < min(ours)
    assert run.heard("lease_lost") == 1


def test_a_lost_lease_uses_up_its_window_and_then_is_followed_by_a_new_one():
    """The registry forgot it: told, but what was promised stays promised (hazard 11)."""
    run = Running()
    run.generator.next_id()
    lease = run.generator.stats().lease
    run.world.rows().clear()
    run.world.pass_ticks(WINDOW // 2)
    run.renew()
    assert isinstance(dict(run.events)["lease_lost"]["error"], LeaseLost)
    assert run.next_tick() == run.now() < lease.until
    run.world.pass_ticks(WINDOW // 2)
    assert run.next_tick() >= lease.until
    new = run.generator.stats().lease
    assert new.token != lease.token
    assert new.start >= lease.until


@pytest.mark.parametrize("window", [1, 2, 3])
@pytest.mark.parametrize("ahead", [0.0, 0.01])
def test_the_shortest_windows_work(window, ahead):
    """Also where the next tick is borrowed past the end of the window."""
    run = Running(window=window, max_ahead=ahead)
    ids = run.generator.next_ids(100)
    assert all(a < b for a, b in pairwise(ids))
    assert run.generator.stats().worker_changes == 0


def test_an_answer_that_takes_longer_than_the_window_is_an_error_not_a_loop():
    """Each time; and none where the registry is quick again."""
    run = Running(window=10)
    run.generator.next_id()

    def slow():
        run.world.pass_ticks(50)

    run.world.pass_ticks(10)
    run.link.fault = slow
    with pytest.raises(LeaseExpired, match="longer than the window"):
        run.generator.next_id()
    assert run.next_tick() == run.now()


def test_a_new_lease_on_a_clock_that_went_back_is_used_at_once():
    """The tick that was wanted is worked out anew, on the time that came with it."""
    run = Running()
    last = run.generator.next_id()
    run.world.rows().clear()
    run.world.pass_ticks(WINDOW)
    run.world.registry_offset_us -= 3600 * SECOND
    assert run.generator.next_id() > last


# --- the end of time ----------------------------------------------------------


def test_time_ends_exactly_after_the_last_tick():
    """I7: every id of it is given; then an error that names it, for ever (hazard 8)."""
    layout = layout_of(("time", 10), ("worker", 0), ("sequence", 2))
    world = World(layout, window_ticks=20)
    world.ns = EPOCH_US * 1000 + 1_020_000_000
    run = Running(world=world)
    ids = run.generator.next_ids(16)
    assert run.tick_of(ids[-1]) == 1023
    assert ids[-1] == 2**12 - 1
    for _ in range(2):
        with pytest.raises(TimeExhausted, match=r"Tick 1024 does not fit .* later epoch"):
            run.generator.next_id()
    run.world.pass_ticks(100)
    with pytest.raises(TimeExhausted):
        Running(world=world).generator.next_id()


def test_the_last_id_of_all_is_2_to_the_63_minus_1():
    """63 bits, all of them ones."""
    layout = layout_of(("time", 20), ("worker", 0), ("sequence", 43))
    world = World(layout, window_ticks=20)
    world.ns = EPOCH_US * 1000 + (2**20 - 1) * 1_000_000
    run = Running(world=world)
    first = run.generator.next_id()
    assert first == (2**20 - 1) << 43
    for _ in range(3):
        assert run.generator.next_id() < 2**63
    assert run.generator._batches_of(run.generator.stats().lease, 2**20 - 1)[0][-1] == 2**63 - 1


def test_a_registry_before_the_epoch_is_an_error():
    """A stamp would be negative; with the clock mended, ids come."""
    run = Running()
    run.world.registry_offset_us = -101 * 3600 * SECOND
    with pytest.raises(ClockBeforeEpoch, match="before the epoch"):
        run.generator.next_id()
    run.world.registry_offset_us = 0
    assert run.generator.next_id() > 0
