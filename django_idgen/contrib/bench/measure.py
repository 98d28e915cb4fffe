"""Timing, in one process.

Throughput is timed over whole passes: nothing but the calls and the keeping of
their results happens meanwhile. Latency is sampled in a pass of its own, in
which each call is timed by itself, so that reading the clock twice a call
doesn't count as the cost of an id.
"""

from __future__ import annotations

import gc
import threading
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, repeat
from statistics import median
from time import perf_counter_ns
from typing import Any, TypeVar

from .targets import Target

__all__ = [
    "Taken",
    "call_ns",
    "in_threads",
    "interleaved",
    "quiet_gc",
    "shares",
    "take",
    "time_calls",
    "timer_ns",
]

T = TypeVar("T")
Taken = list[list[Any]]
"""The ids of one pass of one thread, in pieces as they came."""


def take(target: Target, count: int, batch: int) -> Taken:
    """Take ``count`` ids by ``next_id()``, or by ``next_ids(batch)`` if that is over 1."""
    if batch == 1:
        next_id = target.next_id
        return [[next_id() for _ in repeat(None, count)]]
    whole, rest = divmod(count, batch)
    next_ids = target.next_ids
    taken = [next_ids(batch) for _ in repeat(None, whole)]
    if rest:
        taken.append(next_ids(rest))
    return taken


def time_calls(target: Target, count: int) -> tuple[array[int], Taken]:
    """Call ``next_id()`` ``count`` times: nanoseconds of each call, and the ids.

    Reading the clock is part of each figure: see :func:`timer_ns`.
    """
    clock, next_id = perf_counter_ns, target.next_id
    spans = array("q", bytes(8 * count))
    ids: list[Any] = []
    for index in range(count):
        begun = clock()
        value = next_id()
        ended = clock()
        spans[index] = ended - begun
        ids.append(value)
    return spans, [ids]


def timer_ns(samples: int = 1001) -> int:
    """What timing nothing costs, in nanoseconds: it is in every latency figure."""
    clock = perf_counter_ns
    return int(median(-(clock() - clock()) for _ in range(samples)))


def in_threads(job: Callable[[int], T], threads: int) -> tuple[int, list[T]]:
    """Run ``job(0)`` to ``job(threads - 1)`` at once, each in a thread of its own.

    Returns the nanoseconds from the first one's start to the last one's end, and
    what they returned. Raises what the first failing job raised.
    """
    if threads == 1:
        begun = perf_counter_ns()
        result = job(0)
        return perf_counter_ns() - begun, [result]
    gate = threading.Barrier(threads)
    lanes = [_Lane(job, index, gate) for index in range(threads)]
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join()
    for lane in lanes:
        if lane.error is not None:
            raise lane.error
    elapsed = max(lane.ended for lane in lanes) - min(lane.begun for lane in lanes)
    return elapsed, [lane.result for lane in lanes]


class _Lane(threading.Thread):
    def __init__(self, job: Callable[[int], Any], index: int, gate: threading.Barrier) -> None:
        super().__init__(name=f"bench-{index}", daemon=True)
        self.job, self.index, self.gate = job, index, gate
        self.begun = self.ended = 0
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        self.gate.wait()
        self.begun = perf_counter_ns()
        try:
            self.result = self.job(self.index)
        except BaseException as error:  # noqa: BLE001  It is raised again in the caller's thread.
            self.error = error
        self.ended = perf_counter_ns()


@contextmanager
def quiet_gc() -> Iterator[None]:
    """Collect garbage now and not again within the block: every target is treated alike."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def shares(total: int, parts: int) -> list[int]:
    """``total`` split into ``parts`` that differ by one at most."""
    return [total * (part + 1) // parts - total * part // parts for part in range(parts)]


def call_ns(call: Callable[[], object], calls: int) -> float:
    """Nanoseconds a call, the results thrown away, as :mod:`timeit` measures."""
    times = repeat(None, calls)
    begun = perf_counter_ns()
    for _ in times:
        call()
    return (perf_counter_ns() - begun) / calls


def interleaved(jobs: Sequence[Callable[[], float]], rounds: int) -> list[list[float]]:
    """Run each job once a round and return the figures of each job, round by round.

    The order turns from round to round, so that none is always first.
    """
    figures: list[list[float]] = [[] for _ in jobs]
    for turn in range(rounds):
        for index in _turned(len(jobs), turn):
            with quiet_gc():
                figures[index].append(jobs[index]())
    return figures


def _turned(length: int, turn: int) -> Iterator[int]:
    start = turn % length
    return chain(range(start, length), range(start))
