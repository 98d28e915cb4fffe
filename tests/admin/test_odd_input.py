"""What no browser sends, and what no database can look for: said so, never a page that fails."""

from __future__ import annotations

import itertools
from typing import Any

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


def edited(**odd: str) -> dict[str, str]:
    """The list of tags as a browser sends it, but for what is ``odd``."""
    forms = {"form-TOTAL_FORMS": "1", "form-INITIAL_FORMS": "1", "_save": "Save"}
    row = {"biz_tag": "orders", "step": "7"} | odd
    return {**forms, "initial-form-0-step": "1000"} | {f"form-0-{k}": v for k, v in row.items()}


def test_a_list_with_a_forged_tag_is_refused(client: Client) -> None:
    """400; nothing is changed, of no row."""
    for odd in (NUL, "\x00", "x" * 129):
        chosen = {"action": "pause", "_selected_action": ["orders", odd]}
        resumed = {"action": "resume", "_selected_action": [odd]}
        for sent in (edited(biz_tag=odd), chosen, resumed):
            assert client.post(TAGS, sent).status_code == 400
    stored = LeafAlloc.objects.get()
    assert (stored.step, stored.paused) == (1000, False)


def test_a_forged_name_of_a_field_is_seen(client: Client) -> None:
    """As Django sees it: digits of any script, and an end of line at its end."""
    for name in ("form-\u0663-biz_tag", "form-\u0661-biz_tag\n"):
        assert client.post(TAGS, edited() | {name: NUL}).status_code == 400
    assert LeafAlloc.objects.get().step == 1000


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


def test_filters_that_can_not_be_lead_to_the_list(client: Client) -> None:
    """Which says so; the request's transaction goes on. Some databases refuse the second."""
    url = f"{APP}segmenthistory/"
    for number, query in enumerate(("tag__regex=(", "tag__exact=%00")):
        answer: Any = client.get(f"{url}?{query}", follow=True)
        assert answer.status_code == 200, query
        if number == 0 or answer.redirect_chain:
            assert answer.redirect_chain == [(f"{url}?e=1", 302)]
            assert "All rows are shown" in answer.content.decode()


def test_a_search_for_anything_has_an_answer(client: Client) -> None:
    """Rows, none, or the list without a search."""
    for page, words in itertools.product(PAGES, ("\x00", "a " * 1200, "x" * 9000, "'\"\\%_(")):
        answer = client.get(f"{APP}{page}/", {"q": words}, follow=True)
        assert answer.status_code == 200, (page, words[:9])
