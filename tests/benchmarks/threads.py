"""Eight threads against one: how much of the total is left when they share a generator."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from django_idgen.contrib.bench.measure import in_threads, take
from django_idgen.core.generator import Generator

from .bars import Row, at_least, paired
from .generators import segment, snowflake

THREADS = 8
IDS = 100_000
"""In a round, and fifty times as many in batches: threads take a while to start and to end."""
ROUNDS = 31


def rows() -> Iterator[Row]:
    with snowflake(max_ahead=1.0) as made:
        yield _row("snowflake next_id(), max_ahead 1 s", made, batch=1)
    with segment() as made:
        yield _row("segment next_id()", made, batch=1)
        yield _row("segment next_ids(1000)", made, batch=1000)


def _row(what: str, made: Generator, batch: int) -> Row:
    made.next_id()
    count = IDS if batch == 1 else 50 * IDS
    jobs = [partial(_total_ns, made, count, threads, batch) for threads in (THREADS, 1)]
    medians, ratios = paired(jobs, ROUNDS)
    rates = [count / ns * 1e3 for ns in medians]
    note = f"{rates[0]:.2f} against {rates[1]:.2f} M ids/s"
    return at_least(f"{what}: {THREADS} threads, of one's total", 0.9, ratios[1], note=note)


def _total_ns(made: Generator, count: int, threads: int, batch: int) -> float:
    with ThreadPoolExecutor(threads) as pool:
        elapsed, _ = in_threads(lambda: _take(made, count // threads, batch), pool, threads)
    return elapsed


def _take(made: Generator, count: int, batch: int) -> None:
    if batch == 1:
        take(made, count, batch)
        return
    # Not kept: what a million ids cost in memory is no matter of threads.
    next_ids = made.next_ids
    for _ in range(count // batch):
        next_ids(batch)
