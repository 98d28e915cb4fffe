"""``next_ids(1000)`` in one thread: against the layout's limit, and in nanoseconds an id."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter_ns

from .bars import Row, at_least, at_most, paired
from .generators import segment, snowflake
from .timing import call_ns

BATCH = 1000
ROUNDS = 21
CALLS = 100
LIMIT = 4_096_000
"""Ids a second that the standard layout has for one worker."""
AT_LIMIT_SECONDS = 0.25
LIMIT_ROUNDS = 21


def rows() -> Iterator[Row]:
    yield _at_the_limit()
    with snowflake(max_ahead=1.0) as stamped, segment() as counted:
        jobs = [partial(_ns_an_id, made.next_ids) for made in (stamped, counted)]
        medians, _ = paired(jobs, ROUNDS)
    note = "this machine's; absolute"
    yield at_most("snowflake next_ids(1000), max_ahead 1 s", 45, medians[0], "ns", note)
    yield at_most("segment next_ids(1000)", 45, medians[1], "ns", note)


def _ns_an_id(next_ids: Callable[[int], list[int]]) -> float:
    return call_ns(lambda: next_ids(BATCH), CALLS) / BATCH


def _at_the_limit() -> Row:
    with snowflake(max_ahead=0.0) as made:
        made.next_ids(BATCH)
        medians, _ = paired([partial(_ids_a_second, made.next_ids)], LIMIT_ROUNDS)
    what = f"standard layout, max_ahead 0, next_ids(1000), of {LIMIT / 1e6} M ids/s"
    return at_least(what, 0.99, medians[0] / LIMIT, note=f"{medians[0] / 1e6:.3f} M ids/s")


def _ids_a_second(next_ids: Callable[[int], list[int]]) -> float:
    taken = 0
    begun = perf_counter_ns()
    until = begun + int(AT_LIMIT_SECONDS * 1e9)
    while (now := perf_counter_ns()) < until:
        taken += len(next_ids(BATCH))
    return taken / (now - begun) * 1e9
