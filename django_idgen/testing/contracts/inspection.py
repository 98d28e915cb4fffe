"""What every lease registry must tell those who look after it, and do for them."""

from __future__ import annotations

import pytest

from ...core.errors import LeaseLost, NotSeenFromHere
from ...core.inspection import WorkerEntry, WorkerMap, WorkerState, drawn
from ...core.lease import Lease
from ...core.registry import Registry
from .lenders import WINDOW, WORKERS, Claims, Lender


class InspectionContract:
    """A part of :class:`LeaseContract`."""

    frees_by_hand = True
    """Whether a worker id can be freed by hand: not where the kernel has it locked."""
    shortens_windows: bool
    measures_clocks = False
    """Whether its clock is another than its holders'."""

    # --- the map ----------------------------------------------------------------

    def test_a_lease_is_held_until_its_renewal_is_overdue(self, lender: Lender) -> None:
        """Unseen for half a window it is overdue; renewed it is held; at its end it has expired."""
        if not self.frees_by_hand:
            return  # seen is when a file was written, by the real time
        registry = lender.registry()
        lease = registry.acquire(holder="a").lease
        assert self._state(lender, lease) is WorkerState.HELD
        lender.time.pass_ticks(WINDOW // 2)
        assert self._state(lender, lease) is WorkerState.HELD
        lender.time.pass_ticks(1)
        assert self._state(lender, lease) is WorkerState.OVERDUE
        registry.renew(lease, last_tick=lease.start)
        assert self._state(lender, lease) is WorkerState.HELD
        lender.time.pass_ticks(WINDOW - 1)
        assert self._state(lender, lease) is WorkerState.OVERDUE
        lender.time.pass_ticks(1)
        assert self._state(lender, lease) is WorkerState.EXPIRED
        assert self._entry(lender, lease).window_left == 0.0

    def test_the_map_tells_who_holds_what(self, lender: Lender) -> None:
        """With labels, moments and what is left; what was never lent is free without an entry."""
        registry = lender.registry()
        held = registry.acquire(holder="holder").lease
        given = registry.acquire(holder="given back").lease
        registry.release(given, last_tick=given.start + 4)
        found = self._map(lender)
        assert found.entries.keys() == {held.worker, given.worker}
        entry = found.entries[held.worker]
        assert (entry.state, entry.holder) == (WorkerState.HELD, lender.label("holder"))
        assert entry.window_left == WINDOW / 1000
        assert entry.until is not None
        assert (entry.until - found.read_at).total_seconds() == WINDOW / 1000
        freed = found.entries[given.worker]
        assert (freed.state, freed.window_left) == (WorkerState.FREE, None)
        assert freed.holder == lender.label("given back")
        counts = found.counts()
        assert (counts[WorkerState.HELD], counts[WorkerState.FREE]) == (1, WORKERS - 1)
        assert sum(counts.values()) == WORKERS

    def test_a_scheduler_changes_neither_when_a_holder_was_seen_nor_its_clock(
        self, lender: Lender
    ) -> None:
        """A renewal by others moves the end alone: the renewal of its own is still overdue."""
        if not self.frees_by_hand:
            return
        registry = lender.registry()
        lease = registry.acquire(holder="a").lease
        before = self._entry(lender, lease)
        assert (before.clock_offset is not None) is self.measures_clocks
        lender.time.pass_ticks(WINDOW * 3 // 4)
        registry.renew_seen(idle_after=9.0)
        after = self._entry(lender, lease)
        assert (after.seen_at, after.acquired_at) == (before.seen_at, before.acquired_at)
        assert after.clock_offset == before.clock_offset
        assert (after.state, after.window_left) == (WorkerState.OVERDUE, WINDOW / 1000)

    def test_looking_changes_nothing(self, lender: Lender, registry: Registry) -> None:
        """Neither before anything was lent nor after: the next lease is as it would have been."""
        assert self._map(lender).entries == {}
        lease = registry.acquire(holder="a").lease
        assert self._map(lender) == self._map(lender)
        assert registry.renew(lease, last_tick=lease.start).lease == lease

    # --- freeing by hand -----------------------------------------------------------

    def test_a_worker_id_freed_by_hand_goes_on_after_its_window(self, lender: Lender) -> None:
        """The living holder uses its window up; the newcomer starts at its end, not before."""
        claims = Claims()
        holders = [lender.registry() for _ in range(WORKERS)]
        leases = [
            claims.granted(holder.acquire(holder=f"h{n}").lease) for n, holder in enumerate(holders)
        ]
        holder, lease = holders[1], leases[1]
        if not self.frees_by_hand:
            with pytest.raises(NotSeenFromHere):
                lender.free(lease.worker)
            return
        lender.time.pass_ticks(10)
        lease = claims.granted(holder.renew(lease, last_tick=lease.start).lease)
        assert lender.free(lease.worker) is True
        assert lender.free(lease.worker) is False
        assert self._state(lender, lease) is WorkerState.FREE
        newcomer = claims.granted(lender.registry().acquire(holder="newcomer").lease)
        assert (newcomer.worker, newcomer.start) == (lease.worker, lease.until)
        with pytest.raises(LeaseLost):
            holder.renew(lease, last_tick=lease.until - 1)
        assert holder.release(lease, last_tick=lease.start) is False
        claims.check()

    def test_what_was_freed_by_hand_is_not_renewed_by_a_scheduler(self, lender: Lender) -> None:
        """Nor is a late release of its holder of any effect on the mark."""
        if not self.frees_by_hand:
            return
        registry = lender.registry()
        lease = registry.acquire(holder="a").lease
        assert lender.free(lease.worker) is True
        assert registry.renew_seen(idle_after=9.0) == 0
        assert registry.release(lease, last_tick=None) is False
        again = [lender.registry().acquire(holder=f"h{n}").lease for n in range(WORKERS)]
        assert [each.start for each in again if each.worker == lease.worker] == [lease.until]

    def test_a_worker_id_without_a_holder_can_t_be_freed(
        self, lender: Lender, registry: Registry
    ) -> None:
        """Neither one that was never lent nor one that was given back."""
        if self.frees_by_hand:
            assert lender.free(0) is False
            lease = registry.acquire(holder="a").lease
            registry.release(lease, last_tick=None)
            assert lender.free(lease.worker) is False

    def test_the_last_lease_of_a_worker_id_is_kept(self, lender: Lender) -> None:
        """With its holder and its window, also after it was given back."""
        registry, held = lender.registry(), []
        for number in range(3):
            lease = registry.acquire(holder=f"h{number}").lease
            held.append(lease)
            registry.release(lease, last_tick=lease.start + 2)
            lender.time.pass_ticks(50)
        last = held[-1]
        (inspected,) = lender.overseen().inspect([last.worker]).marks
        mark = inspected.mark
        end = last.start + 3 if self.shortens_windows else last.until
        assert (mark.holder, mark.start, mark.until) == (lender.label("h2"), last.start, end)

    def _map(self, lender: Lender) -> WorkerMap:
        return drawn("contract", "", range(WORKERS), lender.overseen().inspect())

    def _entry(self, lender: Lender, lease: Lease) -> WorkerEntry:
        return self._map(lender).entries[lease.worker]

    def _state(self, lender: Lender, lease: Lease) -> WorkerState:
        return self._map(lender).state(lease.worker)
