"""Generators under load while their Redis forgets: no id twice, and ids go on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from django_idgen.core.clock import SYSTEM_CLOCK
from django_idgen.core.errors import IdgenError
from django_idgen.core.layout import parse_layout
from django_idgen.core.snowflake import SnowflakeGenerator
from django_idgen.leases.redis.registry import RedisLeases
from tests.leases.redis.fleet import HOLDERS, new_space
from tests.redis_servers import RedisFarm, cache_alias
from tests.tiers import LONG

LAYOUT = parse_layout("standard")
WINDOW = 3.0 if LONG else 1.5
STRIDE = 6.0
ROUNDS = 6 if LONG else 2
"""How often Redis forgets everything."""


class Worker:
    """One process' generator, and the thread that takes ids from it."""

    def __init__(self, number: int, registry: RedisLeases, stop: threading.Event) -> None:
        self.ids: list[int] = []
        self.ahead: list[int] = []
        self.generations: set[int] = set()
        self.failures = 0
        self._stop = stop
        self.generator = SnowflakeGenerator(
            LAYOUT, registry, holder=f"worker {number}", emit=self._on_event
        )
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _on_event(self, name: str, **values: Any) -> None:
        if name == "lease_acquired":
            self.ahead.append(values["ahead_ticks"])
            self.generations.add(values["lease"].generation)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.ids.extend(self.generator.next_ids(20))
            except IdgenError:
                self.failures += 1
            self._stop.wait(0.05)
        self.generator.close()


@pytest.mark.long
def test_ids_under_load_while_redis_forgets(farm: RedisFarm, postgres: str) -> None:
    """Many generators, a flush and an empty restart in turn: no id comes twice, all go on."""
    server = farm.server()
    space = new_space(
        epoch_us=LAYOUT.epoch_us,
        tick_us=LAYOUT.tick_us,
        max_ticks=LAYOUT.max_ticks,
        workers=LAYOUT.workers,
        window_ticks=int(WINDOW * 1000),
    )
    stop = threading.Event()
    with cache_alias("idgen", server.url) as alias:
        registries = [RedisLeases(space, alias=alias, database=postgres) for _ in range(HOLDERS)]
        workers = [Worker(number, each, stop) for number, each in enumerate(registries)]
        try:
            for round_ in range(ROUNDS):
                wait_for(lambda: all(worker.ids for worker in workers))
                server.run("FLUSHALL") if round_ % 2 == 0 else server.restart_empty()
                wanted = round_ + 2
                wait_for(lambda n=wanted: all(max(w.generations) >= n for w in workers))
            before = [len(worker.ids) for worker in workers]
            wait_for(lambda: all(len(w.ids) > n for w, n in zip(workers, before, strict=True)))
        finally:
            stop.set()
            for worker in workers:
                worker.thread.join(60)
        for each in registries:
            each.close()
    ids = [id_ for worker in workers for id_ in worker.ids]
    assert len(set(ids)) == len(ids)
    assert all(worker.ids == sorted(worker.ids) for worker in workers)
    furthest = max(tick for worker in workers for tick in worker.ahead) / 1000
    print(f"A lease began up to {furthest:.1f} s ahead of the time, of {ROUNDS} losses.")
    assert 0 < furthest <= ROUNDS * (STRIDE + WINDOW)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = SYSTEM_CLOCK.stopwatch() + 120
    while not condition():
        assert SYSTEM_CLOCK.stopwatch() < deadline
        SYSTEM_CLOCK.sleep(0.05)
