"""Liveness and readiness over HTTP: open, brief, and never behind a database that hangs."""

from __future__ import annotations

from base64 import b64encode
from typing import Any
from unittest.mock import patch

import pytest
from django.contrib.auth.models import User
from django.test import Client
from rest_framework.test import APIClient

from django_idgen.ops import health
from django_idgen.ops.health import Part, Readiness
from tests.rest.tags.people import Person, client_of

pytestmark = [pytest.mark.urls("tests.remote.urls"), pytest.mark.django_db]
LIVE, READY = "/idgen/health/live", "/idgen/health/ready"
WELL = Readiness((Part("segments", True, "The source answers."),))
ILL = Readiness((Part("segments", False, "host db-1 is away"), Part("generator:x", True, "")))
HANGS = Readiness(ILL.parts, answered=False)


@pytest.fixture
def stands(monkeypatch: pytest.MonkeyPatch) -> Any:
    def say(found: Readiness) -> None:
        monkeypatch.setattr(health, "readiness", lambda **_: found)

    say(WELL)
    return say


def test_anybody_may_ask(stands: Any) -> None:
    """An orchestrator can't log in; wrong credentials make no difference either."""
    for headers in ({}, {"HTTP_AUTHORIZATION": "Bearer idgen_wrong"}):
        for url, said in ((LIVE, {"live": True}), (READY, {"ready": True})):
            answer = APIClient().get(url, **headers)
            assert (answer.status_code, answer.json()) == (200, said)
            assert "no-store" in answer["Cache-Control"]
            assert APIClient().head(url).status_code == 200
            assert APIClient().post(url).status_code == 405


def test_staff_is_told_the_details(stands: Any) -> None:
    """As whom the project knows: here by a session. Others are told what fails, and no more.

    503 with a time to come back; hosts are for staff. Liveness is another matter.
    """
    stands(ILL)
    answer = client_of(Person()).get(READY)
    assert (answer.status_code, answer["Retry-After"]) == (503, "5")
    assert answer.json() == {"ready": False, "failing": ["segments"]}
    assert APIClient().get(LIVE).status_code == 200
    client = Client()
    client.force_login(User.objects.create_user("boss", is_staff=True))
    assert client.get(READY).json()["parts"] == [
        {"name": "segments", "ready": False, "detail": "host db-1 is away"},
        {"name": "generator:x", "ready": True, "detail": ""},
    ]
    client.force_login(User.objects.create_user("clerk"))
    assert "parts" not in client.get(READY).json()


def test_no_password_is_looked_at(stands: Any) -> None:
    """It would take a processor's time, right or wrong, from anybody and without a limit."""
    User.objects.create_user("boss", password="secret", is_staff=True)
    for words in (b"boss:secret", b"boss:wrong"):
        headers = {"Authorization": f"Basic {b64encode(words).decode()}"}
        with patch("django.contrib.auth.hashers.verify_password") as looked:
            answer = Client().get(READY, headers=headers)
        assert answer.json() == {"ready": True}
        assert not looked.called


def test_who_asks_is_not_looked_up_while_a_database_hangs(
    stands: Any, django_assert_num_queries: Any
) -> None:
    """It might be the very one that knows."""
    client = Client()
    client.force_login(User.objects.create_user("boss", is_staff=True))
    stands(HANGS)
    with django_assert_num_queries(0):
        assert client.get(READY).json() == {"ready": False, "failing": ["segments"]}


def test_a_real_process_is_ready() -> None:
    """With nothing replaced."""
    assert APIClient().get(READY).json() == {"ready": True}
