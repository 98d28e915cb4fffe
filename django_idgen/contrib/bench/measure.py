"""The measurement: all targets in turn, in rounds, in one process or in several.

Each round measures every target once, in an order that rotates, so that whatever slows the
machine down for a while slows all targets. Several processes measure the same target at the
same time.

Throughput is timed over whole passes, which only make the calls and keep the results.
Latency is sampled in passes of its own, which time each call, so that reading the clock
does not count as the cost of an id.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain, repeat
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from typing import Any, TypeVar

import django

from ...core.errors import ConfigurationError, IdgenError
from ...core.options import check_whole
from ...process.exits import end_now
from ...process.maps import segments
from .proof import Fault, Journal
from .targets import BenchFailed, Target, open_target

T = TypeVar("T")
Taken = list[list[Any]]
"""The ids of one pass of one thread, in the pieces in which they came."""
LIMITS = {"count": 1_000_000_000, "threads": 256, "processes": 64, "batch": 100_000}
ROUNDS = 7
"""The least number of rounds, if there are enough ids for it."""
IDS_A_PASS = 200_000
"""Ids that a process holds in memory before it writes them to its files."""
TIMED_CALLS = 100_000
"""Calls whose latency is sampled, a target and process, in all rounds together."""
SEGMENT_TIMEOUT = 60.0
"""Seconds that a benchmark waits for a segment: a slow source is a figure, not a failure."""
STOPPED = 130
"""The exit code of a process that Ctrl-C ends."""
START_TIMEOUT = 3.0
"""Seconds that Ctrl-C waits for a process to start."""
EXIT_TIMEOUT = 10.0
"""Seconds for a process to exit, which releases its worker id."""


# --- one pass --------------------------------------------------------------------


def take(target: Target, count: int, batch: int) -> Taken:
    """Take ``count`` ids by ``next_id()``, or by ``next_ids(batch)`` if ``batch`` is over 1."""
    if batch == 1:
        source = target.source
        return [[source.next_id() for _ in repeat(None, count)]]
    whole, rest = divmod(count, batch)
    return [target.next_ids(size) for size in chain(repeat(batch, whole), filter(None, [rest]))]


def time_calls(target: Target, count: int) -> tuple[array[int], list[Any]]:
    """Call ``next_id()`` ``count`` times; return the nanoseconds of each call, and the ids.

    Each figure includes reading the clock: see :func:`timer_ns`.
    """
    clock, source = perf_counter_ns, target.source
    spans = array("q", bytes(8 * count))
    ids: list[Any] = []
    for index in range(count):
        begun = clock()
        value = source.next_id()
        ended = clock()
        spans[index] = ended - begun
        ids.append(value)
    return spans, ids


def timer_ns(samples: int = 1001) -> int:
    """Nanoseconds that reading the clock adds to each latency."""
    clock = perf_counter_ns
    return int(median(-(clock() - clock()) for _ in range(samples)))


def in_threads(job: Callable[[int], T], threads: int) -> tuple[int, list[T]]:
    """Run ``job(0)`` to ``job(threads - 1)`` at once, each in a thread of its own.

    Returns the nanoseconds from the first start to the last end, and the results. Raises what
    the first failing job raised.
    """
    gate = threading.Barrier(threads)

    def timed(number: int) -> tuple[int, int, T]:
        gate.wait()
        begun = perf_counter_ns()
        result = job(number)
        return begun, perf_counter_ns(), result

    if threads == 1:
        runs = [timed(0)]
    else:
        with ThreadPoolExecutor(threads) as pool:
            runs = list(pool.map(timed, range(threads)))
    begun, ended, results = zip(*runs, strict=True)
    return max(ended) - min(begun), list(results)


@contextmanager
def quiet_gc() -> Iterator[None]:
    """Collect garbage now and not again within the block, so that all targets are equal."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


# --- the plan --------------------------------------------------------------------


def shares(total: int, parts: int) -> list[int]:
    """``total`` split into ``parts`` that differ by one at most."""
    return [total * (part + 1) // parts - total * part // parts for part in range(parts)]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure. Raises :class:`ConfigurationError` for a plan that can't be run."""

    names: tuple[str, ...]
    """The targets, peers included. The others are compared with the first."""
    count: int
    """Ids of each target, of all threads and processes together."""
    threads: int = 1
    """Threads in each process."""
    processes: int = 1
    batch: int = 1
    """1 calls ``next_id()``; more calls ``next_ids()`` for so many."""

    def __post_init__(self) -> None:
        for name, most in LIMITS.items():
            check_whole(f"--{name}", getattr(self, name), least=1, most=most)
        if self.count < self.threads * self.processes:
            raise ConfigurationError(
                f"--count {self.count} is not enough for {self.threads} threads in each of "
                f"{self.processes} processes: each takes at least one id. "
                f"Raise it to {self.threads * self.processes} or more."
            )

    @property
    def rounds(self) -> int:
        a_thread = self.count // (self.threads * self.processes)
        return max(min(ROUNDS, a_thread), -(-self.count // self.processes // IDS_A_PASS))

    def ids_of(self, part: int) -> list[list[int]]:
        """For each round, the ids that each thread of process ``part`` takes."""
        return self._divided(shares(self.count, self.processes)[part])

    def calls_of(self, part: int) -> list[list[int]]:
        """For each round, the calls that each thread of process ``part`` times."""
        return self._divided(min(shares(self.count, self.processes)[part], TIMED_CALLS))

    def _divided(self, total: int) -> list[list[int]]:
        return [shares(in_round, self.threads) for in_round in shares(total, self.rounds)]


@dataclass(slots=True)
class Measured:
    """What one process found out about one target."""

    worker: int | None
    """The worker id of this process, if the generator has one."""
    ids: list[int] = field(default_factory=list)
    """Ids taken in each round."""
    elapsed_ns: list[int] = field(default_factory=list)
    """The time that each round took."""
    latency_ns: array[int] = field(default_factory=lambda: array("q"))


# --- one process -----------------------------------------------------------------


def run_here(
    plan: Plan,
    targets: Sequence[Target],
    folder: Path,
    *,
    part: int = 0,
    gate: Callable[[], object] = lambda: None,
) -> list[Measured]:
    """Measure in this process, as number ``part`` of the plan's processes.

    Each pass begins after ``gate()``. The ids go to files below ``folder``, which the caller
    removes: those of the first target to ``folder/0``, and so on. Raises what a generator raises,
    :class:`Fault` and :class:`OSError`.
    """
    ids, calls = plan.ids_of(part), plan.calls_of(part)
    allocator = segments.allocator()
    usual, allocator.timeout = allocator.timeout, SEGMENT_TIMEOUT
    try:
        measurements = [
            _Measurement(target, plan, folder / str(number), gate)
            for number, target in enumerate(targets)
        ]
        for turn in range(plan.rounds):
            start = turn % len(measurements)
            for measurement in measurements[start:] + measurements[:start]:
                measurement.run_round(ids[turn], calls[turn])
    finally:
        allocator.timeout = usual
    return [measurement.found for measurement in measurements]


class _Measurement:
    """One target in this process: its figures, and the files of its ids."""

    def __init__(
        self, target: Target, plan: Plan, folder: Path, gate: Callable[[], object]
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.target = target
        self.plan = plan
        self.gate = gate
        self.journals = [
            Journal(target.name, folder / f"thread {thread} of process {os.getpid()}")
            for thread in range(plan.threads)
        ]
        # The first id waits for a worker id or a segment, which is not measured.
        self._keep([[target.source.next_id()]])
        self.found = Measured(target.worker)

    def run_round(self, ids: list[int], calls: list[int]) -> None:
        """Take ids as fast as they come, then others one by one; see :meth:`Plan.ids_of`."""
        elapsed, taken = self._pass(lambda thread: take(self.target, ids[thread], self.plan.batch))
        self.found.ids.append(sum(ids))
        self.found.elapsed_ns.append(elapsed)
        self._keep(chain.from_iterable(pieces) for pieces in taken)
        _, timed = self._pass(lambda thread: time_calls(self.target, calls[thread]))
        for spans, _ in timed:
            self.found.latency_ns.extend(spans)
        self._keep(taken for _, taken in timed)

    def _pass(self, job: Callable[[int], T]) -> tuple[int, list[T]]:
        with quiet_gc():
            self.gate()
            return in_threads(job, self.plan.threads)

    def _keep(self, taken: Iterable[Iterable[Any]]) -> None:
        if self.target.ours:
            for journal, ids in zip(self.journals, taken, strict=False):
                journal.add(ids)


# --- several processes -----------------------------------------------------------


def run_in_processes(plan: Plan, folder: Path) -> list[list[Measured]]:
    """Measure in ``plan.processes`` fresh processes at once; one list for each of them.

    Raises :class:`Fault`, and :class:`BenchFailed` if a process can't finish.
    """
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(plan.processes)
    children: dict[Connection, SpawnProcess] = {}
    try:
        with _interrupts_held():
            for part in range(plan.processes):
                ours, theirs = context.Pipe()
                job = (plan, part, folder, barrier, theirs)
                child = context.Process(target=_work, args=job, name=f"bench-{part}", daemon=True)
                child.start()
                theirs.close()
                children[ours] = child
        return _gather(children)
    except BaseException:
        for connection in children:
            connection.close()  # which ends its process
        raise
    finally:
        for connection, child in children.items():
            child.join(EXIT_TIMEOUT)
            child.terminate()
            connection.close()


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C back. The processes that start meanwhile never see it: this one ends them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield  # Windows
        return
    usual = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, usual)


def _gather(children: Mapping[Connection, SpawnProcess]) -> list[list[Measured]]:
    found: dict[Connection, list[Measured]] = {}
    while len(found) < len(children):
        for receiver in wait([each for each in children if each not in found]):
            assert isinstance(receiver, Connection)  # noqa: S101  # nosec B101  # for the type checker
            child = children[receiver]
            try:
                content = receiver.recv()
            except EOFError:
                child.join(EXIT_TIMEOUT)
                content = BenchFailed(
                    f"Process {child.pid} ended with exit code {child.exitcode} before it had "
                    f"finished."
                )
            if isinstance(content, BenchFailed):
                raise content
            found[receiver] = content
    return [found[receiver] for receiver in children]


def _work(plan: Plan, part: int, folder: Path, barrier: Barrier, parent: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    begun, ending = threading.Event(), threading.Lock()

    def end(status: int) -> None:
        with ending:  # for good: one of the two threads gives all back
            end_now(status)

    def end_with_parent() -> None:
        """End after the parent has closed its connection, or has ended."""
        with suppress(EOFError, OSError):
            parent.recv()
        begun.wait(START_TIMEOUT)  # or it would take a worker id after this has given all back
        end(STOPPED)

    def gate() -> None:
        begun.set()
        barrier.wait()

    threading.Thread(target=end_with_parent, daemon=True).start()
    found: list[Measured] | BenchFailed
    try:
        django.setup()
        found = run_here(plan, [*map(open_target, plan.names)], folder, part=part, gate=gate)
    except Fault as error:
        found = error
    except Exception as error:  # noqa: BLE001  The parent reports it.
        reason = str(error) if isinstance(error, IdgenError) else repr(error)
        found = BenchFailed(f"Process {os.getpid()} could not go on: {reason}")
    begun.set()
    with suppress(OSError):
        parent.send(found)
    end(0)
