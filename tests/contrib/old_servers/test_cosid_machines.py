"""Machine ids for CosId's clients: what their lives may do, on a clock that the test drives."""

from __future__ import annotations

import json
import logging
import math
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from io import StringIO
from typing import Any
from unittest.mock import patch

import pytest
from django.core.management import call_command
from django.test import override_settings

from django_idgen.contrib.old_servers import machines
from django_idgen.contrib.old_servers.machines import (
    Instance,
    MachineIds,
    MachineLost,
    MachineNotFound,
    MachineState,
)
from django_idgen.core.clock import SYSTEM_CLOCK
from django_idgen.core.errors import LeaseLost, NoFreeWorker
from django_idgen.core.lease import Namespace
from django_idgen.leases.memory import MemoryLeases
from django_idgen.process import factory, lifecycle
from django_idgen.rest.failures import Refusal
from django_idgen.settings.config import GeneratorSettings, read_settings
from tests.faults.processes import eventually
from tests.places import empty_place as empty_place
from tests.tiers import examples

from .old_clients import ACCEPTED_MS

EPOCH_MS = 1_577_203_200_000
GUARD_MS, SKEW_MS, LATE_MS = 300_000, 200, 120_000
RULES = {"guard": GUARD_MS / 1000, "skew": SKEW_MS / 1000, "late": LATE_MS / 1000}
BEAT_MS = 60_000
"""How often CosId's clients guard."""


@dataclass
class World:
    """Time, and several server processes that lend out of one registry."""

    workers: int = 8
    now_ms: int = EPOCH_MS + 10_000_000
    servers: list[MachineIds] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.now_ms += math.ceil(seconds * 1000)

    def registry(self) -> MemoryLeases:
        space = Namespace(
            "default", EPOCH_MS * 1000, 1000, 2**41, range(self.workers), GUARD_MS, 10_000
        )
        return MemoryLeases(space, read_now_us=lambda: self.now_ms * 1000)


@pytest.fixture(autouse=True)
def _no_quota(settings: Any) -> None:
    settings.IDGEN = {"REST": {"max_leases": 1000}}


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield from opened(world)


def opened(world: World, servers: int = 2) -> Iterator[World]:
    registry = world.registry()
    world.servers = [MachineIds("default", **RULES) for _ in range(servers)]
    for server in world.servers:
        server._registries._made["default"] = registry
    with patch.object(machines, "SYSTEM_CLOCK", replace(SYSTEM_CLOCK, sleep=world.sleep)):
        yield world


def one(name: str, *, stable: bool = False) -> Instance:
    return Instance("shop", name, stable)


def test_a_first_machine_id_may_stamp_from_now_on(world: World) -> None:
    """No wait for an id that nobody had."""
    state = world.servers[0].distribute(one("a"))
    assert state == MachineState(state.machine_id, world.now_ms)


def test_the_log_says_which_instance_has_a_machine_id(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """CosId's clients do not write to it."""
    with caplog.at_level(logging.INFO, "django_idgen"):
        state = world.servers[0].distribute(one("a", stable=True))
        world.servers[0].distribute(one("a", stable=True))
    (said,) = caplog.messages
    assert said.startswith("lease_acquired")
    assert f"worker={state.machine_id}, " in said
    assert one("a").label in said


@pytest.mark.parametrize("stable", [True, False])
def test_a_restart_waits_for_the_past_lifes_clock(world: World, stable: bool) -> None:
    """The same id, and stamps after all that the past life can have made."""
    first = world.servers[0].distribute(one("a", stable=stable))
    world.now_ms += 5000
    again = world.servers[1].distribute(one("a", stable=stable))
    assert again.machine_id == first.machine_id
    assert again.last_ms == world.now_ms + SKEW_MS + 1
    once_more = world.servers[1].distribute(one("a", stable=stable))
    assert once_more.last_ms == again.last_ms, "however often"


def test_a_stable_life_that_follows_another_instance_repeats_no_stamp(world: World) -> None:
    """Its lease begins ahead of now; its first life's clock, ahead too, is there already."""
    world.servers[0].distribute(one("a"))
    for number in range(7):
        world.servers[0].distribute(one(f"i-{number}"))
    world.now_ms += LATE_MS
    registry: Any = world.servers[0]._registry
    ahead = registry.namespace.tick_at((world.now_ms + SKEW_MS) * 1000)
    registry.release(registry.held_by(one("a").label)[0], last_tick=ahead)
    first = world.servers[0].distribute(one("pod-0", stable=True))
    assert first.last_ms == world.now_ms + SKEW_MS + 1
    world.now_ms += SKEW_MS // 2
    assert world.now_ms + SKEW_MS > first.last_ms, "what its first life can have stamped"
    again = world.servers[1].distribute(one("pod-0", stable=True))
    assert again.last_ms > world.now_ms + SKEW_MS


@pytest.mark.parametrize("stable", [True, False])
def test_what_was_lent_up_to_a_later_time_is_passed_over(world: World, stable: bool) -> None:
    """By a holder whose clock was ahead, say: another worker id can be stamped with now."""
    registry: Any = world.servers[0]._registry
    far = registry.namespace.tick_at(world.now_ms * 1000) + 60_000
    held = [registry.acquire(holder="other").lease for _ in range(7)]
    ahead = registry.acquire(holder=one("a").label, not_before=far).lease
    registry.release(ahead, last_tick=None)
    registry.release(held[0], last_tick=None)
    state = world.servers[0].distribute(one("a", stable=stable))
    assert (state.machine_id, state.last_ms) == (held[0].worker, world.now_ms)


@pytest.mark.parametrize("stable", [True, False])
def test_no_answer_names_a_time_that_its_client_refuses(world: World, stable: bool) -> None:
    """Where all begins later, nothing is lent until then; and then it is, from the first moment."""
    registry: Any = world.servers[0]._registry
    now_ms, far_ms = world.now_ms, world.now_ms + 446_000
    world.now_ms = far_ms
    for lease in [registry.acquire(holder="other").lease for _ in range(8)]:
        registry.release(lease, last_tick=None)
    world.now_ms = now_ms  # the registry's clock was ahead, say
    for _ in range(3):
        with pytest.raises(Refusal, match="Start the instance again in 446 s") as refused:
            world.servers[0].distribute(one("a", stable=stable))
        assert refused.value.wait == pytest.approx(446 + SKEW_MS / 1000 - ACCEPTED_MS / 1000)
    assert registry.held_by(one("a", stable=stable).label) == []
    world.now_ms = far_ms - ACCEPTED_MS + SKEW_MS
    state = world.servers[0].distribute(one("a", stable=stable))
    assert state.last_ms == far_ms


def test_who_is_guarded_keeps_its_id_for_ever(world: World) -> None:
    """By whichever server is asked, while others come and go."""
    kept = world.servers[0].distribute(one("a"))
    for beat in range(100):
        world.now_ms += BEAT_MS
        assert world.servers[beat % 2].guard(one("a")).machine_id == kept.machine_id
        other = world.servers[(beat + 1) % 2].distribute(one(f"other-{beat}"))
        assert other.machine_id != kept.machine_id


def test_who_is_not_heard_of_expires_and_has_lost_it(world: World) -> None:
    """Not a tick before the guard is over; then all ids can be had again."""
    world.servers[0].distribute(one("a"))
    for number in range(7):
        world.servers[0].distribute(one(f"first-{number}"))
    world.now_ms += GUARD_MS - 1
    with pytest.raises(NoFreeWorker):
        world.servers[1].distribute(one("late"))
    world.now_ms += 1
    given = {world.servers[1].distribute(one(f"next-{n}")).machine_id for n in range(8)}
    assert given == set(range(8))
    with pytest.raises(MachineLost):
        world.servers[0].guard(one("a"))
    with pytest.raises(MachineNotFound):
        world.servers[0].revert(one("a"))


def test_who_is_silent_for_a_guard_stamps_nothing_of_its_successor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its clock may be ahead all the while: the next one begins after that."""
    world = World()

    def build(entry: GeneratorSettings) -> MemoryLeases:
        window = round(entry.window * 1000)
        space = Namespace("default", EPOCH_MS * 1000, 1000, 2**41, range(1), window, 10_000)
        return MemoryLeases(space, read_now_us=lambda: world.now_ms * 1000)

    monkeypatch.setattr(factory, "build_registry", build)
    server = MachineIds("default", **RULES)
    server.distribute(one("a"))
    world.now_ms += GUARD_MS
    last_ms = world.now_ms + SKEW_MS
    while True:
        with suppress(NoFreeWorker):
            next_ms = server.distribute(one("b")).last_ms
            break
        world.now_ms += 1
    assert last_ms < next_ms <= last_ms + 2


def test_who_expired_goes_on_if_nobody_took_its_id(world: World) -> None:
    """A client goes on in any case: better under a lease."""
    state = world.servers[0].distribute(one("a"))
    world.now_ms += 3 * GUARD_MS
    assert world.servers[1].guard(one("a")).machine_id == state.machine_id
    taken = {world.servers[0].distribute(one(f"i-{n}")).machine_id for n in range(7)}
    assert state.machine_id not in taken


def test_an_id_that_was_given_back_goes_to_a_newcomer_when_its_guard_is_over(
    world: World,
) -> None:
    """A client that has sent a DELETE may still stamp: what it was promised is nobody else's."""
    for number in range(8):
        world.servers[0].distribute(one(f"i-{number}"))
    world.now_ms += LATE_MS
    back = world.servers[1].revert(one("i-3"))
    for _ in range(GUARD_MS // BEAT_MS):
        with pytest.raises((Refusal, NoFreeWorker)):
            world.servers[0].distribute(one("new"))
        world.now_ms += BEAT_MS
        for number in {*range(8)} - {3}:
            world.servers[0].guard(one(f"i-{number}"))
    newcomer = world.servers[0].distribute(one("new"))
    assert newcomer.machine_id == back.machine_id


def test_a_rolling_restart_finds_machine_ids_that_begin_at_once(world: World) -> None:
    """Each instance gives its id back, and starts again under one that its client accepts."""
    for number in range(4):
        world.servers[0].distribute(one(f"i-{number}"))
    world.now_ms += LATE_MS
    given = set()
    for number in range(4):
        world.servers[1].revert(one(f"i-{number}"))
        state = world.servers[0].distribute(one(f"i-{number}"))
        assert state.last_ms <= world.now_ms
        given.add(state.machine_id)
    assert len(given) == 4


def test_a_late_delete_frees_nothing(world: World) -> None:
    """It was sent by a past life; the one that lives keeps its id, and guards it."""
    world.servers[0].distribute(one("a"))
    world.now_ms += 10 * BEAT_MS // 60
    alive = world.servers[0].distribute(one("a"))  # started again
    world.now_ms += LATE_MS - 1
    world.servers[1].revert(one("a"))  # held up on its way
    others = {world.servers[0].distribute(one(f"i-{n}")).machine_id for n in range(7)}
    assert alive.machine_id not in others
    with pytest.raises(NoFreeWorker):
        world.servers[0].distribute(one("eighth"))
    assert world.servers[1].guard(one("a")).machine_id == alive.machine_id


def test_a_stable_instance_comes_back_to_its_id(world: World) -> None:
    """After a DELETE, too: nobody else has it meanwhile."""
    first = world.servers[0].distribute(one("pod-0", stable=True))
    world.now_ms += 2 * LATE_MS
    world.servers[0].guard(one("pod-0", stable=True))
    world.servers[0].revert(one("pod-0", stable=True))
    for number in range(7):
        world.servers[1].distribute(one(f"i-{number}"))
    world.now_ms += BEAT_MS
    assert world.servers[1].distribute(one("pod-0", stable=True)).machine_id == first.machine_id


def test_two_servers_that_both_begin_agree(world: World) -> None:
    """Between the look and the acquire, another server is quicker: one id, one lease."""
    registry: Any = world.servers[0]._registry
    held_by = registry.held_by
    answers: list[MachineState] = []

    def overtaken(holder: str) -> Any:
        found = held_by(holder)
        if not answers:
            answers.append(MachineState(-1, 0))
            answers[0] = world.servers[1].distribute(one("a"))
        return found

    with patch.object(registry, "held_by", overtaken):
        second = world.servers[0].distribute(one("a"))
    assert second.machine_id == answers[0].machine_id
    assert len(registry.held_by(one("a").label)) == 1


def test_a_lease_that_is_lost_on_the_way_is_asked_for_anew(world: World) -> None:
    """An instance never hears of the race that it was in."""
    world.servers[0].distribute(one("a", stable=True))
    registry: Any = world.servers[0]._registry
    renew, calls = registry.renew, []

    def lost_once(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        if len(calls) == 1:
            raise LeaseLost("x")
        return renew(*args, **kwargs)

    with patch.object(registry, "renew", lost_once):
        assert world.servers[0].distribute(one("a", stable=True)).machine_id in range(8)


def test_our_own_processes_are_no_instances(world: World) -> None:
    """A holder of the same name is somebody else, and so is an instance of another namespace."""
    registry: Any = world.servers[0]._registry
    ours = registry.acquire(holder="a").lease.worker
    given = {
        world.servers[0].distribute(Instance(space, "a", True)).machine_id
        for space in ("shop", "other", 'shop" a')
    }
    assert len(given) == 3
    assert ours not in given


# --- whole histories -------------------------------------------------------------------


@dataclass
class Life:
    """One run of a client: which machine id it stamps with, and when, by its own clock."""

    instance: Instance
    machine: int
    clock_ms: int
    """How far its clock is ahead of the registry's."""
    first_ms: int
    guard_at: int
    last_ms: int = 0
    alive: bool = True


@pytest.mark.parametrize("seed", range(examples(12)))
def test_no_two_lives_stamp_one_moment(seed: int) -> None:
    """Restarts, kills, late DELETEs and clocks that differ: each stamp is one life's alone.

    What is left out is what CosId itself leaves open: two lives of one instance at a time,
    and a life that goes on without guarding.
    """
    chance = random.Random(seed)
    world = World(workers=6)
    for _ in opened(world):
        history(world, chance)


def history(world: World, chance: random.Random) -> None:
    names = [one(f"i-{n}", stable=n % 2 == 0) for n in range(8)]
    lives: list[Life] = []
    deletes: list[tuple[int, Instance]] = []
    for _ in range(250):
        world.now_ms += chance.choice([1, 50, 3000, 20_000])
        beat(world, lives, chance)
        for due in [each for each in deletes if each[0] <= world.now_ms]:
            deletes.remove(due)
            revert(world, chance, due[1])
        running = [life for life in lives if life.alive]
        instance = chance.choice(names)
        life = next((each for each in running if each.instance == instance), None)
        if life is None:
            begin(world, lives, chance, instance)
            continue
        end(world, life)
        if chance.random() < 0.6:
            held_up = chance.choice([0, 0, 20, 5000, LATE_MS - 30_000])
            deletes.append((world.now_ms + held_up, instance))
    for life in lives:
        end(world, life)
    assert len(lives) > 20
    for number, first in enumerate(lives):
        for second in lives[number + 1 :]:
            if first.machine == second.machine:
                assert first.last_ms < second.first_ms or second.last_ms < first.first_ms, (
                    first,
                    second,
                )


def beat(world: World, lives: list[Life], chance: random.Random) -> None:
    for life in lives:
        if life.alive and world.now_ms >= life.guard_at:
            world.servers[chance.randrange(2)].guard(life.instance)
            life.guard_at = world.now_ms + BEAT_MS


def begin(world: World, lives: list[Life], chance: random.Random, instance: Instance) -> None:
    try:
        state = world.servers[chance.randrange(2)].distribute(instance)
    except (NoFreeWorker, Refusal):
        return
    clock = chance.randint(-SKEW_MS, SKEW_MS) if chance.random() < 0.7 else SKEW_MS
    assert state.last_ms <= world.now_ms + clock + ACCEPTED_MS, "the client refuses it"
    # It waits until its clock is no earlier than what it was told.
    first = max(world.now_ms + clock, state.last_ms)
    lives.append(
        Life(instance, state.machine_id, clock, first, world.now_ms + BEAT_MS, last_ms=first - 1)
    )


def end(world: World, life: Life) -> None:
    """It may have stamped up to this very moment, from when it was ready on."""
    if life.alive:
        life.alive = False
        life.last_ms = max(life.last_ms, world.now_ms + life.clock_ms)


def revert(world: World, chance: random.Random, instance: Instance) -> None:
    with suppress(MachineNotFound):  # nothing of it was left
        world.servers[chance.randrange(2)].revert(instance)


# --- while a scheduler renews: the guard alone says how long --------------------------


GUARD = 2.0
SILENT, HEARD, LATE = (Instance("shop", name, stable=True) for name in ("silent", "heard", "late"))


@pytest.fixture
def _lending(empty_place: str) -> Iterator[None]:
    """A database of each kind that lends three worker ids; its windows outlast the guard."""
    options = {"database": empty_place, "workers": [0, 3], "window": 600}
    idgen = {
        "GENERATORS": {"default": {"LEASES": {"OPTIONS": options}}},
        "REST": {"max_leases": 3},
    }
    with override_settings(IDGEN=idgen):
        yield
        lifecycle.close_all()


def renewed() -> int:
    """How many leases the real command has renewed."""
    out = StringIO()
    call_command("idgen_upkeep", stdout=out)
    (line,) = (each for each in out.getvalue().splitlines() if "renew_worker_leases" in each)
    return int(json.loads(line.partition(": ")[2])["default"]["renewed"])


@pytest.mark.long
@pytest.mark.usefixtures("_lending")
def test_upkeep_holds_no_machine_id_longer_than_its_guard() -> None:
    """A silent instance's is lent anew, from where its window ended; those that guard keep theirs.

    Our own process, seen lately as well, is renewed at each run.
    """
    registry = factory.build_registry(read_settings().generators["default"])
    own = registry.acquire(holder="web").lease
    machines = MachineIds("default", guard=GUARD, skew=0.1, late=0)

    def ends(holder: str) -> list[int]:
        return [lease.until for lease in registry.held_by(holder)]

    silent, heard = machines.distribute(SILENT), machines.distribute(HEARD)
    (ended,) = ends(SILENT.label)

    for _ in range(2):
        assert renewed() == 1
    assert ends(SILENT.label) == [ended]

    def taken_over() -> bool:
        assert machines.guard(HEARD).machine_id == heard.machine_id
        try:
            return machines.distribute(LATE).machine_id == silent.machine_id
        except NoFreeWorker:
            return False

    eventually(taken_over)
    (late,) = registry.held_by(LATE.label)
    assert late.start >= ended
    assert ends("web")[0] > own.until
