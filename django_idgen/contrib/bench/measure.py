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
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, repeat
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path
from statistics import median
from threading import BrokenBarrierError
from time import perf_counter_ns, sleep
from typing import Any, TypeVar

from ...core.errors import ConfigurationError, IdgenError
from ...core.options import check_whole
from ...process.exits import end_now
from .proof import Fall, Journal, Run
from .targets import BenchFailed, Opener, Target

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
    next_ids = target.next_ids
    taken = [next_ids(batch) for _ in repeat(None, whole)]
    if rest:
        taken.append(next_ids(rest))
    return taken


def time_calls(target: Target, count: int) -> tuple[array[int], Taken]:
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
    return spans, [ids]


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

    @property
    def steps(self) -> int:
        """How many passes each process makes: the length of the progress bar."""
        return self.rounds * len(self.names)

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

    name: str
    what: str
    ours: bool
    rises: bool
    pid: int
    ids: list[int] = field(default_factory=list)
    """Ids taken in each round."""
    elapsed_ns: list[int] = field(default_factory=list)
    """The time that each round took."""
    latency_ns: array[int] = field(default_factory=lambda: array("q"))
    runs: list[Run] = field(default_factory=list)
    falls: list[Fall | None] = field(default_factory=list)
    stats: Mapping[str, Any] = field(default_factory=dict)

    @property
    def worker(self) -> object:
        """The worker id of this process, if the generator has one."""
        return (self.stats.get("lease") or {}).get("worker")


# --- one process -----------------------------------------------------------------


def run_here(
    plan: Plan,
    open_target: Opener,
    folder: Path,
    *,
    part: int = 0,
    gate: Callable[[], object] = lambda: None,
    on_step: Callable[[], object] = lambda: None,
) -> list[Measured]:
    """Measure in this process, as number ``part`` of the plan's processes.

    Each pass begins after ``gate()``. The ids go to files in ``folder``, which the caller
    removes. Raises what a generator raises, and :class:`OSError`.
    """
    measurements = [
        _Measurement(open_target(name), plan, folder, f"{number}-{part}", gate)
        for number, name in enumerate(plan.names)
    ]
    ids, calls = plan.ids_of(part), plan.calls_of(part)
    for turn in range(plan.rounds):
        start = turn % len(measurements)
        for measurement in measurements[start:] + measurements[:start]:
            measurement.time_ids(ids[turn])
            measurement.time_calls(calls[turn])
            on_step()
    return [measurement.finish() for measurement in measurements]


class _Measurement:
    """One target in this process: its figures, and the files of its ids."""

    def __init__(
        self, target: Target, plan: Plan, folder: Path, file: str, gate: Callable[[], object]
    ) -> None:
        pid = os.getpid()
        self.target = target
        self.batch = plan.batch
        self.gate = gate
        self.journals = [
            Journal(folder / f"{file}-{thread}", f"thread {thread} of process {pid}")
            for thread in range(plan.threads)
        ]
        self.found = Measured(target.name, target.what, target.ours, target.rises, pid)
        # The first id waits for a worker id or a segment, which is not measured.
        self._keep([take(target, 1, 1)])

    def time_ids(self, ids: list[int]) -> None:
        elapsed, taken = self._pass(lambda thread: take(self.target, ids[thread], self.batch))
        self.found.ids.append(sum(ids))
        self.found.elapsed_ns.append(elapsed)
        self._keep(taken)

    def time_calls(self, calls: list[int]) -> None:
        _, timed = self._pass(lambda thread: time_calls(self.target, calls[thread]))
        for spans, _ in timed:
            self.found.latency_ns.extend(spans)
        self._keep([taken for _, taken in timed])

    def finish(self) -> Measured:
        self.found.runs = [run for journal in self.journals for run in journal.runs]
        self.found.falls = [journal.fall for journal in self.journals]
        self.found.stats = self.target.stats()
        return self.found

    def _pass(self, job: Callable[[int], T]) -> tuple[int, list[T]]:
        with quiet_gc():
            self.gate()
            return in_threads(job, len(self.journals))

    def _keep(self, taken: list[Taken]) -> None:
        if self.target.ours:
            for journal, pieces in zip(self.journals, taken, strict=False):
                journal.add(chain.from_iterable(pieces))


# --- several processes -----------------------------------------------------------


def run_in_processes(
    plan: Plan,
    open_target: Opener,
    folder: Path,
    *,
    set_up: Callable[[], object],
    on_step: Callable[[], object] = lambda: None,
) -> list[list[Measured]]:
    """Measure in ``plan.processes`` fresh processes at once; one list for each of them.

    Each process calls ``set_up`` first. ``set_up`` and ``open_target`` must be functions of a
    module. Raises :class:`BenchFailed` if a process can't finish.
    """
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(plan.processes)
    children: dict[Connection, SpawnProcess] = {}
    try:
        for part in range(plan.processes):
            receiver, sender = context.Pipe(duplex=False)
            job = (plan, part, folder, open_target, set_up, barrier, sender)
            child = context.Process(target=_work, args=job, name=f"bench-{part}", daemon=True)
            with _interrupts_held():
                child.start()
            sender.close()
            children[receiver] = child
        return _gather(children, on_step)
    except BaseException:
        for child in children.values():
            child.join(EXIT_TIMEOUT / len(children))
            if child.is_alive():
                child.terminate()
        raise
    finally:
        for receiver, child in children.items():
            child.join(EXIT_TIMEOUT)
            receiver.close()


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Raise nothing at Ctrl-C in the processes that start meanwhile: a thread waits for it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield  # Windows
        return
    usual = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, usual)


def _end_at_interrupt(begun: threading.Event, stopping: threading.Event) -> None:
    """End this process at Ctrl-C, from a thread: an exception could be lost in a finalizer."""
    signal.sigwait({signal.SIGINT})
    _end(begun, stopping)


def _end_with_parent(begun: threading.Event, stopping: threading.Event) -> None:
    """End this process after its parent, which stops nothing if it is killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        _end(begun, stopping)


def _end(begun: threading.Event, stopping: threading.Event) -> None:
    stopping.set()
    begun.wait(START_TIMEOUT)  # or it would take a worker id after this has given all back
    end_now(STOPPED)


def _work(
    plan: Plan,
    part: int,
    folder: Path,
    open_target: Opener,
    set_up: Callable[[], object],
    barrier: Barrier,
    sender: Connection,
) -> None:
    def on_step() -> None:
        if part == 0:
            sender.send(("step", None))

    def gate() -> None:
        begun.set()
        barrier.wait()

    begun, stopping = threading.Event(), threading.Event()
    watching = [_end_with_parent]
    if hasattr(signal, "pthread_sigmask"):
        watching.append(_end_at_interrupt)
    for watch in watching:
        threading.Thread(target=watch, args=[begun, stopping], daemon=True).start()
    try:
        set_up()
        found = run_here(plan, open_target, folder, part=part, gate=gate, on_step=on_step)
        sender.send(("done", found))
    except BrokenBarrierError:
        sender.send(("stopped", None))  # the process that failed reports the reason
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  The parent reports it.
        if stopping.is_set() or isinstance(error, BrokenPipeError):
            return  # its generators were closed, or nobody reads what it sends
        sender.send(("failed", str(error) if isinstance(error, IdgenError) else repr(error)))
        barrier.abort()
    finally:
        begun.set()
        while stopping.is_set():
            sleep(0.1)  # the thread that ends this process gives back the worker id first


def _gather(
    children: Mapping[Connection, SpawnProcess], on_step: Callable[[], object]
) -> list[list[Measured]]:
    found: dict[Connection, list[Measured]] = {}
    running = set(children)
    while running:
        for receiver in wait(list(running)):
            assert isinstance(receiver, Connection)  # noqa: S101  # nosec B101  # for the type checker
            child = children[receiver]
            try:
                event, content = receiver.recv()
            except EOFError:
                child.join(EXIT_TIMEOUT)
                event = "failed"
                content = f"it ended with exit code {child.exitcode} before it had finished."
            if event == "failed":
                raise BenchFailed(f"Process {child.pid} could not go on: {content}")
            if event == "step":
                on_step()
            else:
                running.discard(receiver)
            if event == "done":
                found[receiver] = content
    return [found[receiver] for receiver in children]
