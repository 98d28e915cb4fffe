"""The database away under load: crashed, or hung with its connections open."""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings

from django_idgen import generators, segments
from django_idgen.core.errors import SegmentUnavailable
from django_idgen.db.connection import SOCKET_TIMEOUT
from tests import servers
from tests.faults.failover.mariadb_pair import MariadbServer, install
from tests.own_servers import DatabaseServer, Farm, pointing_at
from tests.private_postgres import postgres_farm
from tests.tiers import LONG, long

from .processes import PATIENCE, eventually


@contextmanager
def own_postgres(alias: str) -> Iterator[DatabaseServer]:
    """A PostgreSQL server that the new ``alias`` leads to for the block."""
    with postgres_farm() as farm:
        server = farm.server()
        with pointing_at(server, alias):
            yield server


@contextmanager
def own_mariadb(alias: str) -> Iterator[DatabaseServer]:
    """A MariaDB server that the new ``alias`` leads to for the block."""
    with (
        tempfile.TemporaryDirectory(dir=servers.fast_directory()) as name,
        closing(Farm(Path(name))) as farm,
    ):
        install(farm.place())
        server = farm.started(MariadbServer(farm.place(), 1))
        with pointing_at(server, alias):
            yield server


@dataclass(frozen=True, slots=True)
class Call:
    """One call for an id. Moments are of ``time.monotonic``."""

    caller: str
    began: float
    ended: float
    value: int | None = None
    error: Exception | None = None


class Callers:
    """Take ids of ``generator`` in threads, and in coroutines of one event loop, for a block."""

    def __init__(
        self, generator: Any, *, threads: int = 0, tasks: int = 0, pause: float = 0.005
    ) -> None:
        self.calls: list[Call] = []
        self.names = [f"thread {n}" for n in range(threads)] + [f"task {n}" for n in range(tasks)]
        self._generator = generator
        self._pause = pause
        self._ending = threading.Event()
        self._threads = [
            threading.Thread(target=self._take, args=(name,)) for name in self.names[:threads]
        ]
        if tasks:
            tasked = self.names[threads:]
            self._threads.append(threading.Thread(target=asyncio.run, args=(self._loop(tasked),)))

    def __enter__(self) -> Callers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def _take(self, name: str) -> None:
        while not self._ending.wait(self._pause):
            began = time.monotonic()
            try:
                value = self._generator.next_id()
            except Exception as error:
                self._note(name, began, error=error)
            else:
                self._note(name, began, value=value)

    async def _loop(self, names: Iterable[str]) -> None:
        await asyncio.gather(*map(self._take_in_loop, names))

    async def _take_in_loop(self, name: str) -> None:
        while not self._ending.is_set():
            began = time.monotonic()
            try:
                value = await self._generator.anext_id()
            except Exception as error:
                self._note(name, began, error=error)
            else:
                self._note(name, began, value=value)
            await asyncio.sleep(self._pause)

    def _note(self, name: str, began: float, **outcome: Any) -> None:
        self.calls.append(Call(name, began, time.monotonic(), **outcome))

    # --- what came of it -----------------------------------------------------------

    def ids(self) -> list[int]:
        return [call.value for call in self.calls if call.value is not None]

    def failed(self) -> list[Call]:
        return [call for call in self.calls if call.error is not None]

    def wait_for_ids(self, count: int) -> None:
        eventually(lambda: len(self.ids()) >= count, say=lambda: str(self.failed()[:1]))

    def wait_for_failures(self, count: int) -> None:
        """Come back once each of the callers has failed so often."""

        def all_did() -> bool:
            times: dict[str, int] = defaultdict(int)
            for call in self.failed():
                times[call.caller] += 1
            return all(times[name] >= count for name in self.names)

        eventually(all_did)

    def first_ids_since(self, moment: float) -> dict[str, float]:
        """When each of the callers was given the first id since ``moment``; waits for all."""
        first: dict[str, float] = {}

        def all_got_one() -> bool:
            for call in list(self.calls):
                if call.value is not None and call.ended >= moment:
                    first.setdefault(call.caller, call.ended)
            return len(first) == len(self.names)

        eventually(all_got_one, say=lambda: str(self.failed()[-1:]))
        return first

    def assert_unique_and_rising(self) -> None:
        """I1 and I2: no id came twice, and a call that began after another's end got a higher."""
        ids = self.ids()
        assert ids, "nothing was taken"
        assert len(set(ids)) == len(ids)
        by_end = iter(sorted(self.calls, key=lambda call: call.ended))
        earlier = next(by_end)
        highest = 0
        for call in sorted(self.calls, key=lambda call: call.began):
            while earlier.ended < call.began:
                highest = max(highest, earlier.value or 0)
                earlier = next(by_end)
            assert call.value is None or call.value > highest

    def assert_tasks_wait_together(self) -> None:
        """A coroutine that waits holds up no other: in a blocked loop there is one at a time."""
        tasks = [call for call in self.failed() if call.caller.startswith("task")]
        wanted = {call.caller for call in tasks}
        assert wanted

        def waiting_with(call: Call) -> set[str]:
            return {
                one.caller for one in tasks if one.began < call.ended and call.began < one.ended
            }

        assert any(waiting_with(call) == wanted for call in tasks)


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
def cluster(request: pytest.FixtureRequest, django_db_blocker: Any) -> Iterator[DatabaseServer]:
    open_server = {"postgres": own_postgres, "mariadb": own_mariadb}[request.param]
    with django_db_blocker.unblock(), open_server(ALIAS) as server:
        yield server


@pytest.fixture
def server(cluster: DatabaseServer, django_db_blocker: Any) -> Iterator[DatabaseServer]:
    """A server of these tests' own, which ``ALIAS`` leads to."""
    with django_db_blocker.unblock():
        yield cluster
        if cluster.runs:
            cluster.resume()
        else:
            cluster.start()


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


@pytest.mark.parametrize("how", ["crashed", *long("hung")])
def test_ids_flow_again_by_themselves(
    server: DatabaseServer, how: str, request: pytest.FixtureRequest
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
        f"{type(server).__name__} {how} for {back - gone:.1f} s: {len(callers.failed())} refusals "
        f"to {len(callers.names)} callers; the first id {waited[0]:.3f} s after its return, "
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


@pytest.mark.long
@pytest.mark.parametrize("how", ["crashed", *long("hung")])
def test_an_outage_is_not_noticed_with_ids_in_the_buffer(server: DatabaseServer, how: str) -> None:
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
        f"{type(server).__name__} {how} for {OUTAGE:g} s: {during.issued - before.issued} ids "
        f"meanwhile, {during.failures - before.failures} loads failed, the slowest call took "
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
