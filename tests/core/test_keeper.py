"""The keeper of a lease: gets it, keeps it through every failure, gives it back once."""

from __future__ import annotations

import gc
import threading

import pytest

from django_idgen.core import keeper as keeper_module
from django_idgen.core.errors import (
    ClockSkewed,
    LeaseExpired,
    NamespaceMismatch,
    RegistryUnavailable,
)
from django_idgen.core.events import Outbox
from django_idgen.core.keeper import LeaseKeeper
from django_idgen.core.loader import Flag, RepeatingThread
from tests.simulation.world import Link, World, layout_of

LAYOUT = layout_of(("time", 41), ("worker", 2), ("sequence", 4))
WINDOW = 18_000  # ticks of 1 ms: renewal is due each 6 s
LIMIT = 60  # seconds after which a test gives up on a thread; never reached when all is well


class Kept:
    """A keeper on a host of its own, with what it told."""

    def __init__(self, world: World | None = None, **options: object) -> None:
        self.world = world or World(LAYOUT, window_ticks=WINDOW, skew_ticks=1000)
        self.host = self.world.host()
        self.link: Link = self.host.link()
        self.events: list[tuple[str, dict]] = []
        self.outbox = Outbox(lambda name, /, **values: self.events.append((name, values)))
        options = {"holder": "host", "skew_limit_us": 1_000_000, "background": False, **options}
        self.keeper = LeaseKeeper(self.link, clock=self.host.clock, outbox=self.outbox, **options)

    def heard(self) -> list[str]:
        self.outbox.send()
        return [name for name, _ in self.events]

    def __enter__(self) -> Kept:
        return self

    def __exit__(self, *exc: object) -> None:
        self.keeper.release()


@pytest.fixture
def kept():
    with Kept() as kept:
        yield kept


# --- acquire (L1) -------------------------------------------------------------


def test_a_new_lease_starts_now_on_the_registrys_clock(kept):
    """Nothing is ahead, and the registry's time is known from then on."""
    kept.world.registry_offset_us = 500_000
    lease = kept.keeper.acquire()
    assert lease.start == kept.world.registry_tick() == kept.keeper.now_tick()
    assert lease.until == lease.start + WINDOW
    assert kept.keeper.offset == 0


def test_a_new_lease_starts_after_the_last_tick_loaded(kept):
    """``not_before``: the ids of the process go on rising, and the old lease is given back."""
    first = kept.keeper.acquire()
    kept.keeper.last_tick = first.start + 40
    second = kept.keeper.acquire()
    assert second.start == first.start + 41
    assert kept.keeper.offset == 41
    assert kept.link.names() == ["acquire", "acquire", "release"]
    assert kept.world.rows()[first.worker].until == first.start + 41


def test_a_lease_that_was_lost_on_the_way_is_not_used(kept):
    """L4: the registry lent it, but nobody heard; the next call asks anew."""
    kept.link.fault = "lost"
    with pytest.raises(RegistryUnavailable):
        kept.keeper.acquire()
    assert kept.keeper.lease is None
    lost = set(kept.world.rows())
    assert kept.keeper.acquire().worker not in lost


def test_a_failed_acquire_keeps_the_lease_that_is_held(kept):
    """Asking for another worker id while the registry is down costs nothing."""
    lease = kept.keeper.acquire()
    kept.world.down = True
    with pytest.raises(RegistryUnavailable):
        kept.keeper.acquire(avoid=lease.worker)
    assert kept.keeper.lease == lease


# --- renewal (L2) -------------------------------------------------------------


@pytest.mark.parametrize("back_us", [500_000, 5_000_000, 3_600_000_000])
def test_the_window_goes_on_rising_after_the_registrys_clock_went_back(kept, back_us):
    """Hazard 50: an hour back, and still nobody is stopped."""
    lease = kept.keeper.acquire()
    kept.world.registry_offset_us -= back_us
    for turn in range(1, 6):
        kept.world.pass_ticks(6000)
        kept.keeper.renew_in_background()
        assert kept.keeper.lease.until >= lease.until + 6000 * turn - min(back_us // 1000, 1000)
    assert ("clock_skewed" in kept.heard()) == (back_us > 1_000_000)


def test_a_reading_past_the_skew_limit_does_not_move_our_time(kept):
    """The registry was stepped an hour ahead: told, but not followed."""
    kept.keeper.acquire()
    before = kept.keeper.now_tick()
    kept.world.registry_offset_us += 3_600_000_000
    kept.keeper.renew_in_background()
    assert kept.keeper.now_tick() == before
    kept.outbox.send()
    skewed = next(values for name, values in kept.events if name == "clock_skewed")
    assert skewed == {"offset_us": 3_600_000_000, "source": "registry"}


@pytest.mark.parametrize("error", [RegistryUnavailable("down"), ValueError("odd"), OSError("net")])
def test_renewal_outlives_every_error(kept, error):
    """Hazard 2: counted, told, tried again sooner, and the window goes on in the end."""

    def fail():
        raise error

    lease = kept.keeper.acquire()
    kept.world.pass_ticks(6000)
    for failures in range(1, 4):
        kept.link.fault = fail
        assert 1.0 <= kept.keeper.renew_in_background() <= 3.0
        assert kept.keeper.failures == failures
    assert kept.heard().count("renewal_failed") == 3
    assert kept.keeper.renew_in_background() <= 6.0
    assert kept.keeper.lease.until == lease.until + 6000


def test_the_pauses_are_random(kept):
    """Near a third of the window; anywhere in it after a late renewal. See also test_fleet.py."""
    kept.keeper.acquire()
    pauses = {"in time": set(), "late": set()}
    for _ in range(30):
        for when, ticks in {"in time": 6000, "late": 6001}.items():
            kept.world.pass_ticks(ticks)
            pauses[when].add(kept.keeper.renew_in_background())
    assert all(5.4 <= pause <= 6.0 for pause in pauses["in time"])
    assert all(0.6 <= pause <= 6.0 for pause in pauses["late"])
    assert min(pauses["late"]) < 5.0
    assert len(pauses["in time"]) > 1


def test_a_renewal_whose_answer_was_lost_moves_nothing_here(kept):
    """L4: we go on with the window that we know of."""
    lease = kept.keeper.acquire()
    kept.world.pass_ticks(6000)
    kept.link.fault = "lost"
    kept.keeper.renew_in_background()
    assert kept.keeper.lease == lease
    assert kept.world.rows()[lease.worker].until == lease.until + 6000


def test_a_lost_lease_is_told_once_and_not_renewed_again(kept):
    """What is left of the window stays ours; the registry is not asked in vain."""
    lease = kept.keeper.acquire()
    kept.world.rows().clear()
    for _ in range(3):
        kept.keeper.renew_in_background()
    assert kept.keeper.lost
    assert kept.keeper.lease == lease
    assert kept.heard().count("lease_lost") == 1
    assert kept.link.names() == ["acquire", "renew"]


def test_a_late_renewal_counts_for_nothing_after_a_release(kept):
    """L3, L4: the answer of a request that is no longer pending is dropped."""
    kept.keeper.acquire()
    in_flight, go_on = threading.Event(), threading.Event()

    def held_up():
        in_flight.set()
        go_on.wait(LIMIT)

    kept.link.fault = held_up
    renewal = threading.Thread(target=kept.keeper.renew_in_background)
    renewal.start()
    assert in_flight.wait(LIMIT)
    release = threading.Thread(target=kept.keeper.release)
    release.start()
    while kept.keeper.lease is not None:
        pass
    go_on.set()
    renewal.join(LIMIT)
    release.join(LIMIT)
    assert kept.keeper.lease is None
    assert kept.keeper.renewals == 0
    assert kept.link.names()[-1] == "release"
    assert not any(mark.token for mark in kept.world.rows().values())


def test_a_late_renewal_counts_for_nothing_after_a_new_acquire(kept):
    """It would give the new lease the end of another window."""
    asked = kept.keeper.acquire()
    kept.world.pass_ticks(6000)
    grant = kept.link.renew(asked, last_tick=0)
    new = kept.keeper.acquire()
    assert kept.keeper._take_renewal(asked, grant) is None
    assert kept.keeper.lease == new


# --- on the slow path ---------------------------------------------------------


def test_the_slow_path_renews_where_there_is_no_thread(kept):
    """At a third of the window, and not before."""
    kept.keeper.acquire()
    kept.world.pass_ticks(5999)
    kept.keeper.renew_on_path()
    assert kept.keeper.renewals == 0
    kept.world.pass_ticks(1)
    kept.keeper.renew_on_path()
    assert kept.keeper.renewals == 1


def test_the_slow_path_asks_a_dead_registry_once_in_a_while_only(kept):
    """Callers do not stand still for each attempt that times out."""
    kept.keeper.acquire()
    kept.world.pass_ticks(6000)
    kept.world.down = True
    for _ in range(20):
        kept.keeper.renew_on_path()
    assert kept.keeper.failures == 1
    kept.world.pass_seconds(keeper_module.RETRY_SECONDS)
    kept.keeper.renew_on_path()
    assert kept.keeper.failures == 2


def test_past_the_window_only_extend_asks(kept):
    """A dead registry is not asked twice by one call."""
    kept.keeper.acquire()
    kept.world.pass_ticks(WINDOW)
    kept.keeper.renew_on_path()
    assert kept.link.names() == ["acquire"]


def test_the_slow_path_leaves_renewal_to_a_thread_that_tries():
    """While the registry is down the thread's attempts hold no caller up."""
    with Kept(background=True) as kept:
        kept.keeper.acquire()
        kept.world.down = True
        kept.world.pass_ticks(6000)
        kept.keeper.renew_in_background()
        kept.world.pass_ticks(10_000)
        kept.keeper.renew_on_path()
        assert kept.keeper.failures == 1
        kept.world.pass_ticks(1999)
        kept.keeper.renew_on_path()
        assert kept.keeper.failures == 1


def test_the_slow_path_steps_in_for_a_thread_that_is_stuck():
    """It did not even try for two thirds of the window."""
    with Kept(background=True) as kept:
        kept.keeper.acquire()
        kept.world.pass_ticks(12_000)
        kept.keeper.renew_on_path()
        assert kept.keeper.renewals == 1


# --- extend -------------------------------------------------------------------


def test_a_window_that_another_thread_extended_is_not_extended_again(kept):
    """The renewal thread was quicker."""
    lease = kept.keeper.acquire()
    assert kept.keeper.extend(lease.until - 1) == lease
    assert kept.link.names() == ["acquire"]


def test_a_caller_does_not_wait_for_ever_for_another_threads_call(kept, monkeypatch):
    """A registry that hangs in one thread is an error in the next."""
    monkeypatch.setattr(keeper_module, "IO_PATIENCE", 0.01)
    kept.keeper.acquire()
    kept.keeper._turn._running = Flag()
    with pytest.raises(LeaseExpired, match="did not answer another thread"):
        kept.keeper.extend(kept.keeper.lease.until)
    kept.keeper._turn._running = None
    assert kept.keeper.extend(kept.keeper.lease.until)


# --- release (L3) -------------------------------------------------------------


def test_release_leaves_the_mark_past_the_last_tick_loaded(kept):
    """So that the next holder starts there, and not a window later."""
    lease = kept.keeper.acquire()
    kept.keeper.last_tick = lease.start + 7
    kept.keeper.release()
    mark = kept.world.rows()[lease.worker]
    assert (mark.token, mark.until) == ("", lease.start + 8)


def test_release_can_be_called_twice_and_without_a_lease(kept):
    """The second finds nothing to give back."""
    kept.keeper.release()
    kept.keeper.acquire()
    kept.keeper.release()
    kept.keeper.release()
    assert kept.link.names() == ["acquire", "release"]


@pytest.mark.parametrize("fault", ["down", "lost"])
def test_release_never_raises(kept, fault):
    """What could not be given back expires; it is told, and not sent again."""
    kept.keeper.acquire()
    kept.link.fault = fault
    kept.keeper.release()
    assert kept.keeper.lease is None
    assert kept.heard()[-1] == "release_failed"
    assert kept.link.names() == ["acquire", "release"]


# --- skew ---------------------------------------------------------------------


@pytest.mark.parametrize("offset_s", [5, -5])
def test_a_skewed_wall_clock_is_told_and_changes_nothing(kept, offset_s):
    """The wall clock is compared, never trusted."""
    kept.host.wall_offset_ns = offset_s * 10**9
    lease = kept.keeper.acquire()
    assert lease.start == kept.world.registry_tick()
    assert kept.heard()[0] == "clock_skewed"
    assert kept.events[0][1] == {"offset_us": offset_s * 1_000_000, "source": "wall"}


def test_refuse_skew_keeps_the_process_from_starting():
    """The lease goes back at once, and the error says by how much and what to do."""
    with Kept(refuse_skew=True) as kept:
        kept.host.wall_offset_ns = -5 * 10**9
        with pytest.raises(ClockSkewed, match=r"-5\.000 s off.*limit is 1 s.*refuse_skew"):
            kept.keeper.acquire()
        assert kept.keeper.lease is None
        assert not any(mark.token for mark in kept.world.rows().values())
        kept.host.wall_offset_ns = 0
        assert kept.keeper.acquire()


# --- the thread, the fork, the end --------------------------------------------


def test_the_renewal_thread_renews_and_ends_with_the_release():
    """A real thread, a real window of 60 ms."""
    world = World(LAYOUT, window_ticks=60, skew_ticks=1000)
    with Kept(world, background=True) as kept:
        kept.keeper.acquire()
        for _ in range(LIMIT * 100):
            if kept.keeper.renewals >= 3:
                break
            threading.Event().wait(0.01)
        assert kept.keeper.renewals >= 3
        (thread,) = named("idgen-simulated")
        kept.keeper.release()
        thread.join(LIMIT)
        assert not thread.is_alive()


def named(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


def test_a_thread_that_cannot_be_started_is_done_without(monkeypatch):
    """At the end of the interpreter, or out of threads: the slow path renews."""

    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with Kept(background=True) as kept:
        kept.keeper.acquire()
        kept.world.pass_ticks(6000)
        kept.keeper.renew_on_path()
        assert kept.keeper.renewals == 1


def test_a_stopped_thread_can_be_followed_by_another():
    """``stop`` before ``start``, twice, and between two starts."""

    class Owner:
        turns = 0

        def turn(self):
            self.turns += 1
            return 0.001

    owner, thread = Owner(), RepeatingThread()
    thread.stop()
    for _ in range(2):
        thread.start(owner.turn, pause=0.001, name="idgen-restarted")
        assert thread.is_alive()
        thread.stop()
        thread.stop()
    for left in named("idgen-restarted"):
        left.join(LIMIT)
        assert not left.is_alive()


def test_forget_drops_the_lease_without_a_word(kept):
    """After a fork it is the parent's: not released, not renewed; ids go on rising."""
    lease = kept.keeper.acquire()
    kept.keeper.last_tick = lease.start + 3
    kept.outbox.put("the parent's event")
    kept.keeper.forget()
    assert kept.keeper.lease is None
    assert kept.link.names() == ["acquire"]
    assert kept.link.abandoned == 1
    assert kept.heard() == []
    new = kept.keeper.acquire()
    assert new.worker != lease.worker
    assert new.start == lease.start + 4


def test_a_dropped_keeper_warns_that_its_worker_id_stays_taken():
    """A ``ResourceWarning``, and its thread ends."""
    kept = Kept(background=True)
    kept.keeper.acquire()
    threads = named("idgen-simulated")
    with pytest.warns(ResourceWarning, match="dropped without close"):  # noqa: PT031
        del kept.keeper
        gc.collect()
    for thread in threads:
        thread.join(LIMIT)
        assert not thread.is_alive()


# --- how it stands --------------------------------------------------------------


def test_the_time_that_is_left_is_that_of_the_window(kept):
    """By the registry's clock; none without a lease, none past its end."""
    assert kept.keeper.seconds_left == 0.0
    kept.keeper.acquire()
    assert kept.keeper.seconds_left == pytest.approx(18.0, abs=0.01)
    kept.world.pass_ticks(6000)
    assert kept.keeper.seconds_left == pytest.approx(12.0, abs=0.01)
    kept.world.pass_ticks(60_000)
    assert kept.keeper.seconds_left == 0.0


def test_an_attempt_to_renew_that_failed_is_known_until_one_succeeds(kept):
    """Whoever asks whether a window will be renewed need not guess."""
    kept.keeper.acquire()
    assert not kept.keeper.renewal_failed
    kept.world.pass_ticks(6000)
    kept.world.down = True
    kept.keeper.renew_in_background()
    assert kept.keeper.renewal_failed
    kept.world.down = False
    kept.world.pass_ticks(10)
    kept.keeper.renew_in_background()
    assert not kept.keeper.renewal_failed


def test_why_no_lease_was_had_is_kept_until_one_is(kept):
    """With the time that has passed since."""
    assert kept.keeper.trouble is None
    kept.world.down = True
    with pytest.raises(RegistryUnavailable) as raised:
        kept.keeper.acquire()
    assert kept.keeper.trouble is raised.value
    kept.world.pass_ticks(5000)
    assert kept.keeper.seconds_since_trouble == pytest.approx(5.0, abs=0.01)
    kept.world.down = False
    kept.keeper.acquire()
    assert kept.keeper.trouble is None


def test_a_refusal_for_other_settings_is_kept_too(kept, monkeypatch):
    """It is no error of leases, and yet why there is none."""
    mismatch = NamespaceMismatch("default", "layout", 1, 2)

    def refuse(**_options):
        raise mismatch

    monkeypatch.setattr(kept.link, "acquire", refuse)
    with pytest.raises(NamespaceMismatch):
        kept.keeper.acquire()
    assert kept.keeper.trouble is mismatch
    assert kept.keeper.refusals == 0  # the next in line asks for himself
