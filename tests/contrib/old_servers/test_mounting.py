"""Who comes in, and what is said where anybody may."""

from __future__ import annotations

import itertools
import json
import time
import types
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.cache import cache
from django.core.checks import CheckMessage, run_checks
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import include, path
from rest_framework.authentication import BasicAuthentication, SessionAuthentication
from rest_framework.request import Request
from rest_framework.throttling import UserRateThrottle

from django_idgen.checks import check_mounts
from django_idgen.contrib.old_servers import cosid, finger_mark, go_leaf, leaf, tinyid
from django_idgen.contrib.old_servers.mounting import OldServer
from django_idgen.models import LeafAlloc
from django_idgen.rest.authentication import TokenAuthentication
from django_idgen.rest.tokens import make_token
from tests import warm
from tests.server_tools import ROOT

from .conftest import TAG, marks

MODULES = [leaf, go_leaf, tinyid, cosid, finger_mark]


@pytest.fixture
def mounted(settings: Any) -> Any:
    """``mounted(path("", include(…)))`` is the project's URL conf for the test."""

    def use(*patterns: Any) -> None:
        module = types.ModuleType("tests_of_mounting")
        module.urlpatterns = list(patterns)  # type: ignore[attr-defined]
        settings.ROOT_URLCONF = module

    return use


# --- the check -------------------------------------------------------------------------


def warnings(number: str) -> list[CheckMessage]:
    return [each for each in check_mounts() if each.id == f"django_idgen.{number}"]


def test_an_open_mount_is_warned_of(mounted: Any) -> None:
    """Once, by the name of the module and its place, however deep that is. Closed ones are not."""
    for module, nobody in itertools.product(MODULES, (None, (), [])):
        patterns = include(module.urls(authentication=nobody))
        mounted(path("a/", include([path("b/", patterns), path("c/", include(module.urls()))])))
        (warning,) = warnings("W007")
        name = module.__name__.rpartition(".")[2]
        assert f"{name}.urls() at '/a/b/'" in warning.msg
        assert ("machine ids have no owner" in warning.msg) == (name == "cosid")
    closed = leaf.urls(authentication=[BasicAuthentication])
    mounted(path("", include(closed)), *(path("", include(each.urls())) for each in MODULES))
    assert warnings("W007") == []


def test_manage_check_warns() -> None:
    """The check is registered."""
    said = [each.msg for each in run_checks() if each.id == "django_idgen.W007"]
    assert ["gives ids to anybody" in each for each in said] == [True] * 8


def test_the_check_needs_no_rest_framework() -> None:
    """A project without it checks as before."""
    code = (
        "import sys\nsys.modules['rest_framework'] = None\n"
        "import django\nfrom django.conf import settings\n"
        "settings.configure(ROOT_URLCONF='tests.app.urls', DATABASES={'default': {"
        "'ENGINE': 'django.db.backends.sqlite3', 'NAME': ':memory:'}}, INSTALLED_APPS=["
        "'django_idgen'], SECRET_KEY='x')\n"
        "django.setup()\n"
        "from django_idgen.checks import check_mounts\n"
        "print(check_mounts())"
    )
    done = warm.run(["-c", code], cwd=ROOT)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


LEAFS = "2010-11-04T01:42:54.657Z"
FINGER_MARKS = "1970-01-01T00:00:00Z"
COSIDS = "2019-12-24T16:00:00Z"


def test_another_epoch_than_the_old_servers_is_warned_of(mounted: Any, settings: Any) -> None:
    """Once a generator of a mount: its ids would be lower, and come to the old server's."""
    settings.IDGEN = {"GENERATORS": {"default": {}, "old": {"EPOCH": FINGER_MARKS}}}
    for urls, epoch in (
        (leaf.urls(), LEAFS),
        (finger_mark.urls(), FINGER_MARKS),
        (cosid.urls(), COSIDS),
        (finger_mark.urls(generator="old", app_keys={"a": "default"}), FINGER_MARKS),
    ):
        mounted(path("a/", include(urls)))
        (warning,) = warnings("W011")
        assert "at '/a/' gives ids of generator 'default'" in warning.msg
        assert "2025-01-01" in warning.msg
        assert epoch[:10] in warning.msg
        assert epoch in (warning.hint or "")


@pytest.mark.parametrize(
    ("module", "epoch", "unix_ms"),
    [
        (leaf, LEAFS, 1288834974657),
        (finger_mark, FINGER_MARKS, 0),
        (cosid, COSIDS, 1577203200000),
    ],
)
def test_with_the_old_servers_epoch_ids_go_on_above_its_own(
    mounted: Any, settings: Any, db: None, module: Any, epoch: str, unix_ms: int
) -> None:
    """And no check warns; how many bits the worker has is no matter."""
    bits = {"time": 41, "worker": 12, "sequence": 10}
    old = {"EPOCH": epoch, "LAYOUT": bits}
    settings.IDGEN = {"GENERATORS": {"default": {}, "old": old}}
    mounted(path("", include(module.urls(authentication=None, generator="old"))))
    assert warnings("W011") == []
    before = (time.time_ns() // 1_000_000 - 60_000 - unix_ms) << 22
    url = {leaf: "/api/snowflake/get/a", finger_mark: "/idGen/getId", cosid: "/ids"}[module]
    answer = json.loads(Client().get(url).content)
    assert (answer["id"] if module is finger_mark else answer) > before


def test_a_tick_of_another_length_is_another_epoch(mounted: Any, settings: Any) -> None:
    """What counts is where an id's milliseconds stand."""
    layout = {"time": 40, "worker": 10, "sequence": 12, "tick": 0.002}
    settings.IDGEN = {"GENERATORS": {"default": {"EPOCH": LEAFS, "LAYOUT": layout}}}
    mounted(path("", include(leaf.urls())), path("go/", include(go_leaf.urls())))
    assert [warning.id for warning in warnings("W011")] == ["django_idgen.W011"]


def test_where_settings_or_urls_are_broken_nothing_is_looked_at(
    mounted: Any, settings: Any
) -> None:
    """Other checks say so, or Django. No URL conf at all is no fault."""
    mounted(path("", include(leaf.urls())))
    settings.IDGEN = {"GENERATORS": {"default": {"EPOCH": "tomorrow"}}}
    assert warnings("W011") == []
    for broken in ("no.such.module", None):
        settings.ROOT_URLCONF = broken
        assert warnings("W007") == warnings("W011") == []


WRONG: list[tuple[Any, dict[str, Any]]] = [
    (leaf, {"generator": "none"}),
    (leaf, {"tags": "orders"}),
    (leaf, {"tags": [1]}),
    (leaf, {"make_tags": "yes"}),
    (finger_mark, {"generator": "none"}),
    (finger_mark, {"app_keys": {"a": "none"}}),
    (cosid, {"machines": {"a": "none"}}),
    (cosid, {"guard": -1}),
    (cosid, {"guard": True}),
    (cosid, {"clock_skew": "1"}),
    (cosid, {"clock_skew": 2}),
    (cosid, {"late": 1e9}),
    (cosid, {"generator": "none"}),
    (cosid, {"namespace": ""}),
    (cosid, {"namespace": None}),
    *((module, {"generator": None}) for module in (leaf, cosid, finger_mark)),
]


def test_wrong_options_are_refused() -> None:
    """When the URLs are mounted."""
    for module, options in WRONG:
        with pytest.raises(ImproperlyConfigured):
            module.urls(**options)


# --- who comes in ----------------------------------------------------------------------

CLOSED = {
    "get": (
        "leaf/api/snowflake/get/a",
        "leaf/db",
        "finger/idGen/getIdByAppKey/nothing",
        "cosid/ids/orders",
        "cosid/ids/as-string",
    ),
    "patch": ("cosid/machines/shop?instanceId=a", "cosid/segments/shop/orders?step=10"),
    "delete": ("cosid/machines/shop?instanceId=a",),
    "post": ("cosid/segments/distributor/shop/orders?step=10",),
}
"""By method, URLs that need to know the caller."""


def test_without_a_token_there_is_nothing(tag: str) -> None:
    """401 with the scheme, and nothing is made or taken."""
    for method, urls in CLOSED.items():
        for url in urls:
            answer = getattr(Client(), method)(f"/{url}")
            assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer"), url
    assert marks() == {TAG: 1}


def test_a_user_of_the_project_comes_in(user: Any, tag: str) -> None:
    """By the project's own authentications, without a token; there any tag may be taken of.

    A session needs its CSRF token to write: another site's page can't have a browser make tags.
    """
    assert user("add_leafalloc").get(f"/leaf/api/segment/get/{tag}").content == b"1"
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(User.objects.get())
    body = b'{"biz_tag": "new"}'
    answer = strict.post("/go/api/leaf", body, content_type="application/json")
    assert (answer.status_code, answer.json()["code"]) == (403, 1001)
    assert "new" not in marks()


def test_only_the_authentications_of_the_mount_count(mounted: Any, user: Any, secret: str) -> None:
    """A token is nothing where only passwords are asked for, in a header or as a parameter."""
    mounted(
        path("", include(leaf.urls(authentication=[BasicAuthentication]))),
        path("tinyid/", include(tinyid.urls(authentication=[SessionAuthentication]))),
    )
    bearer = {"Authorization": f"Bearer {secret}"}
    answer = Client().get("/api/segment/get/orders", headers=bearer)
    assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, 'Basic realm="api"')
    asked = Client().get("/tinyid/id/nextId", {"bizType": TAG, "token": secret})
    assert asked.json()["code"] == 5
    assert user().get(f"/tinyid/id/nextId?bizType={TAG}").json()["code"] != 5


def test_a_stricter_kind_of_token_is_always_asked(mounted: Any, tag: str, secret: str) -> None:
    """The short cut for tokens seen lately is for our own class alone."""
    asked = []

    class Strict(TokenAuthentication):
        def authenticate(self, request: Request | HttpRequest) -> tuple[Any, Any] | None:
            asked.append(request)
            return super().authenticate(request)

    mounted(path("", include(leaf.urls(authentication=[Strict]))))
    client = Client(headers={"Authorization": f"Bearer {secret}"})
    assert [client.get(f"/api/segment/get/{tag}").status_code for _ in range(3)] == [200] * 3
    assert len(asked) == 3


def test_a_token_seen_lately_costs_no_query(
    client: Client, tag: str, django_assert_num_queries: Any
) -> None:
    """Nor does an id."""
    client.get(f"/leaf/api/segment/get/{tag}")
    with django_assert_num_queries(0):
        assert client.get(f"/leaf/api/segment/get/{tag}").content == b"2"


def test_a_bug_is_no_answer(db: None) -> None:
    """It is Django's to report: a 500 there, a traceback here."""

    class Broken(OldServer):
        name = "x"

        def failed(self, *_: Any) -> HttpResponse:
            return HttpResponse()

        def broken(self, _request: HttpRequest) -> HttpResponse:
            raise ZeroDivisionError

    server = Broken(None)
    view = server.path("", server.broken)
    with pytest.raises(ZeroDivisionError):
        view.callback(HttpRequest())  # type: ignore[misc]
    assert not connection.in_atomic_block or transaction.get_connection()


# --- how often -------------------------------------------------------------------------


class Twice(UserRateThrottle):
    """A throttle of the project's own."""

    rate = "2/h"


TAKEN = {
    "leaf/api/segment/get/orders": "get",
    "leaf/api/snowflake/get/x": "get",
    "leaf/decodeSnowflakeId?snowflakeId=1": "get",
    "go/api/leaf?biz_tag=orders": "get",
    "tinyid/id/nextId?bizType=orders": "get",
    "tinyid/id/nextSegmentId?bizType=orders": "get",
    "cosid/ids/orders": "get",
    "cosid/machines/shop?machineBit=10&instanceId=a": "post",
    "cosid/segments/distributor/shop/orders?step=1": "post",
    "finger/idGen/getId": "get",
    "finger/idGen/getIdByAppKey/app": "get",
}


def asked(client: Client, url: str, times: int, **more: Any) -> list[int]:
    ask = getattr(client, TAKEN.get(url.removeprefix("/").removeprefix("open/"), "get"))
    return [ask(url, **more).status_code == 429 for _ in range(times)]


@pytest.mark.parametrize("rate", ["ours", "the project's"])
def test_each_url_counts_who_asks(
    tag: str, secret: str, client: Client, settings: Any, rate: str
) -> None:
    """By the project's throttles, and by ``caller_rate``; each caller apart, at an open door too.

    There an address is a caller, whatever it says of itself.
    """
    if rate == "ours":
        settings.IDGEN = {**settings.IDGEN, "REST": {"caller_rate": "2/h"}}
    else:
        settings.REST_FRAMEWORK = {
            "DEFAULT_THROTTLE_CLASSES": [f"{__name__}.Twice"],
            "NUM_PROXIES": 0,
        }
    secret = make_token("other", tags=["*"], generators=["*"], leases=["*"])[1]
    other = Client(headers={"Authorization": f"Bearer {secret}"})
    for url in TAKEN:
        cache.clear()  # the counts
        assert asked(client, f"/{url}", 3) == [False, False, True], url
        assert asked(other, f"/{url}", 1) == [False], url
        opened, headers = f"/open/{url}", {"X-Forwarded-For": "192.0.2.1"}
        assert asked(Client(), opened, 2) == [False, False], url
        assert asked(Client(), opened, 1, headers=headers) == [True], url
        assert asked(Client(REMOTE_ADDR="192.0.2.9"), opened, 1) == [False], url


def test_changes_of_tags_are_counted(user: Any, tag: str, settings: Any) -> None:
    """Those of the Go Leaf, and requests for Leaf's pages."""
    settings.IDGEN = {**settings.IDGEN, "REST": {"caller_rate": "1/h"}}
    one = user("view_leafalloc")
    assert [one.get("/leaf/db").status_code for _ in range(2)] == [404, 429]
    two = user("add_leafalloc", "change_leafalloc")
    body = {"data": b'{"biz_tag": "orders", "step": 5}', "content_type": "application/json"}
    assert [two.put("/go/api/leaf/step", **body).status_code for _ in range(2)] == [200, 429]


def test_who_keeps_a_machine_id_is_not_counted(client: Client, db: None, settings: Any) -> None:
    """Refused, it would have to stop: it keeps to the limit, and others have used it up."""
    settings.IDGEN = {**settings.IDGEN, "REST": {"caller_rate": "1/h", "tag_rate": "1/h"}}
    settings.REST_FRAMEWORK = {"DEFAULT_THROTTLE_CLASSES": [f"{__name__}.Twice"]}
    url = "/cosid/machines/shop?machineBit=10&instanceId=a"
    assert [client.post(url).status_code for _ in range(2)] == [200, 429]
    assert [client.patch(url).status_code for _ in range(4)] == [200] * 4
    assert client.delete(url).status_code == 200


# --- how much may be sent ----------------------------------------------------------------

URLS = {
    "leaf/decodeSnowflakeId": ("post", b'"status":413'),
    "leaf/api/segment/get/orders": ("post", b'"status":413'),
    "go/api/leaf": ("post", b'"code":1001'),
    "go/api/leaf/step": ("put", b'"code":1001'),
    "go/api/leaf/init/cache": ("put", b'"code":1001'),
    "tinyid/id/nextId": ("post", b'"code":6'),
    "tinyid/id/nextIdSimple": ("post", b""),
    "cosid/machines/shop": ("post", b'"code":"413"'),
    "cosid/segments/distributor/shop/orders": ("post", b'"code":"413"'),
    "finger/idGen/getId": ("get", b'"id":-1'),
}
"""How old clients ask, and what is in the answer to what is too large."""


def test_no_more_is_read_than_an_old_client_sends(tag: str) -> None:
    """413 for every caller: a body has 64 KB at most, and a URL 8."""
    large = b'{"biz_tag": "new"' + b" " * 65_536 + b"}"
    form = "application/x-www-form-urlencoded"
    for prefix, (url, (method, words)) in itertools.product(("/", "/open/"), URLS.items()):
        sent = [
            (f"{prefix}{url}", large, "application/json"),
            (f"{prefix}{url}", large, form),
            (f"{prefix}{url}", large, "multipart/form-data; boundary=x"),
            (f"{prefix}{url}?a={'1' * 8192}", b"", form),
        ]
        for address, body, kind in sent:
            answer = Client().generic(method.upper(), address, body, content_type=kind)
            assert answer.status_code == 413, address[:80]
            assert words in answer.content.replace(b" ", b"")
    assert marks() == {TAG: 1}


# --- whole segments, for tokens and who may change tags -------------------------------


SEGMENTS = [
    ("patch", "/cosid/segments/shop/orders?step=10"),
    ("get", "/tinyid/id/nextSegmentIdSimple?bizType=shop.orders"),
    ("get", "/tinyid/id/nextSegmentId?bizType=shop.orders"),
]


def test_a_user_takes_segments_with_the_right_to_change_tags(user: Any, db: None) -> None:
    """Without it nothing moves."""
    LeafAlloc.objects.create(biz_tag="shop.orders")
    other, changing = user("view_leafalloc", "add_leafalloc"), user("change_leafalloc")
    for method, url in SEGMENTS:
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
        (entry.object_id, entry.get_change_message())
        for entry in LogEntry.objects.filter(user__username="user-2").order_by("pk")
    ]
    assert found == [
        ("new", "Added: step: — → 7; next free id: — → 500"),
        ("new", "Changed: step: 7 → 9"),
        ("shop.new", "Added: step: — → 10; next free id: — → 41"),
    ]
