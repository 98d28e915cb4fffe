"""One id a call, in one thread, against peers.

Each result is thrown away, as :mod:`timeit` does. A round is short enough that
``max_ahead`` of a second is never used up: the layout is not the limit here.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from django_idgen.contrib.bench.measure import call_ns, peer

from .bars import Row, at_most, paired
from .generators import segment, snowflake

ROUNDS = 151
CALLS = 10_000


def rows() -> Iterator[Row]:
    yield from _snowflake()
    yield from _segment()


def _snowflake() -> Iterator[Row]:
    with snowflake(max_ahead=1.0) as ours:
        ours.next_id()
        others = ["uuid7", "snowflake-id"]
        calls = [ours.next_id, *(peer(name).next_id for name in others)]
        medians, ratios = paired([partial(call_ns, call, CALLS) for call in calls], ROUNDS)
    for name, bar, median, ratio in zip(others, (1.0, 0.4), medians[1:], ratios[1:], strict=True):
        what = f"snowflake next_id(), max_ahead 1 s, against {name}"
        yield at_most(what, bar, 1 / ratio, note=f"{medians[0]:.1f} against {median:.1f} ns")


def _segment() -> Iterator[Row]:
    with segment() as ours:
        ours.next_id()
        calls = [peer("count").next_id, ours.next_id]
        medians, ratios = paired([partial(call_ns, call, CALLS) for call in calls], ROUNDS)
    what = "segment next_id() against itertools.count().__next__"
    yield at_most(what, 1.6, ratios[1], note=f"{medians[1]:.1f} against {medians[0]:.1f} ns")
