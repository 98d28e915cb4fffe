"""Who holds which worker id, over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from rest_framework.test import APIClient

from django_idgen import generators, next_id
from django_idgen.core.errors import LeaseLost
from django_idgen.models import NamespaceRecord, WorkerLease
from django_idgen.process import factory, maps
from tests.places import empty_sqlite, place
from tests.rest.tags.people import LEASES, RELEASE, Person, clerk, client_of
from tests.upkeep_tools import upkeep_on

__all__ = ["place"]

pytestmark = pytest.mark.urls("tests.remote.urls")
URL = "/idgen/leases/"


@pytest.fixture
def client(place: str) -> APIClient:
    return clerk()


def listed(client: APIClient, **query: Any) -> list[dict[str, Any]]:
    answer = client.get(URL, query)
    assert answer.status_code == 200, answer.json()
    found: list[dict[str, Any]] = answer.json()["results"]
    return found


def test_where_nothing_was_lent_there_is_none(place: str, client: APIClient) -> None:
    """An empty list where the table is missing, too; looking makes none."""
    assert client.get(URL).json() == {"count": 0, "next": None, "previous": None, "results": []}
    if place != "default":  # the tests' SQLite databases have the tables
        tables = connections[place].introspection.table_names()
        assert tables == ["app_folder", "app_invoice"]


def test_a_lease_tells_who_holds_it_until_when(place: str, client: APIClient) -> None:
    """And never the token, which lets one renew it."""
    next_id()
    (lease,) = listed(client)
    assert lease["namespace"] == "default"
    assert lease["state"] == "held"
    assert lease["holder"]
    assert lease["seen_at"] < lease["promised_until"]
    assert 100 < lease["window_left"] <= 180
    assert lease["generator"] == "default"
    if place == "default":
        assert abs(lease["clock_offset"]) < 1  # one clock, on one host
    else:
        assert abs(lease["clock_offset"]) < 60
    token = generators["default"].keeper.lease.token  # type: ignore[attr-defined]
    assert token not in client.get(URL).content.decode()
    assert "token" not in lease


@pytest.fixture
def several(place: str, client: APIClient) -> APIClient:
    """Some that are held, one given back, one whose holder is gone; and another's namespace."""
    next_id()
    given: Any = generators["default"]
    free = given.keeper.lease.worker
    maps.reset()  # given back, and not to be lent again by chance
    registry = factory.build_registry(maps.generator_settings("default"))
    for number in range(3):
        registry.acquire(holder=f"host {number}", avoid=free)
    gone = registry.acquire(holder="gone", avoid=free).lease.worker
    WorkerLease.objects.using(place).filter(worker=gone).update(start=1, until=5)
    row = WorkerLease.objects.using(place).exclude(token="").first()
    assert row is not None
    record = NamespaceRecord.objects.using(place).get(pk=row.namespace)
    row.id, row.namespace, row.worker = "unknown/5002", "unknown", 5002
    row.save(using=place, force_insert=True)
    record.name, record.fingerprint = "unknown", "{}"
    record.save(using=place, force_insert=True)
    return client


def test_leases_are_found_by_state_and_namespace(several: APIClient) -> None:
    """What is shown is what was asked for; ticks that mean nothing here can't have expired.

    They come in pages, each once.
    """
    assert {lease["state"] for lease in listed(several)} == {"held", "free", "lapsed"}
    for state in ("held", "free", "lapsed"):
        found = listed(several, state=state)
        assert found
        assert {lease["state"] for lease in found} == {state}
    assert listed(several, state="lapsing") == []
    (lapsed,) = listed(several, state="lapsed")
    assert (lapsed["holder"], lapsed["window_left"]) == ("gone", 0.0)
    (unknown,) = listed(several, namespace="unknown")
    assert (unknown["worker"], unknown["promised_until"], unknown["state"]) == (5002, None, "held")
    assert (unknown["generator"], unknown["place"]) == (None, lapsed["place"])
    met, url = [], f"{URL}?limit=3"
    while url:
        page = several.get(url).json()
        met += [lease["worker"] for lease in page["results"]]
        url = page["next"]
    assert len(met) == len(set(met)) == 6


ANY = {"lease": "any"}


def release_url(worker: int | str, alias: str = "default") -> str:
    return f"{URL}{alias}/{worker}/release"


def test_a_worker_id_is_released_by_hand(place: str, client: APIClient) -> None:
    """Once; and its holder can't renew it any more."""
    next_id()
    keeper = generators["default"].keeper  # type: ignore[attr-defined]
    lease = keeper.lease
    url = release_url(lease.worker)
    (seen,) = listed(client)
    done = {"generator": "default", "worker": lease.worker}
    assert client.post(url, {"lease": seen["lease"]}).json() == {**done, "released": True}
    assert client.post(url, {"lease": seen["lease"]}).json() == {**done, "released": False}
    (after,) = listed(client)
    assert (after["state"], after["lease"]) == ("free", "")
    with pytest.raises(LeaseLost):
        keeper.registry.renew(lease, last_tick=lease.start)


@pytest.mark.parametrize("place", ["journal"], indirect=True)
def test_they_take_their_permissions(place: str) -> None:
    """To release one, to change them. No other method is there."""
    assert client_of(Person(RELEASE)).post(release_url(1), ANY).status_code == 200
    for method in ("post", "put", "patch", "delete"):
        assert getattr(clerk(), method)(URL).status_code == 405
    assert clerk().get(release_url(1)).status_code == 405


@pytest.mark.parametrize("place", ["journal"], indirect=True)
def test_what_is_wrong_is_told_so(place: str, client: APIClient) -> None:
    """400 with the field, or 404 where there is none; nothing is released."""
    next_id()
    (seen,) = listed(client)
    for field, value in (("state", "x"), ("state", ""), ("namespace", "\0"), ("holder", "x")):
        answer = client.get(URL, {field: value})
        assert (answer.status_code, list(answer.json())) == (400, [field])
    for there_is_not in ((1024,), (1, "none"), ("x",), ("9" * 5000,)):
        answer = client.post(release_url(*there_is_not), ANY)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    for body in ({}, {"lease": ""}, {"lease": None}, {"lease": seen["lease"], "force": True}):
        assert client.post(release_url(seen["worker"]), body).status_code == 400
    assert [each["state"] for each in listed(client)] == ["held"]


def test_whoever_got_it_meanwhile_keeps_it(place: str, client: APIClient) -> None:
    """409, with who has it; nothing is released, though worker id and holder are the same."""
    next_id()
    (seen,) = listed(client)
    maps.reset()
    registry = factory.build_registry(maps.generator_settings("default"))
    lease = registry.acquire(holder=seen["holder"]).lease
    assert lease.worker == seen["worker"]
    answer = client.post(release_url(seen["worker"]), {"lease": seen["lease"]})
    assert (answer.status_code, answer.json()["code"]) == (409, "changed_hands")
    assert seen["holder"] in answer.json()["detail"]
    assert registry.renew(lease, last_tick=lease.start)
    (now,) = listed(client)
    assert now["state"] == "held"
    assert client.post(release_url(now["worker"]), {"lease": now["lease"]}).json()["released"]


def test_namespaces_of_one_name_in_two_places_are_two(
    postgres: str, tmp_path: Path, django_db_blocker: Any
) -> None:
    """What was lent of a worker id in one of them is not hidden by who holds it in the other;
    and generators that share one are told once."""

    def lent_by(database: str, first: int, stop: int) -> dict[str, Any]:
        options = {"database": database, "workers": [first, stop]}
        return {"NAMESPACE": "twice", "LEASES": {"OPTIONS": options}}

    with django_db_blocker.unblock(), empty_sqlite(tmp_path / "shop.sqlite3"):
        # Before the worker ids were split, it lent the first of them, too.
        with upkeep_on({"GENERATORS": {"default": {}, "there": lent_by(postgres, 0, 1)}}):
            generators["there"].next_id()
        there = lent_by(postgres, 1, 2)
        split = {"here": lent_by("default", 0, 1), "there": there, "again": there}
        with upkeep_on({"GENERATORS": {"default": {}, **split}}):
            generators["here"].next_id()
            found = listed(client_of(Person(LEASES)), namespace="twice")
            told = [(each["generator"], each["place"], each["state"]) for each in found]
            assert sorted(told) == [("here", "default", "held"), ("there", postgres, "reserved")]
            assert {(each["registry"], each["worker"]) for each in found} == {("database", 0)}


def test_a_row_of_a_name_that_is_lent_elsewhere_is_told(
    postgres: str, tmp_path: Path, django_db_blocker: Any
) -> None:
    """In a database that lends for another namespace; as nobody's who is known here."""
    options = {"OPTIONS": {"database": postgres}}
    former = {"GENERATORS": {"default": {"NAMESPACE": "shop", "LEASES": options}}}
    with django_db_blocker.unblock(), empty_sqlite(tmp_path / "shop.sqlite3"):
        with upkeep_on(former):
            next_id()
        today = {"default": {"NAMESPACE": "shop"}, "other": {"LEASES": options}}
        with upkeep_on({"GENERATORS": today}):
            next_id()
            found = listed(client_of(Person(LEASES)), namespace="shop")
            told = [(each["generator"], each["place"], each["state"]) for each in found]
            assert sorted(told, key=str) == [
                ("default", "default", "held"),
                (None, postgres, "free"),
            ]
