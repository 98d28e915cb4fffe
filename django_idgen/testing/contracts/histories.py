"""Random histories of a registry: holders, crashes, lost messages, clock steps, deletions."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ...core.errors import LeaseLost, NoFreeWorker, NotSeenFromHere
from ...core.lease import Lease
from ...core.registry import Registry
from .lenders import HOUR_US, WINDOW, WORKERS, Claims, Lender

PICK = st.integers(min_value=0, max_value=10**6)
SHARE = st.floats(min_value=0, max_value=1)


@dataclass
class Held:
    """A lease as its holder knows it."""

    registry: Registry
    lease: Lease
    alive: bool = True
    claimed: bool = True
    """Whether its claim still stands: a release that was heard ends it."""


class LeaseHistories(RuleBasedStateMachine):
    """Every rule is one thing that happens to some holder, or to all."""

    new_lender: ClassVar[Callable[[], AbstractContextManager[Lender]]]

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.lender = self.stack.enter_context(type(self).new_lender())
        self.stack.callback(self.lender.close)
        self.claims = Claims()
        self.held: list[Held] = []
        self.longest = WINDOW

    def teardown(self) -> None:
        self.stack.close()

    @rule(holder=st.sampled_from("abc"), ahead=st.integers(-50, 50), avoid=PICK, heard=PICK)
    def acquire(self, holder: str, ahead: int, avoid: int, heard: int) -> None:
        registry = self.lender.registry()
        now = self.lender.namespace.tick_at(self.lender.time.now_us)
        try:
            grant = registry.acquire(
                holder=holder,
                not_before=now + ahead if ahead > 0 else 0,
                avoid=avoid % WORKERS if avoid % 3 == 0 else None,
            )
        except NoFreeWorker:
            return
        # An answer that was not heard is a grant none the less.
        lease = self.claims.granted(grant.lease)
        assert lease.start >= now
        self.held.append(Held(registry, lease, alive=heard % 5 != 0))

    @precondition(lambda self: self.held)
    @rule(pick=PICK, share=SHARE, heard=PICK)
    def renew(self, pick: int, share: float, heard: int) -> None:
        held = self._one(pick)
        last = self._tick(held, share)
        try:
            lease = held.registry.renew(held.lease, last_tick=last).lease
        except LeaseLost:
            return
        assert held.claimed
        self.claims.granted(lease)
        if heard % 4:
            held.lease = lease

    @precondition(lambda self: self.held)
    @rule(pick=PICK, share=SHARE)
    def release(self, pick: int, share: float) -> None:
        # Also of leases long given back, expired, or lost: late and repeated ones.
        held = self._one(pick)
        last = None if share == 0 else self._tick(held, share)
        if held.registry.release(held.lease, last_tick=last):
            assert held.claimed
            self.claims.given_back(held.lease, last)
            held.claimed = False

    @precondition(lambda self: self.held)
    @rule(pick=PICK)
    def one_is_freed_by_hand(self, pick: int) -> None:
        # Whoever holds it, alive or not: what it was granted is still its own.
        with suppress(NotSeenFromHere):
            self.lender.free(self._one(pick).lease.worker)

    @rule(idle_after=st.floats(0, 5))
    def a_scheduler_renews(self, idle_after: float) -> None:
        self.lender.registry().renew_seen(idle_after=idle_after)

    @precondition(lambda self: self.held)
    @rule(pick=PICK)
    def crash(self, pick: int) -> None:
        self.lender.crash(self._one(pick).registry)

    @rule(ticks=st.integers(0, 2 * WINDOW))
    def time_passes(self, ticks: int) -> None:
        self.lender.time.pass_ticks(ticks)

    @rule(step=st.integers(-HOUR_US, HOUR_US))
    def the_clock_steps(self, step: int) -> None:
        self.lender.time.now_us += step

    @precondition(lambda self: self._may_forget())
    @rule(how=PICK)
    def something_is_lost(self, how: int) -> None:
        self.lender.lose(how)

    def _may_forget(self) -> bool:
        # Without a record of the highest end, a loss is only survived as long as
        # the windows lie where the clock says that they can lie.
        if self.lender.remembers_high_water:
            return True
        namespace = self.lender.namespace
        now = namespace.tick_at(self.lender.time.now_us)
        return self.claims.highest() <= now + namespace.skew_ticks + WINDOW

    @invariant()
    def nothing_repeats(self) -> None:
        self.claims.check()

    def _one(self, pick: int) -> Held:
        return self.held[pick % len(self.held)]

    def _tick(self, held: Held, share: float) -> int:
        lease = held.lease
        return lease.start + int((lease.until - 1 - lease.start) * share)


def machine_for(
    new_lender: Callable[[], AbstractContextManager[Lender]],
) -> type[LeaseHistories]:
    """A state machine over the registries of the lenders that ``new_lender`` makes."""
    return type("Histories", (LeaseHistories,), {"new_lender": staticmethod(new_lender)})
