"""A fleet in virtual time: thousands of real generators on one registry.

``python -m tests.simulation.fleet`` runs the stories and prints what the registry saw.

Generators, keepers and the rules of the registry are those of the package. Clocks, the renewal
threads and the way to the registry are simulated. The registry serves calls one after another,
as a database does with the locked record of a namespace: each call takes ``cost`` seconds, and one
that would have to wait longer than ``patience`` fails.
"""

from __future__ import annotations

import argparse
import gc
import heapq
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import count, repeat
from pathlib import Path
from random import Random
from typing import Any

from django_idgen.core import book, keeper
from django_idgen.core.clock import Reading
from django_idgen.core.errors import IdgenError, NoFreeWorker, RegistryUnavailable
from django_idgen.core.inspection import InspectedMark
from django_idgen.core.lease import Grant, Lease, Mark, identity_of, is_free
from django_idgen.core.snowflake import SnowflakeGenerator
from django_idgen.leases.memory import MemoryBook, MemoryLeases, MemoryMarks

from .world import Host, Link, World, layout_of

__all__ = ["Fleet", "Story"]

SECOND = 1_000_000_000
"""In nanoseconds."""
WINDOW = 180
"""Seconds, as in production."""
ON_A_HOST = 16
"""Processes with one host name."""
CALM, TROUBLED = (30.0, 90.0), (5.0, 15.0)
"""Seconds between two ids of a process; fewer while its last renewal or id failed, when it
matters to the registry."""
SCHEDULE = 60.0
"""Seconds between two runs of ``renew_worker_leases``."""
IDLE_AFTER = 5 * WINDOW
"""Seconds; the default of the option."""


@dataclass
class Story:
    """What a fleet went through, as the registry and an operator see it."""

    name: str
    processes: int
    seconds: int
    """From its beginning to its end."""
    calls: dict[str, dict[int, int]] = field(default_factory=dict)
    """By kind of call, then by second: how many reached the registry or found it down."""
    failed: dict[int, int] = field(default_factory=dict)
    """By second: the calls that failed."""
    waiting: dict[int, int] = field(default_factory=dict)
    """By second: the most calls that waited at once, each on a connection."""
    held: dict[int, int] = field(default_factory=dict)
    """By second: worker ids that are lent and have not expired."""
    live: dict[int, int] = field(default_factory=dict)
    """By second: processes that run."""
    stopped: dict[int, int] = field(default_factory=dict)
    """By second: processes that run and whose last request for an id failed."""
    behind: dict[int, int] = field(default_factory=dict)
    """By second: processes whose last renewal failed."""
    outage: tuple[int, int] = (0, 0)
    """The first second without the registry, and the first with it."""
    used: int = 0
    """Worker ids that were ever lent."""
    ids: int = 0
    """Ids that were issued, all different."""

    def rate(self, *kinds: str) -> Counter[int]:
        """Calls by second, of all kinds or of ``kinds``."""
        found: Counter[int] = Counter()
        for kind in kinds or self.calls:
            found.update(self.calls.get(kind, {}))
        return found


class IndexedBook(MemoryBook):
    """Finds the marks of a host without looking at all, as thousands of starts would."""

    def __init__(self, marks: MemoryMarks) -> None:
        super().__init__(marks)
        self._by_host: dict[str, set[int]] = {}

    def save_lent(self, mark: Mark, *, is_new: bool) -> None:
        super().save_lent(mark, is_new=is_new)
        self._by_host.setdefault(identity_of(mark.holder), set()).add(mark.worker)

    def had_by(self, who: str, free_at: tuple[int, int] | None = None) -> Sequence[InspectedMark]:
        every = self.by_worker
        own = [self.by_worker[worker] for worker in self._by_host.get(who, ())]
        own.sort(key=lambda mark: self.seen_us[mark.worker])
        self.by_worker = {mark.worker: mark for mark in own}
        try:
            return super().had_by(who, free_at)
        finally:
            self.by_worker = every


class Door(Link):
    """One process' way to the registry, which all processes of the fleet share."""

    host: Seat

    def _call(self, name: str, value: object, job: Callable[[MemoryLeases], Any]) -> Any:
        return self.host.fleet.serve(name, job)

    def _ask(self, name: str, value: object, job: Callable[[MemoryLeases], Grant]) -> Grant:
        sent = self.host.elapsed_ns()
        grant = self._call(name, value, job)
        self.host.fleet.granted(grant.lease)
        return Grant(grant.lease, Reading(grant.reading.registry_us, sent, self.host.elapsed_ns()))

    def release(self, lease: Lease, *, last_tick: int | None) -> bool:
        known = super().release(lease, last_tick=last_tick)
        self.host.fleet.released(lease)
        return known


class VirtualThread:
    """Stands for a keeper's :class:`RepeatingThread`: its turns are events of the fleet."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._runs = False

    def is_alive(self) -> bool:
        return self._runs

    def start(self, turn: Callable[[], float], *, pause: float, name: str) -> None:
        self._runs = True
        self._seat.after(pause, partial(self._turn, turn))

    def stop(self) -> None:
        self._runs = False

    def _turn(self, turn: Callable[[], float]) -> None:
        if self._runs:
            self._seat.after(turn(), partial(self._turn, turn))


class Seat(Host):
    """One process: its clock, its generator, and the requests that take ids from it."""

    world: World

    def __init__(self, fleet: Fleet, holder: str) -> None:
        super().__init__(fleet.world)
        self.fleet = fleet
        self.runs = True
        self.has_failed = False
        self.busy_ns = 0
        """Until when it stands in a call."""
        self.generator: SnowflakeGenerator = super().generator(
            Door(self), holder=holder, background=True
        )
        self.generator.keeper._thread = VirtualThread(self)  # type: ignore[assignment]
        self._last = 0

    def after(self, seconds: float, job: Callable[[], None]) -> None:
        self.fleet.at(self.world.ns + round(seconds * SECOND), partial(self._do, job))

    def _do(self, job: Callable[[], None]) -> None:
        if not self.runs:
            return
        if self.world.ns < self.busy_ns:
            self.fleet.at(self.busy_ns, partial(self._do, job))
            return
        job()
        self.busy_ns = self.world.ns

    def requests(self) -> None:
        """Take an id, now and again."""
        self.take()
        is_troubled = self.has_failed or self.generator.keeper.renewal_failed
        span = TROUBLED if is_troubled else CALM
        self.after(self.fleet.random.uniform(*span), self.requests)

    def take(self) -> None:
        try:
            value = self.generator.next_id()
        except NoFreeWorker:
            raise  # the story has too few worker ids
        except IdgenError:
            self._note(failed=True)
            return
        self._note(failed=False)
        assert value > self._last, "I2"
        self._last = value
        self.fleet.issued(value, self.generator.keeper.lease)

    def _note(self, *, failed: bool) -> None:
        self.fleet.stopped += failed - self.has_failed
        self.has_failed = failed

    def end(self, *, cleanly: bool) -> None:
        """Exit, or be killed."""
        if self.runs:
            if cleanly:
                self.generator.close()
            self._note(failed=False)
            self.runs = False
            self.generator.keeper.lease = None  # nothing warns after a SIGKILL
            self.fleet.live -= 1


class Fleet:
    """``processes`` that share one registry, and an event queue that moves the time on."""

    def __init__(
        self,
        processes: int,
        *,
        worker_bits: int = 14,
        cost: float = 0.002,
        patience: float = 8.0,
        seed: int = 1,
    ) -> None:
        layout = layout_of(("time", 41), ("worker", worker_bits), ("sequence", 22 - worker_bits))
        second = SECOND // 1000 // layout.tick_us
        self.world = World(layout, window_ticks=WINDOW * second, skew_ticks=10 * second)
        marks = self.world.marks
        marks.books[self.world.namespace.name] = IndexedBook(marks)
        self.begun_ns = self.world.ns
        self.processes = processes
        self.random = Random(seed)
        self.seats: list[Seat] = []
        self.live = self.stopped = 0
        self._cost_ns, self._patience_ns = round(cost * SECOND), round(patience * SECOND)
        self._leases = MemoryLeases(
            self.world.namespace,
            marks=marks,
            clock=Host(self.world).clock,
            read_now_us=self.world.registry_us,
        )
        self._free_ns = 0
        """When the registry has served all that wait."""
        self._outage = range(0)
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = count()
        self._holders = count()
        self._ends: dict[int, tuple[str, int]] = {}
        """By worker id: the token of the last lease, and the first tick past its window."""
        self._ids = set[int]()
        self.story = Story("", processes, 0)

    # --- time -------------------------------------------------------------------

    @property
    def second(self) -> int:
        return (self.world.ns - self.begun_ns) // SECOND

    def at(self, ns: int, job: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (ns, next(self._numbers), job))

    def later(self, seconds: float, job: Callable[[], None]) -> None:
        self.at(self.world.ns + round(seconds * SECOND), job)

    def run(self, seconds: float) -> None:
        """Let ``seconds`` pass."""
        end = self.world.ns + round(seconds * SECOND)
        # Its choices must be repeatable.
        real = book._random, keeper._random
        book._random = keeper._random = self.random  # type: ignore[assignment]
        try:
            while self._queue and self._queue[0][0] <= end:
                self.world.ns, _, job = heapq.heappop(self._queue)
                job()
        finally:
            book._random, keeper._random = real
        self.world.ns = end

    # --- the registry -------------------------------------------------------------

    def serve(self, name: str, job: Callable[[MemoryLeases], Any]) -> Any:
        """Do ``job`` when its turn comes: the caller's time passes, and nobody else's."""
        arrived, story, second = self.world.ns, self.story, self.second
        kind = story.calls.setdefault(name, {})
        kind[second] = kind.get(second, 0) + 1
        begun = max(arrived, self._free_ns)
        wait = min(begun - arrived, self._patience_ns)
        waiting = wait // self._cost_ns if self._cost_ns else 0
        story.waiting[second] = max(story.waiting.get(second, 0), waiting)
        if begun in self._outage or arrived in self._outage or wait < begun - arrived:
            self.world.ns += 0 if arrived in self._outage else wait
            story.failed[second] = story.failed.get(second, 0) + 1
            raise RegistryUnavailable(f"{name}: no answer.")
        self._free_ns = self.world.ns = begun + self._cost_ns
        return job(self._leases)

    def go_down(self, seconds: float) -> None:
        self._outage = range(self.world.ns, self.world.ns + round(seconds * SECOND))
        self.story.outage = self.second, self.second + round(seconds)

    def renew_seen(self) -> None:
        """A scheduler's ``renew_worker_leases``, every minute."""
        if self.world.ns not in self._outage:
            self._leases.renew_seen(idle_after=IDLE_AFTER)
            for mark in self._marks():
                if (known := self._ends.get(mark.worker)) and known[0] == mark.token:
                    self._ends[mark.worker] = mark.token, mark.until
        self.later(SCHEDULE, self.renew_seen)

    def _marks(self) -> Any:
        return self.world.rows().values()

    # --- what must hold -----------------------------------------------------------

    def granted(self, lease: Lease) -> None:
        token, end = self._ends.get(lease.worker, ("", 0))
        if token != lease.token:
            assert lease.start >= end, f"I1: worker {lease.worker} at {lease.start}, before {end}"
            end = 0
        self._ends[lease.worker] = lease.token, max(end, lease.until)

    def released(self, lease: Lease) -> None:
        if self._ends[lease.worker][0] == lease.token:
            mark = self.world.rows()[lease.worker]
            self._ends[lease.worker] = lease.token, mark.until  # type: ignore[attr-defined]

    def issued(self, value: int, lease: Lease | None) -> None:
        parts = self.world.layout.unpack(value)
        assert lease is not None
        assert lease.worker == parts.worker, "I3"
        assert lease.start <= parts.tick < lease.until, "I3"
        assert value not in self._ids, "I1"
        self._ids.add(value)

    # --- processes ----------------------------------------------------------------

    def start(self, processes: int, *, within: float = 0.0) -> list[Seat]:
        """Start processes, spread over ``within`` seconds; each takes its first id at once."""
        started = []
        for number in range(processes):
            each = next(self._holders)
            seat = Seat(self, f"web-{each // ON_A_HOST}:{1000 + each % ON_A_HOST} gunicorn")
            seat.after(within * number / processes, seat.requests)
            started.append(seat)
        self.seats += started
        self.live += processes
        return started

    def watch(self, every: float = 5.0) -> None:
        """Note every few seconds how many worker ids are lent."""
        now, story, second = self.world.registry_tick(), self.story, self.second
        story.held[second] = sum(not is_free(mark, now) for mark in self._marks())
        story.live[second], story.stopped[second] = self.live, self.stopped
        running = (seat.generator.keeper for seat in self.seats if seat.runs)
        story.behind[second] = sum(keeper.renewal_failed for keeper in running)
        self.later(every, partial(self.watch, every))

    def replace_all(self, *, seconds: float, steps: int = 100, cleanly: bool) -> None:
        """A rolling deployment: new processes start, then as many old ones end."""
        self._roll(list(self.seats), seconds / steps, -(-len(self.seats) // steps), cleanly)

    def _roll(self, old: list[Seat], pause: float, batch: int, cleanly: bool) -> None:
        if old:
            self.start(min(batch, len(old)), within=pause / 2)
            for seat in old[:batch]:
                seat.after(pause * self.random.uniform(0.6, 1), partial(seat.end, cleanly=cleanly))
            self.later(pause, partial(self._roll, old[batch:], pause, batch, cleanly))

    def stop(self) -> None:
        for seat in self.seats:
            seat.runs = False
            seat.generator.keeper.lease = None

    # --- stories --------------------------------------------------------------------

    def tell(self, name: str, seconds: float, *, every: float = 5.0) -> Story:
        """Let ``seconds`` pass, and return what happened in them."""
        self.begun_ns, self.story = self.world.ns, Story(name, self.processes, int(seconds))
        before, watch = len(self._ids), partial(self.watch, every)
        queue = [event for event in self._queue if getattr(event[2], "func", None) != self.watch]
        heapq.heapify(queue)
        self._queue = queue
        watch()
        self.run(seconds)
        self.story.used = len(self.world.rows())
        self.story.ids = len(self._ids) - before
        return self.story


def outages(processes: int, cost: float) -> Iterator[Story]:
    """All processes start at once; then the registry is down, twice."""
    fleet = Fleet(processes, cost=cost)
    fleet.start(processes)
    yield fleet.tell("all start at once", 300)
    yield fleet.tell("steady", 600)
    for name, seconds in (("down for 60 s", 60), ("down for 600 s", 600)):
        fleet.later(60, partial(fleet.go_down, seconds))
        yield fleet.tell(name, 60 + seconds + 240, every=2)
        fleet.run(120)
    fleet.stop()


def rolling(processes: int, cost: float, *, cleanly: bool, scheduled: bool) -> Iterator[Story]:
    """All processes are replaced in half an hour, a hundredth at a time."""
    fleet = Fleet(processes, cost=cost)
    fleet.start(processes, within=60)
    if scheduled:
        fleet.renew_seen()
    fleet.run(120)
    fleet.later(60, partial(fleet.replace_all, seconds=1800, cleanly=cleanly))
    how = "exits" if cleanly else "killed, with a scheduler" if scheduled else "killed"
    yield fleet.tell(f"rolling, {how}", 60 + 1800 + (IDLE_AFTER if scheduled else 0) + 240)
    fleet.stop()


FLEETS = (
    outages,
    partial(rolling, cleanly=True, scheduled=False),
    partial(rolling, cleanly=False, scheduled=False),
    partial(rolling, cleanly=False, scheduled=True),
)


def figures(story: Story) -> dict[str, float]:
    """What an operator asks of a story."""
    rate, acquires = story.rate(), story.rate("acquire")
    back = story.outage[1]
    late = [second for second in story.behind if story.behind[second] or story.stopped[second]]
    return {
        "calls a second, mean": round(rate.total() / story.seconds, 1),
        "calls a second, most": max(rate.values()),
        "acquires": acquires.total(),
        "acquires a second, most": max(acquires.values(), default=0),
        "calls that failed": sum(story.failed.values()),
        "calls waiting at once, most": max(story.waiting.values()),
        "worker ids in use, least": min(story.held.values()),
        "worker ids in use, most": max(story.held.values()),
        "worker ids ever lent": story.used,
        "processes without ids, most": max(story.stopped.values()),
        "seconds from the return until all have renewed": max(0, *late, back) - back,
        "ids": story.ids,
    }


BIN = 10
"""Seconds that a point of a plot stands for."""


def points(story: Story) -> dict[str, list[float]]:
    """Each series in steps of :data:`BIN` seconds: means of calls, the highest of all else."""

    def binned(series: dict[int, int], pick: Callable[[list[int]], float]) -> list[float]:
        bins = range(0, story.seconds, BIN)
        inside = ([series[s] for s in range(b, b + BIN) if s in series] for b in bins)
        return [pick(found) if found else 0 for found in inside]

    def mean(found: list[int]) -> float:
        return round(sum(found) / BIN, 1)

    return {
        "calls": binned(story.rate(), mean),
        "most calls": binned(story.rate(), max),
        "acquires": binned(story.rate("acquire"), mean),
        **{name: binned(getattr(story, name), max) for name in WATCHED},
    }


def _told(fleet: Callable[[int, float], Iterator[Story]], processes: int, cost: float) -> Any:
    gc.disable()  # which would look at all processes again and again
    return [
        {"name": story.name, "figures": figures(story), "points": points(story)}
        for story in fleet(processes, cost)
    ]


WATCHED = ("waiting", "held", "live", "stopped", "behind")


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.fleet")
    parser.add_argument("--processes", type=int, default=10_000)
    parser.add_argument("--cost", type=float, default=0.002, help="seconds of the registry a call")
    parser.add_argument("--json", type=Path, help="write what docs/scale.py draws")
    options = parser.parse_args(argv)
    told = []
    with ProcessPoolExecutor() as pool:
        for found in pool.map(_told, FLEETS, repeat(options.processes), repeat(options.cost)):
            for each in found:
                figures = each["figures"]
                lines = (f"{figures[name]:>10,} {name}" for name in figures)
                print(f"-- {each['name']}", *lines, sep="\n", flush=True)
            told += found
    if options.json:
        asked = {"processes": options.processes, "cost": options.cost, "bin": BIN}
        options.json.write_text(json.dumps(asked | {"stories": told}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
