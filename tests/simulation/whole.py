"""Everything that grants ids, on simulated time: one seed is one run, without a sleep.

Hundreds of processes take ids through the package's own generators, keepers, registries, sources
and pool. The database is SQLite in memory, and Redis a model that runs the package's Lua. Clocks,
the network and the stores are simulated, and go wrong at random. Each id that comes out is checked
against all that came before.

A run is a list of events, each with numbers of its own. So a run that fails can be shrunk: events
are left out as long as it still fails.
"""

from __future__ import annotations

import json
import os
import secrets
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest import mock
from unittest.mock import Mock

import numpy as np
import redis
from django.db import connections
from django.db.models import F

from django_idgen.core import book, keeper
from django_idgen.core.buffered import BufferedGenerator
from django_idgen.core.clock import Clock
from django_idgen.core.errors import IdgenError, TimeExhausted
from django_idgen.core.events import ignore
from django_idgen.core.layout import parse_layout
from django_idgen.core.lease import Namespace
from django_idgen.core.loader import inline_loader
from django_idgen.core.registry import Registry
from django_idgen.core.segment_generator import SegmentAllocator
from django_idgen.core.snowflake import SnowflakeGenerator
from django_idgen.core.stored import ALL, SERVER
from django_idgen.db import dialects
from django_idgen.db.tables import make_missing_tables
from django_idgen.leases.database import DatabaseLeases
from django_idgen.leases.redis import registry as redis_registry
from django_idgen.leases.redis.registry import RedisLeases
from django_idgen.leases.server import ServerStore
from django_idgen.models import Installation, LeafAlloc, NamespaceRecord, WorkerLease
from django_idgen.ops.doctor.skipping import GeneratorSkip
from django_idgen.sources.pool import PoolSource
from django_idgen.sources.server import FAILOVER_SKIP, ServerSource

from .redis_model import RedisModel

LAYOUT = parse_layout("standard")
SECOND = 1_000_000_000
BEGIN_NS = LAYOUT.epoch_us * 1000 + 200 * 24 * 3600 * SECOND
WINDOW, SKEW = 10_000, 1_000
"""Ticks of the layout, which are milliseconds."""
PROCESSES = 300
WORKERS = 24
"""Fewer than processes, so that each worker id has many holders, one after another."""
TAGS = ("orders", "busy")
STEP = 50
SNOWFLAKES = ("database", "buffered", "redis")
MOST_LOST_S = 5.0
"""Seconds of writes that a server that takes over may lack."""


class Repeated(AssertionError):
    """An invariant does not hold. Says which."""


# --- what happens -----------------------------------------------------------------------------


WEIGHTS = {
    "take": 300, "pass_time": 120, "renew": 50, "start": 70, "kill": 25, "close": 25, "fork": 10,
    "sleep": 5, "beat": 10, "step_wall": 5, "drift": 5, "step_database": 6, "step_redis": 6,
    "stop_a_clock": 2, "fail_a_call": 30, "deliver": 15, "outage": 4, "end_outages": 12, "flush": 2,
    "empty": 2, "save_redis": 8, "promote": 4, "switch": 10, "snapshot": 25, "take_over": 12,
    "lose_rows": 2, "restore": 0.3,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happens. ``seed`` decides its numbers, whatever came before. Frozen."""

    what: str
    seed: int

    def __str__(self) -> str:
        return self.what.replace("_", " ")


def events(seed: int) -> Iterator[Event]:
    """Without end."""
    chance = Random(seed)
    names, weights = list(WEIGHTS), list(WEIGHTS.values())
    while True:
        yield Event(chance.choices(names, weights)[0], chance.getrandbits(48))


# --- what ids came out ------------------------------------------------------------------------


class Claims:
    """Ranges of a line of numbers, each of one owner. Those of two owners never overlap."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ranges: list[tuple[int, int, object]] = []

    @property
    def stop(self) -> int:
        """The first number past all ranges."""
        return self._ranges[-1][1] if self._ranges else 0

    def claim(self, start: int, stop: int, owner: object) -> None:
        """Raises :class:`Repeated`. The owner of the last number may claim that again."""
        place = bisect_right(self._starts, start)
        if place:
            first, last, whose = self._ranges[place - 1]
            if whose == owner and last >= start:
                if last >= stop:
                    return
                start, place = first, place - 1
                del self._starts[place], self._ranges[place]
            elif last > start:
                raise Repeated(f"I1: {start} to {stop} of {owner}, {first} to {last} of {whose}")
        if place < len(self._ranges) and self._ranges[place][0] < stop:
            raise Repeated(f"I1: {start} to {stop} of {owner}, and {self._ranges[place]}")
        self._starts.insert(place, start)
        self._ranges.insert(place, (start, stop, owner))


def runs(numbers: np.ndarray, breaks: np.ndarray) -> Iterator[tuple[int, int]]:
    """First and last of each part of ``numbers``, which ends where ``breaks`` is true."""
    ends = np.flatnonzero(breaks)
    for first, last in zip([0, *(ends + 1)], [*ends, len(numbers) - 1], strict=True):
        yield int(numbers[first]), int(numbers[last])


# --- processes --------------------------------------------------------------------------------


class Own:
    """Stands for a process' own connection: each job is a call over the network."""

    alias = "default"

    def __init__(self, process: Process) -> None:
        self._process = process
        self._depth = 0
        self.loader = inline_loader()

    def run(self, job: Callable[[Any], Any], *, timeout: float) -> Any:
        if self._depth:
            return job(connections["default"])
        self._depth += 1
        try:
            return self._process.call("database", lambda: job(connections["default"]), TimeoutError)
        finally:
            self._depth -= 1

    call = run

    def reset(self) -> None:
        self.loader = inline_loader()


class OneStore:
    """Stands for the stores of an alias, of which there is one."""

    def __init__(self, store: ServerStore) -> None:
        self._store = store

    def current(self) -> ServerStore:
        return self._store

    def is_current(self, store: object) -> bool:
        return store is self._store

    def all(self) -> list[ServerStore]:
        return [self._store]

    def reset(self) -> None:
        """Nothing is the parent's."""


class Pooled(ServerSource):
    """A source that a pool may stand before, as DatabaseSource is."""

    can_be_pooled = True

    def owner(self, tag: str, *, max_age: float = 0.0) -> str:
        return "simulated"


class Process:
    """A process: clocks, a way to the stores, and generators, made at first use."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.pid = 1000 + number
        self.fault = ""
        self.server = 0
        """Which of the two Redis servers it reaches."""
        self.wall_ns = self.drift_ppm = self._gained_ns = 0
        self._since_ns = world.ns
        self.asleep_until = 0
        self.clock = Clock(
            stopwatch=lambda: self.elapsed_ns() / 1e9,
            elapsed_ns=self.elapsed_ns,
            wall_ns=lambda: world.ns + self.wall_ns,
            sleep=lambda seconds: world.pass_ns(round(seconds * 1e9) + 1000),
        )
        self.last: dict[str, int] = {}
        self.made: dict[str, Any] = {}
        self.allocators: dict[str, SegmentAllocator] = {}

    def __str__(self) -> str:
        return f"process {self.number} (pid {self.pid})"

    # --- its clocks and its network -----------------------------------------------------------

    def elapsed_ns(self) -> int:
        passed = self.world.ns - self._since_ns
        return 10**9 + self.world.ns - BEGIN_NS + self._gained_ns + passed * self.drift_ppm // 10**6

    def drift(self, ppm: int) -> None:
        passed = self.world.ns - self._since_ns
        self._gained_ns += passed * self.drift_ppm // 10**6
        self._since_ns, self.drift_ppm = self.world.ns, ppm

    def call(self, where: str, job: Callable[[], Any], unanswered: type[Exception]) -> Any:
        fault, self.fault = self.fault, ""
        self.world.calls[where] += 1
        self.world.pass_ns(self.world.chance.randrange(2_000_000))
        if where in self.world.down or fault == "never":
            raise unanswered("no answer")
        if fault == "late":
            self.world.late.append(job)
            raise unanswered("no answer yet")
        answer = job()
        if fault == "lost":
            raise unanswered("the answer was lost")
        return job() if fault == "twice" else answer

    def execute_command(self, *words: object) -> Any:
        """As a client of Redis."""
        model = self.world.servers[self.server]
        return self.call("redis", lambda: model.execute_command(*words), redis.TimeoutError)

    def hmget(self, key: str, *fields: str) -> list[str | None]:
        """As a client of Redis."""
        found = self.world.servers[self.server].hashes.get(key, {})
        return self.call("redis", lambda: [found.get(each) for each in fields], redis.TimeoutError)

    def ping(self) -> bool:
        return True

    # --- its generators -----------------------------------------------------------------------

    def ids(self, kind: str, count: int) -> Sequence[int]:
        if kind in SNOWFLAKES:
            found = self.made.get(kind)
            if found is None:
                found = self.made[kind] = self._generator(kind)
            return found.next_ids(count)
        source, _, tag = kind.partition(" ")
        found = self.allocators.get(source)
        if found is None:
            found = self.allocators[source] = SegmentAllocator(
                self.source(source), inline_loader(), timeout=0.5, clock=self.clock
            )
        return found.generator(tag).next_ids(count)

    def _generator(self, kind: str) -> SnowflakeGenerator:
        make = BufferedGenerator if kind == "buffered" else SnowflakeGenerator
        options = {} if kind == "buffered" else {"max_ahead": 0.5}
        return make(
            LAYOUT,
            self.registry(kind),
            holder=f"host-{self.number % 40}:{self.pid} worker",
            clock=self.clock,
            background=False,
            **options,
        )

    def registry(self, kind: str) -> Registry:
        space = namespace(kind)
        stores: Any = OneStore(
            ServerStore(
                space.name,
                Own(self),  # type: ignore[arg-type]
                clock=self.clock,
                read_now=lambda _: self.world.database_us(),
            )
        )
        if kind != "redis":
            made = DatabaseLeases(space, clock=self.clock)
            made._stores = stores
            return made
        rooted = RedisLeases(space, alias="idgen", clock=self.clock)
        rooted._own = self._own_redis()
        rooted._scripts.own = rooted._own
        rooted._root._stores = stores
        return rooted

    def _own_redis(self) -> Any:
        from django_idgen.db.redis_client import OwnRedis

        class Reached(OwnRedis):
            client = property(lambda _: self)  # type: ignore[assignment]

            def close(self) -> None:
                """Nothing to close."""

        return Reached("idgen")

    def source(self, source: str) -> Any:
        behind = Pooled(
            alias="default", default_step=STEP, own=Own(self), emit=ignore, measures=False  # type: ignore[arg-type]
        )  # fmt: skip
        if source == "direct":
            return behind
        return PoolSource(
            alias="idgen", source=behind, clock=self.clock, emit=ignore, own=self._own_redis()
        )

    def forget(self) -> None:
        """What the fork hooks do in a child."""
        for each in (*self.made.values(), *self.allocators.values()):
            each.forget()


def namespace(kind: str) -> Namespace:
    registry = "redis" if kind == "redis" else "database"
    return Namespace(
        name=kind,
        epoch_us=LAYOUT.epoch_us,
        tick_us=LAYOUT.tick_us,
        max_ticks=LAYOUT.max_ticks,
        workers=range(WORKERS),
        window_ticks=WINDOW,
        skew_ticks=SKEW,
        ahead_ticks=1000,
        fingerprint={**LAYOUT.fingerprint(), "registry": registry},
    )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a replica of the database has. Frozen."""

    ns: int
    ends: dict[str, tuple[int, int]]
    new: tuple[int, int]
    """Where a tag begins that it lacks, and the longest fetch to reckon with."""
    kept: bytes

    def is_recent(self, ns: int, ends: dict[str, tuple[int, int]]) -> bool:
        """Whether no more was lost until now than the failover of a server skips."""
        for tag, (end, _) in ends.items():
            begin, longest = self.ends.get(tag, self.new)
            if end - begin >= FAILOVER_SKIP * longest:
                return False
        return ns - self.ns < MOST_LOST_S * SECOND


def ends_of_tags() -> dict[str, tuple[int, int]]:
    """By tag: the next id, and twice the longest fetch that the row knows."""
    rows = LeafAlloc.objects.values_list("pk", "max_id", "largest_step")
    return {tag: (end, longest) for tag, end, longest in rows}


def begin_of_tags() -> tuple[int, int]:
    """For a new tag what :func:`ends_of_tags` tells of one."""
    (row,) = Installation.objects.values_list("first_id", "largest_step")
    return row[0], row[1] or 2 * STEP


# --- the world --------------------------------------------------------------------------------


@dataclass
class World:
    """True time, the stores, the processes, and what happens to them."""

    ns: int = BEGIN_NS
    begun_ns: int = BEGIN_NS
    chance: Random = field(default_factory=lambda: Random(0))
    processes: list[Process] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """Ids by kind."""
    calls: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    """Events that did something."""
    late: list[Callable[[], Any]] = field(default_factory=list)
    down: set[str] = field(default_factory=set)
    stopped_us: dict[str, int] = field(default_factory=dict)
    """By store whose clock stands still: what it shows."""
    notes: list[str] = field(default_factory=list)
    """What the last event did."""
    pid: int = 1

    def __post_init__(self) -> None:
        self.numbers = 0
        self.database_offset_us = self.redis_offset_us = 0
        self.database_server = 1
        self.snapshots: list[Snapshot] = []
        self.backup: Snapshot | None = None
        self.servers = [RedisModel(self.redis_us) for _ in range(2)]
        self.saved: list[dict[str, Any]] = [{}, {}]
        self._ticks: dict[tuple[str, int], Claims] = defaultdict(Claims)
        self._ids: dict[str, Claims] = defaultdict(Claims)

    def pass_ns(self, ns: int) -> None:
        self.ns += ns

    def database_us(self) -> int:
        return self.stopped_us.get("database", self.ns // 1000 + self.database_offset_us)

    def redis_us(self) -> int:
        return self.stopped_us.get("redis", self.ns // 1000 + self.redis_offset_us)

    # --- running ------------------------------------------------------------------------------

    def do(self, event: Event) -> None:
        """Let one event happen, if it can. Raises :class:`Repeated`, and what is no IdgenError."""
        self.chance.seed(event.seed)
        self.notes = []
        if getattr(self, f"_{event.what}")() is not False:
            self.done[event.what] += 1

    def _one(self) -> Process | None:
        awake = [each for each in self.processes if each.asleep_until <= self.ns]
        if not awake:
            return None
        chosen = self.chance.choice(awake)
        self.notes.append(str(chosen))
        return chosen

    @contextmanager
    def as_process(self, process: Process) -> Iterator[None]:
        """The code that runs now is the process'; nothing but our own errors may come out (I6).

        Nor may a layout's decades be used up, which last longer than any run.
        """
        self.pid = process.pid
        try:
            yield
        except TimeExhausted:
            raise
        except IdgenError as error:
            self.errors[type(error).__name__] += 1
            self.notes.append(f"{type(error).__name__}: {error}")
        finally:
            self.pid = 1

    # --- what processes do --------------------------------------------------------------------

    def _start(self) -> None:
        if len(self.processes) >= PROCESSES:
            self._end(self.chance.choice(self.processes))
        self.numbers += 1
        process = Process(self, self.numbers)
        process.server = self.chance.randrange(2) if self.chance.random() < 0.1 else 0
        self.processes.append(process)
        self.notes.append(str(process))
        with self.as_process(process):
            self._taken(process, self.chance.choice(KINDS), 1)

    def _take(self) -> bool:
        process = self._one()
        if process is None:
            return False
        count = self.chance.choice((1, 1, 2, 10, 100, 1000, 4000, 20_000))
        with self.as_process(process):
            self._taken(process, self.chance.choice(KINDS), count)
        return True

    def _taken(self, process: Process, kind: str, count: int) -> None:
        ids = np.array(process.ids(kind, count), dtype=np.int64)
        self.notes.append(f"{len(ids):,} from {kind}: {ids[0]} to {ids[-1]}")
        if len(ids) != count:
            raise Repeated(f"I6: {len(ids)} ids instead of {count}")
        if ids[0] <= process.last.get(kind, 0) or (np.diff(ids) <= 0).any():
            raise Repeated(f"I2 or I7: {kind} of {process} did not rise")
        process.last[kind] = int(ids[-1])
        self.counts[kind] += count
        if kind not in SNOWFLAKES:
            self._claim_ids(process, kind.partition(" ")[2], ids)
            return
        lease = process.made[kind].keeper.lease
        workers, ticks = (ids >> 12) & 1023, ids >> 22
        breaks = (np.diff(workers) != 0) | (np.diff(ticks) > 1)
        for first, last in runs(ids, breaks):
            start, end = LAYOUT.unpack(first), LAYOUT.unpack(last)
            self._ticks[kind, start.worker].claim(start.tick, end.tick + 1, str(process))
        if lease is not None and lease.worker == end.worker and end.tick >= lease.until:
            raise Repeated(f"I3: tick {end.tick} of {process} is outside of {lease}")

    def _claim_ids(self, process: Process, tag: str, ids: np.ndarray) -> None:
        for first, last in runs(ids, np.diff(ids) != 1):
            # Each range has an owner of its own: it is never claimed again.
            self._ids[tag].claim(first, last + 1, (str(process), first))

    def _renew(self) -> bool:
        process = self._one()
        if process is None or not process.made:
            return False
        generator = process.made[self.chance.choice(list(process.made))]
        with self.as_process(process):
            generator.keeper.renew_in_background()
            if isinstance(generator, BufferedGenerator):
                generator.fill_in_background()
        return True

    def _kill(self) -> bool:
        return self._end(self._one())

    def _end(self, process: Process | None) -> bool:
        if process is None:
            return False
        for each in process.made.values():
            each.keeper.lease = None  # nothing warns after a SIGKILL
        self.processes.remove(process)
        return True

    def _close(self) -> bool:
        process = self._one()
        if process is None:
            return False
        with self.as_process(process):
            for each in (*process.made.values(), *process.allocators.values()):
                each.close()
        return self._end(process)

    def _fork(self) -> bool:
        """The child goes on with the parent's objects; what the parent holds is the parent's."""
        process = self._one()
        if process is None:
            return False
        for kind, generator in process.made.items():
            lease = generator.keeper.lease
            if lease is not None:
                used = LAYOUT.unpack(process.last[kind]) if kind in process.last else None
                mine = used is not None and used.worker == lease.worker and used.tick >= lease.start
                start = used.tick + 1 if mine else lease.start
                if start < lease.until:
                    claims = self._ticks[kind, lease.worker]
                    claims.claim(start, lease.until, f"the parent of {process}")
        self.numbers += 1
        process.pid = 100_000 + self.numbers
        with self.as_process(process):
            process.forget()
        return True

    def _sleep(self) -> bool:
        """SIGSTOP, a suspended virtual machine."""
        process = self._one()
        if process is None:
            return False
        process.asleep_until = self.ns + round(self.chance.uniform(0, 60) * SECOND)
        return True

    def _beat(self) -> bool:
        """What Celery's beat runs, in a process of its own."""
        process = self._one()
        if process is None:
            return False
        with self.as_process(process):
            for generator in process.made.values():
                generator.keeper.registry.renew_seen(idle_after=30)
        with self.as_process(process):
            if "pool" in process.allocators:
                process.allocators["pool"].source.refill(self.chance.choice(TAGS), 500)
        return True

    # --- time ---------------------------------------------------------------------------------

    def _pass_time(self) -> None:
        span = self.chance.choice((0.001, 0.01, 0.05, 0.2, 1, 3, 10))
        self.pass_ns(round(self.chance.uniform(0, span) * SECOND))

    def _step_wall(self) -> bool:
        process = self._one()
        if process is None:
            return False
        process.wall_ns += round(self.chance.uniform(-3600, 3600) * SECOND)
        return True

    def _drift(self) -> bool:
        process = self._one()
        if process is None:
            return False
        process.drift(self.chance.choice((0, 0, 200, -200, 50_000, -50_000, -500_000)))
        return True

    def _step_database(self) -> None:
        self.stopped_us.pop("database", None)
        self.database_offset_us += round(self._step_s() * 1e6)

    def _step_redis(self) -> None:
        self.stopped_us.pop("redis", None)
        self.redis_offset_us += round(self._step_s() * 1e6)

    def _stop_a_clock(self) -> None:
        """It stands still until it is stepped."""
        if self.chance.random() < 0.5:
            self.stopped_us["database"] = self.database_us()
        else:
            self.stopped_us["redis"] = self.redis_us()

    def _step_s(self) -> float:
        span = self.chance.choice((0.1, 1, 20))
        return self.chance.uniform(-span, span)

    # --- the network --------------------------------------------------------------------------

    def _fail_a_call(self) -> bool:
        process = self._one()
        if process is None:
            return False
        process.fault = self.chance.choice(("never", "lost", "late", "twice"))
        return True

    def _deliver(self) -> bool:
        """A request that was late arrives. Its sender has given it up."""
        if not self.late or "database" in self.down:
            return False
        job = self.late.pop(self.chance.randrange(len(self.late)))
        with suppress(IdgenError, redis.RedisError):
            job()
        return True

    def _outage(self) -> None:
        self.down.add(self.chance.choice(("database", "redis")))

    def _end_outages(self) -> bool:
        was = bool(self.down)
        self.down.clear()
        return was

    # --- Redis --------------------------------------------------------------------------------

    def _flush(self) -> None:
        self.chance.choice(self.servers).lose_all()

    def _empty(self) -> None:
        server = self.chance.choice(self.servers)
        server.lose_all()
        server.restart()

    def _save_redis(self) -> None:
        """The other one is a replica, and has this much."""
        number = self.chance.randrange(2)
        self.saved[number] = self.servers[1 - number].save()

    def _promote(self) -> None:
        """A replica is promoted with what it had, while the other one goes on."""
        number = self.chance.randrange(2)
        self.servers[number].load(self.saved[number])

    def _switch(self) -> bool:
        """A process reaches the other server from now on."""
        process = self._one()
        if process is None:
            return False
        process.server = 1 - process.server
        return True

    # --- the database -------------------------------------------------------------------------

    def _snapshot(self) -> bool:
        """A replica has this much. It knows of the takeover before it (a documented limit)."""
        server = self.identity()
        rows = [*LeafAlloc.objects.values_list("server", flat=True)]
        rows += NamespaceRecord.objects.values_list("server", flat=True)
        installation = Installation.objects.get()
        rows += [installation.server or server]
        rows += [json.loads(installation.namespaces)[ALL].get(SERVER)]
        if any(row != server for row in rows):
            return False
        kept = connections["default"].connection.serialize()
        self.snapshots.append(Snapshot(self.ns, ends_of_tags(), begin_of_tags(), kept))
        if self.backup is None or self.chance.random() < 0.02:
            self.backup = self.snapshots[-1]
        return True

    def _take_over(self) -> bool:
        """Another server takes over. It lacks the writes since a snapshot."""
        now = ends_of_tags()
        fit = [each for each in self.snapshots if each.is_recent(self.ns, now)]
        self.snapshots.clear()
        self.late.clear()  # its connections are gone
        if not fit:
            return False
        connections["default"].connection.deserialize(self.chance.choice(fit).kept)
        self.database_server += 1
        return True

    def _restore(self) -> bool:
        """A backup is restored as the documentation says: all are stopped, and ids are skipped.

        ``idgen_skip --all --generators --newest ... --by ...``: the time of the newest id, and
        what the tags have used since.
        """
        if self.backup is None:
            return False
        now, before = ends_of_tags(), self.backup.ends
        for process in [*self.processes]:
            self._end(process)
        self.late.clear()
        self.down.clear()
        self.snapshots.clear()
        connections["default"].connection.deserialize(self.backup.kept)
        # A database that was restored or has just taken over may not know all that was used.
        used = [
            max(now.get(tag, (0, 0))[0], self._ids[tag].stop) - before.get(tag, (1, 0))[0]
            for tag in TAGS
        ]
        LeafAlloc.objects.update(max_id=F("max_id") + max(0, *used))
        Installation.objects.update(first_id=F("first_id") + max(0, *used))
        operator = Process(self, self.numbers)
        self.servers[1].lose_all()  # the Redis that the operator's project does not use
        self.pid = operator.pid
        for kind in SNOWFLAKES:
            book = operator.registry(kind).stored_book()
            project: Any = SimpleNamespace(book=lambda _, book=book: book)
            ticks = max(
                (each.stop for (of, _), each in self._ticks.items() if of == kind), default=0
            )
            newest_us = LAYOUT.epoch_us + (ticks - 1) * LAYOUT.tick_us if ticks else None
            GeneratorSkip(project, Mock(alias=kind), newest_us=newest_us).apply()
        self.pid = 1
        operator.source("pool").clear(TAGS)
        return True

    def identity(self) -> str:
        return f"server-{self.database_server}"

    # --- what the package asks the system ----------------------------------------------------

    def getpid(self) -> int:
        return self.pid

    def token_hex(self, length: int) -> str:
        return f"{self.chance.getrandbits(8 * length):0{2 * length}x}"

    def identities(self, _connection: object) -> tuple[str, ...]:
        return ("idgen_server()",)

    def _lose_rows(self) -> None:
        """Somebody deletes the rows of worker ids."""
        connections["default"].cursor().execute("DELETE FROM django_idgen_workerlease")
        self.snapshots.clear()


KINDS = (*SNOWFLAKES, *(f"{source} {tag}" for source in ("direct", "pool") for tag in TAGS))


@contextmanager
def made_world() -> Iterator[World]:
    """A world, in a database of its own."""
    home = connections["default"]
    home.close()
    home.ensure_connection()
    world = World()
    home.connection.create_function("idgen_server", 0, world.identity)
    with ExitStack() as stack:
        patch = stack.enter_context
        for module in (book, keeper, redis_registry):
            patch(mock.patch.object(module, "_random", world.chance))
        for owner, name, stand_in in (
            (os, "getpid", world.getpid),
            (secrets, "token_hex", world.token_hex),
            (dialects, "_identities", world.identities),
        ):
            patch(mock.patch.object(owner, name, stand_in))
        # An earlier world's are there: the database is in memory, and Django keeps it open.
        for model in (Installation, NamespaceRecord, WorkerLease, LeafAlloc):
            home.cursor().execute(f"DROP TABLE IF EXISTS {model._meta.db_table}")
        make_missing_tables(home)
        yield world
