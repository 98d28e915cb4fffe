"""Who holds which worker id, over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connections
from rest_framework.test import APIClient

from django_idgen import generators, handlers, next_id
from django_idgen.models import NamespaceRecord, WorkerLease
from tests.places import place
from tests.rest.tags.people import LEASES, VIEW, Person, clerk, client_of

__all__ = ["place"]

pytestmark = pytest.mark.urls("tests.rest.tags.urls")
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
    """An empty list, though the table is missing."""
    assert client.get(URL).json() == {"count": 0, "next": None, "previous": None, "results": []}


def test_a_lease_tells_who_holds_it_until_when(place: str, client: APIClient) -> None:
    """And never the token, which lets one renew it."""
    next_id()
    (lease,) = listed(client)
    assert lease["namespace"] == "default"
    assert lease["state"] == "held"
    assert lease["holder"]
    assert lease["seen_at"] < lease["promised_until"]
    token = generators["default"].keeper.lease.token  # type: ignore[attr-defined]
    assert token not in client.get(URL).content.decode()
    assert "token" not in lease


@pytest.fixture
def three(place: str, client: APIClient) -> APIClient:
    """One that is held, one given back, one whose holder is gone."""
    next_id()
    handlers.reset()
    next_id()
    rows = WorkerLease.objects.using(place)
    first = rows.get()
    for worker, changes in ((1000, {"token": ""}), (1001, {"until": 5}), (1002, {})):
        rows.create(
            **{
                **{name: getattr(first, name) for name in FIELDS},
                "id": f"default/{worker}",
                "worker": worker,
                **changes,
            }
        )
    rows.filter(pk="default/1002").update(namespace="unknown")
    return client


FIELDS = (
    "namespace",
    "token",
    "start",
    "until",
    "generation",
    "holder",
    "acquired_at",
    "seen_at",
    "protocol",
)


def test_leases_are_found_by_state_and_namespace(three: APIClient, place: str) -> None:
    """What is shown is what was asked for; ticks without a record can't have lapsed."""
    assert {lease["state"] for lease in listed(three)} == {"held", "free", "lapsed"}
    for state in ("held", "free", "lapsed"):
        found = listed(three, state=state)
        assert found
        assert {lease["state"] for lease in found} == {state}
    assert [lease["worker"] for lease in listed(three, state="lapsed")] == [1001]
    (unknown,) = listed(three, namespace="unknown")
    assert (unknown["worker"], unknown["promised_until"], unknown["state"]) == (1002, None, "held")
    assert NamespaceRecord.objects.using(place).count() == 1


def test_leases_come_in_pages(three: APIClient) -> None:
    """Each once."""
    met, url = [], f"{URL}?limit=3"
    while url:
        page = three.get(url).json()
        met += [lease["worker"] for lease in page["results"]]
        url = page["next"]
    assert len(met) == len(set(met)) == 4


@pytest.mark.parametrize(
    ("field", "value"), [("state", "x"), ("state", ""), ("namespace", "\0"), ("holder", "x")]
)
def test_a_wrong_question_is_told_so(client: APIClient, field: str, value: str) -> None:
    """400 with the field named."""
    answer = client.get(URL, {field: value})
    assert (answer.status_code, list(answer.json())) == (400, [field])


def test_it_takes_the_permission(place: str) -> None:
    """To see leases, not tags; and nothing can be changed."""
    assert APIClient().get(URL).status_code == 401
    assert client_of(Person(VIEW)).get(URL).status_code == 403
    assert client_of(Person(LEASES)).get(URL).status_code == 200
    for method in ("post", "put", "patch", "delete"):
        assert getattr(clerk(), method)(URL).status_code == 405


def test_asking_makes_no_table(place: str, client: APIClient) -> None:
    """It only looks."""
    if place == "default":
        pytest.skip("the tests' SQLite databases have the tables")
    client.get(URL)
    assert connections[place].introspection.table_names() == ["app_folder", "app_invoice"]
