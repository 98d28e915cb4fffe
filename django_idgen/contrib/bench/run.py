"""A benchmark carried out: all targets in turn, in rounds, in one process or in several.

Each round measures every target once, in an order that turns, so that what slows the
machine down for a while slows all targets. Several processes measure the same target at
the same time.
"""

from __future__ import annotations

import multiprocessing
import os
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path
from threading import BrokenBarrierError
from typing import Any

from ...core.errors import ConfigurationError, IdgenError
from .measure import Opener, Taken, Target, in_threads, quiet_gc, shares, take, time_calls
from .proof import Fall, Journal, Run

__all__ = ["BenchFailed", "Measured", "Plan", "run_here", "run_in_processes"]

MOST = {"count": 1_000_000_000, "threads": 256, "processes": 64, "batch": 100_000}
ROUNDS = 7
"""At least so many, if there are ids enough."""
IDS_A_PASS = 200_000
"""Ids that a process holds in memory before it writes them down."""
TIMED_CALLS = 100_000
"""Calls whose latency is sampled, a target and process, in all rounds together."""
LAST_WAIT = 10.0
"""Seconds that a process has to end, and so to release its worker id."""


class BenchFailed(IdgenError):
    """A process of the benchmark could not finish."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure. Raises :class:`ConfigurationError` for what can't be measured."""

    names: tuple[str, ...]
    """The targets, peers included; the first one is what the others are compared with."""
    count: int
    """Ids of each target, of all threads and processes together."""
    threads: int = 1
    """Threads in each process."""
    processes: int = 1
    batch: int = 1
    """1: by ``next_id()``; more: so many a call of ``next_ids()``."""

    def __post_init__(self) -> None:
        for name, most in MOST.items():
            _check_whole(name, getattr(self, name), most)
        if self.count < self.threads * self.processes:
            raise ConfigurationError(
                f"--count {self.count} is not enough for {self.threads} threads in each of "
                f"{self.processes} processes: each takes at least one id. "
                f"Raise it to {self.threads * self.processes} or more."
            )
        if not self.names:
            raise ConfigurationError("There is nothing to measure: name a generator.")

    @property
    def rounds(self) -> int:
        a_thread = self.count // (self.threads * self.processes)
        return max(min(ROUNDS, a_thread), -(-self.count // self.processes // IDS_A_PASS))

    @property
    def steps(self) -> int:
        """How many passes of each process there are, to show progress by."""
        return self.rounds * len(self.names)

    def ids_of(self, part: int) -> list[list[int]]:
        """For each round, the ids that each thread of process ``part`` takes."""
        in_all = shares(self.count, self.processes)[part]
        return [shares(in_round, self.threads) for in_round in shares(in_all, self.rounds)]

    def calls_of(self, part: int) -> list[list[int]]:
        """For each round, the calls that each thread of process ``part`` times."""
        in_all = min(shares(self.count, self.processes)[part], TIMED_CALLS)
        return [shares(in_round, self.threads) for in_round in shares(in_all, self.rounds)]


@dataclass(slots=True)
class Measured:
    """What one process found out about one target."""

    name: str
    ours: bool
    pid: int
    ids: list[int] = field(default_factory=list)
    """Ids taken in each round."""
    elapsed_ns: list[int] = field(default_factory=list)
    """How long that took."""
    latency_ns: array[int] = field(default_factory=lambda: array("q"))
    runs: list[Run] = field(default_factory=list)
    falls: list[Fall | None] = field(default_factory=list)
    stats: Mapping[str, Any] = field(default_factory=dict)

    @property
    def worker(self) -> object:
        """The worker id of this process, where the generator has one."""
        return (self.stats.get("lease") or {}).get("worker")


@dataclass(slots=True)
class _Course:
    """One target in this process: its figures, and where its ids are written down."""

    target: Target
    journals: list[Journal]
    found: Measured

    def keep(self, taken: list[Taken]) -> None:
        if self.target.ours:
            for journal, pieces in zip(self.journals, taken, strict=False):
                journal.add(chain.from_iterable(pieces))

    def finish(self) -> Measured:
        self.found.runs = [run for journal in self.journals for run in journal.runs]
        self.found.falls = [journal.fall for journal in self.journals]
        self.found.stats = self.target.stats()
        return self.found


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

    ``gate`` is passed before each pass; ids are written to files in ``folder``,
    which the caller removes. Raises what a generator raises, and :class:`OSError`.
    """
    courses = [_open(plan, open_target, folder, part, number) for number in range(len(plan.names))]
    ids, calls = plan.ids_of(part), plan.calls_of(part)
    for turn in range(plan.rounds):
        for number in range(len(courses)):
            course = courses[(number + turn) % len(courses)]
            _time_pass(course, ids[turn], plan.batch, gate)
            _time_latency(course, calls[turn], gate)
            on_step()
    return [course.finish() for course in courses]


def _open(plan: Plan, open_target: Opener, folder: Path, part: int, number: int) -> _Course:
    target = open_target(plan.names[number])
    journals = [
        Journal(folder / f"{number}-{part}-{thread}", f"thread {thread} of process {os.getpid()}")
        for thread in range(plan.threads)
    ]
    course = _Course(target, journals, Measured(target.name, target.ours, os.getpid()))
    # The first id waits for a worker id or a segment, which is not measured.
    course.keep([take(target, 1, 1)])
    return course


def _time_pass(course: _Course, ids: list[int], batch: int, gate: Callable[[], object]) -> None:
    target = course.target
    with quiet_gc():
        gate()
        elapsed, taken = in_threads(lambda thread: take(target, ids[thread], batch), len(ids))
    course.found.ids.append(sum(ids))
    course.found.elapsed_ns.append(elapsed)
    course.keep(taken)


def _time_latency(course: _Course, calls: list[int], gate: Callable[[], object]) -> None:
    target = course.target
    with quiet_gc():
        gate()
        _, timed = in_threads(lambda thread: time_calls(target, calls[thread]), len(calls))
    for spans, _ in timed:
        course.found.latency_ns.extend(spans)
    course.keep([taken for _, taken in timed])


# --- several processes -------------------------------------------------------


def run_in_processes(
    plan: Plan,
    open_target: Opener,
    folder: Path,
    *,
    set_up: Callable[[], object],
    on_step: Callable[[], object] = lambda: None,
) -> list[list[Measured]]:
    """Measure in ``plan.processes`` fresh processes at once; one list for each of them.

    ``set_up`` is called first in each; it and ``open_target`` must be functions of
    a module. Raises :class:`BenchFailed` if a process could not finish.
    """
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(plan.processes)
    children: dict[Connection, SpawnProcess] = {}
    try:
        for part in range(plan.processes):
            ours, theirs = context.Pipe(duplex=False)
            job = (plan, part, folder, open_target, set_up, barrier, theirs)
            child = context.Process(target=_work, args=job, name=f"bench-{part}", daemon=True)
            child.start()
            theirs.close()
            children[ours] = child
        return _gather(children, on_step)
    except BaseException:
        _stop(children)
        raise
    finally:
        for pipe, child in children.items():
            child.join(LAST_WAIT)
            pipe.close()


def _work(
    plan: Plan,
    part: int,
    folder: Path,
    open_target: Opener,
    set_up: Callable[[], object],
    barrier: Barrier,
    pipe: Connection,
) -> None:
    def on_step() -> None:
        if part == 0:
            pipe.send(("step", None))

    try:
        set_up()
        found = run_here(plan, open_target, folder, part=part, gate=barrier.wait, on_step=on_step)
        pipe.send(("done", found))
    except BrokenBarrierError:
        pipe.send(("stopped", None))
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  The parent reports it.
        pipe.send(("failed", str(error) if isinstance(error, IdgenError) else repr(error)))
        barrier.abort()


def _gather(
    children: Mapping[Connection, SpawnProcess], on_step: Callable[[], object]
) -> list[list[Measured]]:
    found: dict[Connection, list[Measured]] = {}
    waited_for = set(children)
    while waited_for:
        for pipe in wait(list(waited_for)):
            assert isinstance(pipe, Connection)  # noqa: S101  # nosec B101  # for the type checker
            word, content = _receive(pipe, children[pipe])
            if word == "step":
                on_step()
                continue
            if word == "failed":
                raise BenchFailed(f"Process {children[pipe].pid} could not go on: {content}")
            # A stopped process has no figures: the one that failed says why.
            waited_for.discard(pipe)
            if word == "done":
                found[pipe] = content
    return [found[pipe] for pipe in children]


def _receive(pipe: Connection, child: SpawnProcess) -> tuple[str, Any]:
    try:
        message: tuple[str, Any] = pipe.recv()
    except EOFError:
        child.join(LAST_WAIT)
        return "failed", f"it ended with exit code {child.exitcode} before it had finished."
    return message


def _stop(children: Mapping[Connection, SpawnProcess]) -> None:
    for child in children.values():
        child.join(LAST_WAIT / len(children))
        if child.is_alive():
            child.terminate()


def _check_whole(name: str, value: object, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ConfigurationError(f"--{name} must be a whole number of 1 to {most}, not {value!r}.")
