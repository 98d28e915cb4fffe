"""Rows of tags that somebody deletes, or puts back, under several processes that use them."""

from __future__ import annotations

import subprocess
from itertools import chain, pairwise

import pytest

from django_idgen.sources.server import FAILOVER_SKIP
from tests.server_tools import execute, make_tables, python
from tests.tiers import LONG, long

PROCESSES = 3
ROUNDS = 8 if LONG else 4
STEP = 100
"""Nobody comes ahead of another by the distance that is skipped, 100 of these at the least."""
HARM = {
    "deleted": "DELETE FROM leaf_alloc",
    "truncated": "TRUNCATE TABLE leaf_alloc",
    "dropped": "DROP TABLE IF EXISTS leaf_alloc",
    "put back": "UPDATE leaf_alloc SET max_id = 1, largest_step = 0",
}

TAKER = """
import sys
from django_idgen.core.segment_generator import SegmentAllocator
from django_idgen.core.pace import Growth
from django_idgen.sources.server import ServerSource
source = ServerSource(alias={alias!r}, default_step={step}, timeout=30)
growth = Growth(longest_step=4 * {step})
generator = SegmentAllocator(source, source.loader, timeout=30, growth=growth).generator("tea")
for line in sys.stdin:
    ids = [number for _ in range(100) for number in generator.next_ids(17)]
    print(*ids, flush=True)
"""
"""A line of input is answered with a line of 1700 ids: many segments, which grow a little."""


class Taker:
    def __init__(self, alias: str) -> None:
        self.process = python(alias, TAKER.format(alias=alias, step=STEP), stdin=subprocess.PIPE)

    def ask(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def answer(self) -> list[int]:
        assert self.process.stdout is not None
        return [int(number) for number in self.process.stdout.readline().split()]

    def close(self) -> None:
        self.process.communicate(timeout=60)


@pytest.mark.parametrize("server_alias", ["postgres", *long("mariadb")], indirect=True)
@pytest.mark.parametrize("harm", ["deleted", "put back", *long("truncated", "dropped")])
def test_a_fleet_that_goes_on_repeats_nothing(server_alias: str, harm: str) -> None:
    """Whichever process comes first knows of its own segments only, and skips (hazard 61).

    The harm is done again and again, while all processes are taking ids; between two
    times each of them comes to know where the tag stands.
    """
    takers = [Taker(server_alias) for _ in range(PROCESSES)]
    ids: list[int] = []
    try:
        for number in range(ROUNDS):
            for taker in takers:
                taker.ask()
            if number % 2:
                execute(server_alias, HARM[harm])
                make_tables(server_alias)  # what was dropped is there again after a migrate
            ids += chain.from_iterable(taker.answer() for taker in takers)
    finally:
        for taker in takers:
            taker.close()
    assert len(ids) == PROCESSES * ROUNDS * 1700
    assert len(ids) == len(set(ids))
    assert max(b - a for a, b in pairwise(sorted(ids))) > FAILOVER_SKIP * STEP, "no loss was met"
