"""How many worker ids one client may have: a share of them, which its own restarts fit in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from django.db import connections
from django.test import override_settings

from django_idgen import signals
from django_idgen.contrib.old_servers.cosid import Instance, MachineIds
from django_idgen.core.clock import SYSTEM_CLOCK
from django_idgen.core.lease import Namespace
from django_idgen.leases.memory import MemoryLeases
from django_idgen.process.factory import registries
from django_idgen.rest.clients import Owner, TooManyLeases
from tests.places import empty_place as empty_place
from tests.remote.service import EVERYTHING, one_token

from .test_leases import Api

WORKERS = 16
WINDOW_MS = 60_000


@contextmanager
def api_on(options: dict[str, Any], **rest: object) -> Iterator[Api]:
    leases = {**options, "OPTIONS": {"workers": [0, WORKERS], **options.get("OPTIONS", {})}}
    idgen = {"GENERATORS": {"default": {"LEASES": leases}}, "REST": rest}
    with one_token(), override_settings(ROOT_URLCONF="tests.remote.urls", IDGEN=idgen):
        yield Api()


@pytest.fixture
def options(request: pytest.FixtureRequest, empty_place: str) -> dict[str, Any]:
    """The leases of a registry of each kind in turn."""
    connections[empty_place].ensure_connection()  # a SQLite file is there from the first on
    if request.param == "database":
        return {"OPTIONS": {"database": empty_place}}
    alias = request.getfixturevalue("redis")
    backend = "django_idgen.leases.redis.RedisLeases"
    return {"BACKEND": backend, "OPTIONS": {"alias": alias, "database": empty_place}}


@pytest.mark.parametrize(
    ("options", "empty_place"),
    [("database", "sqlite"), ("redis", "postgres"), ("database", "mariadb")],
    indirect=True,
)
def test_one_client_has_half_of_the_worker_ids_at_most(options: dict[str, Any]) -> None:
    """The next is refused with the way out; others are lent theirs, and what it has it keeps."""
    with api_on(options) as api:
        held = [api.acquire(holder=f"pod-{n}").json()["lease"] for n in range(WORKERS // 2)]
        refused = api.acquire(holder="one more")
        assert refused.status_code == 429
        assert 0 < int(refused["Retry-After"]) <= 180
        assert "Client 'tests' has 8 worker ids" in refused.json()["detail"]
        assert "max_leases" in refused.json()["detail"]
        with one_token(replace(EVERYTHING, name="test")):
            assert api.acquire(holder="pod-0").status_code == 200
        assert api.renew(held[0], held[0]["start"]).status_code == 200
        assert api.release(held[0]).json()["known"] is True
        assert api.acquire(holder="one more").status_code == 429  # its window lies ahead yet


@dataclass
class World:
    """A registry in memory, on a clock that the test drives."""

    now_ms: int = 1_800_000_000_000

    def registry(self) -> MemoryLeases:
        space = Namespace("default", 0, 1000, 2**41, range(WORKERS), WINDOW_MS, 10_000, {"x": 1})
        return MemoryLeases(space, read_now_us=lambda: self.now_ms * 1000)


@pytest.fixture
def world(django_db_blocker: Any) -> Iterator[World]:
    with django_db_blocker.unblock():
        yield World()


def test_a_fleet_of_one_token_survives_a_rolling_deployment(world: World) -> None:
    """Killed holders count until they expire; their replacements start all the same."""
    with api_on({}) as api, registries.override("default", world.registry()):
        for deployment in range(3):
            for number in range(WORKERS // 4):
                started = api.acquire(holder=f"{deployment}-{number}")
                assert started.status_code == 200, started.content
            world.now_ms += WINDOW_MS // 2
        assert api.acquire(holder="more").status_code == 200


def test_a_client_may_have_as_many_as_is_set(world: World) -> None:
    """All, for a client alone in its namespace."""
    registry = world.registry()
    with api_on({}, max_leases=WORKERS) as api, registries.override("default", registry):
        assert [api.acquire().status_code for _ in range(WORKERS)] == [200] * WORKERS


def test_giving_back_moves_no_more_windows_than_holding(world: World) -> None:
    """A client that borrows and gives back in turn leaves others what begins at once."""
    registry = world.registry()
    with api_on({}) as api, registries.override("default", registry):
        for _ in range(WORKERS // 2):
            assert api.release(api.acquire().json()["lease"]).json()["known"] is True
        assert api.acquire().status_code == 429
        with one_token(replace(EVERYTHING, name="other")):
            starts = [int(api.acquire().json()["lease"]["start"]) for _ in range(WORKERS // 2)]
        assert max(starts) <= registry.namespace.tick_at(world.now_ms * 1000)
        world.now_ms += WINDOW_MS
        assert api.acquire().status_code == 200


def test_window_after_window_no_client_comes_far_past_now(world: World) -> None:
    """Each may begin where the last one ends, as for a holder that was ahead: for an hour."""
    world.now_ms = SYSTEM_CLOCK.wall_ns() // 1_000_000
    registry, until = world.registry(), 0
    hours = registry.namespace.tick_at((world.now_ms + 2 * 3_600_000) * 1000)
    with api_on({}, max_leases=WORKERS) as api, registries.override("default", registry):
        for _ in range(3 * 60):
            lent = api.acquire(not_before=str(until))
            if lent.status_code != 200:
                break
            until = int(lent.json()["lease"]["until"])
            api.release(lent.json()["lease"])
        assert (lent.status_code, lent.json()["code"]) == (409, "too_far_ahead")
        assert int(lent.json()["latest"]) < until < hours
        assert api.acquire().status_code == 200


def test_past_80_percent_each_lease_is_warned_of(world: World) -> None:
    """With the client's name, what it has and what it may have; and when it is refused."""
    told: list[tuple[Any, ...]] = []

    def note(**values: Any) -> None:
        told.append(tuple(values[name] for name in ("generator", "client", "held", "most")))

    signals.lease_quota_near.connect(note)
    try:
        with api_on({}) as api, registries.override("default", world.registry()):
            codes = [api.acquire().status_code for _ in range(9)]
    finally:
        signals.lease_quota_near.disconnect(note)
    assert codes == [200] * 8 + [429]
    assert told == [("default", "tests", held, 8) for held in (7, 8, 8)]


@pytest.mark.parametrize("stable", [True, False])
@pytest.mark.parametrize("owners", [("a", "b"), (None, "a")])
def test_cosids_machine_ids_count_alike(
    world: World, stable: bool, owners: tuple[str | None, str]
) -> None:
    """Instances that are started again are no more than before; open mounts share a quota."""
    registry = world.registry()
    with api_on({}):
        machines = MachineIds("default", guard=WINDOW_MS / 1000, skew=0.2, late=120)
        machines._registries._made["default"] = registry

        def instance(name: object, owner: str | None) -> Instance:
            return Instance("shop", str(name), stable, Owner(owner))

        mine, theirs = owners
        for _ in range(3):
            for number in range(WORKERS // 2):
                machines.distribute(instance(number, mine))
            world.now_ms += WINDOW_MS // 2
        with pytest.raises(TooManyLeases):
            machines.distribute(instance("more", mine))
        assert machines.distribute(instance(0, theirs)).machine_id in range(WORKERS)
        world.now_ms += WINDOW_MS
        machines.distribute(instance("more", mine))
