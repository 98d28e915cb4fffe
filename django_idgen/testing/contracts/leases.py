"""What every lease registry must do, whatever it keeps its marks in.

A registry's test module subclasses :class:`LeaseContract` and provides a
:class:`Lender`: the registry's store, with a clock that the test drives, and
with what an administrator or a crash might do to it.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from ...core.clock import SYSTEM_CLOCK
from ...core.errors import (
    ClockBeforeEpoch,
    LeaseError,
    LeaseLost,
    NamespaceMismatch,
    NoFreeWorker,
    TimeExhausted,
    TooFarAhead,
)
from ...core.lease import Grant, Lease
from ...core.registry import Registry
from .histories import machine_for
from .inspection import InspectionContract
from .lenders import (
    EPOCH_US,
    HOUR_US,
    NAMESPACE,
    WINDOW,
    WORKERS,
    Claims,
    Lender,
    at_once,
    churn,
)


class LeaseContract(InspectionContract):
    """Subclass it, name it ``Test...``, and say what it :attr:`lends` by."""

    lends: Callable[..., Lender]
    needs: tuple[str, ...] = ()
    """The fixtures that a lender is made of."""
    shared_by_processes = True
    """Whether processes of one host see the same marks."""
    expires_while_held = True
    """Whether a window that is over frees the worker id of a process that still lives."""
    renews_for_others = True
    """Whether a scheduler can renew the leases of other processes."""
    shortens_windows = True
    """Whether a release frees what its holder has not loaded; false where a client says so."""
    examples = 20
    """Random histories to try, :attr:`effort` times as many."""
    effort = 1
    acquirers = 16
    """Threads that lend at once."""
    preload: tuple[str, ...] = ()
    """Modules to import before processes are forked."""

    @contextmanager
    def new_lender(self) -> Iterator[Lender]:
        yield self.lends(*self.backing)

    @pytest.fixture
    def lender(self, _backing: None) -> Iterator[Lender]:
        with self.new_lender() as lender:
            yield lender
            lender.close()

    @pytest.fixture
    def _backing(self, request: pytest.FixtureRequest) -> None:
        self.backing = [request.getfixturevalue(name) for name in self.needs]

    @pytest.fixture
    def registry(self, lender: Lender) -> Registry:
        return lender.registry()

    # --- who gets which worker id -------------------------------------------

    def test_a_first_lease_starts_now_and_lasts_a_window(
        self, lender: Lender, registry: Registry
    ) -> None:
        """The first window begins at the registry's time and has the length configured."""
        grant = registry.acquire(holder="a")
        now = lender.namespace.tick_at(lender.time.now_us)
        assert (grant.lease.start, grant.lease.until) == (now, now + WINDOW)
        assert grant.lease.worker in lender.namespace.workers
        assert grant.lease.namespace == lender.namespace.name
        assert grant.reading.registry_us == lender.time.now_us

    def test_the_clock_is_read_during_the_request(self, lender: Lender, registry: Registry) -> None:
        """A reading that is older, such as one kept from before, would let stamps fall behind.

        The holder adds its own monotonic clock to it, from the moments that the reading names.
        """

        def check(ask: Callable[[], Grant]) -> Lease:
            lender.time.pass_ticks(10)
            asked_ns = SYSTEM_CLOCK.elapsed_ns()
            grant = ask()
            reading = grant.reading
            assert asked_ns <= reading.sent_ns <= reading.received_ns <= SYSTEM_CLOCK.elapsed_ns()
            assert reading.registry_us == lender.time.now_us
            return grant.lease

        lease = check(partial(registry.acquire, holder="a"))
        for _ in range(2):
            lease = check(partial(registry.renew, lease, last_tick=lease.start))

    def test_as_many_holders_as_worker_ids_and_no_more(self, lender: Lender) -> None:
        """Hazard 3: concurrent holders get exactly all worker ids; one more gets an error."""
        got = at_once(WORKERS, lambda n: lender.registry().acquire(holder=f"h{n}").lease.worker)
        assert sorted(got) == list(range(WORKERS))
        with pytest.raises(NoFreeWorker, match=f"All {WORKERS} worker ids") as caught:
            lender.registry().acquire(holder="late")
        assert caught.value.workers == lender.namespace.workers

    def test_tokens_are_new_for_every_lease(self, registry: Registry) -> None:
        """Two leases of one process never share a token (hazards 13, 51)."""
        leases = [registry.acquire(holder="same").lease for _ in range(WORKERS)]
        assert len({lease.token for lease in leases}) == WORKERS
        assert all(lease.token for lease in leases)

    def test_a_holder_comes_back_to_its_worker_id(self, lender: Lender) -> None:
        """Who gave a worker id back gets the same one again, each of several."""
        registries = [lender.registry() for _ in range(WORKERS)]
        leases = [r.acquire(holder=f"h{n}").lease for n, r in enumerate(registries)]
        for registry, lease in zip(registries, leases, strict=True):
            registry.release(lease, last_tick=lease.start)
        for n in reversed(range(WORKERS)):
            assert lender.registry().acquire(holder=f"h{n}").lease.worker == leases[n].worker

    def test_a_host_comes_back_to_its_worker_id_as_another_process(self, lender: Lender) -> None:
        """The process id and the program of a label may change over a restart; the host is it.

        A label that somebody chose is one as a whole.
        """
        before = ["web-1:4000 gunicorn", "web-10:4001 gunicorn", "web-1:8000"]
        after = ["web-1:5000 celery", "web-10:4000 gunicorn", "web-1:8000"]
        registries = [lender.registry() for _ in before]
        leases = [r.acquire(holder=h).lease for r, h in zip(registries, before, strict=True)]
        for registry, lease in zip(registries, leases, strict=True):
            registry.release(lease, last_tick=lease.start)
        lender.time.pass_ticks(WINDOW)  # a release over HTTP leaves the window as it is stored
        for n in reversed(range(len(after))):
            assert lender.registry().acquire(holder=after[n]).lease.worker == leases[n].worker

    def test_a_window_is_its_holders_until_its_last_tick(self, lender: Lender) -> None:
        """No other holder gets a worker id before the window is over, not by one tick.

        Nor one whose grant was lost on the way: the registry can't know.
        """
        for n in range(WORKERS):
            lender.registry().acquire(holder=f"h{n}")
        lender.time.pass_ticks(WINDOW - 1)
        with pytest.raises(NoFreeWorker):
            lender.registry().acquire(holder="hasty")

    def test_a_released_worker_id_goes_to_a_newcomer(self, lender: Lender) -> None:
        """With all others held, the one given back is lent at once, after its last tick."""
        registries = [lender.registry() for _ in range(WORKERS)]
        leases = [r.acquire(holder=f"h{n}").lease for n, r in enumerate(registries)]
        last = leases[2].start + 5
        assert registries[2].release(leases[2], last_tick=last)
        taken = lender.registry().acquire(holder="newcomer").lease
        assert taken.worker == leases[2].worker
        assert taken.start == self._freed_at(leases[2], last)

    def test_after_their_windows_all_worker_ids_are_free_again(self, lender: Lender) -> None:
        """Holders that were killed expire; what they had is lent from their windows' ends on."""
        old = {}
        for n in range(WORKERS):
            registry = lender.registry()
            lease = registry.acquire(holder=f"h{n}").lease
            old[lease.worker] = lease
            lender.crash(registry)
        lender.time.pass_ticks(WINDOW)
        again = [lender.registry().acquire(holder=f"n{n}").lease for n in range(WORKERS)]
        assert sorted(lease.worker for lease in again) == sorted(old)
        assert all(lease.start >= old[lease.worker].until for lease in again)

    def test_a_worker_id_to_avoid_is_passed_over(self, lender: Lender) -> None:
        """``avoid`` is never lent, though it was the holder's own or is the only one free."""
        own = lender.registry()
        lease = own.acquire(holder="me").lease
        own.release(lease, last_tick=None)
        others = [
            lender.registry().acquire(holder="me", avoid=lease.worker).lease.worker
            for _ in range(WORKERS - 1)
        ]
        assert lease.worker not in others
        with pytest.raises(NoFreeWorker):
            lender.registry().acquire(holder="me", avoid=lease.worker)

    # --- windows --------------------------------------------------------------

    def test_a_window_starts_no_earlier_than_the_caller_can_use(
        self, lender: Lender, registry: Registry
    ) -> None:
        """``not_before`` past now is where the window starts; before now it is nothing."""
        now = lender.namespace.tick_at(lender.time.now_us)
        assert registry.acquire(holder="a", not_before=now + 77).lease.start == now + 77
        assert registry.acquire(holder="b", not_before=now - 77).lease.start == now

    def test_a_tick_that_no_holder_came_to_is_refused(
        self, lender: Lender, registry: Registry
    ) -> None:
        """``not_before`` reaches a window and the skew of clocks past now; no mark moves past that.

        Further only as far as a window was lent already (hazard 71).
        """
        now = lender.namespace.tick_at(lender.time.now_us)
        latest = now + WINDOW + lender.namespace.skew_ticks
        registry.release(registry.acquire(holder="a").lease, last_tick=None)
        for asked in (latest + 1, 2**41, 2**63):
            with pytest.raises(TooFarAhead) as caught:
                registry.acquire(holder="a", not_before=asked)
            assert latest <= caught.value.latest < caught.value.tick <= asked
            # A service has a bound besides.
            assert caught.value.latest == latest or asked > latest + 1
        held = registry.acquire(holder="a", not_before=latest).lease
        assert held.start == latest
        assert registry.acquire(holder="b", not_before=held.until).lease.start == held.until
        rest = [registry.acquire(holder=f"h{n}").lease for n in range(WORKERS - 2)]
        assert all(lease.start <= now + WINDOW for lease in rest)

    def test_a_holder_that_runs_ahead_after_a_loss_is_not_refused(self, lender: Lender) -> None:
        """Whatever ticks a holder was lent, before a loss or after it, it goes on behind them."""
        registry = lender.registry()
        lender.time.now_us += HOUR_US
        lease = registry.acquire(holder="a").lease
        lender.time.now_us -= HOUR_US
        for _ in range(3):
            lender.forget()
            lender.crash(registry)
            registry = lender.registry()
            following = registry.acquire(holder="a", not_before=lease.until).lease
            assert following.start >= lease.until
            lease = registry.renew(following, last_tick=following.until).lease

    def test_renewal_moves_the_end_up(self, lender: Lender, registry: Registry) -> None:
        """After some time a renewed window lasts a whole window from now; its start stays."""
        lease = registry.acquire(holder="a").lease
        lender.time.pass_ticks(WINDOW // 3)
        renewed = registry.renew(lease, last_tick=lease.start).lease
        assert renewed == replace(lease, until=lease.until + WINDOW // 3)

    def test_renewal_counts_from_the_last_tick_used(self, registry: Registry) -> None:
        """A holder that runs ahead of the clock gets a window from where it is."""
        lease = registry.acquire(holder="a").lease
        ahead = lease.start + WINDOW // 2
        assert registry.renew(lease, last_tick=ahead).lease.until == ahead + WINDOW

    def test_repeated_renewals_change_nothing(self, registry: Registry) -> None:
        """A renewal whose answer was lost can be asked for anew, with the old lease (L4)."""
        lease = registry.acquire(holder="a").lease
        first = registry.renew(lease, last_tick=lease.start + 9).lease
        assert registry.renew(lease, last_tick=lease.start + 9).lease == first

    def test_a_clock_that_went_back_does_not_lower_the_end(
        self, lender: Lender, registry: Registry
    ) -> None:
        """An hour back, renewal goes on and keeps the end where it was (hazard 50)."""
        lease = registry.acquire(holder="a").lease
        # Further than a window past its start: else that alone would be the end.
        lender.time.pass_ticks(WINDOW // 2)
        lease = registry.renew(lease, last_tick=lease.start).lease
        lender.time.now_us -= HOUR_US
        assert registry.renew(lease, last_tick=lease.start).lease.until == lease.until

    def test_a_clock_an_hour_off_repeats_nothing(self, lender: Lender) -> None:
        """After a step of the registry's clock, ids go on past old windows (hazards 4, 12)."""
        claims = Claims()
        for step_us in (-HOUR_US, -HOUR_US, HOUR_US, 2 * HOUR_US, 0):
            for n in range(WORKERS):
                registry = lender.registry()
                lease = claims.granted(registry.acquire(holder=f"h{n}").lease)
                lease = claims.granted(registry.renew(lease, last_tick=lease.until - 1).lease)
                claims.given_back(lease, lease.until - 1)
                assert registry.release(lease, last_tick=lease.until - 1)
            lender.time.now_us += step_us
        claims.check()

    def test_a_window_longer_than_before_is_kept_clear(self, lender: Lender) -> None:
        """After rows were lost, even a window configured longer than ever is not entered."""
        claims = Claims()
        longer = replace(lender.namespace, window_ticks=WINDOW * 50)
        holder = lender.registry(longer)
        claims.granted(holder.acquire(holder="long").lease)
        lender.forget()
        lender.crash(holder)
        for n in range(WORKERS):
            claims.granted(lender.registry().acquire(holder=f"h{n}").lease)
        claims.check()

    # --- renewal by a scheduler -------------------------------------------------

    def test_a_scheduler_renews_for_who_was_seen_of_late(self, lender: Lender) -> None:
        """A holder that is blocked keeps its worker id past its window, and goes on with it."""
        holder, scheduler = lender.registry(), lender.registry()
        lease = holder.acquire(holder="blocked").lease
        for _ in range(3):
            lender.time.pass_ticks(WINDOW - 1)
            assert scheduler.renew_seen(idle_after=5.0) == int(self.renews_for_others)
        if self.renews_for_others:
            others = {scheduler.acquire(holder=f"o{n}").lease.worker for n in range(WORKERS - 1)}
            assert lease.worker not in others
            with pytest.raises(NoFreeWorker):
                scheduler.acquire(holder="late")
            now = lender.namespace.tick_at(lender.time.now_us)
            assert holder.renew(lease, last_tick=now).lease.until == now + WINDOW

    def test_renewal_by_a_scheduler_does_not_count_as_seen(self, lender: Lender) -> None:
        """A holder that is gone expires, however often the scheduler comes by."""
        if not self.renews_for_others:
            return
        holder, scheduler = lender.registry(), lender.registry()
        lease = holder.acquire(holder="gone").lease
        found = []
        for _ in range(6):
            lender.time.pass_ticks(WINDOW // 2)
            found.append(scheduler.renew_seen(idle_after=1.2))
        assert found == [1, 1, 0, 0, 0, 0]
        taken = scheduler.acquire(holder="gone").lease
        assert taken.worker == lease.worker
        assert taken.start >= lease.until

    def test_a_renewal_of_its_own_counts_as_seen(self, lender: Lender) -> None:
        """A holder that renews is looked after from then on."""
        holder = lender.registry()
        lease = holder.acquire(holder="a").lease
        lender.time.pass_ticks(WINDOW // 2)
        holder.renew(lease, last_tick=lease.start)
        lender.time.pass_ticks(WINDOW - 1)
        assert holder.renew_seen(idle_after=1.2) == int(self.renews_for_others)

    def test_a_scheduler_revives_nothing(self, lender: Lender) -> None:
        """What has expired or was given back stays free, and is lent from where it ended."""
        registry = lender.registry()
        released = registry.acquire(holder="released").lease
        expired = registry.acquire(holder="expired").lease
        registry.release(released, last_tick=released.start + 2)
        assert registry.renew_seen(idle_after=9.0) == int(self.renews_for_others)
        lender.time.pass_ticks(WINDOW)
        assert registry.renew_seen(idle_after=9.0) == 0
        if self.expires_while_held:
            again = {lease.worker: lease for lease in self._all(lender)}
            assert again[expired.worker].start == expired.until
            assert again[released.worker].start == released.start + WINDOW

    def _freed_at(self, lease: Lease, last_tick: int) -> int:
        """Where the next window of a worker id starts that was given back at once."""
        return last_tick + 1 if self.shortens_windows else lease.until

    def _all(self, lender: Lender) -> list[Lease]:
        return [lender.registry().acquire(holder=f"h{n}").lease for n in range(WORKERS)]

    def test_a_scheduler_never_lowers_an_end(self, lender: Lender) -> None:
        """With the registry's clock an hour back, a bulk renewal leaves the ends where they are."""
        registry = lender.registry()
        lease = registry.acquire(holder="a").lease
        # Further than a window past its start: else that alone would be the end.
        lender.time.pass_ticks(WINDOW // 2)
        lease = registry.renew(lease, last_tick=lease.start).lease
        lender.time.now_us -= HOUR_US
        registry.renew_seen(idle_after=9.0)
        assert registry.renew(lease, last_tick=lease.start).lease == lease

    # --- loss, late and repeated messages --------------------------------------

    def test_a_release_counts_once(self, lender: Lender, registry: Registry) -> None:
        """The second release of a lease finds nothing to free."""
        lease = registry.acquire(holder="a").lease
        assert registry.release(lease, last_tick=lease.start) is True
        assert registry.release(lease, last_tick=lease.start) is False

    def test_a_late_release_frees_nothing(self, lender: Lender) -> None:
        """A release that comes after the worker id was lent again leaves the new lease."""
        slow, quick = lender.registry(), lender.registry()
        old = slow.acquire(holder="a").lease
        lender.crash(slow)
        lender.time.pass_ticks(WINDOW)
        new = quick.acquire(holder="a").lease
        assert new.worker == old.worker
        assert slow.release(old, last_tick=old.start) is False
        assert quick.renew(new, last_tick=new.start).lease.token == new.token

    def test_a_release_leaves_no_mark_before_its_window(self, lender: Lender) -> None:
        """Who gives back a lease that it loaded no tick of names the last one of an older lease.

        With the clock back by then, all that still says where the next window may start is
        the mark.
        """
        slow, quick = lender.registry(), lender.registry()
        old = slow.acquire(holder="a").lease
        lender.crash(slow)
        lender.time.pass_ticks(WINDOW)
        unused = quick.acquire(holder="a").lease
        assert unused.worker == old.worker
        lender.time.now_us -= HOUR_US
        assert quick.release(unused, last_tick=old.start) is True
        after = {lease.worker: lease for lease in self._all(lender)}
        assert after[old.worker].start >= old.until

    def test_loss_is_noticed(self, lender: Lender) -> None:
        """Renewal fails for a lease that was given back, or whose worker id was lent again."""
        registry = lender.registry()
        released = registry.acquire(holder="a").lease
        registry.release(released, last_tick=None)
        with pytest.raises(LeaseLost):
            registry.renew(released, last_tick=released.start)
        lender.registry().acquire(holder="a")
        with pytest.raises(LeaseLost):
            registry.renew(released, last_tick=released.start)

    def test_another_start_or_token_is_another_lease(self, registry: Registry) -> None:
        """A lease with another's token, or with another start, is not renewed or released."""
        lease = registry.acquire(holder="a").lease
        for other in (
            replace(lease, start=lease.start - 1),
            replace(lease, start=0),
            replace(lease, start=lease.start + 1),
            replace(lease, token="0" * 32),
        ):
            with pytest.raises(LeaseLost):
                registry.renew(other, last_tick=lease.start)
            assert registry.release(other, last_tick=None) is False
        assert registry.release(replace(lease, token=""), last_tick=None) is False
        assert registry.renew(lease, last_tick=lease.start).lease == lease

    def test_an_altered_lease_renews_nothing_but_its_own(self, registry: Registry) -> None:
        """Whatever a holder says of its lease, a renewal leaves what the true one leaves."""
        lease = registry.acquire(holder="a").lease
        other = registry.acquire(holder="b").lease
        for altered in altered_leases(lease, other):
            try:
                renewed = registry.renew(altered, last_tick=lease.start).lease
            except LeaseError:
                continue
            assert replace(renewed, namespace=lease.namespace) == lease, altered
        for known in (lease, other):
            assert registry.renew(known, last_tick=known.start).lease == known
        rest = [registry.acquire(holder=f"h{n}").lease for n in range(WORKERS - 2)]
        assert {each.start for each in rest} == {lease.start}

    def test_an_altered_lease_releases_nothing_but_its_own(self, registry: Registry) -> None:
        """Whatever a holder says of its lease, a release leaves what the true one leaves."""
        others = [registry.acquire(holder=f"h{n}").lease for n in range(WORKERS - 1)]
        lease = registry.acquire(holder="a").lease
        for number in range(len(altered_leases(lease, others[0]))):
            altered = altered_leases(lease, others[0])[number]
            last = lease.start + 5
            released = False
            with suppress(LeaseError):
                released = registry.release(altered, last_tick=last)
            if released:
                taken = registry.acquire(holder="a").lease
                assert (taken.worker, taken.start) == (lease.worker, self._freed_at(lease, last))
                lease = taken
            else:
                assert registry.renew(lease, last_tick=lease.start).lease == lease, altered
        for other in others:
            assert registry.renew(other, last_tick=other.start).lease == other

    def test_a_release_leaves_its_mark_inside_the_window(self, registry: Registry) -> None:
        """Whichever tick a holder names, the next window starts in the stored one or at its end."""
        for n in range(WORKERS - 1):
            registry.acquire(holder=f"h{n}")
        lease = registry.acquire(holder="a").lease
        for last in (None, -(2**63), -1, 0, "start", "end", 2**41, 2**63):
            named = {"start": lease.start, "end": lease.until - 1}
            tick = named[last] if isinstance(last, str) else last
            assert registry.release(lease, last_tick=tick)
            taken = registry.acquire(holder="a").lease
            expected = min(lease.until, max(lease.start, -1 if tick is None else tick + 1))
            assert taken.worker == lease.worker
            assert taken.start == (expected if self.shortens_windows else lease.until)
            lease = taken

    def test_a_renewal_reaches_a_window_past_the_stored_end_at_most(
        self, registry: Registry
    ) -> None:
        """A tick that its holder can't have stamped moves the mark no further (hazard 71)."""
        for last in (2**41, 2**63):
            lease = registry.acquire(holder="a").lease
            assert registry.renew(lease, last_tick=last).lease.until <= lease.until + WINDOW

    def test_an_overdue_window_is_renewed_or_lost(self, lender: Lender) -> None:
        """A holder that overslept goes on with a later end, unless somebody took over."""
        registry = lender.registry()
        lease = registry.acquire(holder="sleeper").lease
        lender.time.pass_ticks(WINDOW * 2)
        taken = self._taken_over(lender, lease)
        if taken is None:
            assert registry.renew(lease, last_tick=lease.start).lease.until > lease.until
        else:
            assert taken.start >= lease.until
            with pytest.raises(LeaseLost):
                registry.renew(lease, last_tick=lease.start)

    def _taken_over(self, lender: Lender, lease: Lease) -> Lease | None:
        others = lender.registry()
        got = []
        for n in range(WORKERS):
            try:
                got.append(others.acquire(holder=f"o{n}").lease)
            except NoFreeWorker:
                assert not self.expires_while_held
        return next((each for each in got if each.worker == lease.worker), None)

    def test_rows_deleted_under_a_holder_repeat_nothing(self, lender: Lender) -> None:
        """Newcomers start past every window that was granted; the holder notices the loss."""
        claims = Claims()
        registry = lender.registry()
        held = [claims.granted(registry.acquire(holder="a").lease) for _ in range(2)]
        held[0] = claims.granted(registry.renew(held[0], last_tick=held[0].start).lease)
        lender.forget()
        for lease in held:
            with pytest.raises(LeaseLost):
                registry.renew(lease, last_tick=lease.start)
            assert registry.release(lease, last_tick=lease.start) is False
        lender.crash(registry)
        for n in range(WORKERS):
            claims.granted(lender.registry().acquire(holder=f"h{n}").lease)
        claims.check()

    def test_rows_deleted_after_the_clock_went_back(self, lender: Lender) -> None:
        """The end of the latest window is known without its row, and no clock tells it (L7)."""
        registry = lender.registry()
        lender.time.now_us += HOUR_US
        held = registry.acquire(holder="a").lease
        lender.time.now_us -= HOUR_US
        lender.forget()
        lender.crash(registry)
        after = {lease.worker: lease for lease in self._all(lender)}
        assert after[held.worker].start >= held.until

    # --- refusals -----------------------------------------------------------

    def test_settings_that_differ_are_refused_by_name(self, lender: Lender) -> None:
        """A process with another layout is told which setting differs, and both values (L8)."""
        registry = lender.registry()
        for n in range(WORKERS):
            lease = registry.acquire(holder=f"h{n}").lease
        registry.release(lease, last_tick=None)
        other = replace(
            lender.namespace, fingerprint={**NAMESPACE.fingerprint, "layout": [["time", 40]]}
        )
        stranger = lender.registry(other)
        with pytest.raises(NamespaceMismatch) as caught:
            stranger.acquire(holder="a")
        assert caught.value.setting == "layout"
        assert caught.value.configured == [["time", 40]]
        assert caught.value.stored == NAMESPACE.fingerprint["layout"]

    def test_a_clock_before_the_epoch_is_refused(self, lender: Lender, registry: Registry) -> None:
        """No stamp is negative: before the layout's epoch there is no lease."""
        lender.time.now_us = EPOCH_US - 1
        with pytest.raises(ClockBeforeEpoch):
            registry.acquire(holder="a")
        lender.time.now_us = EPOCH_US
        assert registry.acquire(holder="a").lease.start == 0

    def test_time_past_the_end_of_the_layout_is_refused(
        self, lender: Lender, registry: Registry
    ) -> None:
        """The last window is cut at the layout's end; past it there is no lease."""
        end_us = EPOCH_US + lender.namespace.max_ticks * 1000
        lender.time.now_us = end_us - 3000
        lease = registry.acquire(holder="a").lease
        assert lease.until == lender.namespace.max_ticks
        assert registry.renew(lease, last_tick=lease.start).lease.until == lease.until
        lender.time.now_us = end_us
        with pytest.raises(TimeExhausted):
            registry.acquire(holder="b")

    def test_closing_twice_is_harmless(self, registry: Registry) -> None:
        """``close()`` may be called again."""
        registry.close()
        registry.close()

    # --- many at once -------------------------------------------------------

    def test_windows_never_overlap_under_many_acquirers(self, lender: Lender) -> None:
        """Threads that acquire, renew and give back never share a tick of a worker id."""
        claims = Claims()

        def churn(number: int) -> int:
            granted = 0
            for _ in range(3):
                granted += churn_once(lender.registry(), claims, f"h{number}")
            return granted

        assert sum(at_once(self.acquirers, churn)) >= WORKERS
        claims.check()

    def test_windows_never_overlap_between_processes(self, lender: Lender) -> None:
        """Processes that lend from one store see each other's marks."""
        if self.shared_by_processes:
            claims = Claims()
            for lease, last in self._processes(lender):
                claims.granted(lease)
                if last is not None:
                    claims.given_back(lease, last)
            claims.check()
        else:
            # A registry of one process says so by being without a way to share it.
            with pytest.raises(NotImplementedError):
                lender.elsewhere(lender.namespace)

    def _processes(self, lender: Lender) -> list[tuple[Lease, int | None]]:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([*self.preload])
        make = lender.elsewhere(lender.namespace)
        with context.Pool(3) as pool:
            found = pool.map(churn, [(make, f"p{n}") for n in range(6)], chunksize=1)
        granted = [entry for each in found for entry in each]
        assert len(granted) >= WORKERS
        return granted

    @pytest.mark.usefixtures("_backing")
    def test_random_histories_repeat_no_tick(self) -> None:
        """Whatever happens, in whatever order, no (worker, tick) is granted twice (I1)."""
        run_state_machine_as_test(
            machine_for(self.new_lender),
            settings=settings(
                max_examples=self.examples * self.effort,
                stateful_step_count=30,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )


def altered_leases(lease: Lease, other: Lease) -> list[Lease]:
    """``lease`` with one field changed at a time, in each direction."""
    numbers = (-1, 0, 2**31, 2**41, 2**64)
    changes: list[dict[str, Any]] = [
        {name: value}
        for name in ("worker", "start", "until", "generation")
        for value in (getattr(lease, name) - 1, getattr(lease, name) + 1, *numbers)
    ]
    return [
        *(replace(lease, **change) for change in changes),
        *(replace(lease, token=token) for token in ("", "0" * 32, other.token, lease.token[:-1])),
        replace(lease, worker=other.worker),
        replace(other, token=lease.token),
        replace(lease, namespace="another"),
    ]


def churn_once(registry: Registry, claims: Claims, holder: str) -> bool:
    """Acquire, renew and give back; whether there was a free worker id."""
    try:
        lease = claims.granted(registry.acquire(holder=holder).lease)
    except NoFreeWorker:
        return False
    lease = claims.granted(registry.renew(lease, last_tick=lease.start + 1).lease)
    # First the record, then the deed: somebody may have it before we can note it.
    claims.given_back(lease, lease.start + 2)
    assert registry.release(lease, last_tick=lease.start + 2)
    return True
