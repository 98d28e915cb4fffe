"""The database away under load: crashed, or hung with its connections open."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import override_settings

from django_idgen import generators, segments
from django_idgen.core.errors import SegmentUnavailable
from django_idgen.db.connection import SOCKET_TIMEOUT
from tests.tiers import LONG, long

from .callers import Callers
from .outages import Outages, own_mariadb, own_postgres
from .processes import PATIENCE, eventually

ALIAS = "private"
TIMEOUT = 0.5
STEP = 50
AWAY = {"crashed": 60.0, "hung": 3.0 * SOCKET_TIMEOUT} if LONG else {}
"""Seconds, beyond what all need to fail twice; long enough for a hung server to be given up."""
OUTAGE = 60.0 if LONG else 3.0
"""Seconds during which nobody is to notice."""
PACE = 1000
"""Ids a second meanwhile, at most."""


@pytest.fixture(scope="module", params=["postgres", "mariadb"])
def cluster(request: pytest.FixtureRequest, django_db_blocker: Any) -> Iterator[Outages]:
    open_server = {"postgres": own_postgres, "mariadb": own_mariadb}[request.param]
    with django_db_blocker.unblock(), open_server(ALIAS) as server:
        yield server


@pytest.fixture
def server(cluster: Outages, django_db_blocker: Any) -> Iterator[Outages]:
    """A server of these tests' own, which ``ALIAS`` leads to."""
    with django_db_blocker.unblock():
        yield cluster
        cluster.restore()


def idgen(step: int, **options: Any) -> override_settings:
    where = {"OPTIONS": {"database": ALIAS}}
    return override_settings(
        IDGEN={
            "GENERATORS": {"default": {"LEASES": where}},
            "SEGMENTS": {
                "SOURCE": where,
                "OPTIONS": {"default_step": step, "timeout": TIMEOUT, **options},
            },
        }
    )


@pytest.mark.parametrize("how", ["crashed", "hung"])
def test_ids_flow_again_by_themselves(
    server: Outages, how: str, request: pytest.FixtureRequest
) -> None:
    """With all used up each caller is told so at its deadline; then ids come as before.

    Threads and coroutines wait at once. Nobody restarts anything, no id comes twice,
    and they go on rising.
    """
    tag = f"used-up-{how}"
    with (
        idgen(STEP, longest_step=1),
        Callers(segments[tag], threads=8, tasks=8) as callers,
    ):
        callers.wait_for_ids(20 * STEP)
        gone = time.monotonic()
        server.take_away(how)
        callers.wait_for_failures(2)
        time.sleep(AWAY.get(how, 0.0))
        back = server.bring_back(how)
        flowed = callers.first_ids_since(back)
        callers.wait_for_ids(len(callers.ids()) + 20 * STEP)
    waited = min(flowed.values()) - back, max(flowed.values()) - back
    print(
        f"{server.name} {how} for {back - gone:.1f} s: {len(callers.failed())} refusals to "
        f"{len(callers.names)} callers; the first id {waited[0]:.3f} s after its return, "
        f"everybody's first {waited[1]:.3f} s"
    )
    callers.assert_unique_and_rising()
    callers.assert_tasks_wait_together()
    for call in callers.failed():
        assert isinstance(call.error, SegmentUnavailable)
        assert call.ended - call.began >= TIMEOUT * 0.9
    # A hung server has said nothing to chain until it is given up.
    told = [is_chained(call.error) for call in callers.failed() if call.error]
    assert all(told) if how == "crashed" else any(told) == LONG


def is_chained(error: BaseException) -> bool:
    """Whether what the database's driver said is at the end of the chain."""
    while error.__cause__ is not None:
        error = error.__cause__
    return not isinstance(error, SegmentUnavailable)


@pytest.mark.parametrize("how", ["crashed", *long("hung")])
def test_an_outage_is_not_noticed_with_ids_in_the_buffer(server: Outages, how: str) -> None:
    """Loads fail again and again meanwhile, and no caller waits, fails, or is held up by it.

    Those of the other kind of ids neither. Afterwards the buffer fills by itself.
    """
    tag = f"buffered-{how}"
    step = int(2 * PACE * OUTAGE)
    with (
        idgen(step, longest_step=1),
        Callers(segments[tag], threads=4, tasks=4, pause=8 / PACE) as callers,
        Callers(generators["default"], threads=2, pause=0.02) as stamping,
    ):
        callers.wait_for_ids(100)
        stamping.wait_for_ids(10)
        assert segments[tag].preload(PATIENCE / 2)
        # So that the next segment is opened, and one more asked for, in mid-outage.
        segments[tag].next_ids(segments[tag].stats().current.stop - max(callers.ids()) - PACE)
        before = segments[tag].stats()
        server.take_away(how)
        gone = time.monotonic()
        eventually(lambda: time.monotonic() > gone + OUTAGE and asked_in_vain(tag, how))
        during = segments[tag].stats()
        server.bring_back(how)
        eventually(lambda: segments[tag].stats().ahead == 1)
        callers.wait_for_ids(len(callers.ids()) + 100)
    slowest = max(call.ended - call.began for call in callers.calls)
    print(
        f"{server.name} {how} for {OUTAGE:g} s: {during.issued - before.issued} ids meanwhile, "
        f"{during.failures - before.failures} loads failed, the slowest call took "
        f"{slowest * 1000:.1f} ms"
    )
    assert callers.failed() == stamping.failed() == []
    assert during.waits == before.waits
    assert during.current != before.current
    assert during.ahead == 0
    callers.assert_unique_and_rising()
    stamping.assert_unique_and_rising()


def asked_in_vain(tag: str, how: str) -> bool:
    """Whether the load that the server owes us has failed, or is under way without an answer."""
    stats = segments[tag].stats()
    return stats.ahead == 0 and (stats.failures > 0 or how == "hung")
