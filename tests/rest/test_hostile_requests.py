"""Every URL answers whatever any caller sends, and never with a 500.

On push a NUL in their paths alone.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.test import Client
from django.urls import URLPattern, get_resolver, include, path

import django_idgen.ops.metrics
from django_idgen.models import AccessToken, LeafAlloc
from django_idgen.ops import health
from django_idgen.ops.metrics import exporter
from django_idgen.ops.metrics.exporter import Exporter
from django_idgen.rest.tokens import make_token
from django_idgen.settings.config import MetricsSettings
from tests import servers, tiers
from tests.rest.forgetting import forget

pytestmark = pytest.mark.django_db(databases="__all__")

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
LEAFS = re.compile("/(leaf|some)/api/")
METRICS = "a-token-of-the-tests"


def every_url() -> tuple[Any, ...]:
    """All that the package has, and the admin."""
    return (
        path("idgen/", include("django_idgen.rest.urls")),
        path("", include("tests.contrib.old_servers.urls")),
        path("live", health.live),
        path("ready", health.ready),
        path("metrics", django_idgen.ops.metrics.view),
        path("admin/", admin.site.urls),
    )


class ToPostgres:
    """Users, sessions, tokens and the admin's tables on a server that refuses odd text."""

    def db_for_read(self, model: Any, **hints: Any) -> str:
        return "postgres"

    db_for_write = db_for_read


@pytest.fixture(autouse=True)
def _everything(no_tags: None, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    servers.require("postgres")
    settings.DATABASE_ROUTERS = [f"{__name__}.ToPostgres"]
    settings.IDGEN = {"GENERATORS": {"default": {}, "second": {}}}
    settings.ROOT_URLCONF = every_url()
    settings.DEBUG = False
    switched = Exporter(MetricsSettings(token=METRICS, shared=False))
    monkeypatch.setattr(exporter, "start", lambda: switched)
    forget()
    for database in ("default", "postgres"):
        LeafAlloc.objects.using(database).create(biz_tag="orders")
    yield
    forget()


@pytest.fixture
def callers() -> list[Client]:
    """Nobody, a program that may take everything, and the administrator."""
    secret = make_token("all", tags=["*"], generators=["*"], leases=["*"])[1]
    root = Client()
    root.force_login(User.objects.create_superuser("root"))
    clients = [Client(), Client(headers={"Authorization": f"Bearer {secret}"}), root]
    for client in clients:
        client.raise_request_exception = False
    return clients


PARTS = {
    "alias": "default",
    "worker": "1",
    "namespace": "shop",
    "object_id": "orders",
    "content_type_id": "1",
    "app_label": "django_idgen",
}
"""What stands in a URL for its parts; a tag for all others."""


def urls(hostile: str | None = None) -> list[str]:
    """One URL of each pattern; with ``hostile`` those that have parts, which all are that."""

    def filled(found: re.Match[str]) -> str:
        if "slash" in (found[1] or ""):
            return ""
        return PARTS.get(found[2], "orders") if hostile is None else hostile

    routes = [re.sub(r"\(\?P<(\w+)>[^)]*\)", r"<str:\1>", each) for each in _routes()]
    kept = [each for each in routes if hostile is None or "<" in each]
    odd = [re.sub(r"<(?:(\w+):)?(\w+)>", filled, each) for each in kept]
    plain = [re.sub(r"\[\\s\\S\]|[\^$\\]|\(\?:", "", each).replace("|", "") for each in odd]
    return list(dict.fromkeys(f"/{each}" for each in plain))


def _routes() -> Iterator[str]:
    def walk(patterns: Any, prefix: str) -> Iterator[str]:
        for each in patterns:
            if isinstance(each, URLPattern):
                yield prefix + str(each.pattern)
            else:
                yield from walk(each.url_patterns, prefix + str(each.pattern))

    for route in walk(get_resolver().url_patterns, ""):
        if not route.startswith("admin/") or "django_idgen" in route:
            yield route


def assert_answered(answer: Any, *said: object) -> None:
    """An error of the service's own is none of what a caller sent; Leaf's has words of its own."""
    is_page = "text/html" in answer.headers.get("Content-Type", "")
    is_leafs = not is_page and LEAFS.search(answer.request["PATH_INFO"])
    assert answer.status_code < 500 or is_leafs, (answer.status_code, said, answer.content[:300])


@pytest.mark.long
def test_the_urls_are_all_there(callers: list[Client]) -> None:
    """As the package and the admin have them; most are found by the administrator."""
    found = urls()
    assert len(found) > 80
    for part in ("idgen/decode", "tinyid/id/nextId", "admin/django_idgen/decode/", "metrics"):
        assert any(part in each for each in found), part
    missing = [each for each in found if callers[2].get(each).status_code == 404]
    assert len(missing) < len(found) / 4, missing


@pytest.mark.parametrize("part", ["%00", *tiers.long("%ED%A0%80", "%D9%A1", "a%0Ab", "9" * 4400)])
def test_odd_paths(callers: list[Client], part: str) -> None:
    """Characters that no tag, alias or key has, in each part of each URL."""
    for url in urls(part):
        assert_answered(callers[2].get(url), url)
        if "admin" not in url:
            for method in ("POST", "OPTIONS"):
                assert_answered(callers[1].generic(method, url), method, url)


def basic(words: bytes) -> str:
    return f"Basic {b64encode(words).decode()}"


AUTHORIZATIONS = (
    *map(basic, (b"a:\0", b"\xff:\xff", b"a", b":")),
    *("Basic AAA\xe96AAA=", "Basic AAA6AAA= x", "Basic A", "Basic", "Bearer", "Token", "\0"),
    *("Bearer idgen_\0", "Bearer idgen_" + "x" * 5000, "Bearer idgen_%D9%A1"),
)
ODD_EVERYWHERE: list[dict[str, str]] = [
    {"Authorization": basic(b"\0\0:\0\0")},
    {"Authorization": "Bearer idgen_\xe9"},
    {"Accept": "application/openmetrics-text; version=1..x"},
    {"Cookie": 'sessionid="\\000"'},
]
ODD: list[dict[str, str]] = [
    *({"Authorization": each} for each in AUTHORIZATIONS),
    *({"Accept": each} for each in ("a/b; q=x", ";", "*/*; version=x", "\xff/\0", "a" * 9000)),
    *({"Cookie": each} for each in ("sessionid=%00", "csrftoken=\xff", ";;")),
    {"Host": "a b"},
    {"X-Forwarded-For": "\0, \xff" * 99},
    {"Accept-Language": "x-" * 999},
    {"Referer": "a" * 9000},
    {"Transfer-Encoding": "chunked"},
]
DOORS = (
    *("/idgen/tags/orders/ids", "/idgen/tags/", "/idgen/generators/default/leases"),
    *("/idgen/tags/orders/segment", "/idgen/health/ready", "/idgen/decode?id=1", "/idgen/schema/"),
    *("/leaf/api/segment/get/orders", "/go/api/leaf?biz_tag=orders", "/finger/idGen/getId"),
    *("/tinyid/id/nextId?bizType=orders", "/open/tinyid/id/nextId?bizType=orders"),
    *("/cosid/ids/orders", "/open/cosid/ids/orders", "/leaf/db", "/metrics", "/ready"),
)
OUR_TYPES = ("text/plain; charset=zlib", "text/plain; charset=utf-16", "a; charset=undefined")
CONTENT_TYPES = ("", ";;;", JSON, FORM, "multipart/form-data", "multipart/form-data; boundary=\xff")


@pytest.mark.long
def test_odd_headers(callers: list[Client]) -> None:
    """Credentials that are none, formats, cookies and hosts."""
    asked = [(url, headers) for headers in ODD_EVERYWHERE for url in urls() if "admin" not in url]
    asked += [(url, headers) for headers in ODD for url in DOORS]
    for url, headers in asked:
        assert_answered(callers[0].get(url, headers=headers), url, headers)


@pytest.mark.long
def test_odd_methods_and_kinds_of_bodies(callers: list[Client]) -> None:
    """Of each URL, methods that it doesn't have, and whatever a body is said to be."""
    for url in urls():
        for method in ("HEAD", "PUT", "ODD"):
            assert_answered(callers[2].generic(method, url), method, url)
        for kind in CONTENT_TYPES[:2] if "admin" in url else (*CONTENT_TYPES, *OUR_TYPES):
            answer = callers[2].generic("POST", url, b'\0"\xff"', content_type=kind)
            assert_answered(answer, url, kind)


QUERIES: dict[str, str] = {
    "/idgen/tags/orders/ids": "count as",
    "/idgen/generators/default/ids": "count as",
    "/idgen/tags/": "tag prefix search paused ordering limit offset",
    "/idgen/leases/": "namespace state limit offset",
    "/idgen/decode": "id form prefix generator",
    "/leaf/decodeSnowflakeId": "snowflakeId",
    "/open/go/api/leaf": "biz_tag",
    "/open/tinyid/id/nextId": "bizType batchSize token",
    "/tinyid/id/nextSegmentId": "bizType token",
    "/open/cosid/machines/shop": "machineBit instanceId stable safeGuardDuration",
    "/open/cosid/segments/distributor/shop/orders": "step offset",
    "/open/cosid/segments/shop/orders": "step",
    "/admin/django_idgen/decode/": "id",
    "/admin/django_idgen/leafalloc/": "q p o _to_field",
    "/admin/django_idgen/accesstoken/": "q name__in",
    "/admin/django_idgen/workerlease/": "generator q",
    "/admin/django_idgen/workerlease/release/": "generator worker",
    "/admin/django_idgen/leafalloc/add/": "step _changelist_filters",
}
METHODS = {
    "/open/cosid/machines/shop": ("POST", "PATCH", "DELETE"),
    "/open/cosid/segments/distributor/shop/orders": ("POST",),
    "/open/cosid/segments/shop/orders": ("PATCH",),
    "/idgen/tags/orders/ids": ("GET", "POST"),
}
KEPT = {"bizType": "orders", "machineBit": "10", "instanceId": "a", "step": "5"}
BASIC_VALUES = ("\0", "\u0661", "9" * 4400)
VALUES = (
    *BASIC_VALUES,
    *("-1", "1e400", "", "nan", "[", "P" + "9" * 400 + "D", "%", "\x85"),
    *("0", "18446744073709551616", "1_0", "x" * 300, "PT1E9S", "\U0001f986", "'\"--"),
)


@pytest.mark.long
@pytest.mark.parametrize("url", QUERIES)
def test_odd_values_in_a_query(callers: list[Client], url: str) -> None:
    """Of each parameter in turn, and bytes that are no text."""
    names = QUERIES[url].split()
    for name in names:
        kept = "".join(f"&{key}={KEPT[key]}" for key in names if key in KEPT and key != name)
        values = BASIC_VALUES if "admin" in url else VALUES
        for value in (*map(quote, values), "%FF", "%ED%A0%80", "%", f"1&{name}=1"):
            for method in METHODS.get(url, ("GET",)):
                client = callers[2 if "token" not in names else 0]
                answer = client.generic(method, f"{url}?{name}={value}{kept}")
                assert_answered(answer, method, url, name, value)


LEASE = {"worker": 1, "token": "x", "start": "1", "until": "2", "generation": 1}
BODIES: dict[str, dict[str, Any]] = {
    "POST /idgen/tags/orders/ids": {"count": 1, "as": "string"},
    "POST /idgen/tags/": {"tag": "new", "step": 1, "description": "", "max_id": "1"},
    "PATCH /idgen/tags/orders": {"step": 1, "description": "x"},
    "POST /idgen/tags/orders/skip": {"by": 1},
    "POST /idgen/tags/new/skip": {"to": "1"},
    "POST /idgen/tags/orders/preload": {},
    "POST /idgen/tags/orders/segment": {"times": 1, "at_least": 1, "floor": 0, "nonce": "n"},
    "POST /idgen/leases/default/1/release": {"lease": "x"},
    "POST /idgen/decode": {"id": 1, "form": "decimal", "prefix": "", "generator": "default"},
    "POST /idgen/generators/default/leases": {"holder": "", "not_before": 0, "avoid": None},
    "POST /idgen/generators/default/leases/renew": {"lease": LEASE, "last_tick": 1},
    "POST /idgen/generators/default/leases/release": {"lease": LEASE, "last_tick": 1},
    "POST /idgen/generators/default/leases/renew-seen": {"idle_after": 1.0},
    "POST /open/wide/api/leaf": {"biz_tag": "new", "max_id": 1, "step": 1, "description": ""},
    "PUT /open/wide/api/leaf/step": {"biz_tag": "orders", "step": 1},
    "PUT /open/wide/api/leaf/init/cache": {"biz_tag": "orders"},
}
WORDS = (
    *('"\\u0000"', '"\\ud800"', '"\\u0661"', '"\\u0085"', '""', "9" * 4400, "9" * 400, "1e400"),
    *("null", "true", "[]", "{}", "-1", "1.5", f'"{"x" * 5000}"', f'"{"9" * 5000}"', '"a\\nb"'),
    *('"\U0001f986"', '{"a": 1, "a": 2}', '{"\\u0000": "\\u0000"}', "9223372036854775808"),
    *("[" * depth + "]" * depth for depth in (90, 900, 950, 980, 20_000)),
)


@pytest.mark.long
@pytest.mark.parametrize("target", BODIES)
def test_odd_values_in_a_body(callers: list[Client], target: str) -> None:
    """Of each field in turn, of one that there is not, and of the body as a whole."""
    method, _, url = target.partition(" ")
    template: dict[str, Any] = dict(BODIES[target])
    client = callers[1 if "generators" in url or "segment" in url else 2]
    if "leases" in url and "generators" in url and not url.endswith("release"):
        described = client.get("/idgen/generators/default/leases").json()
        template |= {"window": described["window_ticks"], "fingerprint": described["fingerprint"]}
    for word in WORDS:
        assert_answered(client.generic(method, url, word, content_type=JSON), target, word[:40])
        for name in (*template, "other"):
            body = json.dumps({**template, name: "HERE"}).replace('"HERE"', word)
            answer = client.generic(method, url, body, content_type=JSON)
            assert_answered(answer, target, name, word[:40])


ADMIN_POSTS: dict[str, dict[str, Any]] = {
    "leafalloc/": {
        "action": "skip_ahead",
        "_selected_action": "orders",
        "to": "10",
        "confirm": "1",
    },
    "leafalloc/?": {"action": "pause", "_selected_action": "orders", "index": "0"},
    "leafalloc/?q=": {
        "action": "change_step",
        "_selected_action": "orders",
        "seen": "1",
        "step": "10",
        "confirm": "1",
    },
    "leafalloc/?o=": {
        "action": "skip_ahead",
        "_selected_action": "orders",
        "how": "by",
        "number": "1",
        "preview": "1",
    },
    "leafalloc/add/": {"biz_tag": "new", "max_id": "1", "step": "10", "description": ""},
    "leafalloc/orders/change/": {"step": "10", "description": "", "initial-step": "1"},
    "accesstoken/": {"action": "revoke", "_selected_action": "1", "index": "0"},
    "accesstoken/?": {"action": "replace", "_selected_action": "1", "overlap": "1"},
    "accesstoken/add/": {
        "name": "new",
        "tags": "*",
        "generators": "",
        "leases": "",
        "expires_at_0": "2030-01-01",
        "expires_at_1": "00:00",
    },
    "workerlease/release/?worker=1": {"lease": "x"},
}


@pytest.mark.long
@pytest.mark.parametrize("page", ADMIN_POSTS)
def test_odd_values_in_the_forms_of_the_admin(callers: list[Client], page: str) -> None:
    """Of each field in turn, forged ones among them."""
    fields = ADMIN_POSTS[page]
    key = AccessToken.objects.get().pk
    for name in (*fields, "csrfmiddlewaretoken", "select_across"):
        for value in (*BASIC_VALUES, "\ud800"):
            sent = {**fields, name: value}
            if sent.get("_selected_action") == "1":
                sent["_selected_action"] = str(key)
            body = "&".join(
                f"{quote(key)}={quote(each, errors='surrogatepass')}" for key, each in sent.items()
            )
            url = f"/admin/django_idgen/{page}"
            answer = callers[2].generic("POST", url, body, content_type=FORM)
            assert_answered(answer, page, name, value)
