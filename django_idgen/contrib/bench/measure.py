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
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from multiprocessing.connection import Connection, wait
from multiprocessing.util import Finalize
from pathlib import Path
from time import perf_counter_ns
from typing import Any, TypeVar

import django
from django.db import connections

from ...core.errors import IdgenError
from ...core.options import check_whole
from ...process.exits import end_now
from ...process.maps import segments
from .proof import Fault, Journal
from .targets import SLOW, BenchFailed, Peer, open_target

T = TypeVar("T")
Measured = tuple[list[int], list[int]]
"""Of one target in one process: nanoseconds of each round, and of single calls."""
LIMITS = {"count": 1_000_000_000, "threads": 256, "processes": 64, "batch": 100_000}
ROUNDS = 7
"""The least number of rounds: fewer would not show how far they differ."""
IDS_A_PASS = 200_000
"""Ids that a process holds in memory before it writes them to its files."""
TIMED_CALLS = 100_000
"""Calls whose latency is sampled, a target and process, in all rounds together."""
SEGMENT_TIMEOUT = 60.0
"""Seconds that a benchmark waits for a segment: a slow source is a figure, not a failure."""
STOPPED = 130
"""The exit code of a process that Ctrl-C ends."""


# --- one pass --------------------------------------------------------------------


def take(source: Any, count: int, batch: int) -> list[list[Any]]:
    """Take ``count`` ids by ``next_id()``, or by ``next_ids(batch)`` if ``batch`` is over 1."""
    if batch == 1:
        return [[source.next_id() for _ in range(count)]]
    return [source.next_ids(min(batch, count - taken)) for taken in range(0, count, batch)]


def time_calls(source: Any, count: int) -> list[tuple[int, Any, int]]:
    """Call ``next_id()`` ``count`` times; return each id between two readings of the clock."""
    clock = perf_counter_ns
    return [(clock(), source.next_id(), clock()) for _ in range(count)]


def in_threads(job: Callable[[], T], pool: ThreadPoolExecutor, threads: int) -> tuple[int, list[T]]:
    """Run ``job()`` in all ``threads`` of ``pool`` at once.

    Returns the nanoseconds from the first start to the last end, and the results. Raises what
    the first failing job raised.
    """
    gate = threading.Barrier(threads)

    def timed(_lane: int) -> tuple[int, T, int]:
        gate.wait()
        return perf_counter_ns(), job(), perf_counter_ns()

    try:
        begun, results, ended = zip(*pool.map(timed, range(threads)), strict=True)
    finally:
        gate.abort()  # after Ctrl-C, some jobs may wait for others that never begin
    return max(ended) - min(begun), list(results)


def in_turns(items: Sequence[T], rounds: int, *, shows: bool = True) -> Iterator[T]:
    """Each of ``items`` once a round, in an order that rotates.

    ``shows``: a terminal shows each round in its line.
    """
    for turn in range(rounds):
        if shows and sys.stderr.isatty():
            print(f"round {turn + 1} of {rounds}", end="\r", file=sys.stderr, flush=True)
        start = turn % len(items)
        yield from [*items[start:], *items[:start]]


# --- the plan --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure. Raises :class:`ConfigurationError` for a plan that can't be run."""

    targets: Mapping[str, str]
    """By the name that the report shows, what to open. All are compared with the first."""
    count: int
    """Ids of each target, of all threads and processes together; rounded up to whole rounds."""
    threads: int = 1
    processes: int = 1
    batch: int = 1
    """1 calls ``next_id()``; more calls ``next_ids()`` for so many."""

    def __post_init__(self) -> None:
        for name, most in LIMITS.items():
            check_whole(f"--{name}", getattr(self, name), least=1, most=most)

    @property
    def rounds(self) -> int:
        return max(ROUNDS, -(-self.count // (self.processes * IDS_A_PASS)))

    def ids(self, name: str) -> int:
        """The ids of a target that each thread takes in each round."""
        most = min(self.count, SLOW.get(self.targets[name], self.count))
        return -(-most // (self.threads * self.processes * self.rounds))


# --- one process -----------------------------------------------------------------


def run_here(
    plan: Plan, folder: Path, *, gate: Callable[[], object] = lambda: None, shows: bool = True
) -> list[Measured]:
    """Measure in this process, one of the plan's processes. Each pass begins after ``gate()``.

    The ids go to files below ``folder``, which the caller removes: those of the first target to
    ``folder/0``, and so on. ``shows``: see :func:`in_turns`. Raises what a generator raises,
    :class:`Fault` and :class:`OSError`.
    """
    allocator = segments.allocator()
    usual, allocator.timeout = allocator.timeout, SEGMENT_TIMEOUT
    with ThreadPoolExecutor(plan.threads) as pool:

        def in_all(job: Callable[[], T]) -> tuple[int, list[T]]:
            gc.collect()  # so that none pays for what another one left
            gate()
            return in_threads(job, pool, plan.threads)

        try:
            runs = [
                _Run(name, plan, folder / str(place), in_all)
                for place, name in enumerate(plan.targets)
            ]
            for run in in_turns(runs, plan.rounds, shows=shows):
                run.measure()
        finally:
            allocator.timeout = usual
            in_threads(connections.close_all, pool, plan.threads)
    return [run.measured for run in runs]


class _Run:
    """One target in this process: its figures, and the files of its ids."""

    def __init__(self, name: str, plan: Plan, folder: Path, in_all: Any) -> None:
        self.measured: Measured = ([], [])
        self._plan, self._in_all = plan, in_all
        self._ids, self._source = plan.ids(name), open_target(plan.targets[name])
        folder.mkdir(exist_ok=True)
        self._journals = [
            Journal(name, folder / f"thread {thread} of process {os.getpid()}")
            for thread in range(0 if isinstance(self._source, Peer) else plan.threads)
        ]
        # The first id waits for a worker id or a segment, which is not measured.
        _, first = in_all(self._source.next_id)
        self._keep([each] for each in first)

    def measure(self) -> None:
        """One round: take ids as fast as they come, then others one by one."""
        plan, source = self._plan, self._source
        elapsed_ns, calls_ns = self.measured
        elapsed, taken = self._in_all(lambda: take(source, self._ids, plan.batch))
        elapsed_ns.append(elapsed)
        self._keep(chain.from_iterable(pieces) for pieces in taken)
        calls = min(self._ids, -(-TIMED_CALLS // (plan.threads * plan.rounds)))
        _, timed = self._in_all(lambda: time_calls(source, calls))
        calls_ns.extend(ended - begun for each in timed for begun, _, ended in each)
        self._keep([value for _, value, _ in each] for each in timed)

    def _keep(self, taken: Iterable[Iterable[Any]]) -> None:
        for journal, ids in zip(self._journals, taken, strict=False):
            journal.add(ids)


# --- several processes -----------------------------------------------------------


def run(plan: Plan, folder: Path) -> list[list[Measured]]:
    """Measure in this process, or in several fresh ones at once; one list for each.

    Raises what :func:`run_here` raises, and :class:`BenchFailed` if one of several can't finish.
    """
    if plan.processes == 1:
        return [run_here(plan, folder)]
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(plan.processes)
    watched, held = context.Pipe(duplex=False)
    with ProcessPoolExecutor(plan.processes, context, _begin, (barrier, watched)) as pool:
        try:
            with ExitStack() as starting:
                # A process that starts under a Ctrl-C held back never sees one: this one ends it.
                if hasattr(signal, "pthread_sigmask"):  # not on Windows
                    usual = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
                    starting.callback(signal.pthread_sigmask, signal.SIG_SETMASK, usual)
                jobs = [
                    pool.submit(_work, plan, folder, shows=not part)
                    for part in range(plan.processes)
                ]
            return [job.result() for job in as_completed(jobs)]
        except BaseException as error:
            held.close()  # which ends the processes
            if isinstance(error, BrokenProcessPool):
                raise BenchFailed("A process ended before it had finished.") from None
            raise


_gate: Callable[[], object]
"""In one of several processes: waits for the others."""
_ending = threading.Lock()
"""Of the thread that gives all back: no other one ends the process meanwhile."""


def _begin(barrier: threading.Barrier, watched: Connection) -> None:
    """Called first in each process."""
    global _gate
    _gate = barrier.wait
    for each in signal.SIGINT, signal.SIGTERM:  # a pool that lost a process sends the second one
        signal.signal(each, signal.SIG_IGN)
    Finalize(None, _ending.acquire, exitpriority=1)  # before what gives all back
    threading.Thread(target=_end_with_parent, args=[watched], daemon=True).start()


def _end_with_parent(watched: Connection) -> None:
    """Give all back and end, after the parent has closed its end of the pipe, or has ended."""
    wait([watched])
    _ending.acquire()
    end_now(STOPPED)


def _work(plan: Plan, folder: Path, *, shows: bool) -> list[Measured]:
    try:
        django.setup()
        return run_here(plan, folder, gate=_gate, shows=shows)
    except Fault:
        raise
    except Exception as error:  # noqa: BLE001  The parent reports it. Not all can be pickled.
        reason = str(error) if isinstance(error, IdgenError) else repr(error)
        raise BenchFailed(f"Process {os.getpid()} could not go on: {reason}") from None
