"""Nanoseconds of single calls, and jobs whose rounds alternate."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat
from time import perf_counter_ns
from typing import Any

__all__ = ["call_ns", "id_ns", "interleaved", "quiet_gc"]


@contextmanager
def quiet_gc() -> Iterator[None]:
    """Collect garbage now and not again within the block, so that all jobs are equal."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def call_ns(call: Callable[[], object], calls: int) -> float:
    """Nanoseconds a call, the results thrown away, as :mod:`timeit` measures."""
    times = repeat(None, calls)
    begun = perf_counter_ns()
    for _ in times:
        call()
    return (perf_counter_ns() - begun) / calls


def id_ns(source: Any, calls: int) -> float:
    """Nanoseconds of ``source.next_id()``, the attribute looked up each time."""
    times = repeat(None, calls)
    begun = perf_counter_ns()
    for _ in times:
        source.next_id()
    return (perf_counter_ns() - begun) / calls


def interleaved(jobs: Sequence[Callable[[], float]], rounds: int) -> list[list[float]]:
    """Run each job once a round and return the figures of each job, round by round.

    The order rotates from round to round, so that no job is always first.
    """
    figures: list[list[float]] = [[] for _ in jobs]
    for turn in range(rounds):
        start = turn % len(jobs)
        for index in [*range(start, len(jobs)), *range(start)]:
            with quiet_gc():
                figures[index].append(jobs[index]())
    return figures
