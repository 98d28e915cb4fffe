"""Random histories of a pool: whatever happens, no id is given out twice."""

from __future__ import annotations

from contextlib import ExitStack

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from django_idgen.core.segment import MAX_ID, STEP, Demand, Segment
from django_idgen.sources.pool.scripts import key_of
from django_idgen.sources.pool.source import PoolSource

from .shop import OwnedSource, pool

DELTAS = (1, 2, 3)
HIGH = MAX_ID - 2**40
PROCESSES = 3


class GridSource(OwnedSource):
    """Gives out ids by a delta, each remainder in turn, from a start that may be very high."""

    def begin(self, delta: int, start: int) -> None:
        self.delta = delta
        self.ends = [start] * delta

    def fetch(self, tag: str, *, floor: int = 0, demand: Demand = STEP) -> Segment:
        remainder = len(self.fetches) % self.delta
        base = max(self.ends[remainder], floor)
        first = base + (remainder - base) % self.delta
        stop = first + demand.length(self.default_step) * self.delta
        self.ends[remainder] = stop
        segment = Segment(tag, first, stop, self.default_step, self.delta)
        self.fetches.append(segment)
        return segment


class PoolHistories(RuleBasedStateMachine):
    """Processes fetch, give out, give back and restart, on one Redis that forgets at times.

    The model: every id is in one place at most, with a process, given out, or (perhaps)
    in the pool. ``lost`` are those that were thrown away.
    """

    alias = ""

    @initialize(delta=st.sampled_from(DELTAS), start=st.sampled_from([1, 2**53 - 50, HIGH]))
    def begin(self, delta: int, start: int) -> None:
        self.stack = ExitStack()
        self.source = GridSource()
        self.source.begin(delta, start)
        self.processes = [self._process() for _ in range(PROCESSES)]
        self.floors = [0] * PROCESSES
        self.held: list[list[int]] = [[] for _ in range(PROCESSES)]
        self.pooled: set[int] = set()
        self.given: set[int] = set()

    def _process(self) -> PoolSource:
        made = pool(self.alias, self.source)
        self.stack.callback(made.close)
        return made

    @rule(
        who=st.integers(0, PROCESSES - 1),
        times=st.sampled_from([1, 1, 2, 8]),
        at_least=st.sampled_from([1, 1, 5, 35]),
    )
    def fetch(self, who: int, times: int, at_least: int) -> None:
        fetches = len(self.source.fetches)
        demand = Demand(times, at_least)
        segment = self.processes[who].fetch("t", floor=self.floors[who], demand=demand)
        ids = set(segment.ids())
        assert segment.start >= self.floors[who]
        assert at_least <= len(ids) <= demand.length(self.source.default_step)
        if len(self.source.fetches) == fetches:
            assert ids <= self.pooled, "made up, or given out before"
            self.pooled -= ids
        else:
            assert not ids & self.pooled
            assert not self._suits(self.floors[who], demand), "it was there"
        assert not ids & self.given
        assert not any(ids & set(held) for held in self.held)
        self.held[who] += segment.ids()
        self.floors[who] = segment.stop

    def _suits(self, floor: int, demand: Demand) -> bool:
        """Whether the pool had a run of ids that was long enough."""
        least = max(demand.at_least, self.source.default_step if demand.times > 1 else 1)
        delta = self.source.delta
        above = {each for each in self.pooled if each >= floor}
        return any(
            all(first + n * delta in above for n in range(least))
            for first in above
            if first - delta not in above
        )

    @rule(who=st.integers(0, PROCESSES - 1), count=st.integers(1, 40))
    def give_out(self, who: int, count: int) -> None:
        taken, self.held[who] = self.held[who][:count], self.held[who][count:]
        assert not self.given & set(taken)
        self.given |= set(taken)

    @rule(who=st.integers(0, PROCESSES - 1), holes=st.integers(1, 7))
    def give_back(self, who: int, holes: int) -> None:
        """All that is left, in pieces: every so many ids are kept out of it (and lost)."""
        left, self.held[who] = self.held[who], []
        pieces = [range(each, each + 1, self.source.delta) for each in left if each % 7 >= holes]
        self.processes[who].give_back("t", pieces)
        self.pooled |= {each for piece in pieces for each in piece}

    @rule(who=st.integers(0, PROCESSES - 1), kept=st.booleans())
    def restart(self, who: int, kept: bool) -> None:
        """A new process takes its place; a clean end gives all back, a kill nothing."""
        left, self.held[who] = self.held[who], []
        if kept and left:
            self.processes[who].give_back(
                "t", [range(each, each + 1, self.source.delta) for each in left]
            )
            self.pooled |= set(left)
        self.processes[who].close()
        self.processes[who] = self._process()
        self.floors[who] = 0

    @rule(who=st.integers(0, PROCESSES - 1), wanted=st.integers(1, 60))
    def refill(self, who: int, wanted: int) -> None:
        fetches = len(self.source.fetches)
        before = len(self.pooled)
        put_in = self.processes[who].refill("t", wanted)
        for segment in self.source.fetches[fetches:]:
            assert not self.pooled & set(segment.ids())
            self.pooled |= set(segment.ids())
        assert len(self.pooled) == before + put_in
        assert len(self.pooled) >= wanted

    @rule(how=st.sampled_from(["DEL", "incarnation", "another"]))
    def lose(self, how: str) -> None:
        client, key = self.processes[0]._own.client, key_of(self.source.whose, "t")
        if how == "DEL":
            client.delete(key)
        elif how == "incarnation" or not client.exists(key):
            client.hdel(key, "incarnation")
        else:
            client.hset(key, "incarnation", "another/server")
        self.pooled = set()

    @invariant()
    def what_is_in_stock_is_known(self) -> None:
        if hasattr(self, "pooled"):
            assert self.processes[0].stocks(["t"])["t"].ids == len(self.pooled)

    def teardown(self) -> None:
        if hasattr(self, "stack"):
            self.stack.close()


def test_random_histories_give_no_id_twice(redis: str) -> None:
    """Every id is in one place, and the pool's account is right to the last one (I1)."""
    machine = type("OnRedis", (PoolHistories,), {"alias": redis})
    run_state_machine_as_test(
        machine,
        settings=settings(
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
