"""What no browser sends, and what no database can look for: said so, never a page that fails."""

from __future__ import annotations

import itertools

import pytest
from django.test import Client

from django_idgen.models import AccessToken, LeafAlloc

from .tag_tools import TAGS

APP = "/admin/django_idgen/"
PAGES = ("leafalloc", "segmenthistory", "workerlease", "accesstoken")
NUL = "orders\x00"


@pytest.fixture
def client(admin_client: Client, server: str) -> Client:
    """Of the administrator; with a tag and a token, on a server that is strict about text."""
    LeafAlloc.objects.create(biz_tag="orders", max_id=5001, step=1000)
    AccessToken.objects.create(name="shop", digest="0" * 64, hint="abcd", tags="*")
    admin_client.raise_request_exception = False
    return admin_client


def test_a_list_with_a_forged_tag_is_refused(client: Client) -> None:
    """400; nothing is changed, of no row."""
    for odd in (NUL, "\x00", "x" * 129):
        for action, chosen in (("pause", ["orders", odd]), ("resume", [odd])):
            sent = {"action": action, "_selected_action": chosen, "confirm": "yes"}
            assert client.post(TAGS, sent).status_code == 400
    assert not LeafAlloc.objects.get().paused


def test_a_forged_token_is_refused(client: Client) -> None:
    """400; no token is ended or made."""
    for key in ("\x00", "1\x00", str(2**63), str(-(2**63) - 1), "9" * 5000, "x"):
        for action in ("revoke", "replace"):
            sent = {"action": action, "_selected_action": [key]}
            assert client.post(f"{APP}accesstoken/", sent).status_code == 400, key
    assert AccessToken.objects.get().expires_at is None


def test_what_can_be_nothing_is_not_there(client: Client) -> None:
    """Its page, its history and its deletion lead away, or are refused, as for any other one."""
    keys = ("%00", "a%00b", str(2**63), "9" * 5000, "-1", "x" * 300, "a_b")
    for page, key, end in itertools.product(PAGES, keys, ("change/", "history/", "delete/")):
        answer = client.get(f"{APP}{page}/{key}/{end}")
        assert answer.status_code in (302, 403, 404), (page, key, end)


def test_filters_that_can_not_be_are_refused(client: Client) -> None:
    """400; the transaction of the request goes on."""
    for query in ("tag__regex=(", "tag__exact=%00", "holder__exact=x"):
        assert client.get(f"{APP}segmenthistory/?{query}").status_code == 400, query


def test_a_search_for_anything_has_an_answer(client: Client) -> None:
    """Rows, none, or the list without a search."""
    for page, words in itertools.product(PAGES, ("\x00", "a " * 1200, "x" * 9000, "'\"\\%_(")):
        answer = client.get(f"{APP}{page}/", {"q": words}, follow=True)
        assert answer.status_code == 200, (page, words[:9])
