"""Answers as Leaf's, the Go Leaf's and finger-mark's."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime
from http import HTTPStatus
from typing import Any
from unittest.mock import patch

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.core.exceptions import ImproperlyConfigured
from django.test import Client
from django.urls import include
from django.urls import path as route
from django.utils.encoding import escape_uri_path

from django_idgen import generators, segments
from django_idgen.contrib.old_servers import go_leaf, leaf
from django_idgen.core.errors import (
    ClockMovedBackwards,
    LeaseExpired,
    RegistryUnavailable,
    SegmentExhausted,
    SegmentUnavailable,
)
from django_idgen.core.segment_generator import SegmentGenerator
from django_idgen.core.snowflake import SnowflakeGenerator
from django_idgen.models import LeafAlloc
from django_idgen.rest.tokens import make_token

from .conftest import TAG, assert_never_cached, marks

UNKNOWN_KEYS = [
    "nothing",
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


def test_an_unknown_key_is_no_id(tag: str) -> None:
    """HTTP 500 with Leaf's -2, and nothing is made; as well of what can't be a tag."""
    for key in UNKNOWN_KEYS:
        answer = Client().get(f"/open/leaf/api/segment/get/{key}")
        refused(answer, 500, result(-2))
    assert marks() == {TAG: 1}


def test_failures_have_leafs_numbers(tag: str) -> None:
    """-3 without a segment, -1 for what isn't ready; neither is ever a 200."""
    segments[tag]
    for url, kind, number in (
        (f"segment/get/{tag}", SegmentUnavailable, -3),
        (f"segment/get/{tag}", SegmentExhausted, -3),
        (f"segment/get/{tag}", RegistryUnavailable, -1),
        ("snowflake/get/a", ClockMovedBackwards, -1),
    ):
        maker = SegmentGenerator if "segment" in url else SnowflakeGenerator
        with patch.object(maker, "next_id", side_effect=kind("x")):
            answer = Client().get(f"/open/leaf/api/{url}")
        refused(answer, 500, result(number))


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
    """As Leaf has it: ``errorMsg`` and nothing else. Without one at all it is a bad request."""
    for text in ("", "x", "-1", "0", "1.5", "９", "9" * 19, "9" * 5000, "1e3"):
        answer = Client().get("/open/leaf/decodeSnowflakeId", {"snowflakeId": text})
        assert (answer.status_code, set(json.loads(answer.content))) == (200, {"errorMsg"}), text
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


def test_without_the_admin_the_pages_say_so(db: None) -> None:
    """404, in Leaf's form."""
    for page in ("cache", "db"):
        refused(Client().get(f"/open/leaf/{page}"), 404, leaf.NO_ADMIN)


def test_a_throttled_tag_says_when_to_come_again(client: Client, tag: str, settings) -> None:
    """429 with Retry-After, open or closed."""
    settings.IDGEN = {**settings.IDGEN, "REST": {"tag_rate": "2/h"}}
    urls = ["/leaf/api/segment/get/orders", "/open/leaf/api/segment/get/orders"] * 2
    answers = [client.get(url) for url in urls]
    assert [answer.status_code for answer in answers] == [200, 200, 429, 429]
    assert int(answers[3].headers["Retry-After"]) > 0


# --- the Go Leaf ----------------------------------------------------------------------


def send(client: Client, method: str, url: str, body: object) -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = getattr(client, method)(url, data, content_type="application/json")
    return answer.status_code, json.loads(answer.content)


def test_an_id_to_the_byte(client: Client, tag: str) -> None:
    """Compact, in the order that its encoder writes keys in."""
    answer = client.get("/go/api/leaf", {"biz_tag": tag})
    assert answer.content == b'{"code":0,"data":{"ID":1},"msg":"success"}'
    assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
    assert client.get("/go/api/leaf/", {"biz_tag": tag}).json()["data"] == {"ID": 2}
    assert_never_cached(answer)


def test_a_tag_that_is_none_is_an_error(tag: str) -> None:
    """Code 1001 with HTTP 200: the Go Leaf looks for a row of that name, and finds none.

    Never id 0 with code 0, and nothing is made.
    """
    names = ({"biz_tag": name} for name in ("nothing", "", "x" * 129, "a\0"))
    for query in ({}, *names):
        answer = Client().get("/open/go/api/leaf", query)
        assert (answer.status_code, answer.json()["code"]) == (200, 1001), query
        assert "data" not in answer.json()
    for path in ("leaf", "leaf/step", "leaf/init/cache"):
        method = "post" if path == "leaf" else "put"
        for body in ({"step": 5}, {"step": 5, "biz_tag": ""}):
            status, said = send(Client(), method, f"/open/wide/api/{path}", body)
            assert (status, said["code"]) == (200, 1001), said
    assert marks() == {TAG: 1}


@pytest.mark.parametrize("spelling", ["descprition", "description"])
def test_a_tag_is_made_with_its_step_and_description(
    user: Callable[..., Client], spelling: str
) -> None:
    """Both are stored, however its name is spelt; the first id is ``max_id``."""
    body = {"biz_tag": "new", "max_id": 500, "step": 7, spelling: "for tests"}
    assert send(user("add_leafalloc"), "post", "/go/api/leaf", body) == (
        200,
        {"code": 0, "msg": "success", "data": None},
    )
    row = LeafAlloc.objects.get(pk="new")
    assert (row.max_id, row.step, row.description) == (500, 7, "for tests")
    assert segments["new"].next_id() == 500


def test_the_defaults_are_the_go_leafs(user: Callable[..., Client]) -> None:
    """1 and 200. A tag that is there is left as it is, with code 1001."""
    client = user("add_leafalloc")
    send(client, "post", "/go/api/leaf", {"biz_tag": "new"})
    again = {"biz_tag": "new", "max_id": 1, "step": 5}
    status, said = send(client, "post", "/go/api/leaf", again)
    assert (status, said["code"]) == (200, 1001)
    row = LeafAlloc.objects.get(pk="new")
    assert (row.max_id, row.step, row.description) == (1, 200, "")


BAD: list[object] = [
    b"",
    b"{",
    b"[" * 50_000,
    [],
    {"biz_tag": 5},
    *({"biz_tag": "new", "step": step} for step in (0, -1, 2**63, 1.5, "5", True, [])),
    *({"biz_tag": "new", "max_id": start} for start in (0, -1, 2**63, "1", False)),
    {"biz_tag": "new", "descprition": "x" * 257},
    {"biz_tag": "new", "description": 5},
    {"biz_tag": "new", "description": "a\0"},
]


def test_bad_bodies_are_bad_parameters(user: Callable[..., Client]) -> None:
    """1000, whatever is wrong, and no tag; of a name that can't be one, 1001, as its database's."""
    client = user("add_leafalloc", "change_leafalloc")
    names = [{"biz_tag": name} for name in ("x" * 129, "a\0b", "a\nb")]
    for code, bodies in ((1000, BAD), (1001, names)):
        for body in bodies:
            status, said = send(client, "post", "/go/api/leaf", body)
            assert (status, said["code"]) == (200, code), (body, said)
    assert marks() == {}


def test_a_step_counts_from_the_next_fetch(user: Callable[..., Client], tag: str) -> None:
    """It stands in the row. What is no step is 1000, and changes nothing."""
    changing = user("change_leafalloc")
    for step in (0, -1, 2**63, None, "5"):
        _, said = send(changing, "put", "/go/api/leaf/step", {"biz_tag": tag, "step": step})
        assert said["code"] == 1000, step
    assert LeafAlloc.objects.get(pk=tag).step == 1000
    said = send(changing, "put", "/go/api/leaf/step", {"biz_tag": tag, "step": 33})
    assert said == (200, {"code": 0, "msg": "success", "data": None})
    segments[tag].next_id()
    assert marks()[tag] == 34


def test_an_unknown_tag_can_be_neither_loaded_nor_changed(user: Callable[..., Client]) -> None:
    """1001, and it is not made."""
    body, changing = {"biz_tag": "nothing", "step": 5}, user("change_leafalloc")
    for path in ("leaf/step", "leaf/init/cache"):
        status, said = send(changing, "put", f"/go/api/{path}", body)
        assert (status, said["code"]) == (200, 1001)
    assert marks() == {}


def test_a_tag_is_loaded_ahead(user: Callable[..., Client], tag: str) -> None:
    """A segment is in this process before any id is asked for: the answer shows it."""

    def load() -> Any:
        status, said = send(changing, "put", "/go/api/leaf/init/cache", {"biz_tag": tag})
        assert (status, said["code"], said["msg"]) == (200, 0, "success")
        assert datetime.fromisoformat(said["data"].pop("UpdateTime")).tzinfo is not None
        return said["data"]

    def held(cursor: int, start: int) -> dict[str, Any]:
        return {"Cursor": cursor, "Max": start + 999, "Min": start, "InitOk": True}

    changing = user("change_leafalloc")
    rest = {"Key": tag, "Step": 1000, "CurrentPos": 0, "IsPreload": False, "Waiting": {}}
    assert load() == {**rest, "Buffer": [held(0, 1)]}
    assert marks()[tag] == 1001
    assert segments[tag].next_ids(3) == [1, 2, 3]
    assert load() == {**rest, "Buffer": [held(3, 1), held(1000, 1001)]}


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


def test_writes_take_permissions(client: Client, user: Callable[..., Client]) -> None:
    """Of a user: a token has none, and an open door is one for ids alone."""
    plain = user()
    for prefix in ("/go", "/open/go"):
        for method, url, body in (
            ("post", f"{prefix}/api/leaf", {"biz_tag": "new"}),
            ("put", f"{prefix}/api/leaf/step", {"biz_tag": "new", "step": 5}),
            ("put", f"{prefix}/api/leaf/init/cache", {"biz_tag": "new"}),
        ):
            for sender, status in ((Client(), 401), (client, 403), (plain, 403)):
                got, said = send(sender, method, url, body)
                assert (got, said["code"], "data" in said) == (status, 1001, False)
    assert marks() == {}


def test_writes_can_be_opened(db: None) -> None:
    """To anybody, where ids are, too."""
    assert send(Client(), "post", "/open/wide/api/leaf", {"biz_tag": "new"})[1]["code"] == 0
    assert marks() == {"new": 1}
    with pytest.raises(ImproperlyConfigured, match="writes=True"):
        go_leaf.urls(writes=True)


def test_other_methods_are_not_allowed(client: Client) -> None:
    """405, with those that are."""
    assert client.post("/finger/idGen/getId").status_code == 405
    answer = client.delete("/go/api/leaf")
    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, POST")
    assert client.get("/go/api/leaf/step").status_code == 405


# --- finger-mark ----------------------------------------------------------------------


SYSTEM_ERROR = b'{"id":-1,"status":"ERROR","msg":"system error!"}'


def test_an_id_is_a_number(client: Client) -> None:
    """Compact, in its order."""
    answer = client.get("/finger/idGen/getId")
    value = answer.json()["id"]
    assert answer.content.decode() == f'{{"id":{value},"status":"SUCCESS","msg":null}}'
    assert answer.headers["Content-Type"] == "application/json;charset=UTF-8"
    assert generators["default"].next_id() > value > 0
    assert_never_cached(answer)


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


def test_a_key_gives_nothing_that_the_token_does_not_name(db: None) -> None:
    """A token for another generator gets ids of the default by no key, known or not."""
    _, secret = make_token("other", generators=["second"])
    client = Client(headers={"Authorization": f"Bearer {secret}"})
    assert client.get("/finger/idGen/getIdByAppKey/app").json()["id"] > 0
    for url in ("getId", "getIdByAppKey/nothing", "getIdByAppKey/second", "getIdByAppKey/default"):
        answer = client.get(f"/finger/idGen/{url}")
        assert (answer.status_code, answer.content) == (403, SYSTEM_ERROR)


def test_failures_are_upstreams_and_no_ids(db: None) -> None:
    """HTTP 200 with the state ``ERROR``: finger-mark's clients look there; -1 is no id."""
    error = LeaseExpired("x")
    with patch("django_idgen.core.snowflake.SnowflakeGenerator.next_id", side_effect=error):
        for url in ("getId", "getIdByAppKey/default", "getIdByAppKey/nothing"):
            answer = Client().get(f"/open/finger/idGen/{url}")
            assert (answer.status_code, answer.content) == (200, SYSTEM_ERROR)
