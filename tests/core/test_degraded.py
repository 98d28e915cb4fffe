"""Ids without a lease: off unless asked for, apart from all others, and loud."""

from __future__ import annotations

import pytest

from django_idgen.core.errors import ConfigurationError, GeneratorClosed, RegistryUnavailable
from django_idgen.core.snowflake import RETRY
from tests.core.running import Running
from tests.simulation.world import EPOCH_US, World, layout_of
from tests.tables import refused

LAYOUT = layout_of(("time", 41), ("worker", 2), ("sequence", 6))
RESERVED = 3


def made(**options: object) -> Running:
    world = World(LAYOUT, window_ticks=180_000, skew_ticks=1000, workers=range(RESERVED))
    return Running(world=world, **options)


@pytest.fixture
def running() -> Running:
    return made(degraded_worker=RESERVED)


def test_without_the_option_there_is_an_error() -> None:
    """I6: never a random id unless the user asked for it."""
    running = made()
    running.world.down = True
    with pytest.raises(RegistryUnavailable):
        running.generator.next_id()


def test_ids_without_a_lease_meet_none_of_a_lease(running: Running) -> None:
    """They are of the reserved worker id; each comes once in a process, at its time or near it."""
    own = running.generator.next_ids(200)
    assert {running.generator.decode(value).worker for value in own} != {RESERVED}
    running.generator.keeper.release()
    running.world.down = True
    before = running.world.ns
    ids = [running.generator.next_id(), *running.generator.next_ids(300)]
    parts = [LAYOUT.unpack(value) for value in ids]
    assert {each.worker for each in parts} == {RESERVED}
    assert len(set(ids)) == 301
    assert not set(ids) & set(own)
    tick = (before // 1000 - EPOCH_US) // 1000
    assert {each.tick for each in parts} == set(range(tick, tick + 10))
    assert [each.sequence for each in parts] != sorted(each.sequence for each in parts)


def test_it_is_told_each_time(running: Running) -> None:
    """By a signal, with how many and why; and counted."""
    running.world.down = True
    running.generator.next_ids(5)
    running.generator.next_id()
    told = [values for name, values in running.events if name == "ids_degraded"]
    assert [(each["worker"], each["ids"]) for each in told] == [(RESERVED, 5), (RESERVED, 1)]
    assert all(isinstance(each["error"], RegistryUnavailable) for each in told)
    assert running.generator.stats().degraded == 6


def test_the_registry_is_asked_again_after_a_while(running: Running) -> None:
    """Not for each id: one that hangs would hold up all of them. Then ids are as before."""
    running.world.down = True
    for _ in range(5):
        running.generator.next_id()
    assert running.link.names() == ["acquire"]
    running.world.down = False
    assert LAYOUT.unpack(running.generator.next_id()).worker == RESERVED
    running.world.ns += int((RETRY + 1) * 1e9)
    assert LAYOUT.unpack(running.generator.next_id()).worker != RESERVED


@pytest.mark.parametrize("without_a_lease", [False, True])
def test_a_closed_generator_gives_none_of_them(running: Running, without_a_lease: bool) -> None:
    """It was closed, and has not lost its lease; if it had, before that, it is closed as well."""
    running.world.down = without_a_lease
    running.generator.next_id()
    running.generator.close()
    with pytest.raises(GeneratorClosed):
        running.generator.next_id()


def test_a_clock_that_goes_back_opens_no_tick_again(running: Running) -> None:
    """None comes twice in a process: it stays on its latest tick, or goes ahead of it."""
    running.world.down = True
    ids = list[int]()
    for step in (0, 1, -1, 1, -5, 5):
        running.world.ns += step * 1_000_000
        ids += running.generator.next_ids(30)
    assert len(set(ids)) == len(ids)


def test_a_worker_id_that_is_lent_is_refused() -> None:
    """Its ids would be another process' own."""
    words = r"no registry lends, not .*: 0 to 2 are lent"
    for worker in (0, 2, 4, -1, "3", True):
        refused(ConfigurationError, made, degraded_worker=worker, match=words)
