"""Ids taken apart over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import override_settings
from rest_framework.test import APIClient

from django_idgen import generators
from django_idgen.core.encoding import ALPHABETS, TextForm
from django_idgen.process import maps
from tests.rest.tags.people import Person, client_of

pytestmark = pytest.mark.urls("tests.remote.urls")
URL = "/idgen/decode"
CREATED = datetime(2025, 6, 1, 12, 0, 0, 123_000, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _settings() -> Any:
    with override_settings(IDGEN={}):
        yield
        maps.reset()


@pytest.fixture
def client() -> APIClient:
    return client_of(Person())


def made(worker: int = 3, sequence: int = 7) -> int:
    layout = maps.current_settings().generators["default"].layout
    tick = (int(CREATED.timestamp() * 1000) * 1000 - layout.epoch_us) // layout.tick_us
    return layout.pack(tick, worker, sequence)


def test_an_id_says_when_and_by_whom_it_was_made(client: APIClient) -> None:
    """By POST and GET alike, as text or as a number, with what its layout is.

    To those who say who they are; and no worker id is taken for it.
    """
    assert APIClient().post(URL, {"id": "1"}, format="json").status_code == 401
    wanted = [client.post(URL, {"id": value}) for value in (made(), str(made()))]
    for answer in (*wanted, client.get(URL, {"id": made()})):
        assert answer.status_code == 200, answer.json()
        found = answer.json()
        assert (found["id"], found["worker"], found["sequence"]) == (str(made()), 3, 7)
        assert datetime.fromisoformat(found["time"]) == CREATED
        assert found["time_ms"] == 1748779200123
        assert found["batch"] == 0
        assert found["worker_parts"] == {}
        assert found["layout"]["bits"] == {"time": 41, "worker": 10, "sequence": 12}
        assert found["generator"] == "default"
    assert generators["default"].stats().lease is None  # type: ignore[attr-defined]


def test_an_id_may_come_in_any_form(client: APIClient) -> None:
    """As it is told."""
    for form in ALPHABETS:
        for prefix in ("", "ord_"):
            text = TextForm(form, prefix).format(made())
            wanted = {"id": text, "form": form, "prefix": prefix}
            for answer in (client.post(URL, wanted), client.get(URL, wanted)):
                assert answer.status_code == 200, answer.json()
                assert answer.json()["id"] == str(made())


NO_IDS = (
    *(0, -1, 1.5, 1e18, True, None, [], {}, "", "x", "1.0", "01", " 1", "१", "+5", "-5"),
    *(2**63, str(2**63), "9" * 5000, str(2**62), "0ISQUWhLyEa"),
)
WRONG: list[tuple[str, dict[str, Any]]] = [
    *(("id", {"id": value}) for value in NO_IDS),
    ("id", {"id": "zzzzzzzzzzz", "form": "base62"}),
    ("id", {"id": "ord_1", "prefix": "inv_"}),
    ("id", {"id": "1", "prefix": "inv_"}),
    ("id", {"id": 5, "prefix": "inv_"}),
    ("id", {}),
    ("form", {"id": "1", "form": "base64"}),
    ("form", {"id": "1", "form": 5}),
    ("prefix", {"id": "1", "prefix": "é"}),
    ("prefix", {"id": "1", "prefix": "x" * 17}),
    ("prefix", {"id": "1", "prefix": None}),
    ("generator", {"id": "1", "generator": "none"}),
    ("generator", {"id": "1", "generator": 5}),
    ("ids", {"id": "1", "ids": ["1"]}),
]


def test_what_is_no_id_is_refused_by_name(client: APIClient) -> None:
    """400, with the field; never a crash, never another id."""
    for field, wanted in WRONG:
        answer = client.post(URL, wanted)
        assert (answer.status_code, list(answer.json())) == (400, [field]), wanted
    for given in ("-5", "+5", "1.5"):  # not said to be a text of which a character is wrong
        answer = client.get(URL, {"id": given})
        assert answer.status_code == 400
        assert "ids are whole numbers of 1 to 2**63 - 1" in answer.text


def test_named_parts_of_a_worker_id_are_told() -> None:
    """Those of the generator that is asked for."""
    layout = {"time": 41, "worker": {"datacenter": 5, "machine": 5}, "sequence": 12}
    with override_settings(IDGEN={"GENERATORS": {"parted": {"LAYOUT": layout}}}):
        found = client_of(Person()).post(URL, {"id": made(), "generator": "parted"})
        assert found.status_code == 200, found.json()
        assert found.json()["worker_parts"] == {"datacenter": 0, "machine": 3}
