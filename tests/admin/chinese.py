"""The admin's pages as a browser of China gets them, and what English is left on them."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.utils import translation

from django_idgen import segments
from django_idgen.core.lease import process_label
from django_idgen.models import LeafAlloc, SegmentHistory
from django_idgen.process import maps
from tests.places import make_tables

__all__ = ["ADMIN", "client_of_china", "look", "tag", "told"]

ADMIN = "/admin/django_idgen/"
HAN = re.compile(r"[一-鿿]")
WORD = re.compile(r"[A-Za-z][A-Za-z'’]+")
SPOKEN = re.compile(r"""\b(?:title|aria-label|placeholder|alt)="([^"]*)\"""")
NAMES = """
    id ids json url base crockford max_id tick epoch tagpaused authorization bearer migrate utc ms
    django orders admin shop web default wide database app bill purchase lease acquired
"""
"""What people write in Chinese, too (settings, units, events), and the tests' own data."""
DJANGOS = "error search true false select an option"
"""What Django's Chinese has no words for."""
KNOWN = {*NAMES.split(), *DJANGOS.split()}


@pytest.fixture
def client_of_china(admin_client: Client, settings: Any) -> Iterator[Client]:
    """A browser that asks for Chinese, as those in China do."""
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django.middleware.locale.LocaleMiddleware"]
    settings.IDGEN = {
        "GENERATORS": {
            "default": {
                "NAMESPACE": "shop",
                "OPTIONS": {"holder": "web-1"},
            },
            "wide": {"NAMESPACE": "wide", "LAYOUT": "uid"},
        },
        "SEGMENTS": {"SOURCE": {"OPTIONS": {"history": True}}},
    }
    admin_client.defaults["HTTP_ACCEPT_LANGUAGE"] = "zh-CN,zh;q=0.9,en;q=0.5"
    LeafAlloc.objects.all().delete()
    with translation.override(None):  # the language of a request stays with its thread
        yield admin_client
    segments.close()
    maps.reset()
    LeafAlloc.objects.all().delete()


@pytest.fixture
def tag(client_of_china: Client) -> LeafAlloc:
    """One that was fetched from, by us, and paused and resumed by somebody."""
    make_tables("default")
    moment = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=7)
    stored = LeafAlloc.objects.create(
        biz_tag="orders",
        max_id=5001,
        rate=12.5,
        holder="web-1",
        fetched_at=moment,
        fetched_ids=1000,
    )
    SegmentHistory.objects.create(
        tag="orders", start=4001, stop=5001, holder="web-1", taken_at=moment
    )
    return stored


def english(page: str) -> set[str]:
    """The words of a page, in Latin letters, that are not among the names."""
    page = re.sub(r'(?s)<!--.*?-->|<nav [^>]*id="nav-sidebar".*?</nav>', " ", page)
    page = re.sub(r"(?s)<(script|style|code|pre)\b.*?</\1>", " ", page)
    spoken = " ".join(SPOKEN.findall(page))
    text = unescape(re.sub(r"<[^>]+>", " ", page) + " " + spoken)
    text = re.sub(r"…[-\w]+", " ", text)  # the end of a secret
    text = text.replace(process_label(), " ")
    return {word for word in WORD.findall(text) if word.casefold() not in KNOWN}


def look(client: Client, url: str, **query: Any) -> str:
    """A page, which has to be there, and in Chinese."""
    return told(client.get(url, query))


def told(answer: Any, status: int = 200) -> str:
    assert answer.status_code == status, answer.status_code
    page = str(answer.content.decode())
    assert '<html lang="zh-hans"' in page
    assert HAN.search(page), page
    left = english(page)
    assert not left, left
    return page
