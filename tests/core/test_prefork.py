"""Before uWSGI forks nothing is held and no thread runs: workers inherit nothing (hazard 56)."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import chain, pairwise
from types import ModuleType
from typing import Any

import pytest

from django_idgen.core.buffered import BufferedGenerator
from django_idgen.core.generator import Generator
from django_idgen.core.layout import parse_layout
from django_idgen.core.loader import BackgroundThread, Loader
from django_idgen.core.segment_generator import SegmentAllocator, SegmentGenerator
from django_idgen.core.snowflake import SnowflakeGenerator
from django_idgen.leases.memory import MemoryLeases
from django_idgen.sources.memory import MemorySource
from tests.segment_tools import in_child
from tests.snowflake_tools import space_of

LAYOUT = parse_layout("standard")


@pytest.fixture
def _master(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process is uWSGI's master, which has loaded the application; a child is a worker."""
    pid = os.getpid()
    master = ModuleType("uwsgi")
    master.worker_id = lambda: 0 if os.getpid() == pid else 1  # type: ignore[attr-defined]
    master.masterpid = lambda: pid  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "uwsgi", master)
    yield
    threads = [each for each in threading.enumerate() if isinstance(each, BackgroundThread)]
    assert threads == []


def segment() -> Generator:
    return SegmentAllocator(MemorySource(100), Loader()).generator("order")


def snowflake() -> Generator:
    return SnowflakeGenerator(LAYOUT, MemoryLeases(space_of(LAYOUT)))


def buffered() -> Generator:
    return BufferedGenerator(LAYOUT, MemoryLeases(space_of(LAYOUT)))


def is_empty(generator: Any) -> bool:
    if isinstance(generator, SegmentGenerator):
        return generator.stats().remaining == 0
    left = generator.stats().buffered if isinstance(generator, BufferedGenerator) else 0
    return generator.keeper.lease is None and left == 0


def one_by_one(generator: Generator, next_id: Callable[[], int]) -> Iterator[list[int]]:
    """Ids by each way to take some."""
    for count in (1, 7, 250):
        yield [next_id()]
        yield generator.next_ids(count)
        yield asyncio.run(generator.anext_ids(count))
        yield [asyncio.run(generator.anext_id())]
        if isinstance(generator, SegmentGenerator):
            yield list(chain.from_iterable(generator.next_ranges(count)))
            assert generator.preload()


@pytest.mark.usefixtures("_master")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("make", [segment, snowflake, buffered])
def test_each_call_gives_back_what_it_does_not_need(make: Callable[[], Generator]) -> None:
    """I1, I2, I5: a next_id that the master kept goes on in its workers, each with its own ids."""
    generator = make()
    next_id = generator.next_id
    ids: list[int] = []
    for taken in one_by_one(generator, next_id):
        ids += taken
        assert is_empty(generator)
    assert all(a < b for a, b in pairwise(ids))
    theirs = in_child(lambda: [next_id() for _ in range(300)])
    assert all(a < b for a, b in pairwise(theirs))
    generator.close()
