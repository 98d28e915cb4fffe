"""Whole segments at the URLs of old servers: for tokens, and for users who may change tags."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.models import LogEntry
from django.test import Client

from django_idgen.models import LeafAlloc
from django_idgen.ops.tags.change_log import describe

from .conftest import marks

URLS = [
    ("patch", "/cosid/segments/shop/orders?step=10"),
    ("get", "/tinyid/id/nextSegmentIdSimple?bizType=shop.orders"),
    ("get", "/tinyid/id/nextSegmentId?bizType=shop.orders"),
]


def test_a_user_takes_segments_with_the_right_to_change_tags(user: Any, db: None) -> None:
    """Without it nothing moves."""
    LeafAlloc.objects.create(biz_tag="shop.orders")
    other, changing = user("view_leafalloc", "add_leafalloc"), user("change_leafalloc")
    for method, url in URLS:
        before = marks()
        refused = getattr(other, method)(url)
        assert marks() == before, refused.content
        assert getattr(changing, method)(url).status_code == 200
        assert marks()["shop.orders"] > before["shop.orders"]


def test_a_new_tag_does_not_begin_past_what_a_request_may_skip(settings: Any, user: Any) -> None:
    """Unless somebody makes it who may: the next offset would use the tag up."""
    settings.IDGEN = {**settings.IDGEN, "REST": {"make_tags": True, "max_skip": 1000}}
    url = "/cosid/segments/distributor/shop/new?step=10&offset={}".format
    maker = user("add_leafalloc", "change_leafalloc")
    for client, prefix in ((user("change_leafalloc"), ""), (Client(), "/open")):
        answer = client.post(prefix + url(1001))
        assert answer.status_code == 403
        assert "max_skip" in answer.json()["msg"]
    assert marks() == {}
    assert maker.post(url(1001)).content == b"1001"


def test_what_is_made_and_changed_here_leaves_a_trail(user: Any, db: None) -> None:
    """In the tag's history, as over the native API."""
    client = user("add_leafalloc", "change_leafalloc")
    go = "/go/api/leaf"
    sent = {"content_type": "application/json"}
    client.post(go, {"biz_tag": "new", "max_id": 500, "step": 7}, **sent)
    client.put(f"{go}/step", {"biz_tag": "new", "step": 9}, **sent)
    client.post("/cosid/segments/distributor/shop/new?step=10&offset=40")
    found = [
        (entry.object_id, describe(entry.change_message))
        for entry in LogEntry.objects.filter(user__username="user-2").order_by("pk")
    ]
    assert found == [
        ("new", "Added: step: — → 7; next free id: — → 500"),
        ("new", "Changed: step: 7 → 9"),
        ("shop.new", "Added: step: — → 10; next free id: — → 41"),
    ]
