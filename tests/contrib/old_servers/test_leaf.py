"""Answers as Leaf's."""

from __future__ import annotations

import json
import time
from http import HTTPStatus
from typing import Any
from unittest.mock import patch

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.core.exceptions import ImproperlyConfigured
from django.test import Client
from django.urls import include, path
from django.utils.encoding import escape_uri_path

from django_idgen import generators, segments
from django_idgen.contrib.old_servers import leaf
from django_idgen.core.errors import (
    ClockMovedBackwards,
    RegistryUnavailable,
    SegmentExhausted,
    SegmentUnavailable,
)
from django_idgen.models import LeafAlloc

from .conftest import TAG, assert_never_cached, marks

ODD_KEYS = [
    "a/b",
    "%00",
    "%0A",
    "x" * 129,
    "x" * 5000,
    "%F0%9F%98%80",
    "%20a",
    "%FF",
    "..",
    "a%2Fb",
]


def refused(answer: Any, status: int, message: str | None = None) -> None:
    """As Spring Boot 1.5 sends an error: JSON, in this order; its message is what Leaf threw."""
    said = json.loads(answer.content)
    thrown = ["exception"] if status == 500 else []
    assert list(said) == ["timestamp", "status", "error", *thrown, "message", "path"]
    assert answer.headers["Content-Type"] == "application/json;charset=UTF-8"
    assert (answer.status_code, said["status"]) == (status, status)
    assert said["error"] == HTTPStatus(status).phrase
    assert abs(said["timestamp"] - time.time() * 1000) < 600_000
    assert said["path"] == escape_uri_path(answer.wsgi_request.path)
    if status == 500:
        assert said["exception"] == "com.sankuai.inf.leaf.server.exception.LeafServerException"
    if message is not None:
        assert said["message"] == message
    assert_never_cached(answer)


def result(number: int) -> str:
    return f"Result{{id={number}, status=EXCEPTION}}"


def test_any_method_takes_an_id_as_plain_text(client: Client, tag: str) -> None:
    """The number alone, in text, and never from a cache."""
    for number, method in enumerate(("get", "post", "put", "delete", "get"), 1):
        answer = getattr(client, method)(f"/leaf/api/segment/get/{tag}")
        assert answer.content == str(number).encode()
        assert answer.headers["Content-Type"] == "text/plain;charset=UTF-8"
        assert_never_cached(answer)


def test_a_snowflake_is_of_the_generator(client: Client) -> None:
    """Whatever the key."""
    first, second = (int(client.get(f"/leaf/api/snowflake/get/{key}").content) for key in "ab")
    assert 0 < first < second
    assert generators["default"].layout.unpack(second).worker >= 0


def test_an_unknown_key_is_no_id(client: Client, secret: str) -> None:
    """HTTP 500 with Leaf's -2, and nothing is made."""
    answer = client.get(f"/open/leaf/api/segment/get/{TAG}")
    refused(answer, 500, result(-2))
    assert marks() == {}


def test_odd_keys_are_unknown_keys(tag: str) -> None:
    """Also where an unknown tag may be made, if it can't be a tag; nothing changes."""
    for key in ODD_KEYS:
        answer = Client().get(f"/open/leaf/api/segment/get/{key}")
        refused(answer, 500, result(-2))
    assert marks() == {TAG: 1}


def test_failures_have_leafs_numbers(tag: str) -> None:
    """-3 without a segment, -1 for what isn't ready; neither is ever a 200."""
    segments[tag]
    failing = "django_idgen.core.segment_generator.SegmentGenerator.next_id"
    for kind, number in (
        (SegmentUnavailable, -3),
        (SegmentExhausted, -3),
        (RegistryUnavailable, -1),
    ):
        with patch(failing, side_effect=kind("x")):
            answer = Client().get(f"/open/leaf/api/segment/get/{tag}")
        refused(answer, 500, result(number))


def test_a_snowflake_that_cant_be_had_is_no_id(db: None) -> None:
    """-1."""
    error = ClockMovedBackwards("x")
    with patch("django_idgen.core.snowflake.SnowflakeGenerator.next_id", side_effect=error):
        answer = Client().get("/open/leaf/api/snowflake/get/a")
    refused(answer, 500, result(-1))


def test_without_a_token_there_is_nothing(tag: str) -> None:
    """401 for all of it, and the way to authenticate."""
    for url in (
        "api/segment/get/orders",
        "api/snowflake/get/a",
        "decodeSnowflakeId",
        "cache",
        "db",
    ):
        answer = Client().get(f"/leaf/{url}")
        refused(answer, 401)
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert marks() == {TAG: 1}


def test_a_token_takes_what_it_names(client: Client, tag: str) -> None:
    """403 for another tag, whether it is there or not."""
    LeafAlloc.objects.create(biz_tag="invoices")
    for other in ("invoices", "nothing"):
        refused(client.get(f"/leaf/api/segment/get/{other}"), 403)
    assert marks()["invoices"] == 1


def test_only_the_tags_of_the_mount_are_served(db: None) -> None:
    """A pattern says which; they are made where the mount says so."""
    assert Client().get("/open/some/api/segment/get/shop/new").content == b"1"
    assert Client().get("/open/some/api/segment/get/stock/new").status_code == 500
    assert set(marks()) == {"shop/new"}


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


def test_what_is_no_id_is_an_error_message() -> None:
    """As Leaf has it: ``errorMsg`` and nothing else."""
    for text in ("", "x", "-1", "0", "1.5", "９", "9" * 19, "9" * 5000, "1e3"):
        answer = Client().get("/open/leaf/decodeSnowflakeId", {"snowflakeId": text})
        assert (answer.status_code, set(json.loads(answer.content))) == (200, {"errorMsg"}), text


def test_a_missing_id_is_a_bad_request() -> None:
    """400."""
    refused(Client().get("/open/leaf/decodeSnowflakeId"), 400)


PAGE = "text/html;charset=UTF-8"
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
    url = "/open/leaf/api/segment/get/nothing"
    for accept in BROWSERS:
        answer = Client().get(url, headers={"Accept": accept})
        assert (answer.status_code, answer.headers["Content-Type"]) == (500, PAGE)
        assert result(-2) in answer.content.decode()
    for accept in PROGRAMS:
        refused(Client().get(url, headers={"Accept": accept} if accept else {}), 500, result(-2))


def test_a_slash_at_the_end_is_none_of_the_key(client: Client, tag: str) -> None:
    """Leaf's clients send one where a key has dots in it."""
    assert client.get(f"/leaf/api/segment/get/{tag}/").content == b"1"
    assert int(client.get("/leaf/api/snowflake/get/a/").content) > 0
    value = str(generators["default"].next_id())
    assert "workerId" in client.get("/leaf/decodeSnowflakeId/", {"snowflakeId": value}).json()
    refused(client.get(f"/leaf/api/segment/get/{tag}//"), 403)  # a tag that it does not name
    assert marks() == {TAG: 1001}


def test_the_pages_lead_to_the_admin(db: None, settings: Any) -> None:
    """Which asks for its own permission, whatever the mount says."""
    settings.ROOT_URLCONF = (
        path("leaf/", include(leaf.urls())),
        path("open/leaf/", include(leaf.urls(authentication=None))),
        path("admin/", admin.site.urls),
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


def test_without_the_admin_the_pages_say_so(db: None) -> None:
    """404, in Leaf's form."""
    for page in ("cache", "db"):
        refused(Client().get(f"/open/leaf/{page}"), 404, leaf.NO_ADMIN)


@pytest.mark.parametrize(
    "options", [{"generator": "none"}, {"tags": "orders"}, {"tags": [1]}, {"make_tags": "yes"}]
)
def test_wrong_options_are_refused(options) -> None:
    """When the URLs are mounted."""
    with pytest.raises(ImproperlyConfigured):
        leaf.urls(**options)


def test_a_throttled_tag_says_when_to_come_again(client: Client, tag: str, settings) -> None:
    """429 with Retry-After, open or closed."""
    settings.IDGEN = {**settings.IDGEN, "REST": {"tag_rate": "2/h"}}
    urls = ["/leaf/api/segment/get/orders", "/open/leaf/api/segment/get/orders"] * 2
    answers = [client.get(url) for url in urls]
    assert [answer.status_code for answer in answers] == [200, 200, 429, 429]
    assert int(answers[3].headers["Retry-After"]) > 0
