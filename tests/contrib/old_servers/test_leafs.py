"""Answers as Leaf's, the Go Leaf's and finger-mark's."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.core.exceptions import ImproperlyConfigured
from django.test import Client
from django.urls import include
from django.urls import path as route

from django_idgen import generators, segments
from django_idgen.contrib.old_servers import go_leaf, leaf
from django_idgen.core.clock import SYSTEM_CLOCK
from django_idgen.core.segment_generator import SegmentGenerator
from django_idgen.models import LeafAlloc

from .conftest import assert_never_cached, marks


def test_a_snowflake_is_of_the_generator(client: Client) -> None:
    """Whatever the key."""
    first, second = (int(client.get(f"/leaf/api/snowflake/get/{key}").content) for key in "ab")
    assert 0 < first < second
    assert generators["default"].layout.unpack(second).worker >= 0


@pytest.mark.parametrize("prefix", ["/open/leaf", "/leaf"])
def test_an_id_is_taken_apart(client: Client, prefix: str, settings) -> None:
    """Milliseconds with the local time in brackets, worker and sequence, all of them text."""
    settings.TIME_ZONE = "Asia/Shanghai"
    layout = generators["default"].layout
    tick = 1_234_567_890
    value = layout.pack(tick, 37, 5)
    answer = client.get(f"{prefix}/decodeSnowflakeId", {"snowflakeId": str(value)})
    ms = layout.epoch_us // 1000 + tick
    assert answer.content.decode() == (
        f'{{"timestamp":"{ms}(2025-01-15 14:56:07.890)","workerId":"37","sequenceId":"5"}}'
    )
    assert answer.headers["Content-Type"] == "application/json;charset=UTF-8"


BROWSERS = (
    "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2",
)
PROGRAMS = (
    None,
    "*/*",
    "application/json",
    "text/plain, */*",
    "text/plain",
    "application/json, text/html;q=0.5",
    "\0;;q=x",
)
"""What they accept."""


def test_a_browser_is_shown_a_page(db: None) -> None:
    """And Java's ``URLConnection``, which asks as one; the Result is in it. Others get JSON."""
    for accept in (*BROWSERS, *PROGRAMS):
        headers = {} if accept is None else {"Accept": accept}
        answer = Client().get("/open/leaf/api/segment/get/nothing", headers=headers)
        assert (answer.status_code, "Result{id=-2" in answer.content.decode()) == (500, True)
        kind = "text/html" if accept in BROWSERS else "application/json"
        assert answer.headers["Content-Type"] == f"{kind};charset=UTF-8"
    ms = int(answer.json()["timestamp"])
    assert abs(ms / 1000 - SYSTEM_CLOCK.wall_ns() / 1e9) < 600


def test_the_pages_lead_to_the_admin(db: None, settings: Any) -> None:
    """Which asks for its own permission, whatever the mount says."""
    settings.ROOT_URLCONF = (
        route("leaf/", include(leaf.urls())),
        route("open/leaf/", include(leaf.urls(authentication=None))),
        route("admin/", admin.site.urls),
    )
    there = "/admin/django_idgen/leafalloc/"
    somebody = User.objects.create_user("somebody", is_staff=True)
    staff = Client()
    staff.force_login(somebody)
    for page in ("cache", "db", "db/"):
        answer = Client().get(f"/open/leaf/{page}")
        assert (answer.status_code, answer.headers["Location"]) == (302, there)
        assert_never_cached(answer)
        login = Client().get(f"/open/leaf/{page}", follow=True)
        assert login.redirect_chain[-1] == (f"/admin/login/?next={there}", 302)
        assert staff.get(f"/leaf/{page}", follow=True).status_code == 403
    somebody.user_permissions.add(Permission.objects.get(codename="view_leafalloc"))
    for page in ("cache", "db", "db/"):
        assert staff.get(f"/leaf/{page}", follow=True).status_code == 200


# --- the Go Leaf ----------------------------------------------------------------------


def send(client: Client, method: str, url: str, body: object) -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = getattr(client, method)(url, data, content_type="application/json")
    return answer.status_code, json.loads(answer.content)


@pytest.mark.parametrize("spelling", ["descprition", "description"])
def test_a_tag_is_made_with_its_step_and_description(
    user: Callable[..., Client], spelling: str
) -> None:
    """Both are stored, however its name is spelt; the first id is ``max_id``.

    The defaults are the Go Leaf's.
    """
    client = user("add_leafalloc")
    send(client, "post", "/go/api/leaf", {"biz_tag": "plain"})
    body = {"biz_tag": "new", "max_id": 500, "step": 7, spelling: "for tests"}
    send(client, "post", "/go/api/leaf", body)
    rows = LeafAlloc.objects.order_by("pk").values_list("max_id", "step", "description")
    assert [*rows] == [(500, 7, "for tests"), (1, 200, "")]
    assert segments["new"].next_id() == 500


def test_a_step_counts_from_the_next_fetch(user: Callable[..., Client], tag: str) -> None:
    """It stands in the row."""
    send(user("change_leafalloc"), "put", "/go/api/leaf/step", {"biz_tag": tag, "step": 33})
    segments[tag].next_id()
    assert marks()[tag] == 34


def test_a_first_load_is_waited_for_as_a_first_id_is(
    user: Callable[..., Client], tag: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process' first connection takes longer than a later fetch may."""
    settings.IDGEN = {"SEGMENTS": {"OPTIONS": {"timeout": 0.05, "first_timeout": 30}}}
    preload, waited = SegmentGenerator.preload, []

    def noted(generator: SegmentGenerator, timeout: float = 0.0) -> bool:
        waited.append(timeout)
        return preload(generator, timeout)

    monkeypatch.setattr(SegmentGenerator, "preload", noted)
    body = {"biz_tag": tag}
    status, said = send(user("change_leafalloc"), "put", "/go/api/leaf/init/cache", body)
    assert (status, said["code"], waited) == (200, 0, [30])


def test_writes_are_opened_at_open_mounts_alone() -> None:
    """To anybody, where ids are, too; not elsewhere."""
    with pytest.raises(ImproperlyConfigured, match="writes=True"):
        go_leaf.urls(writes=True)


# --- finger-mark ----------------------------------------------------------------------


def test_an_application_has_its_generator(client: Client) -> None:
    """As the mount says, else the alias of that name."""
    for url, alias in (
        ("/finger/idGen/getIdByAppKey/app", "second"),
        ("/open/finger/idGen/getIdByAppKey/second", "second"),
        ("/open/finger/idGen/getIdByAppKey/default", "default"),
        ("/finger/idGen/getIdByAppKey/app/", "second"),
        ("/finger/idGen/getId/", "default"),
    ):
        value = client.get(url).json()["id"]
        assert generators[alias].next_id() > value > 0, url


def test_a_key_that_was_never_registered_gives_ids_of_the_default(client: Client) -> None:
    """As in finger-mark."""
    for key in ("nothing", "a/b", "%00", "x" * 3000, "%F0%9F%98%80"):
        for prefix in ("", "/open"):
            value = client.get(f"{prefix}/finger/idGen/getIdByAppKey/{key}").json()["id"]
            assert generators["default"].next_id() > value > 0, key
