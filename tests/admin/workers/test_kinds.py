"""The map where worker ids are configured, borrowed, many, or nobody's to look at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings

from django_idgen import generators, next_id
from django_idgen.core.clock import SYSTEM_CLOCK
from django_idgen.core.errors import NotSeenFromHere, WorkerOutOfRange
from django_idgen.core.inspection import InspectedMark, WorkerState
from django_idgen.core.registry import Registry
from django_idgen.core.snowflake import SnowflakeGenerator
from django_idgen.leases.memory import MemoryLeases
from django_idgen.leases.redis.registry import RedisLeases
from django_idgen.ops.workers import release_worker, who_held, worker_map
from django_idgen.process import maps
from django_idgen.process.factory import build_namespace
from django_idgen.settings.config import SettingsError
from tests.leases.server.shop import SHOP, ServerLeases

STATIC = "django_idgen.leases.static.StaticLeases"
HTTP = "django_idgen.leases.http.HttpLeases"


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    maps.reset()


def idgen(**generator: Any) -> Any:
    return override_settings(IDGEN={"GENERATORS": {"default": generator}})


def test_configured_worker_ids_are_told_of_this_host(tmp_path: Path) -> None:
    """From its marks, without a lock; the rest of the layout is other hosts'."""
    options = {"workers": [8, 12], "directory": str(tmp_path)}
    with idgen(LEASES={"BACKEND": STATIC, "OPTIONS": options}):
        assert worker_map("default").entries == {}
        assert list(tmp_path.iterdir()) == []
        next_id()
        lease = generators["default"].keeper.lease  # type: ignore[attr-defined]
        found = worker_map("default")
        (entry,) = found.entries.values()
        assert (entry.worker, entry.state, entry.registry) == (
            lease.worker,
            WorkerState.HELD,
            "static",
        )
        counts = found.counts()
        assert (counts[WorkerState.FREE], counts[WorkerState.RESERVED]) == (3, 1020)
        assert found.state(12) is WorkerState.RESERVED
        held = who_held("default", lease.worker, lease.start)
        assert held is not None
        assert held.mark.start == lease.start
        assert who_held("default", 500, lease.start) is None
        with pytest.raises(NotSeenFromHere, match="frees the lock: stop it"):
            release_worker("default", lease.worker)


def test_what_a_service_lends_is_seen_there() -> None:
    """The error names the service; nothing is asked of it."""
    options = {"base_urls": "https://ids.example/idgen/", "token": "secret"}
    with idgen(LEASES={"BACKEND": HTTP, "OPTIONS": options}):
        for ask in (
            lambda: worker_map("default"),
            lambda: release_worker("default", 1),
            lambda: who_held("default", 1, 1),
        ):
            with pytest.raises(NotSeenFromHere, match=r"ids\.example.*Look in its admin") as caught:
                ask()
            assert "secret" not in str(caught.value)


class Blind(Registry):
    """A registry of the project's own, which shows nothing."""

    def __init__(self, namespace: Any) -> None:
        self.namespace = namespace

    def acquire(self, *_asked: Any, **_named: Any) -> Any: ...

    renew = release = renew_seen = acquire


def test_a_registry_that_tells_nothing_is_named() -> None:
    """By its path, and by what it lacks."""
    with (
        idgen(LEASES={"BACKEND": f"{__name__}.Blind"}),
        pytest.raises(NotSeenFromHere, match=r"test_kinds\.Blind.*not implement inspect"),
    ):
        worker_map("default")


def test_an_alias_that_is_not_configured_is_named() -> None:
    """As everywhere."""
    with pytest.raises(SettingsError, match="'none'"):
        worker_map("none")


@pytest.mark.parametrize("worker", [-1, 1024, True, "3", 2**70])
def test_what_is_no_worker_id_is_refused(worker: Any) -> None:
    """Before anything is asked."""
    with idgen(), pytest.raises(WorkerOutOfRange):
        release_worker("default", worker)


def test_a_map_of_millions_has_an_entry_only_where_something_was_lent(postgres: str) -> None:
    """22 bits: one row, one entry."""
    leases = {"OPTIONS": {"database": postgres}}
    with idgen(LAYOUT="uid", LEASES=leases):
        next_id()
        found = worker_map("default")
        assert (len(found.workers), len(found.entries)) == (2**22, 1)
        assert found.counts()[WorkerState.FREE] == 2**22 - 1
        assert found.state(2**22 - 1) in WorkerState


def test_what_a_registry_does_not_lend_is_reserved(postgres: str) -> None:
    """``workers`` narrower than the layout."""
    with idgen(LEASES={"OPTIONS": {"database": postgres, "workers": [10, 20]}}):
        next_id()
        found = worker_map("default")
        assert found.state(9) is found.state(20) is WorkerState.RESERVED
        counts = found.counts()
        assert (counts[WorkerState.FREE], counts[WorkerState.RESERVED]) == (9, 1014)


def test_in_memory_the_generators_own_registry_is_asked() -> None:
    """No other one knows what it lent."""
    entry = maps.generator_settings("default")
    registry = MemoryLeases(build_namespace(entry))
    with SnowflakeGenerator(entry.layout, registry) as made, generators.override("default", made):
        made.next_id()
        assert worker_map("default").counts()[WorkerState.HELD] == 1


@pytest.mark.parametrize("ahead", [-7, 7])
@pytest.mark.parametrize("kind", ["server", "redis"])
def test_a_clock_that_is_off_is_noted(
    kind: str, ahead: int, postgres: str, request: pytest.FixtureRequest
) -> None:
    """Seconds ahead, or below 0 behind; mended by the renewal after; none of a borrower's."""
    walls = {"ahead": ahead * 10**9}
    clock = replace(SYSTEM_CLOCK, wall_ns=lambda: SYSTEM_CLOCK.wall_ns() + walls["ahead"])
    registry: Any
    if kind == "server":
        registry = ServerLeases(SHOP, alias=postgres, clock=clock)
    else:
        alias = request.getfixturevalue("redis")
        registry = RedisLeases(SHOP, alias=alias, database=postgres, clock=clock)

    def noted() -> int | None:
        (inspected,) = registry.inspect().marks
        assert isinstance(inspected, InspectedMark)
        return inspected.offset_us

    lease = registry.acquire(holder="a").lease
    offset_us = noted()
    assert offset_us is not None
    assert abs(offset_us - ahead * 1e6) < 3e6
    walls["ahead"] = 0
    registry.renew(lease, last_tick=lease.start)
    offset_us = noted()
    assert offset_us is not None
    assert abs(offset_us) < 3e6
    registry.lend_on()
    registry.renew(lease, last_tick=lease.start)
    assert noted() is None
    registry.release(lease, last_tick=None)
    registry.close()
