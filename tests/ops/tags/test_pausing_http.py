"""A paused tag over HTTP: the API, a service's clients, and the forms of earlier servers."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.core.cache import cache
from django.test import Client, override_settings

from django_idgen import segments
from django_idgen.client import Client as IdClient
from django_idgen.core.errors import TagPaused
from django_idgen.models import LeafAlloc
from django_idgen.ops.tags.edits import make_tag, pause_tag, resume_tag
from django_idgen.process import maps
from django_idgen.sources.http import HttpSource
from tests.ops.tags.test_pausing import ENDLESS, held_by
from tests.places import STEP
from tests.remote.service import SECRET, one_token, service
from tests.rest.tags.people import CHANGE, VIEW, Person, clerk, client_of

pytestmark = pytest.mark.urls("tests.remote.urls")
TAG = "/idgen/tags/orders"


@pytest.fixture
def tag(postgres: str) -> Iterator[str]:
    """A tag in a database of its own, which the settings lead to; callers wait for long."""
    entry = {
        "SOURCE": {"OPTIONS": {"database": postgres}},
        "OPTIONS": {"default_step": STEP, "timeout": ENDLESS},
    }
    with override_settings(IDGEN={"SEGMENTS": entry}):
        cache.clear()
        make_tag("orders", step=STEP)
        yield "orders"
        maps.reset()


def used_up(tag: str) -> None:
    """Pause it, and leave nothing here of what was held."""
    segments[tag].next_id()
    pause_tag(tag)
    made: Any = segments[tag]
    made.clear()


# --- the API ----------------------------------------------------------------------------


def test_a_tag_is_paused_and_resumed(tag: str) -> None:
    """By whoever may change it; twice is as good as once, and it shows."""
    client = clerk()
    assert client.get(TAG).json()["paused"] is False
    for action, paused in (("pause", True), ("pause", True), ("resume", False), ("resume", False)):
        answer = client.post(f"{TAG}/{action}", {})
        assert (answer.status_code, answer.json()["paused"]) == (200, paused)
        assert client.get(TAG).json() == answer.json()
        assert LeafAlloc.objects.using("postgres").get().paused is paused


def test_pausing_takes_the_permission_to_change(tag: str) -> None:
    """And a tag that is there; a body has no fields."""
    for action in ("pause", "resume"):
        assert client_of(Person(VIEW)).post(f"{TAG}/{action}", {}).status_code == 403
        assert client_of(Person(CHANGE)).post(f"{TAG}/{action}", {}).status_code == 200
        assert clerk().post(f"/idgen/tags/nothing/{action}", {}).status_code == 404
        assert clerk().post(f"{TAG}/{action}", {"for": 5}).status_code == 400
        assert clerk().get(f"{TAG}/{action}").status_code == 405


def test_paused_tags_can_be_listed(tag: str) -> None:
    """Alone, or those that are not."""
    make_tag("other", step=5)
    pause_tag("other")

    def listed(query: str) -> list[str]:
        answer = clerk().get(f"/idgen/tags/{query}")
        return [each["tag"] for each in answer.json()["results"]]

    assert listed("?paused=true") == ["other"]
    assert listed("?paused=false") == ["orders"]
    assert listed("") == ["orders", "other"]
    assert clerk().get("/idgen/tags/?paused=perhaps").status_code == 400


def test_loading_a_paused_tag_ahead_is_refused(tag: str) -> None:
    """With the code that says why."""
    used_up(tag)
    answer = clerk().post(f"{TAG}/preload", {})
    assert (answer.status_code, answer.json()["code"]) == (409, "paused")


def test_ids_and_segments_of_it_are_refused(tag: str, caplog: pytest.LogCaptureFixture) -> None:
    """409, which nobody takes for a reason to ask again; at once, and without a warning each."""
    used_up(tag)
    with one_token(), caplog.at_level(logging.INFO, "django_idgen"):
        client = Client(headers={"Authorization": f"Bearer {SECRET}"})
        for _ in range(3):
            for path in ("ids", "segment"):
                answer = client.post(f"{TAG}/{path}", {}, content_type="application/json")
                assert (answer.status_code, answer.json()["code"]) == (409, "paused")
                assert "Retry-After" not in answer
        resume_tag(tag)
        for path in ("ids", "segment"):
            answer = client.post(f"{TAG}/{path}", {}, content_type="application/json")
            assert answer.status_code == 200
    ours = [record for record in caplog.records if record.name == "django_idgen"]
    assert [record.levelname for record in ours] == ["INFO"]


# --- the trail --------------------------------------------------------------------------


def test_the_admin_shows_what_was_changed_over_the_api(no_tags: None) -> None:
    """Who, what, and from what to what; what changed nothing leaves nothing."""
    user = User.objects.create_user("carla")
    user.user_permissions.set(Permission.objects.filter(codename__endswith="_leafalloc"))
    client = client_of(user)
    client.post("/idgen/tags/", {"tag": "new", "step": 5, "max_id": "100"})
    client.patch("/idgen/tags/new", {"step": 7, "description": "words"})
    client.post("/idgen/tags/new/skip", {"to": "5000"})
    for action in ("pause", "pause", "resume", "resume", "clear"):
        assert client.post(f"/idgen/tags/new/{action}", {}).status_code == 200
    entries = LogEntry.objects.filter(object_id="new").order_by("pk")
    assert {entry.user_id for entry in entries} == {user.pk}
    assert [entry.get_change_message() for entry in entries] == [
        "Added: step: — → 5; next free id: — → 100",
        "Changed: step: 5 → 7; description: — → words",
        "Skipped ahead: next free id: 100 → 5000",
        "Paused",
        "Resumed",
        "Cleared",
    ]
    assert [entry.is_addition() for entry in entries] == [True] + [False] * 5


# --- clients of a service ---------------------------------------------------------------


@pytest.fixture
def url(postgres: str) -> Iterator[str]:
    options = {"OPTIONS": {"database": postgres}}
    idgen = {
        "REST": {"make_tags": True},
        "SEGMENTS": {"SOURCE": options, "OPTIONS": {"default_step": STEP, "timeout": 20}},
    }
    with service(idgen) as made:
        HttpSource(base_urls=made, token=SECRET, timeout=60).fetch("orders")
        yield made


def test_a_client_of_a_service_is_told_the_same(url: str) -> None:
    """It uses up what it holds; then it is told at once, and goes on after the resume.

    The service is not passed over for it: other tags are lent by it meanwhile.
    """
    with IdClient(url, token=SECRET, wait=ENDLESS) as client:
        first = client.segments["orders"].next_id()
        pause_tag("orders")
        ids = [first, *held_by(client.segments["orders"])]
        assert len(set(ids)) == len(ids) >= STEP
        source = HttpSource(base_urls=url, token=SECRET, timeout=20)
        for _ in range(2):
            with pytest.raises(TagPaused):
                source.fetch("orders")
            assert source.fetch("others").tag == "others"
        source.close()
        resume_tag("orders")
        assert client.segments["orders"].next_id() > max(ids)


# --- earlier servers' forms -------------------------------------------------------------


@pytest.mark.usefixtures("no_tags")
@pytest.mark.urls("tests.contrib.old_servers.urls")
def test_earlier_servers_say_it_their_way(settings: Any) -> None:
    """As they tell of a tag that has no ids just now."""
    settings.IDGEN = {"GENERATORS": {"default": {}, "second": {}}}
    for tag in ("orders", "shop.orders"):
        make_tag(tag, step=5)
        pause_tag(tag)
    for path, status, said in (
        ("leaf/api/segment/get/orders", 500, "Result{id=-3, status=EXCEPTION}"),
        ("go/api/leaf?biz_tag=orders", 200, '"code":1001,"msg":"The tag is paused'),
        ("tinyid/id/nextId?bizType=orders", 200, '"code":6'),
        ("tinyid/id/nextIdSimple?bizType=orders", 200, ""),
        ("tinyid/id/nextSegmentId?bizType=orders", 200, "The tag is paused"),
    ):
        answer = Client().get(f"/open/{path}")
        assert (answer.status_code, said in answer.content.decode()) == (status, True), path
    answer = Client().patch("/open/cosid/segments/shop/orders?step=5")
    assert (answer.status_code, answer.json()["code"]) == (409, "409")
    assert "paused" in answer.json()["msg"]
