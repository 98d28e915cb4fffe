"""What a fleet of real generators asks of its registry, in virtual time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.tiers import long

from .fleet import WINDOW, Fleet

PROCESSES = 300
THIRD = WINDOW // 3
MEAN = PROCESSES / THIRD
"""Renewals a second of a fleet that renews at a third of the window."""


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    """It fails at the first id that comes twice, and at windows of a worker id that overlap."""
    made = Fleet(PROCESSES)
    yield made
    made.stop()


def test_processes_that_start_together_do_not_renew_together(fleet: Fleet) -> None:
    """No ten seconds of a minute have more than half of its renewals."""
    fleet.start(PROCESSES)
    fleet.run(WINDOW)
    rate = fleet.tell("steady", 5 * THIRD).rate("renew")
    tens = [sum(rate[second + each] for each in range(10)) for second in range(0, 5 * THIRD, 10)]
    assert max(tens) < 3 * 10 * MEAN
    assert sum(tens) < 1.2 * 5 * PROCESSES


def test_a_registry_that_returns_is_not_asked_by_all_at_once(fleet: Fleet) -> None:
    """After a minute it meets a tenth of the fleet a second at most, and all soon."""
    fleet.start(PROCESSES)
    fleet.run(WINDOW)
    fleet.go_down(THIRD)
    assert fleet.tell("down", THIRD).failed
    back = fleet.tell("back", 2 * WINDOW)
    assert max(back.rate().values()) < PROCESSES / 10
    assert not any(back.stopped.values())
    assert not any(seat.generator.keeper.renewal_failed for seat in fleet.seats)


def test_all_go_on_after_an_outage_that_outlasts_their_windows(fleet: Fleet) -> None:
    """None goes on without a lease, and all have one again within a window."""
    fleet.start(PROCESSES)
    fleet.run(WINDOW)
    fleet.go_down(2 * WINDOW)
    down = fleet.tell("down", 2 * WINDOW)
    assert max(down.stopped.values()) == PROCESSES
    assert not any(count for second, count in down.stopped.items() if second < WINDOW - THIRD)
    assert down.held[max(down.held)] == 0
    back = fleet.tell("back", WINDOW)
    last = max(back.held)
    assert (back.held[last], back.stopped[last]) == (PROCESSES, 0)


@pytest.mark.parametrize("cleanly", [False, *long(True)])
def test_a_rolling_deployment_needs_the_live_and_the_unexpired(
    fleet: Fleet, *, cleanly: bool
) -> None:
    """No more worker ids than processes that run or were killed in the last window."""
    fleet.start(PROCESSES, within=THIRD)
    fleet.run(WINDOW)
    seconds, steps = 5 * WINDOW, 100
    fleet.replace_all(seconds=seconds, steps=steps, cleanly=cleanly)
    rolling = fleet.tell("rolling", seconds + 2 * WINDOW)
    killed = 0 if cleanly else (WINDOW * steps // seconds + 2) * PROCESSES // steps
    assert all(held <= rolling.live[second] + killed for second, held in rolling.held.items())
    assert rolling.held[max(rolling.held)] == PROCESSES
    assert cleanly or max(rolling.held.values()) > PROCESSES * 1.1
    assert not any(rolling.stopped.values())
