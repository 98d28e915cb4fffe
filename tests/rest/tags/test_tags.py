"""Tags over HTTP, on each database: found, made, changed, skipped, loaded ahead, let go of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import pytest
from django.db import connections, transaction
from django.test import override_settings
from rest_framework.test import APIClient, APIRequestFactory, force_authenticate

from django_idgen import segments
from django_idgen.models import LeafAlloc
from django_idgen.process import handlers
from django_idgen.rest.tags import TagView
from tests.places import STEP, idgen_on, place
from tests.rest.tags.people import ADD, CHANGE, VIEW, Person, clerk, client_of
from tests.server_tools import at_once

__all__ = ["place"]

pytestmark = pytest.mark.urls("tests.rest.tags.urls")
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
    assert client.get(f"{TAGS}t").status_code == 404
    for what in ("preload", "skip", "clear"):
        assert client.post(f"{TAGS}t/{what}", {}).status_code == 404
    assert client.patch(f"{TAGS}t", {"step": 5}).status_code == 404
    if place != "default":
        assert "leaf_alloc" not in connections[place].introspection.table_names()


# --- making --------------------------------------------------------------------------


def test_a_tag_is_made_and_gives_its_ids(place: str, client: APIClient) -> None:
    """It has what was asked for, with its marks as text, and is found where its row is."""
    answer = make(client, "orders", step=7, description="of the shop", max_id="5000")
    assert answer.status_code == 201
    tag = answer.json()
    assert (tag["tag"], tag["max_id"], tag["step"]) == ("orders", "5000", 7)
    assert tag["description"] == "of the shop"
    assert [row["database"] for row in tag["databases"]] == [place]
    assert client.get(f"{TAGS}orders").json() == tag
    assert ids("orders", 8) == list(range(5000, 5008))
    assert LeafAlloc.objects.using(place).get().step == 7


def test_a_tag_has_the_step_of_the_settings_unless_told(place: str, client: APIClient) -> None:
    """And it starts at 1."""
    assert make(client, "orders").json()["step"] == STEP
    assert ids("orders", 2) == [1, 2]


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


def test_a_tag_made_while_it_is_used_first_repeats_nothing(place: str, client: APIClient) -> None:
    """Each of many tags is made by one of the two alone, and its ids come once."""
    for number in range(8):
        tag = f"t{number}"

        def act(who: int, tag: str = tag) -> Any:
            with closing_connections():
                if who:
                    return ids(tag, 30)
                while (status := make(clerk(), tag, step=3, max_id=1000).status_code) == 503:
                    pass  # SQLite was locked: to be tried again, as it says
                return status

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


@pytest.mark.parametrize("name", ["max_id", "tag", "delta", "biz_tag", "x"])
def test_nothing_else_can_be_changed(place: str, client: APIClient, name: str) -> None:
    """What can't be is refused by its name, and nothing of the request is done."""
    make(client, "orders", step=7)
    answer = client.patch(f"{TAGS}orders", {"step": 5, name: 1})
    assert answer.status_code == 400
    assert list(answer.json()) == [name]
    assert client.get(f"{TAGS}orders").json()["step"] == 7


# --- skipping ------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [{"to": "9000"}, {"to": 9000}, {"by": 8999}])
def test_a_tag_skips_ahead(place: str, client: APIClient, wanted: dict[str, Any]) -> None:
    """The next id of this very process lies there, and the row says so."""
    make(client, "orders", step=1)
    answer = client.post(f"{TAGS}orders/skip", wanted)
    assert answer.status_code == 200, answer.json()
    target = 9000 if "to" in wanted else 1 + wanted["by"]
    assert answer.json()["max_id"] == str(target)
    assert ids("orders", 1) == [target]


def test_a_skip_is_not_undone_by_what_this_process_holds(place: str, client: APIClient) -> None:
    """It lets go of its segment: how much that was is in the answer."""
    assert ids("orders", 1) == [1]
    answer = client.post(f"{TAGS}orders/skip", {"by": 1000}).json()
    assert answer["cleared"] >= STEP - 1
    assert answer["pool_cleared"] is None
    assert ids("orders", 1)[0] == int(answer["max_id"])


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


@pytest.mark.parametrize("body", [{}, {"to": 5, "by": 5}, {"by": 0}, {"by": 2**63}, {"to": 2**63}])
def test_a_skip_says_how_far_in_one_way(
    place: str, client: APIClient, body: dict[str, Any]
) -> None:
    """Nothing, both, or a number out of range is refused."""
    make(client, "orders")
    assert client.post(f"{TAGS}orders/skip", body).status_code == 400
    assert ids("orders", 1) == [1]


def test_skips_under_load_repeat_nothing(place: str, client: APIClient) -> None:
    """I1 while four threads fetch; and what is fetched after a skip lies above it."""
    make(client, "orders", step=3)

    def act(who: int) -> Any:
        if who:
            with closing_connections():
                return [segments["orders"].next_id() for _ in range(60)]
        with closing_connections():
            answers = [clerk().post(f"{TAGS}orders/skip", {"by": 2}) for _ in range(12)]
        assert {answer.status_code for answer in answers} == {200}
        return int(answers[-1].json()["max_id"])

    target, *taken = at_once(5, act)
    assert len({each for some in taken for each in some}) == 4 * 60
    client.post(f"{TAGS}orders/clear", {})
    assert ids("orders", 1)[0] >= target


# --- loading ahead, and letting go ---------------------------------------------------


def test_a_preload_has_ids_ready_before_they_are_asked_for(place: str, client: APIClient) -> None:
    """In this process, which the answer names; the ids themselves are not taken."""
    make(client, "orders")
    answer = client.post(f"{TAGS}orders/preload", {})
    assert answer.status_code == 200
    assert answer.json()["ready"] is True
    assert answer.json()["held"] >= STEP
    assert answer.json()["pooled"] is None
    assert ids("orders", 1) == [1]


def test_clear_lets_go_of_what_this_process_holds(place: str, client: APIClient) -> None:
    """The next id is out of a new fetch, above all before; a tag not in use has nothing."""
    make(client, "orders")
    make(client, "other")
    ids("orders", 1)
    answer = client.post(f"{TAGS}orders/clear", {}).json()
    assert answer["cleared"] >= STEP - 1
    assert ":" in answer["process"]
    assert ids("orders", 1)[0] > STEP
    assert client.post(f"{TAGS}other/clear", {}).json()["cleared"] == 0
    assert "other" not in handlers.segments.made()


# --- finding -------------------------------------------------------------------------


@pytest.fixture
def several(client: APIClient) -> APIClient:
    for number, (tag, words) in enumerate(
        [
            ("shop.order", "of the shop"),
            ("shop.bill", ""),
            ("depot", "where ORDERS go"),
            ("a/b", ""),
        ]
    ):
        assert make(client, tag, step=number + 1, description=words).status_code == 201
    return client


def names(answer: Any) -> list[str]:
    assert answer.status_code == 200, answer.json()
    return [tag["tag"] for tag in answer.json()["results"]]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({}, ["a/b", "depot", "shop.bill", "shop.order"]),
        ({"tag": "depot"}, ["depot"]),
        ({"tag": "depo"}, []),
        ({"prefix": "shop."}, ["shop.bill", "shop.order"]),
        ({"search": "order"}, ["depot", "shop.order"]),
        ({"search": "SHOP", "prefix": "shop.o"}, ["shop.order"]),
        ({"search": "%"}, []),
        ({"ordering": "-step"}, ["a/b", "depot", "shop.bill", "shop.order"]),
        ({"ordering": "-tag", "limit": 2}, ["shop.order", "shop.bill"]),
        ({"limit": 1, "offset": 2}, ["shop.bill"]),
        ({"offset": 2000}, []),
    ],
)
def test_tags_are_found_and_sorted(
    several: APIClient, query: dict[str, Any], found: list[str]
) -> None:
    """By tag, prefix, text and order, in parts."""
    assert names(several.get(TAGS, query)) == found


def test_pages_lead_to_their_neighbours(several: APIClient) -> None:
    """All tags are met, once each, in going from page to page; and back."""
    met, url = [], f"{TAGS}?limit=3"
    while url:
        page = several.get(url)
        met += names(page)
        last, url = page, page.json()["next"]
    assert met == ["a/b", "depot", "shop.bill", "shop.order"]
    assert names(several.get(last.json()["previous"])) == met[:3]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("limit", "0"),
        ("limit", "1001"),
        ("limit", "x"),
        ("limit", "1.0"),
        ("offset", "-1"),
        ("offset", str(2**63)),
        ("ordering", "secret"),
        ("tag", "\0"),
        ("tag", "x" * 129),
        ("prefix", "a\0"),
        ("search", "a\0"),
        ("search", "x" * 257),
        ("colour", "red"),
    ],
)
def test_a_wrong_question_is_told_so(client: APIClient, field: str, value: str) -> None:
    """400 with the field named."""
    answer = client.get(TAGS, {field: value})
    assert answer.status_code == 400
    assert list(answer.json()) == [field]


def test_a_question_is_not_asked_twice(client: APIClient) -> None:
    """Which of two values counts is not guessed."""
    assert client.get(f"{TAGS}?tag=a&tag=b").json() == {"tag": ["It is given twice."]}


# --- bad input -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("step", value) for value in (0, -1, 2**31, 10**9 + 1, "5", 1.5, True, None, [], {})],
        *[("max_id", value) for value in (0, -1, 2**63, "x", "1.0", "01", 1.0, True, None, [1])],
        *[("description", value) for value in ("x" * 257, 5, None, ["x"], "\0", True)],
        *[("tag", value) for value in ("", " a", "a ", "a\n", "\0", "x" * 129, 5, None, ["a"])],
        ("delta", 2),
    ],
)
def test_bad_values_are_refused_by_name(
    place: str, client: APIClient, field: str, value: Any
) -> None:
    """400, and no tag is made."""
    if place not in ("default", "postgres"):
        pytest.skip("one SQLite and one server are enough for this")
    answer = client.post(TAGS, {"tag": "orders", field: value})
    assert answer.status_code == 400, answer.json()
    assert list(answer.json()) == [field]
    assert client.get(TAGS).json()["count"] == 0


@pytest.mark.parametrize("body", [[], [1], "x", 5, None])
def test_a_body_that_has_no_fields_is_refused(client: APIClient, body: Any) -> None:
    """400, no crash."""
    assert client.post(TAGS, body).status_code == 400
    make(client, "t")
    for what in ("skip", "clear", "preload"):
        if body is not None:
            assert client.post(f"{TAGS}t/{what}", body).status_code == 400


@pytest.mark.parametrize("tag", ["x" * 128, "a/b/c", "é", "😀", "a?b", "100%", "a b", "..."])
def test_any_tag_that_can_be_is_reached_by_its_url(client: APIClient, tag: str) -> None:
    """Slashes and all; as it can be used in the process."""
    made = make(client, tag)
    if tag == "😀" and made.status_code == 400:
        return  # a column of 3-byte UTF-8: said by name
    assert made.status_code == 201, made.json()
    assert client.get(TAGS + quote(tag)).json()["tag"] == tag
    assert client.post(f"{TAGS}{quote(tag)}/skip", {"to": 50}).status_code == 200
    assert ids(tag, 1) == [50]


@pytest.mark.parametrize("tag", ["%20a", "a%20", "%00", "x" * 129, "a%0Ab"])
def test_what_can_be_no_tag_is_no_url(client: APIClient, tag: str) -> None:
    """404."""
    assert client.get(TAGS + tag).status_code == 404


# --- who may -------------------------------------------------------------------------


def test_each_method_takes_its_permission(place: str, client: APIClient) -> None:
    """Nobody is 401; who lacks the one that it takes, 403; and the others don't help."""
    make(client, "t")
    asked = [
        ("get", TAGS, VIEW),
        ("post", TAGS, ADD),
        ("get", f"{TAGS}t", VIEW),
        ("patch", f"{TAGS}t", CHANGE),
        *[("post", f"{TAGS}t/{what}", CHANGE) for what in ("preload", "skip", "clear")],
    ]
    for method, url, permission in asked:
        others = {VIEW, ADD, CHANGE} - {permission}
        answers = [
            getattr(one, method)(url, {} if method != "get" else None, format="json").status_code
            for one in (APIClient(), client_of(Person()), client_of(Person(*others)))
        ]
        assert answers == [401, 403, 403], (method, url)
        allowed = getattr(client_of(Person(permission)), method)(
            url, {} if method != "get" else None
        )
        assert allowed.status_code in (200, 400)


def test_a_method_that_names_no_permission_is_closed() -> None:
    """One that a project adds without an operation; one that there is not is still a 405."""

    class OwnView(TagView):
        def delete(self, request: Any, **_kwargs: str) -> None:
            raise AssertionError(request)

    requests = APIRequestFactory()
    for method, status in (("delete", 403), ("put", 405), ("options", 200)):
        request = getattr(requests, method)("/")
        force_authenticate(request, user=Person(VIEW, ADD, CHANGE))
        assert OwnView.as_view()(request, tag="t").status_code == status


def test_an_edit_is_not_undone_with_the_callers_transaction(place: str, client: APIClient) -> None:
    """On a server it is a transaction of its own: what was answered stays done."""
    if place == "default":
        pytest.skip("on SQLite nobody else can write while the caller does")
    make(client, "orders")
    with transaction.atomic(using=place):
        client.post(f"{TAGS}orders/skip", {"to": 700})
        transaction.set_rollback(True, using=place)
    assert ids("orders", 1) == [700]
