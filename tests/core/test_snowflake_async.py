"""Snowflakes for coroutines: the loop goes on while a lease or the next tick is waited for."""

from __future__ import annotations

import asyncio
import threading
from itertools import pairwise

import pytest

from django_idgen.core.errors import ConfigurationError, GeneratorClosed
from django_idgen.core.lease import Namespace
from django_idgen.core.snowflake import SnowflakeGenerator, take_none
from django_idgen.leases.memory import MemoryLeases
from tests.snowflake_tools import STANDARD, real, space_of

LIMIT = 60
SPACE = space_of(STANDARD)


class SlowLeases(MemoryLeases):
    """A registry that answers when its test says so."""

    def __init__(self, space: Namespace) -> None:
        super().__init__(space)
        self.gate, self.asked = threading.Event(), threading.Event()

    def acquire(self, **asked):
        self.asked.set()
        assert self.gate.wait(LIMIT)
        return super().acquire(**asked)


def test_coroutines_get_rising_ids():
    """One at a time and in batches over many ticks."""

    async def work() -> list[int]:
        with real() as generator:
            ids = [await generator.anext_id() for _ in range(50)]
            ids += await generator.anext_ids(20_000)
            return [*ids, *await generator.anext_ids(0), await generator.anext_id()]

    ids = asyncio.run(work())
    assert len(ids) == 20_051
    assert all(a < b for a, b in pairwise(ids))


def test_the_loop_goes_on_while_the_lease_is_waited_for():
    """A registry that is slow holds up those who want ids, and no one else."""
    registry = SlowLeases(SPACE)

    async def work() -> int:
        with SnowflakeGenerator(STANDARD, registry) as generator:
            waiting = asyncio.create_task(generator.anext_id())
            assert await asyncio.to_thread(registry.asked.wait, LIMIT)
            for _ in range(20):
                await asyncio.sleep(0)
                assert not waiting.done()
            registry.gate.set()
            return await waiting

    assert asyncio.run(work()) > 0


@pytest.mark.parametrize("locked", [False, True])
def test_many_tasks_never_share_an_id(monkeypatch, locked):
    """A thousand tasks and a few ticks; also where there is no GIL."""
    if locked:
        monkeypatch.setattr(SnowflakeGenerator, "_take_fresh", take_none)

    async def work() -> list[int]:
        with real() as generator:
            rows = await asyncio.gather(*(generator.anext_ids(20) for _ in range(1000)))
        return [value for row in rows for value in row]

    ids = asyncio.run(work())
    assert len(set(ids)) == 20_000


def test_coroutines_hear_what_is_wrong():
    """A wrong count, and a closed generator, as without them."""
    generator = real()
    with pytest.raises(TypeError):
        asyncio.run(generator.anext_ids("3"))
    with pytest.raises(ConfigurationError):
        asyncio.run(generator.anext_ids(-1))
    generator.close()
    with pytest.raises(GeneratorClosed):
        asyncio.run(generator.anext_id())
