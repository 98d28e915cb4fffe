"""Whether a process can give out ids, with databases that answer, refuse, and hang."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser
from django.db import connections
from django.test import RequestFactory, override_settings

from django_idgen import generators, next_id, segments
from django_idgen.core.clock import SYSTEM_CLOCK
from django_idgen.core.errors import (
    ClockSkewed,
    ConfigurationError,
    LeaseExpired,
    LeaseLost,
    NamespaceMismatch,
    NoFreeWorker,
    RegistryUnavailable,
    SegmentUnavailable,
)
from django_idgen.core.keeper import LeaseKeeper
from django_idgen.core.tag_generator import SerialGenerator, TagGenerator
from django_idgen.ops import health, probes
from django_idgen.ops.health import Readiness
from django_idgen.ops.probes import Probes
from django_idgen.process import maps
from django_idgen.sources.memory import MemorySource
from tests import servers
from tests.own_servers import pointing_at
from tests.places import idgen_on
from tests.private_postgres import PostgresServer, postgres_farm
from tests.redis_servers import RedisFarm, cache_alias
from tests.rest.tags.people import Person
from tests.server_tools import unreachable
from tests.sources.pool.test_project import project

MEMORY = {"SOURCE": {"BACKEND": f"{MemorySource.__module__}.{MemorySource.__name__}"}}
PATIENCE = 60
"""Seconds that a loaded machine may take; never reached when all is well."""


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer of another test's database counts."""
    monkeypatch.setattr(health, "_probes", Probes())


def now(*, strict: bool = True) -> Readiness:
    """How it stands, asked anew, and waited for."""
    return health.readiness(strict=strict, max_age=0, within=PATIENCE)


def until(fits: Callable[[Readiness], bool], within: float = 0.8) -> Readiness:
    deadline = time.monotonic() + PATIENCE
    while not fits(found := health.readiness(strict=True, max_age=0, within=within)):
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return found


def keeper() -> LeaseKeeper:
    return generators["default"].keeper  # type: ignore[attr-defined]


# --- a database that answers ---------------------------------------------------------


def test_a_process_with_a_database_is_ready(place: str) -> None:
    """Before its first id and after; what is in use is named.

    Asking takes no id and no worker id; it leaves no row, no table and no marks file behind.
    """
    before = _traces(place)
    for _ in range(3):
        assert now().ready
    assert [part.name for part in now().parts] == ["segments"]
    assert generators.made() == {}
    assert _traces(place) == before
    next_id()
    found = now()
    assert found.ready, found
    assert [part.name for part in found.parts] == ["segments", "generator:default"]
    assert "s left" in found.parts[1].detail


def _traces(place: str) -> set[str]:
    """The tables of a server, or the files beside a SQLite database."""
    if place != "default":
        return set(connections[place].introspection.table_names())
    return {path.name for path in Path(connections.settings[place]["NAME"]).parent.iterdir()}


def test_a_generator_that_was_made_but_never_asked_is_not_looked_at(place: str) -> None:
    """Its registry may be away: nobody needs it."""
    assert generators["default"].stats()
    keeper().registry.probes = lambda: {"x": lambda: 1 / 0}  # type: ignore[attr-defined]
    assert now().ready


def test_what_is_shared_is_asked_every_few_seconds_at_most(place: str) -> None:
    """However many ask."""
    asked = []
    probes = Probes()
    wanted = {"x": lambda: asked.append(1)}
    for _ in range(50):
        probes.outcomes(wanted, max_age=PATIENCE, within=PATIENCE)
    assert len(asked) == 1
    probes.outcomes(wanted, max_age=0, within=PATIENCE)
    assert len(asked) == 2


def test_a_question_that_hangs_is_not_asked_again_beside_it() -> None:
    """One thread, not more and more; and its answer counts when it comes."""
    go, asked = threading.Event(), []

    def ask() -> None:
        asked.append(1)
        go.wait(PATIENCE)

    probes = Probes()
    for _ in range(5):
        found = probes.outcomes({"x": ask}, max_age=0, within=0.01)["x"]
        assert not found.answered
        assert "No answer" in str(found.error)
    assert len(asked) == 1
    go.set()
    deadline = time.monotonic() + PATIENCE
    while probes.outcomes({"x": ask}, max_age=PATIENCE, within=0.01)["x"].error:
        assert time.monotonic() < deadline


def test_one_place_that_answers_is_enough() -> None:
    """Of several databases, or a pool before one: ids can be had."""

    class Two(MemorySource):
        def probes(self) -> dict[str, Callable[[], None]]:
            return {"a": lambda: None, "b": self.fail}

        def fail(self) -> None:
            raise OSError("b is away")

    source = segments.allocator()
    before, source.source = source.source, Two()
    try:
        assert now().ready
        Two.probes = lambda self: {"b": self.fail}  # type: ignore[method-assign]
        found = now()
        assert found.failing == ("segments",)
        assert "b is away" in found.parts[0].detail
    finally:
        source.source = before


def test_no_thread_to_ask_with_is_no_answer_that_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system has no thread left for a moment, it is asked again after that."""

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    probes = Probes()
    wanted: dict[str, Callable[[], None]] = {"x": lambda: None}
    with monkeypatch.context() as scarce:
        scarce.setattr(threading.Thread, "start", refuse)
        refused = probes.outcomes(wanted, max_age=0, within=PATIENCE)["x"]
    assert "can't start new thread" in str(refused.error)
    assert probes.outcomes(wanted, max_age=0, within=PATIENCE)["x"].error is None


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_a_question_that_was_broken_off_is_no_good_answer(kind: type[BaseException]) -> None:
    """Whatever has ended its thread."""

    def end() -> None:
        raise kind

    # Not in a thread of its own, whose end would be heard of in another test.
    probe = probes._Call(end, time.monotonic)
    with pytest.raises(kind):
        probe._run()
    assert probe.outcome(time.monotonic(), PATIENCE).error


# --- one that is dead, or hangs ------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_farm() as farm:
        yield farm.server()


@pytest.fixture
def own(server: PostgresServer, django_db_blocker: Any) -> Iterator[PostgresServer]:
    """A PostgreSQL of the test's own, which ids come from; they have begun to."""
    with (
        django_db_blocker.unblock(),
        pointing_at(server, "own") as alias,
        override_settings(IDGEN=idgen_on(alias)),
    ):
        next_id()
        yield server
        server.resume()


def test_a_database_that_hangs_is_noticed_in_a_bounded_time(own: PostgresServer) -> None:
    """A real one, stopped: not ready, without a wait that lasts; ready again when it goes on.

    The views answer 503 meanwhile with the names alone; who asks is not looked up in what hangs.
    """
    until(lambda found: found.ready)
    own.pause()
    found = health.readiness(strict=True, max_age=0, within=0.5)
    assert set(found.failing) == {"segments", "generator:default"}
    assert not found.answered
    request = RequestFactory().get("/?strict=1")
    request.user = Unknown()  # type: ignore[assignment]
    answer = health.ready(request)
    assert answer.status_code == 503
    assert b"segments" in answer.content
    assert b"own" not in answer.content
    assert health.live(request).status_code == 200
    own.resume()
    until(lambda found: found.ready)


def test_a_database_that_refuses_is_noticed(own: PostgresServer) -> None:
    """Once it is back, so is the process, though nobody took an id meanwhile."""
    own.stop("fast")
    found = until(lambda found: not found.ready)
    assert set(found.failing) == {"segments", "generator:default"}
    own.start()
    until(lambda found: found.ready)
    assert next_id()


def test_an_outage_that_ids_survive_takes_no_process_out(own: PostgresServer) -> None:
    """Ready while all that was used has ids; not once one has none, nor without any from the start.

    A tag that was only named does not count. The details tell the trouble all the same.
    """
    tag = segments["orders"]
    tag.next_id()
    assert segments["named"]
    until(lambda found: found.ready)
    own.stop("fast")
    until(lambda found: not found.ready)
    found = now(strict=False)
    assert found.ready
    assert not found.parts[0].detail.startswith("The source answers")
    assert health.ready(RequestFactory().get("/")).status_code == 200
    assert health.ready(RequestFactory().get("/?strict=1")).status_code == 503
    stats: Any = tag.stats()
    tag.next_ids(stats.remaining)
    assert set(now(strict=False).failing) == {"segments", "generator:default"}
    maps.reset()
    assert now(strict=False).failing == ("segments",)
    own.start()
    until(lambda found: found.ready)


MINUTES_15 = 900.0


class Ahead:
    """Clocks of this process that a test moves on: those of a lease, and those of tags."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.clock = replace(
            SYSTEM_CLOCK,
            stopwatch=lambda: SYSTEM_CLOCK.stopwatch() + self.seconds,
            elapsed_ns=lambda: SYSTEM_CLOCK.elapsed_ns() + int(self.seconds * 1e9),
        )

    def of_lease(self, of: LeaseKeeper) -> None:
        of._clock = self.clock
        of._time._elapsed_ns = self.clock.elapsed_ns


def test_a_generator_that_was_not_used_for_15_minutes_takes_no_process_out(
    own: PostgresServer,
) -> None:
    """Its window ends in an outage: that counts for 15 minutes after the last id or failure."""
    ahead = Ahead()
    ahead.of_lease(keeper())
    segments["orders"].next_id()
    until(lambda found: found.ready)
    own.stop("fast")
    until(lambda found: not found.ready)
    ahead.seconds = MINUTES_15 - 300
    assert keeper().seconds_left == 0
    assert not now(strict=False).ready
    ahead.seconds = MINUTES_15 + 1
    assert now(strict=False).ready
    assert not now(strict=True).ready
    with pytest.raises(LeaseExpired):  # its caller is refused, and so would be the next
        next_id()
    ahead.seconds += MINUTES_15 - 300
    assert not now(strict=False).ready
    ahead.seconds += 301
    assert now(strict=False).ready
    own.start()


def test_a_tag_that_was_not_used_for_15_minutes_takes_no_process_out(own: PostgresServer) -> None:
    """One that is used up: nothing is loaded in an outage, so no load drops idle tags."""
    ahead = Ahead()
    segments.allocator().clock = ahead.clock
    _runs_out(own, segments["orders"], ahead)


@pytest.mark.parametrize("kind", [TagGenerator, SerialGenerator])
def test_a_generator_without_a_lease_counts_as_tags_do(
    own: PostgresServer, kind: type[TagGenerator]
) -> None:
    """Ready while it has ids, though nothing else is used; not once it has none."""
    source = {
        "BACKEND": TagGenerator.default_source,
        "OPTIONS": {"database": "own"},
    }
    tickets = {"BACKEND": f"{kind.__module__}.{kind.__name__}", "SOURCE": source}
    ids = idgen_on("own")
    with override_settings(IDGEN={**ids, "GENERATORS": {**ids["GENERATORS"], "tickets": tickets}}):
        ahead = Ahead()
        found: Any = generators["tickets"]
        found._allocator.clock = ahead.clock
        _runs_out(own, found, ahead)


@pytest.mark.parametrize("kind", [TagGenerator, SerialGenerator])
def test_the_source_of_a_generators_own_tag_is_asked(own: PostgresServer, kind: type) -> None:
    """Its database, though all other ids come from elsewhere; not before an id was taken."""
    source = {"BACKEND": TagGenerator.default_source, "OPTIONS": {"database": "own"}}
    tickets = {"BACKEND": f"{kind.__module__}.{kind.__name__}", "SOURCE": source}
    with override_settings(IDGEN={"GENERATORS": {"tickets": tickets}, "SEGMENTS": MEMORY}):
        assert [part.name for part in now().parts] == ["segments"]
        generators["tickets"].next_id()
        until(lambda found: found.ready)
        own.stop("fast")
        found = until(lambda found: not found.ready)
        assert found.failing == ("generator:tickets",)
        assert now(strict=False).ready
        own.start()
        until(lambda found: found.ready)


def _runs_out(own: PostgresServer, of_tag: Any, ahead: Ahead) -> None:
    """In an outage: the process is ready but for 15 minutes after someone found nothing left."""
    of_tag.next_id()
    until(lambda found: found.ready)
    own.stop("fast")
    until(lambda found: not found.ready)
    assert now(strict=False).ready
    of_tag.next_ids(of_tag.stats().remaining)
    assert not now(strict=False).ready
    ahead.seconds = MINUTES_15 + 1
    assert now(strict=False).ready
    of_tag._services.timeout = of_tag._services.first_timeout = 0.1
    with pytest.raises(SegmentUnavailable):
        of_tag.next_id()
    assert not now(strict=False).ready
    with pytest.raises(SegmentUnavailable):
        of_tag.next_ranges(5)
    ahead.seconds += MINUTES_15 + 1
    assert now(strict=False).ready
    own.start()


class Unknown:
    """A user that would have to be looked up."""

    @property
    def is_staff(self) -> bool:
        raise AssertionError("it asked for the user")


# --- a process that has taken itself out ---------------------------------------------


def test_a_lost_lease_takes_the_process_out_until_it_has_another(place: str) -> None:
    """Ids that are asked for bring it back."""
    next_id()
    keeper()._mark_lost(keeper().lease, LeaseLost("gone"))  # type: ignore[arg-type]
    found = now()
    assert found.failing == ("generator:default",)
    assert "lost" in found.parts[1].detail
    keeper().acquire()
    assert now().ready


@pytest.mark.parametrize(
    "error",
    [ClockSkewed("skewed"), NoFreeWorker("default", range(2)), NamespaceMismatch("n", "s", 1, 2)],
    ids=lambda error: type(error).__name__,
)
def test_a_refusal_takes_the_process_out(place: str, error: Exception) -> None:
    """Where no lease is held: the reason is told; a caller who gets one brings it back."""
    generator = generators["default"]
    registry: Any = keeper().registry
    acquire, registry.acquire = registry.acquire, _raising(error)
    with pytest.raises(type(error)):
        generator.next_id()
    found = now()
    assert found.failing == ("generator:default",)
    assert str(error) in found.parts[1].detail
    registry.acquire = acquire
    generator.next_id()
    assert now().ready


def test_a_refusal_does_not_last(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without traffic nobody would try again: after a minute a caller may."""
    generator = generators["default"]
    registry: Any = keeper().registry
    monkeypatch.setattr(registry, "acquire", _raising(ClockSkewed("skewed")))
    with pytest.raises(ClockSkewed):
        generator.next_id()
    assert not now().ready
    monkeypatch.setattr(health, "REMEMBERED", 0.0)
    assert now().ready


def test_a_clock_that_is_wrong_takes_the_process_out_where_that_is_asked_for(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ``refuse_skew``, until it is right again; the ids go on, and are right."""
    last = next_id()
    clock = keeper()._clock
    wrong = replace(clock, wall_ns=lambda: time.time_ns() + 3600 * 10**9)
    monkeypatch.setattr(keeper(), "_clock", wrong)
    assert now(strict=False).ready
    monkeypatch.setattr(keeper(), "refuse_skew", True)
    found = now(strict=False)
    assert found.failing == ("generator:default",)
    assert "+3600" in found.parts[1].detail
    assert next_id() > last
    monkeypatch.setattr(keeper(), "_clock", clock)
    assert now(strict=False).ready


def _raising(error: Exception) -> Callable[..., Any]:
    def acquire(**_options: Any) -> Any:
        raise error

    return acquire


def test_a_window_that_can_not_be_renewed_is_told_in_time(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a third of it on, if the last attempt to renew failed."""
    next_id()
    monkeypatch.setattr(LeaseKeeper, "renewal_failed", True)
    assert now().ready
    monkeypatch.setattr(LeaseKeeper, "seconds_left", 59.0)
    assert now().failing == ("generator:default",)
    monkeypatch.setattr(LeaseKeeper, "renewal_failed", False)
    assert now().ready


def test_settings_that_can_not_work_are_told(place: str) -> None:
    """By a name, not by a crash."""
    with override_settings(IDGEN={"SEGMENTS": {"SOURCE": {"BACKEND": "no.such.Source"}}}):
        assert now().failing == ("settings",)


# --- the views -----------------------------------------------------------------------


def asked_by(user: Any) -> Any:
    request = RequestFactory().get("/")
    request.user = user
    return health.ready(request)


@pytest.mark.django_db
def test_only_staff_is_told_the_details() -> None:
    """Others get one word."""
    for user in (AnonymousUser(), Person()):
        assert asked_by(user).content == b'{"ready": true}'
    boss = Person(staff=True)
    assert b"parts" in asked_by(boss).content
    boss.is_active = False  # some authentication backends let such users log in
    assert b"parts" not in asked_by(boss).content
    assert b"parts" not in health.ready(RequestFactory().get("/")).content


@pytest.mark.django_db
def test_the_views_are_for_looking_and_never_cached() -> None:
    """GET and HEAD."""
    for view in (health.live, health.ready):
        answer = view(RequestFactory().get("/"))
        assert answer.status_code == 200
        assert "no-store" in answer["Cache-Control"]
        assert view(RequestFactory().post("/")).status_code == 405


# --- what is asked of registries and sources ------------------------------------------


def probes_of(adapter: Any) -> dict[str, Callable[[], None]]:
    found: dict[str, Callable[[], None]] = adapter.probes()
    return found


def registry() -> Any:
    return generators["default"].keeper.registry  # type: ignore[attr-defined]


def test_a_database_that_answers_is_well(place: str) -> None:
    """One probe a database, by its name, for both. Where a server refuses, so does the probe."""
    for adapter, error in (
        (segments.allocator().source, SegmentUnavailable),
        (registry(), RegistryUnavailable),
    ):
        ((name, ask),) = probes_of(adapter).items()
        assert name == f"database {place}"
        if place in servers.URLS:
            with unreachable(place), pytest.raises(error):
                ask()
        ask()


def test_a_redis_is_asked_by_what_uses_it(farm: RedisFarm, postgres: str) -> None:
    """A pool besides the database behind it; a registry alone. One that is down is told."""
    server = farm.server()
    with cache_alias("probed", f"redis://127.0.0.1:{server.port}/0") as alias:
        with project(alias, postgres) as pool:
            asked = probes_of(pool)
            assert set(asked) == {f"redis {alias}", f"database {postgres}"}
            for ask in asked.values():
                ask()
        leases = {
            "BACKEND": "django_idgen.leases.redis.RedisLeases",
            "OPTIONS": {"alias": alias, "database": postgres},
        }
        with override_settings(IDGEN={"GENERATORS": {"default": {"LEASES": leases}}}):
            ((name, ask),) = probes_of(registry()).items()
            assert name == f"redis {alias}"
            ask()
            server.kill()
            with pytest.raises(RegistryUnavailable):
                ask()
            maps.reset()


# --- what edits of tags ask of the marks -----------------------------------------------


def test_a_tag_is_opened_once_and_its_mark_never_lowered() -> None:
    """With its step and its first id; one that is there stays as it is.

    A step that can't be leaves nothing behind.
    """
    marks = MemorySource(10)
    with pytest.raises(ConfigurationError):
        marks.open_tag("t", step=0, max_id=500)
    assert marks.open_tag("t", step=3, max_id=500)
    assert not marks.open_tag("t", step=9, max_id=900)
    segment = marks.fetch("t")
    assert (segment.start, segment.stop, segment.step) == (500, 503, 3)
    marks.fetch("used")
    assert not marks.open_tag("used", step=9, max_id=900)
    for to in (700, 30):
        marks.raise_mark("t", to)
        assert marks.max_id("t") == 700
    assert marks.fetch("t").start == 700
    marks.raise_mark("new", 40)
    assert marks.fetch("new").start == 40
