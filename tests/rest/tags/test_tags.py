"""Tags over HTTP, on each database: found, made, changed, skipped, loaded ahead, let go of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar
from urllib.parse import quote

import pytest
from django.db import connections, transaction
from django.test import override_settings
from rest_framework.test import APIClient, APIRequestFactory, force_authenticate

from django_idgen import segments
from django_idgen.models import LeafAlloc
from django_idgen.process import maps
from django_idgen.rest.tags import TagsView
from django_idgen.sources.memory import MemorySource
from django_idgen.testing.contracts.lenders import at_once
from tests.places import STEP, idgen_on, place
from tests.rest.tags.people import ADD, CHANGE, LEASES, RELEASE, VIEW, Person, clerk, client_of

__all__ = ["place"]

pytestmark = pytest.mark.urls("tests.remote.urls")
TAGS = "/idgen/tags/"


@pytest.fixture
def client(place: str) -> Iterator[APIClient]:
    """A clerk, where ids come from the database of the test, which has no table of ours yet."""
    with override_settings(IDGEN=idgen_on(place)):
        yield clerk()


def make(client: APIClient, tag: str, **values: Any) -> Any:
    return client.post(TAGS, {"tag": tag, **values})


@contextmanager
def closing_connections() -> Iterator[None]:
    """As a server does at the end of a thread's request."""
    try:
        yield
    finally:
        connections.close_all()


def ids(tag: str, count: int) -> list[int]:
    return segments[tag].next_ids(count)


# --- where there is nothing yet ------------------------------------------------------


def test_where_no_tag_was_ever_made_there_is_none(place: str, client: APIClient) -> None:
    """An empty list and a 404, though the table is missing; and asking does not make it."""
    if place != "default":
        assert "leaf_alloc" not in connections[place].introspection.table_names()
    assert client.get(TAGS).json() == {"count": 0, "next": None, "previous": None, "results": []}
    refused = client.get(f"{TAGS}t")
    assert refused.status_code == 404
    assert "'idgen_tag create'" in refused.json()["detail"]
    for what in ("preload", "skip", "clear"):
        assert client.post(f"{TAGS}t/{what}", {}).status_code == 404
    assert client.patch(f"{TAGS}t", {"step": 5}).status_code == 404
    if place != "default":
        assert "leaf_alloc" not in connections[place].introspection.table_names()


# --- making --------------------------------------------------------------------------


def test_a_tag_is_made_and_gives_its_ids(place: str, client: APIClient) -> None:
    """It has what was asked for, with its marks as text, and is found where its row is.

    Without a word it starts at 1, and has the step of the settings.
    """
    answer = make(client, "orders", step=7, description="of the shop", max_id="5000")
    assert answer.status_code == 201
    tag = answer.json()
    assert (tag["tag"], tag["max_id"], tag["step"]) == ("orders", "5000", 7)
    assert tag["description"] == "of the shop"
    assert [row["database"] for row in tag["databases"]] == [place]
    assert client.get(f"{TAGS}orders").json() == tag
    assert ids("orders", 8) == list(range(5000, 5008))
    assert LeafAlloc.objects.using(place).get().step == 7
    assert make(client, "plain").json()["step"] == STEP
    assert ids("plain", 2) == [1, 2]


def test_a_tag_is_not_made_twice(place: str, client: APIClient) -> None:
    """Neither by a request, nor after a process made it by using it; nothing is changed."""
    make(client, "orders", step=7)
    ids("used", 1)
    before = list(LeafAlloc.objects.using(place).values("biz_tag", "max_id", "step"))
    for tag in ("orders", "used"):
        answer = make(client, tag, step=9, max_id=5)
        assert (answer.status_code, answer.json()["code"]) == (409, "exists")
    assert list(LeafAlloc.objects.using(place).values("biz_tag", "max_id", "step")) == before
    assert ids("used", 1) == [2]


def patiently(post: Callable[[], Any]) -> Any:
    """The answer, once SQLite is not locked: until then it says that one should try again."""
    while (answer := post()).status_code == 503:
        pass
    return answer


def test_a_tag_made_while_it_is_used_first_repeats_nothing(place: str, client: APIClient) -> None:
    """Each of many tags is made by one of the two alone, and its ids come once."""
    for number in range(8):
        tag = f"t{number}"

        def act(who: int, tag: str = tag) -> Any:
            with closing_connections():
                if who:
                    return ids(tag, 30)
                return patiently(lambda: make(clerk(), tag, step=3, max_id=1000)).status_code

        status, *taken = at_once(3, act)
        assert status in (201, 409)
        assert len({each for some in taken for each in some}) == 60
        if status == 201:
            assert min(min(some) for some in taken) >= 1000


# --- changing ------------------------------------------------------------------------


def test_a_step_counts_from_the_next_fetch_on(place: str, client: APIClient) -> None:
    """As does a description; the marks stay where they are."""
    ids("orders", 1)
    answer = client.patch(f"{TAGS}orders", {"step": 5, "description": "new"})
    assert answer.status_code == 200
    assert (answer.json()["step"], answer.json()["description"]) == (5, "new")
    for _ in range(4):
        ids("orders", STEP)
    assert segments["orders"].stats().current.step == 5


# --- skipping ------------------------------------------------------------------------


def test_a_tag_skips_ahead(place: str, client: APIClient) -> None:
    """The next id of this very process lies there, and the row says so.

    It lets go of its segment: how much that was is in the answer.
    """
    for wanted in ({"to": "9000"}, {"to": 9000}, {"by": 8999}):
        tag = f"t{wanted}"
        make(client, tag, step=1)
        answer = client.post(f"{TAGS}{quote(tag)}/skip", wanted)
        assert answer.status_code == 200, answer.json()
        assert answer.json()["max_id"] == "9000"
        assert ids(tag, 1) == [9000]
    assert ids("used", 1) == [1]
    answer = client.post(f"{TAGS}used/skip", {"by": 1000}).json()
    assert answer["cleared"] >= STEP - 1
    assert answer["pool_cleared"] is None
    assert ids("used", 1)[0] == int(answer["max_id"])


def test_a_tag_never_goes_back(place: str, client: APIClient) -> None:
    """A lower number is a conflict, with both in the words."""
    make(client, "orders", max_id=5000)
    for to in (1, 4999, 5000):
        answer = client.post(f"{TAGS}orders/skip", {"to": to})
        assert (answer.status_code, answer.json()["code"]) == (409, "not_lowered")
        assert "5000" in answer.json()["detail"]
    assert ids("orders", 1) == [5000]


def test_a_skip_has_its_bound(place: str, client: APIClient) -> None:
    """``max_skip``, and the end of the ids: the field is named, and how far one may go."""
    make(client, "orders")
    with override_settings(IDGEN={**idgen_on(place), "REST": {"max_skip": 100}}):
        for field, value in (("to", 102), ("by", 101), ("to", str(2**63 - 1))):
            answer = client.post(f"{TAGS}orders/skip", {field: value})
            assert answer.status_code == 400
            assert "101" in answer.json()[field][0]
        assert client.post(f"{TAGS}orders/skip", {"to": 101}).status_code == 200


def test_skips_under_load_repeat_nothing(place: str, client: APIClient) -> None:
    """I1 while four threads fetch; and what is fetched after a skip lies above it."""
    make(client, "orders", step=3)

    def act(who: int) -> Any:
        if who:
            with closing_connections():
                return [segments["orders"].next_id() for _ in range(60)]
        with closing_connections():
            skip = partial(clerk().post, f"{TAGS}orders/skip", {"by": 2})
            answers = [patiently(skip) for _ in range(12)]
        assert {answer.status_code for answer in answers} == {200}
        return int(answers[-1].json()["max_id"])

    target, *taken = at_once(5, act)
    assert len({each for some in taken for each in some}) == 4 * 60
    client.post(f"{TAGS}orders/clear", {})
    assert ids("orders", 1)[0] >= target


# --- loading ahead, and letting go ---------------------------------------------------


def test_this_process_loads_ahead_and_lets_go(place: str, client: APIClient) -> None:
    """A preload has ids ready before they are asked for; the ids themselves are not taken.

    After a clear, whose answer names the process, the next id is out of a new fetch, above all
    before; a tag that is not in use has nothing.
    """
    make(client, "orders")
    make(client, "other")
    answer = client.post(f"{TAGS}orders/preload", {})
    assert answer.status_code == 200
    assert answer.json()["ready"] is True
    assert answer.json()["held"] >= STEP
    assert answer.json()["pooled"] is None
    assert ids("orders", 1) == [1]
    answer = client.post(f"{TAGS}orders/clear", {}).json()
    assert answer["cleared"] >= STEP - 1
    assert ":" in answer["process"]
    assert ids("orders", 1)[0] > STEP
    assert client.post(f"{TAGS}other/clear", {}).json()["cleared"] == 0
    assert "other" not in maps.segments.made()


# --- finding -------------------------------------------------------------------------


def names(answer: Any) -> list[str]:
    assert answer.status_code == 200, answer.json()
    return [tag["tag"] for tag in answer.json()["results"]]


FOUND: tuple[tuple[dict[str, Any], list[str]], ...] = (
    ({}, ["a/b", "depot", "shop.bill", "shop.order"]),
    ({"tag": "depot"}, ["depot"]),
    ({"tag": "depo"}, []),
    ({"prefix": "shop."}, ["shop.bill", "shop.order"]),
    ({"prefix": "hop."}, []),
    ({"search": "order"}, ["depot", "shop.order"]),
    ({"search": "SHOP", "prefix": "shop.o"}, ["shop.order"]),
    ({"search": "%"}, []),
    ({"ordering": "-step"}, ["a/b", "depot", "shop.bill", "shop.order"]),
    ({"ordering": "-tag", "limit": 2}, ["shop.order", "shop.bill"]),
    ({"limit": 1, "offset": 2}, ["shop.bill"]),
    ({"offset": 2000}, []),
)


def test_tags_are_found_sorted_and_paged(place: str, client: APIClient) -> None:
    """By tag, prefix, text and order; all are met, once each, in going from page to page."""
    words = {"shop.order": "of the shop", "shop.bill": "", "depot": "where ORDERS go", "a/b": ""}
    for number, (tag, description) in enumerate(words.items()):
        assert make(client, tag, step=number + 1, description=description).status_code == 201
    for query, found in FOUND:
        assert names(client.get(TAGS, query)) == found, query
    met, url = [], f"{TAGS}?limit=3"
    while url:
        page = client.get(url)
        met += names(page)
        last, url = page, page.json()["next"]
    assert met == FOUND[0][1]
    assert names(client.get(last.json()["previous"])) == met[:3]


# --- bad input -----------------------------------------------------------------------


WHOLE = (0, -1, 2**31, 10**9 + 1, "five", 1.5, True, None, [], {})
IDS = (0, -1, 2**63, "x", 1.5, True, None, [1])
TEXTS = ("x" * 257, None, ["x"], "\0", "a\nb", "\u202e", True)
WRONG: dict[str, dict[str, tuple[Any, ...]]] = {
    f"post {TAGS}": {
        "step": WHOLE,
        "max_id": IDS,
        "description": TEXTS,
        "tag": ("", " a", "a ", "a\n", "\0", "x" * 129, True, None, ["a"]),
        "delta": (2,),
    },
    f"patch {TAGS}known": {
        "step": WHOLE,
        "description": TEXTS,
        **dict.fromkeys(("max_id", "tag", "delta", "biz_tag", "x"), (1,)),
    },
    f"post {TAGS}known/skip": {"to": (*IDS, 2**63), "by": (0, 2**63, "x"), "x": (1,)},
    f"post {TAGS}known/clear": {"x": (1,)},
    f"post {TAGS}known/preload": {"x": (1,)},
    f"get {TAGS}": {
        "limit": ("0", "1001", "x", "1.5", "1.0"),
        "offset": ("-1", "1.0", str(2**63)),
        "paused": ("", "perhaps"),
        "ordering": ("secret",),
        "tag": ("\0", "x" * 129),
        "prefix": ("a\0",),
        "search": ("a\0", "x" * 257),
        "colour": ("red",),
    },
}
"""By method and URL, of each field."""


@pytest.mark.parametrize("place", ["journal"], indirect=True)
def test_bad_values_are_refused_by_name(place: str, client: APIClient) -> None:
    """400, and nothing of the request is done."""
    make(client, "known", step=7)
    before = client.get(TAGS).json()
    for target, fields in WRONG.items():
        method, _, url = target.partition(" ")
        right = {f"post {TAGS}": {"tag": "new"}, f"patch {TAGS}known": {"step": 5}}.get(target, {})
        for field, values in fields.items():
            for value in values:
                answer = getattr(client, method)(url, {**right, field: value})
                assert (answer.status_code, [*answer.json()]) == (400, [field]), (target, value)
    for wanted in ({}, {"to": 5, "by": 5}):
        assert client.post(f"{TAGS}known/skip", wanted).status_code == 400
    for body in ([], [1], "x", 5):
        for url in (TAGS, *(f"{TAGS}known/{what}" for what in ("skip", "clear", "preload"))):
            assert client.post(url, body).status_code == 400
    assert client.post(TAGS, None).status_code == 400
    assert client.get(TAGS).json() == before


def test_any_tag_that_can_be_is_reached_by_its_urls(place: str, client: APIClient) -> None:
    """Slashes and all, for ids and segments, too; what can be no tag is a 404."""
    for tag in ("x" * 128, "a/b/c", "a%2Fb", "é", "😀", "a?b", "50%", "a b", "...", "ids"):
        made = make(client, tag)
        if tag == "😀" and made.status_code == 400:
            continue  # a column of 3-byte UTF-8: said by name
        assert made.status_code == 201, made.json()
        url = f"{TAGS}{quote(tag)}"
        assert client.get(url).json()["tag"] == tag
        assert client.post(f"{url}/skip", {"to": 50}).status_code == 200
        assert client.get(f"{url}/ids?count=2").json() == {"ids": ["50", "51"]}
        lent = client.post(f"{url}/segment", {"tag": tag}).json()
        assert lent["tag"] == tag
        assert int(lent["start"]) >= 50 + STEP
        assert ids(tag, 1) == [52]
    make(client, "t/segment")
    lent = client.post(f"{TAGS}t/segment/segment", {"tag": "t/segment"})
    assert (lent.status_code, lent.json()["start"]) == (200, "1")
    for wrong in ("%20a", "a%20", "%00", "x" * 129, "a%0Ab"):
        assert client.get(TAGS + wrong).status_code == 404


# --- who may -------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["journal"], indirect=True)
def test_each_method_takes_its_permission(place: str, client: APIClient) -> None:
    """Nobody is 401; who lacks the one that it takes, 403; and the others don't help."""
    make(client, "t")
    asked = [
        ("get", TAGS, VIEW),
        ("post", TAGS, ADD),
        ("get", f"{TAGS}t", VIEW),
        ("patch", f"{TAGS}t", CHANGE),
        *[("post", f"{TAGS}t/{what}", CHANGE) for what in ("preload", "skip", "clear")],
        ("get", "/idgen/leases/", LEASES),
        ("post", "/idgen/leases/default/1/release", RELEASE),
    ]
    for method, url, permission in asked:
        others = {VIEW, ADD, CHANGE, LEASES, RELEASE} - {permission}
        persons = [Person(), Person(*others), Person(permission)]
        body = {} if method != "get" else None
        nobody, *refused, allowed = [
            getattr(one, method)(url, body, format="json").status_code
            for one in (APIClient(), *map(client_of, persons))
        ]
        assert [nobody, *refused] == [401, 403, 403], (method, url)
        assert allowed in (200, 400)


def test_a_method_that_names_no_permission_is_closed() -> None:
    """One that a project adds, without an action; one that there is not is still a 405."""

    class OwnView(TagsView):
        def delete(self, request: Any, **_kwargs: str) -> None:
            raise AssertionError(request)

    requests = APIRequestFactory()
    for method, status in (("delete", 403), ("put", 405), ("options", 200)):
        request = getattr(requests, method)("/")
        force_authenticate(request, user=Person(VIEW, ADD, CHANGE))
        view = OwnView.as_view({"get": "retrieve"})
        assert view(request, tag="t").status_code == status


def test_a_client_of_a_service_says_that_the_tags_are_there(
    client: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not that the tag is unknown, and could be made here."""
    monkeypatch.setattr(segments.allocator(), "source", MemorySource())
    for answer in (client.get(f"{TAGS}orders"), client.post(f"{TAGS}orders/pause", {})):
        assert (answer.status_code, answer.json()["code"]) == (409, "tags_elsewhere")


def test_no_subclass_removes_a_tag() -> None:
    """A tag made anew would start at 1 again, so DELETE has no way in, whatever it is permitted."""

    class OwnView(TagsView):
        permissions: ClassVar[Any] = {**TagsView.permissions, "destroy": CHANGE}

    request = APIRequestFactory().delete("/")
    force_authenticate(request, user=Person(CHANGE))
    assert OwnView.as_view({"delete": "destroy"})(request, tag="t").status_code == 405


@pytest.mark.parametrize("place", ["postgres", "mariadb"], indirect=True)
def test_an_edit_is_not_undone_with_the_callers_transaction(place: str, client: APIClient) -> None:
    """It is a transaction of its own: what was answered stays done.

    On SQLite nobody else can write while the caller does.
    """
    make(client, "orders")
    with transaction.atomic(using=place):
        client.post(f"{TAGS}orders/skip", {"to": 700})
        transaction.set_rollback(True, using=place)
    assert ids("orders", 1) == [700]
