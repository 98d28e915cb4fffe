"""Answers as the Go Leaf's."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import Client

from django_idgen import segments
from django_idgen.contrib.old_servers import go_leaf
from django_idgen.models import LeafAlloc

from .conftest import TAG, assert_never_cached, marks


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
    """Code 1001 with HTTP 200: the Go Leaf looks for a row of that name, and finds none."""
    for query in ({}, {"biz_tag": ""}, {"biz_tag": "x" * 129}, {"biz_tag": "a\0"}):
        answer = Client().get("/open/go/api/leaf", query)
        assert (answer.status_code, answer.json()["code"]) == (200, 1001), query
        assert "data" not in answer.json()
    for path in ("leaf", "leaf/step", "leaf/init/cache"):
        method = "post" if path == "leaf" else "put"
        for body in ({"step": 5}, {"step": 5, "biz_tag": ""}):
            status, said = send(Client(), method, f"/open/wide/api/{path}", body)
            assert (status, said["code"]) == (200, 1001), said
    assert marks() == {TAG: 1}


def test_an_unknown_tag_is_an_error_and_no_id(db: None) -> None:
    """Never id 0 with code 0, and nothing is made."""
    answer = Client().get("/open/go/api/leaf", {"biz_tag": "nothing"})
    assert (answer.status_code, answer.json()["code"]) == (200, 1001)
    assert "data" not in answer.json()
    assert marks() == {}


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
    """1 and 200."""
    send(user("add_leafalloc"), "post", "/go/api/leaf", {"biz_tag": "new"})
    row = LeafAlloc.objects.get(pk="new")
    assert (row.max_id, row.step, row.description) == (1, 200, "")


def test_a_tag_that_is_there_is_left_as_it_is(user: Callable[..., Client], tag: str) -> None:
    """Code 1001."""
    body = {"biz_tag": tag, "max_id": 1, "step": 5}
    status, said = send(user("add_leafalloc"), "post", "/go/api/leaf", body)
    assert (status, said["code"]) == (200, 1001)
    assert LeafAlloc.objects.get(pk=tag).step == 1000


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
    """It stands in the row."""
    changing = user("change_leafalloc")
    said = send(changing, "put", "/go/api/leaf/step", {"biz_tag": tag, "step": 33})
    assert said == (200, {"code": 0, "msg": "success", "data": None})
    segments[tag].next_id()
    assert marks()[tag] == 34


def test_a_bad_step_changes_nothing(user: Callable[..., Client], tag: str) -> None:
    """1000."""
    changing = user("change_leafalloc")
    for step in (0, -1, 2**63, None, "5"):
        _, said = send(changing, "put", "/go/api/leaf/step", {"biz_tag": tag, "step": step})
        assert said["code"] == 1000, step
    assert LeafAlloc.objects.get(pk=tag).step == 1000


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
    answer = client.delete("/go/api/leaf")
    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, POST")
    assert client.get("/go/api/leaf/step").status_code == 405
