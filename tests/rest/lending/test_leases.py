"""``generators/<alias>/leases``: worker ids lent, kept, given back, described, and how many."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache
from django.db import connections
from django.test import Client, override_settings
from django.urls import reverse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rest_framework.throttling import UserRateThrottle

from django_idgen import generators, signals
from django_idgen.contrib.old_servers.machines import Instance, MachineIds
from django_idgen.core.clock import SYSTEM_CLOCK
from django_idgen.core.lease import Namespace
from django_idgen.leases.memory import MemoryLeases
from django_idgen.process.maps import registries
from django_idgen.rest.clients import Owner, TooManyLeases
from tests.places import empty_place as empty_place
from tests.places import sqlite
from tests.remote.service import EVERYTHING, SECRET, one_token

IDGEN = {
    "GENERATORS": {
        "default": {
            "LEASES": {"OPTIONS": {"workers": [0, 4], "window": 60}},
            "OPTIONS": {"max_ahead": 2},
        },
        "other": {"LAYOUT": "js_safe"},
    },
    "REST": {"max_leases": 4},
}


class Api:
    """The API as a client of it, with a token."""

    def __init__(self) -> None:
        self.client = Client(raise_request_exception=True)

    def get(self, alias: str = "default") -> Any:
        url = reverse("django_idgen:generator-leases", args=[alias])
        return self.client.get(url, headers={"Authorization": f"Bearer {SECRET}"})

    def post(self, name: str, body: object, alias: str = "default", secret: str = SECRET) -> Any:
        return self.send(name, json.dumps(body), alias, secret)

    def send(self, name: str, body: str, alias: str = "default", secret: str = SECRET) -> Any:
        return self.client.post(
            reverse(f"django_idgen:{name}", args=[alias]),
            data=body,
            content_type="application/json",
            headers={"Authorization": f"Bearer {secret}"},
        )

    def settings(self) -> dict[str, Any]:
        said = self.get().json()
        return {"fingerprint": said["fingerprint"], "window": said["window_ticks"]}

    def acquire(self, **more: object) -> Any:
        return self.post("generator-leases", {**self.settings(), "holder": "h", **more})

    def renew(self, lease: dict[str, Any], last_tick: object, **more: object) -> Any:
        body = {"lease": lease, "last_tick": last_tick, **self.settings(), **more}
        return self.post("lease-renew", body)

    def release(self, lease: dict[str, Any], **more: object) -> Any:
        return self.post("lease-release", {"lease": lease, **more})


@pytest.fixture
def api(tmp_path: Path, django_db_blocker: Any) -> Iterator[Api]:
    """The API over an empty SQLite database."""
    with (
        django_db_blocker.unblock(),
        sqlite(tmp_path),
        one_token(),
        override_settings(ROOT_URLCONF="tests.remote.urls", IDGEN=IDGEN),
    ):
        yield Api()


def test_a_worker_id_is_lent_kept_and_given_back(api: Api) -> None:
    """With a new token for each, the registry's time, and the answer's own nonce.

    One of somebody else's making is lost, whatever it says; the true one is not.
    """
    answer = api.acquire(nonce="n")
    assert answer.status_code == 200
    assert "no-store" in answer["Cache-Control"]
    body = answer.json()
    lease = body["lease"]
    assert 0 <= lease["worker"] < 4
    assert abs(int(body["now_us"]) - SYSTEM_CLOCK.wall_ns() // 1000) < 60_000_000
    assert int(lease["until"]) - int(lease["start"]) == 60_000
    assert body["nonce"] == "n"

    for wrong in (
        {"start": str(int(lease["start"]) - 1)},
        {"worker": 2**62},
        {"generation": lease["generation"] + 1},
        {"until": str(2**64)},
    ):
        lost = api.renew({**lease, **wrong}, lease["start"])
        assert (lost.status_code, lost.json()["code"]) == (409, "lease_lost"), wrong
    assert api.release({**lease, "token": "0" * 32}).json()["known"] is False
    renewed = api.renew(lease, int(lease["start"]) + 500)
    assert renewed.json()["lease"]["token"] == lease["token"]
    assert int(renewed.json()["lease"]["until"]) >= int(lease["until"]) + 500

    assert api.release(lease).json()["known"] is True
    assert api.release(lease).json()["known"] is False
    lost = api.renew(lease, lease["start"])
    assert (lost.status_code, lost.json()["code"]) == (409, "lease_lost")


def test_the_services_own_processes_and_borrowers_are_one_fleet(api: Api) -> None:
    """Worker ids never meet, and the fifth of four is refused: 503, with a time to wait."""
    own = generators["default"].layout.unpack(generators["default"].next_id()).worker
    lent = [api.acquire().json()["lease"]["worker"] for _ in range(3)]
    assert sorted([own, *lent]) == [0, 1, 2, 3]
    full = api.acquire()
    assert (full.status_code, full.json()["code"]) == (503, "no_free_worker")
    assert int(full["Retry-After"]) > 0


def test_a_holders_label_is_bound_to_the_name_of_its_token(api: Api) -> None:
    """The worker id that it had is no other client's by preference, whatever that calls itself."""

    def label(lease: dict[str, Any]) -> str:
        found = registries["default"].inspect([lease["worker"]])
        return next(iter(found.marks)).mark.holder

    first = api.acquire(holder="pod-0").json()["lease"]
    assert label(first) == '"tests" pod-0'
    with one_token(replace(EVERYTHING, name="other")):
        taken = [api.acquire(holder=name).json()["lease"] for name in ("pod-0", '"tests" pod-0')]
    assert [label(lease) for lease in taken] == ['"other" pod-0', '"other" "tests" pod-0']


def test_a_generator_is_described(api: Api) -> None:
    """Everything that a borrower has to be set up with."""
    said = api.get().json()
    fields = [["time", 41], ["worker", 10], ["sequence", 12]]
    epoch = 1735689600000000
    layout = {"name": "standard", "fields": fields, "worker_parts": [], "tick_us": 1000}
    shared = {"fields": fields, "tick_us": 1000, "epoch_us": epoch, "workers": [0, 4]}
    assert len(said.pop("installation")) >= 16
    assert said == {
        "namespace": "default",
        "layout": {**layout, "epoch_us": str(epoch)},
        "workers": [0, 4],
        "window_ticks": "60000",
        "skew_ticks": "10000",
        "ahead_ticks": "2000",
        "fingerprint": shared,
    }


def test_a_client_of_other_settings_is_refused(api: Api) -> None:
    """Acquire and renew, with the name of the setting and both values (I8).

    The kind of its registry doesn't count: it is lent by the service's.
    """
    lease = api.acquire().json()["lease"]
    ours = api.get().json()["fingerprint"]
    differing = {"fields": [["time", 40]], "epoch_us": 1, "tick_us": 2, "workers": [0, 8]}
    for setting, value in differing.items():
        wrong = {**ours, setting: value, "registry": "whatever it calls itself"}
        renewed = api.renew(lease, lease["start"], fingerprint=wrong)
        for answer in (api.acquire(fingerprint=wrong), renewed):
            body = answer.json()
            assert (answer.status_code, body["code"]) == (409, "namespace_mismatch")
            told = body["setting"], body["stored"], body["configured"]
            assert told == (setting, ours[setting], value)
        missing = {key: value for key, value in ours.items() if key != setting}
        assert api.acquire(fingerprint=missing).status_code == 409
    for kind in ("http", "database", None):
        assert api.acquire(fingerprint={**ours, "registry": kind}).status_code == 200


def test_a_window_or_future_that_the_service_does_not_reckon_with_is_refused(api: Api) -> None:
    """What is kept clear after a loss of the database reaches no further than it knows of."""
    for name, most in (("window", 60_000), ("ahead", 2000)):
        assert api.acquire(**{name: most}).status_code == 200
        answer = api.acquire(**{name: most + 1})
        body = answer.json()
        assert (answer.status_code, body["code"]) == (409, "settings_differ")
        told = body["setting"], body["stored"], body["configured"]
        assert told == (name, most, most + 1)


def test_a_wrong_client_cannot_use_up_a_worker_ids_time(api: Api) -> None:
    """Hazard 104: however often it renews, its window ends two windows past now at most."""
    generator = {"LEASES": {"OPTIONS": {"workers": [0, 4], "window": 600}}}
    with override_settings(IDGEN={**IDGEN, "GENERATORS": {"default": generator}}):
        lease = api.acquire().json()["lease"]
        for late in (3_000_000, 700_000):
            late += int(lease["start"])
            answer = api.acquire(not_before=late)
            body = answer.json()
            assert (answer.status_code, body["code"]) == (409, "too_far_ahead")
            assert body["asked"] == str(late)
        soon = int(body["latest"])
        assert soon < late
        ahead = api.acquire(not_before=soon).json()["lease"]
        assert int(ahead["start"]) == soon
        until = int(ahead["until"])
        assert until <= soon + 600_000
        own = lease
        for _ in range(41):
            own = api.renew(own, own["until"]).json()["lease"]
            assert int(api.renew(ahead, until).json()["lease"]["until"]) == until
        now = int(api.acquire().json()["lease"]["start"])
        assert int(own["until"]) <= now + 2 * 600_000
        # After a loss the others begin past it, which is minutes ahead.
        assert soon <= now + 3 * 600_000


def test_a_release_keeps_the_end_that_is_stored(api: Api) -> None:
    """Which ticks a client has stamped is its word alone: the next holder begins past them all."""
    leases = [api.acquire().json()["lease"] for _ in range(4)]
    assert api.release(leases[2], last_tick=leases[2]["start"]).json()["known"] is True
    after = api.acquire().json()["lease"]
    assert after["worker"] == leases[2]["worker"]
    assert int(after["start"]) >= int(leases[2]["until"])


def test_a_rolling_restart_finds_worker_ids_that_begin_at_once(api: Api) -> None:
    """Who gives its lease back and starts again has another worker id, while there is one.

    Where there is none, it has one that begins where it ended: a window ahead at most.
    """
    held = [api.acquire(holder=f"web-{number}").json()["lease"] for number in range(2)]
    fresh = []
    for number, lease in enumerate(held):
        assert api.release(lease).json()["known"] is True
        fresh.append(api.acquire(holder=f"web-{number}").json()["lease"])
        assert int(fresh[-1]["start"]) < int(lease["until"])
    assert {lease["worker"] for lease in (*held, *fresh)} == {0, 1, 2, 3}
    assert api.release(fresh[0]).json()["known"] is True
    again = api.acquire(holder="web-0").json()["lease"]
    assert int(again["start"]) in {int(lease["until"]) for lease in (*held, fresh[0])}


def test_a_scheduler_renews_over_http(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """All holders that were seen lately.

    However long it says that one may have been silent, the service's own limit counts.
    """
    api.acquire()
    body = {**api.settings(), "idle_after": 900}
    assert api.post("renew-seen", body).json()["renewed"] == 1
    asked: list[float] = []
    kind = type(registries["default"])
    monkeypatch.setattr(kind, "renew_seen", lambda self, *, idle_after: asked.append(idle_after))
    for idle_after in (60, 1_000_000):
        assert api.post("renew-seen", {**body, "idle_after": idle_after}).status_code == 200
    assert asked == [60, 300], "five windows"


class Once(UserRateThrottle):
    """A throttle of the project's own."""

    rate = "1/h"


def test_throttles_count_who_borrows_and_not_who_renews(api: Api) -> None:
    """This API's and the project's: a wave of new ones does not stop those who are there."""
    words = api.settings()
    ours = {"IDGEN": {**IDGEN, "REST": {"caller_rate": "1/h", "max_leases": 4}}}
    theirs = {"REST_FRAMEWORK": {"DEFAULT_THROTTLE_CLASSES": [f"{__name__}.Once"]}}
    for throttled in (ours, theirs):
        cache.clear()
        with override_settings(**throttled):
            answers = [api.post("generator-leases", {**words, "holder": "h"}) for _ in range(2)]
            assert [each.status_code for each in answers] == [200, 429]
            lease = answers[0].json()["lease"]
            for _ in range(3):
                renewing = {"lease": lease, "last_tick": lease["start"], **words}
                answer = api.post("lease-renew", renewing)
                assert answer.status_code == 200
                lease = answer.json()["lease"]
            assert api.release(lease).json()["known"] is True
    cache.clear()


def test_only_a_token_that_names_the_generator_may_borrow(api: Api) -> None:
    """401 without one, 403 with another's or a user's; 404 for a generator that is not there."""
    lease = {"worker": 1, "token": "x", "start": 1, "until": 2, "generation": 1}
    names = ("generator-leases", "lease-renew", "lease-release", "renew-seen")
    for name in names:
        assert api.post(name, {}, secret=SECRET + "x").status_code == 401
        assert api.post(name, {"lease": lease}, alias="none").status_code == 404
    with one_token(replace(EVERYTHING, leases=("other",))):
        for name in names:
            assert api.post(name, {}).status_code == 403
        assert api.get().status_code == 403
        assert api.get("other").status_code == 200
        assert api.get("other").json()["layout"]["fields"][0] == ["time", 38]


TEXTS = [True, None, ["a"], "a\0b", "a\n"]
WRONG: dict[str, dict[str, list[Any]]] = {
    "generator-leases": {
        "holder": [*TEXTS, "x" * 201],
        "not_before": [-1, 1.5, "x", None, True, 2**65, "9" * 5000],
        "avoid": ["x", -1, 1.5, 2**63, []],
        "fingerprint": [None, [], "x", {}, 5],
        "window": [0, None, "x", -1],
        "ahead": [-1, "x", None],
        "installation": [*TEXTS, "x" * 65],
        "nonce": [*TEXTS, "x" * 65],
    },
    "renew-seen": {
        # As text, which Python reads more of than JSON has.
        "idle_after": [
            *("nan", "NaN", "-nan", "inf", "1e999", "-1", "1e7", "long"),
            *(-1, 1e9, 10**400, None, [1], False, True),
        ],
    },
}
"""Of each field."""


def test_bad_input_is_named_and_lends_nothing(api: Api) -> None:
    """400 with the field, and never a 500."""
    for name, fields in WRONG.items():
        for field, values in fields.items():
            for value in values:
                right = {**api.settings(), "holder": "h", "idle_after": 600}
                answer = api.post(name, {**right, field: value})
                assert answer.status_code == 400, (field, value, answer.content)
                assert list(answer.json()) == [field]
    lease = api.acquire().json()["lease"]
    for token in (True, None, "", "x" * 129, "a\n"):
        answer = api.release({**lease, "token": token})
        assert (answer.status_code, list(answer.json())) == (400, ["lease"]), answer.content
    ours = api.get().json()["fingerprint"]
    for infinite in (float("inf"), [-float("inf")], {"a": float("inf")}):
        # "1e999", which Python reads so, and the answer that names the setting could not say.
        body = json.dumps({**api.settings(), "fingerprint": {**ours, "epoch_us": infinite}})
        assert api.send("generator-leases", body.replace("Infinity", "1e999")).status_code == 400
    assert lease["worker"] not in {api.acquire().json()["lease"]["worker"] for _ in range(3)}


def test_nobody_borrows_in_the_name_of_a_cosid_instance(api: Api) -> None:
    """Which is known by its name alone: it would be given the borrower's worker id, too."""
    instance = Instance("shop", "a", stable=True)
    answer = api.acquire(holder=instance.label)
    assert (answer.status_code, list(answer.json())) == (400, ["holder"]), answer.content
    assert api.acquire(holder=f"not {instance.label}").status_code == 200


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(
    lease=st.dictionaries(
        st.sampled_from(["worker", "token", "start", "until", "generation"]),
        st.one_of(st.none(), st.integers(), st.text(), st.floats(allow_nan=False), st.booleans()),
    ),
    last_tick=st.one_of(st.none(), st.integers(), st.text()),
)
def test_whatever_lease_is_sent_there_is_no_500(
    api: Api, lease: dict[str, object], last_tick: object
) -> None:
    """Renewing and giving back what was never lent is refused, and that is all."""
    for name in ("lease-renew", "lease-release"):
        body = {"lease": lease, "last_tick": last_tick, **api.settings()}
        assert api.post(name, body).status_code in {200, 400, 409}


def test_there_is_one_registry_for_an_alias(api: Api) -> None:
    """Made once, and anew when the settings change."""
    first = registries["default"]
    assert registries["default"] is first
    with override_settings(IDGEN={}):
        assert registries["default"] is not first
    with pytest.raises(KeyError):
        registries["none"]


# --- how many worker ids one client may have ------------------------------------------


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


@pytest.mark.parametrize("empty_place", ["sqlite"], indirect=True)
@pytest.mark.parametrize("options", ["database"], indirect=True)
@pytest.mark.parametrize("name", ['"' * 100, "\\" * 100, "é" * 100, "x" * 100])
def test_no_name_evades_the_quota(options: dict[str, Any], name: str) -> None:
    """Hazard 115: a registry keeps 200 characters of a holder's label; JSON doubles each quote."""
    with api_on(options) as api, one_token(replace(EVERYTHING, name=name)):
        for number in range(WORKERS // 2):
            assert api.acquire(holder=f"pod-{number}").status_code == 200
        assert api.acquire(holder="one more").status_code == 429


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
