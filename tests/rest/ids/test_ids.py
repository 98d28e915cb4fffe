"""Ids over HTTP: one or many, of a tag and of a generator, to those who may take them."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from django_idgen import generators, segments
from django_idgen.models import LeafAlloc
from django_idgen.rest.tokens import make_token

from .conftest import EMPTY, GENERATOR_URL, URL, Asking

pytestmark = pytest.mark.django_db


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


@pytest.mark.parametrize("url", [URL, GENERATOR_URL])
def test_ids_are_strings_unless_asked_for_as_numbers(ask: Asking, tag: str, url: str) -> None:
    """One id without count, a list with it; all different and rising, in either form."""
    rising: list[int] = []
    for method in ("get", "post"):
        first = ask(method, url).json()["id"]
        texts = ask(method, f"{url}?count=3").json()["ids"]
        number = ask(method, f"{url}?as=number").json()["id"]
        numbers = ask(method, f"{url}?as=number&count=2").json()["ids"]
        last = ask(method, f"{url}?count=1&as=string").json()
        assert [type(each) for each in (first, *texts, number, *numbers)] == [str] * 4 + [int] * 3
        assert list(last) == ["ids"]
        rising += [*map(int, (first, *texts)), number, *numbers, int(last["ids"][0])]
    assert rising == sorted(set(rising))


def test_they_are_the_ids_of_the_process_generators(ask: Asking, tag: str) -> None:
    """What HTTP takes and what the process takes never meet."""
    over_http = ask("get", f"{URL}?count=100&as=number").json()["ids"]
    assert not set(over_http) & set(segments[tag].next_ids(100))
    over_http = ask("get", f"{GENERATOR_URL}?count=100&as=number").json()["ids"]
    assert not set(over_http) & set(generators["default"].next_ids(100))


def test_a_post_may_say_so_in_its_body(ask: Asking, tag: str) -> None:
    """As JSON or as a form; what is missing there may be in the query."""
    both = {"data": {"count": 2, "as": "number"}, "content_type": "application/json"}
    form = {"data": "count=2&as=number", "content_type": "application/x-www-form-urlencoded"}
    half = {"data": b'{"as": "number"}', "content_type": "application/json; charset=utf-8"}
    assert ask("post", URL, **both).json() == {"ids": [1, 2]}
    assert ask("post", URL, **form).json() == {"ids": [3, 4]}
    assert ask("post", f"{URL}?count=2", **half).json() == {"ids": [5, 6]}
    assert ask("post", URL, data=b"", content_type="application/json").json() == {"id": "7"}


def test_the_setting_has_numbers_unless_a_request_asks_for_strings(
    ask: Asking, tag: str, settings: Any
) -> None:
    """``numbers`` turns the default round."""
    settings.IDGEN = {"REST": {"numbers": True}}
    for _ in range(2):
        assert isinstance(ask("get", URL).json()["id"], int)
        assert isinstance(ask("get", f"{URL}?as=string").json()["id"], str)


def test_looking_takes_no_id(ask: Asking, tag: str) -> None:
    """HEAD and OPTIONS leave the tag as it is, and HEAD says what GET would."""
    for method, status in (("head", 404), ("options", 200)):
        for _ in range(2):
            answer = ask(method, URL)
            assert answer.status_code == 200
            assert answer["Content-Type"] == "application/json"
            assert ask(method, "/idgen/tags/nobodys/ids").status_code == status
    assert LeafAlloc.objects.get(pk=tag).max_id == 1
    assert tag not in segments
    assert ask("get", URL).json() == {"id": "1"}


def test_no_answer_may_be_kept(ask: Asking, tag: str) -> None:
    """Neither ids nor refusals nor the answers to HEAD and OPTIONS."""
    answers = [ask(method, URL) for method in ("get", "post", "head", "options", "put") * 2]
    answers += [ask("get", f"{URL}?count=0"), Client().get(URL)]
    assert {answer.status_code for answer in answers} == {200, 405, 400, 401}
    assert all("no-store" in answer["Cache-Control"] for answer in answers)


# --- who may ------------------------------------------------------------------------


def test_those_who_do_not_say_who_they_are_get_nothing(tag: str) -> None:
    """401, with the scheme to use."""
    for url in (URL, GENERATOR_URL, "/idgen/tags/nobodys/ids"):
        for method in ("get", "post", "head", "options"):
            answer = getattr(Client(), method)(url)
            assert answer.status_code == 401
            assert answer["WWW-Authenticate"] == "Bearer"
    assert LeafAlloc.objects.get(pk=tag).max_id == 1


def test_a_token_is_good_for_what_it_names(tag: str) -> None:
    """Patterns are as in the shell; anything else is a 403, whether it exists or not."""
    secret = make_token("some", tags=["shop/*"], generators=["lab"])[1]
    client = Client(headers=bearer(secret))
    for _ in range(2):
        assert client.get(URL).status_code == 200
        assert client.get(GENERATOR_URL).status_code == 403
        assert client.get("/idgen/tags/invoices/ids").status_code == 403
        assert client.get("/idgen/generators/lab/ids").status_code == 404
    body = client.get(GENERATOR_URL).json()
    assert body["code"] == "permission_denied"
    assert "does not name" in body["detail"]


def test_a_user_may_take_any_and_posts_with_a_csrf_token(tag: str, secret: str) -> None:
    """A session is the browser's own: it needs Django's protection against forged requests."""
    user = User.objects.create_user("ada")
    client = Client(enforce_csrf_checks=True)
    client.force_login(user)
    assert client.get(URL).status_code == 200
    assert client.post(URL).status_code == 403
    client.cookies["csrftoken"] = "a" * 32
    answer = client.post(URL, headers={"X-CSRFToken": "a" * 32}, **EMPTY)
    assert answer.status_code == 200
    program = Client(enforce_csrf_checks=True, headers=bearer(secret))  # no browser sends a token
    assert [program.post(URL, **EMPTY).status_code for _ in range(2)] == [200, 200]


# --- what there is --------------------------------------------------------------------


def test_what_there_is_not_is_a_404_and_is_not_made(ask: Asking, tag: str) -> None:
    """An unknown tag and an unknown alias, by name; a tag that can't be one, too."""
    for name in ("nobodys", "shop", "shop/orders/", "é" * 128):
        answer = ask("get", f"/idgen/tags/{name}/ids")
        assert answer.status_code == 404, name
        assert answer.json()["code"] == "not_found"
    assert ask("get", "/idgen/generators/nobodys/ids").status_code == 404
    for name in ("x" * 129, "a%00b", " a", "a%0Ab", "%20"):
        assert ask("post", f"/idgen/tags/{name}/ids").status_code == 404, name
    assert list(LeafAlloc.objects.values_list("pk", flat=True)) == [tag]


def test_where_the_setting_says_so_a_tag_is_made_on_first_use(ask: Asking, settings: Any) -> None:
    """``make_tags``, of the API's own: whatever the project's code may make."""
    for project in (True, False):
        segments = {"OPTIONS": {"make_tags": project}}
        settings.IDGEN = {"REST": {"make_tags": True}, "SEGMENTS": segments}
        url = f"/idgen/tags/new-{project}/ids"
        assert ask("get", f"{url}?count=2").json() == {"ids": ["1", "2"]}
        assert ask("get", url).json() == {"id": "3"}


def test_no_more_than_max_count_at_once(ask: Asking, tag: str, settings: Any) -> None:
    """The bound is the setting's, and is told."""
    settings.IDGEN = {"REST": {"max_count": 5}}
    for _ in range(2):
        assert len(ask("get", f"{URL}?count=5").json()["ids"]) == 5
        answer = ask("get", f"{URL}?count=6")
        assert answer.status_code == 400
        assert answer.json() == {"count": ["It must be a whole number of 1 to 5, not 6."]}
