"""Ids over HTTP, to those who may take them; what is wrong is a 4xx that names it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from io import BytesIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.handlers.asgi import ASGIRequest
from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import resolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rest_framework.exceptions import ParseError

from django_idgen import generators, segments
from django_idgen.core.errors import (
    ConfigurationError,
    GeneratorClosed,
    IdgenError,
    SegmentExhausted,
    SegmentUnavailable,
)
from django_idgen.models import AccessToken, LeafAlloc
from django_idgen.process import maps
from django_idgen.rest import ids
from django_idgen.rest.authentication import TOKENS
from django_idgen.rest.serializers import StrictParser
from django_idgen.rest.tokens import make_token
from tests.rest.forgetting import forget

from .conftest import EMPTY, GENERATOR_URL, TAG, URL, Asking

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
        assert answer.json() == {"count": ["The maximum is 5 (max_count)."]}


# --- tokens seen lately: without DRF, and nobody can tell -----------------------------


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which way each request went: "short", or "ordinary"."""
    went: list[str] = []
    short_cut: Callable[..., HttpResponse | None] = ids._short_cut

    def watched(*args: Any) -> HttpResponse | None:
        response = short_cut(*args)
        went.append("ordinary" if response is None else "short")
        return response

    monkeypatch.setattr(ids, "_short_cut", watched)
    return went


def seen(answer: Any) -> tuple[int, dict[str, str], str]:
    """All that a client sees, but for which ids they are."""
    return answer.status_code, dict(answer.headers), re.sub("[0-9]+", "0", answer.text)


ALIKE: list[tuple[str, str, dict[str, Any], str]] = [
    ("get", URL, {}, "short"),
    ("post", URL, {}, "short"),
    ("get", GENERATOR_URL, {}, "short"),
    ("post", GENERATOR_URL, {}, "short"),
    ("get", f"{URL}?count=3", {}, "short"),
    ("post", f"{URL}?count=3&as=number", {}, "short"),
    ("get", f"{GENERATOR_URL}?as=number", {}, "short"),
    ("get", f"{URL}?count=0", {}, "ordinary"),
    ("get", f"{URL}?count=10001&as=x&y=1", {}, "ordinary"),
    ("get", f"{URL}?format=json", {}, "ordinary"),
    ("get", f"{URL}?{'&'.join(f'p{n}=1' for n in range(1001))}", {}, "ordinary"),
    ("get", f"{URL}?count=%FF&as=%00", {}, "ordinary"),
    ("get", f"{URL}?count=2&", {}, "short"),
    ("get", f"{URL}?count=2#x", {}, "short"),
    ("get", URL, {"headers": {"Accept": "application/json"}}, "short"),
    ("get", URL, {"headers": {"Accept": "text/html,*/*;q=0.8"}}, "ordinary"),
    ("get", URL, {"headers": {"Accept": "text/html"}}, "ordinary"),
    ("get", URL, {"headers": {"Authorization": "Token {secret}"}}, "short"),
    ("get", URL, {"headers": {"Authorization": "bearer   {secret}"}}, "short"),
    ("get", URL, {"headers": {"Authorization": "Bearer {secret}x"}}, "ordinary"),
    ("get", URL, {"headers": {"Authorization": "Bearer {secret} x"}}, "ordinary"),
    ("get", URL, {"headers": {"Authorization": "Basic {secret}"}}, "ordinary"),
    ("get", URL, {"headers": {"Authorization": ""}}, "ordinary"),
    ("get", URL, {"headers": {"Content-Type": "text/plain; charset=utf-16"}}, "ordinary"),
    ("post", URL, {"data": b'{"count": 2}', "content_type": "application/json"}, "ordinary"),
    ("post", URL, {"data": b"count=2", "content_type": "text/plain"}, "ordinary"),
    ("head", URL, {}, "ordinary"),
    ("put", URL, {}, "ordinary"),
    ("get", "/idgen/tags/nobodys/ids", {}, "ordinary"),
    ("get", "/idgen/generators/nobodys/ids", {}, "ordinary"),
]


def test_both_ways_answer_alike(ask: Asking, tag: str, secret: str, ways: list[str]) -> None:
    """The same status, body and headers, whether the token was seen lately or not."""
    for method, url, options, way in ALIKE:
        headers = options.get("headers", {})
        headers = {name: value.format(secret=secret) for name, value in headers.items()}
        asked = partial(ask, method, url, **options | {"headers": headers})
        forget()
        first = asked()
        assert ask("get", URL).status_code == 200  # now the token is known, and the tag
        ways.clear()
        second = asked()
        assert ways == [way], (method, url, options)
        TOKENS.clear()
        third = asked()
        assert ways == [way, "ordinary"]
        assert seen(first) == seen(second) == seen(third), (method, url, options)


def test_failures_are_told_alike(ask: Asking, tag: str, ways: list[str], caplog: Any) -> None:
    """The generator is asked once, and what it raises becomes the same answer."""
    asked: list[IdgenError] = []

    class Failing:
        def __init__(self, error: IdgenError) -> None:
            self.error = error

        def next_id(self) -> int:
            asked.append(self.error)
            raise self.error

    errors = [
        SegmentUnavailable("The database is away."),
        SegmentExhausted("No more."),
        GeneratorClosed("Going down."),
        ConfigurationError("Wrong é."),
        IdgenError("?"),
    ]
    assert ask("get", URL).status_code == 200
    for error in errors:
        caplog.clear()
        with segments.override(tag, Failing(error)):  # type: ignore[arg-type]
            ask("get", "/idgen/tags/nobodys/ids")  # so that the token is known
            ways.clear()
            short = ask("get", URL)
            TOKENS.clear()
            ordinary = ask("get", URL)
        assert ways == ["short", "ordinary"]
        assert seen(short) == seen(ordinary)
        assert short.status_code in (409, 503)
        assert ("Retry-After" in short) == (short.json()["code"] in ("unavailable", "closing"))
        assert "Answered" in caplog.text  # what a caller is not told
    assert asked == [each for error in errors for each in (error, error)]


@pytest.mark.parametrize("url", [URL, GENERATOR_URL])
def test_a_token_seen_lately_costs_no_query(ask: Asking, tag: str, url: str) -> None:
    """Not for one id, nor for many, nor where the request goes the ordinary way."""
    ask("get", url)
    bodies = [{}, {"data": b'{"count": 2}', "content_type": "application/json"}]
    with CaptureQueriesContext(connection) as queries:
        for body in bodies:
            assert ask("post", url, **body).status_code == 200
            assert ask("post", f"{url}?count=50").status_code == 200
    assert not queries.captured_queries


def test_a_changed_or_revoked_token_is_so_when_its_time_is_up(
    ask: Asking, tag: str, ways: list[str], settings: Any
) -> None:
    """After ``token_max_age``; with 0 at once, and every request asks."""
    settings.IDGEN = {"REST": {"token_max_age": 0}}
    assert ask("get", URL).status_code == 200
    AccessToken.objects.update(tags="invoices")
    assert ask("get", URL).status_code == 403
    AccessToken.objects.update(expires_at=datetime.now(UTC))
    assert ask("get", URL).status_code == 401
    assert set(ways) == {"ordinary"}


def test_a_class_of_the_projects_own_goes_the_ordinary_way(rf: Any, tag: str, secret: str) -> None:
    """It may be stricter than ours."""

    class Strict(ids.TagIdsView):
        def may_take(self, caller: Any, subject: str) -> bool:  # type: ignore[override]
            return False

    request = rf.get(URL, headers={"Authorization": f"Bearer {secret}"})
    for view, status in ((ids.TagIdsView, 200), (Strict, 403)) * 2:
        assert view.as_view()(request, tag=TAG).status_code == status


def test_a_tag_that_was_only_named_is_not_known(ask: Asking, ways: list[str]) -> None:
    """``segments["x"]`` without an id makes no row, and lets nobody make one over HTTP."""
    _ = maps.segments["named"]
    for _number in range(2):
        assert ask("get", "/idgen/tags/named/ids").status_code == 404
    assert not LeafAlloc.objects.exists()


# --- what is wrong: nothing is taken, nothing fails -----------------------------------


Untouched = Callable[[], None]
JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
MOST = 65_536
TAGS_URL = "/idgen/tags/"
DECODE = "/idgen/decode"
LEASES = "/idgen/generators/default/leases"
SEGMENT = URL.replace("/ids", "/segment")


@pytest.fixture
def untouched(tag: str) -> Untouched:
    """Says that no id was taken."""

    def check() -> None:
        assert LeafAlloc.objects.get(pk=tag).max_id == 1
        assert not maps.segments
        assert not maps.generators.made()

    return check


def test_a_count_in_json_is_a_whole_number(ask: Asking, untouched: Untouched) -> None:
    """Of 1 to ``max_count``; the field is named."""
    wrong = (0, -1, 10**9, 10**30, "ten", 1.5, True, False, None, [1], {"a": 1}, "")
    for count in wrong:
        for url in (URL, GENERATOR_URL):
            answer = ask("post", url, data=json.dumps({"count": count}), content_type=JSON)
            assert answer.status_code == 400, count
            assert list(answer.json()) == ["count"]
    untouched()


def test_a_count_in_the_query_is_a_whole_number(ask: Asking, untouched: Untouched) -> None:
    """As in JSON."""
    for query in (
        *("0", "-1", "1000000000", "9" * 5000, "ten", "1.5", "1e3", "true", "null", ""),
        *("1%00", "[1]", "%FF", "0x10"),
    ):
        for method in ("post", "head", "get", "get"):
            answer = ask(method, f"{URL}?count={query}")
            assert answer.status_code == 400, query
        assert list(answer.json()) == ["count"]
    untouched()


def test_each_parameter_that_is_wrong_is_named(ask: Asking, untouched: Untouched) -> None:
    """One that there is not, too."""
    for query, fields in (
        ("as=text", {"as"}),
        ("as=", {"as"}),
        ("counts=3", {"counts"}),
        ("count=0&as=x", {"count", "as"}),
        ("count=0&a=1&b=2", {"count", "a", "b"}),
        ("%ED%A0%80=1", {"\ufffd\ufffd\ufffd"}),
        ("&".join(f"p{number}" for number in range(1200)), {"detail", "code"}),
    ):
        for _ in range(2):
            answer = ask("get", f"{URL}?{query}")
            assert answer.status_code == 400
            assert set(answer.json()) == fields
    untouched()


UNREADABLE: tuple[tuple[bytes, str, int], ...] = (
    (b"{", JSON, 400),
    (b"null", JSON, 400),
    (b"[1]", JSON, 400),
    (b"7", JSON, 400),
    (b'"count"', JSON, 400),
    (b'{"count": NaN}', JSON, 400),
    (b'{"count": ' + b"9" * 5000 + b"}", JSON, 400),
    *((b'{"as": ' + b"[" * deep + b"]" * deep + b"}", JSON, 400) for deep in (50, 950, 20_000)),
    (b'{"\\ud800": 1}', JSON, 400),
    (b'{"as": "\\ud800"}', JSON, 400),
    (b'{"as": "\\u0000"}', JSON, 400),
    (b'\xef\xbb\xbf{"count": 1}', JSON, 400),
    (b'{"as": "\xff"}', JSON, 400),
    ('{"count": 1}'.encode("utf-16"), JSON, 400),
    ('{"count": 1}'.encode("utf-16"), f"{JSON}; charset=utf-16", 415),
    (b'{"count": 1}', f"{JSON}; charset=zlib", 415),
    (b'{"count": 1}', f"{JSON}; charset=nonsense", 415),
    (b'{"count": 1}', "text/plain", 415),
    (b'{"count": 1}', "", 415),
    (b"count=1", "multipart/form-data; boundary=x", 415),
    (b"<count>1</count>", "application/xml", 415),
    (b"count=%FF", FORM, 400),
    (b"count=" + b"1" * MOST, FORM, 413),
)


def test_bodies_that_can_not_be_read(ask: Asking, untouched: Untouched) -> None:
    """Hazard 114: broken, endless, too deep, in other encodings, or far too large."""
    for body, content_type, status in UNREADABLE:
        # Its method "post" would encode the body again.
        answer = ask("generic", "POST", path=URL, data=body, content_type=content_type)
        assert answer.status_code == status, (body[:40], content_type)
        assert isinstance(answer.json(), dict)
    untouched()


def test_json_may_nest_fifty_levels_and_no_more() -> None:
    """Whatever the innermost one holds; the refusal names the limit."""
    for inner in (b"", b"1"):
        StrictParser().parse(BytesIO(b"[" * 50 + inner + b"]" * 50))
        for deep in (51, 20_000):
            with pytest.raises(ParseError, match="more than 50 levels"):
                StrictParser().parse(BytesIO(b"[" * deep + inner + b"]" * deep))


def test_a_body_of_unknown_length_is_not_passed_over(ask: Asking, tag: str) -> None:
    """411: Django would read nothing of it, and the request get a single id."""
    chunked = {"Transfer-Encoding": "chunked"}
    for number in (1, 2):  # the second time the token is known, and the tag
        answer = ask("post", URL, headers=chunked)
        assert (answer.status_code, answer.json()["code"]) == (411, "length_required")
        assert ask("post", URL).json() == {"id": str(number)}


def test_a_body_without_a_length_is_not_passed_over_under_asgi(secret: str, tag: str) -> None:
    """HTTP/2 has no chunks to tell it by: what came says it, on both ways."""

    def ask(body: bytes) -> Any:
        headers = [
            (b"authorization", f"Bearer {secret}".encode()),
            (b"content-type", JSON.encode()),
        ]
        scope = {"type": "http", "method": "POST", "path": URL, "headers": headers}
        request: Any = ASGIRequest(scope, BytesIO(body))
        found = resolve(URL)
        answer = found.func(request, **found.kwargs)
        return json.loads(answer.rendered_content if answer.status_code > 400 else answer.content)

    for _ in range(2):
        assert ask(b'{"count": 3}')["code"] == "length_required"
    assert ask(b"") == {"id": "1"}
    assert ask(b'{"count": 3}')["code"] == "length_required"


def test_headers_that_are_refused(ask: Asking, untouched: Untouched) -> None:
    """A charset that Django would decode the query with; types of answers that there are not.

    A length that is no number, or one that no body has.
    """
    for charset in ("utf-16", "cp037"):
        headers = {"Content-Type": f"text/plain; charset={charset}"}
        assert ask("get", f"{URL}?count=1", headers=headers).status_code == 415
    for accept in ("text/plain", "image/png;q=0.3", "nonsense"):
        assert ask("get", URL, headers={"Accept": accept}).status_code == 406
    for length in ("-1", "1.5", "x", "\u0661", "9" * 5000, "1_0"):
        told = {"content_type": JSON, "CONTENT_LENGTH": length}
        answer = ask("generic", "POST", path=URL, data=b"{}", **told)
        assert answer.status_code in (400, 413), length
    untouched()


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(
    body=st.dictionaries(
        st.sampled_from(["count", "as", "x"]) | st.text(max_size=20),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
            lambda inner: st.lists(inner, max_size=3),
            max_leaves=5,
        ),
        max_size=4,
    )
)
def test_no_body_makes_it_fail(ask: Asking, tag: str, body: dict[str, Any]) -> None:
    """Ids, or a 400."""
    answer = ask("post", f"{URL}", data=json.dumps(body), content_type=JSON)
    assert answer.status_code in (200, 400)
    assert isinstance(answer.json(), dict)


# --- how much may be sent ----------------------------------------------------------------


def wide(count: int) -> dict[str, int]:
    """A body of so many unknown fields."""
    return {f"k{number}": 1 for number in range(count)}


def test_a_body_has_64_kb_at_most(ask: Asking, untouched: Untouched) -> None:
    """413 before it is read or anybody is asked who it is."""
    for body in (b'{"count": 1' + b" " * MOST + b"}", json.dumps(wide(20_000)).encode()):
        for url in (URL, GENERATOR_URL, TAGS_URL, DECODE, LEASES, SEGMENT):
            for headers in ({}, {"Authorization": "Bearer idgen_wrong"}):
                sent = {"data": body, "content_type": JSON, "headers": headers}
                answer = ask("generic", "POST", path=url, **sent)
                assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
                assert str(MOST) in answer.json()["detail"]
    untouched()


def test_a_body_of_64_kb_is_read(ask: Asking, tag: str) -> None:
    """To its last character."""
    body = b'{"count": 2'.ljust(MOST - 1) + b"}"
    assert ask("post", URL, data=body, content_type=JSON).json() == {"ids": ["1", "2"]}


def test_a_query_has_8_kb_at_most(ask: Asking, untouched: Untouched) -> None:
    """One parameter or many; on the short way, too."""
    for url in (URL, GENERATOR_URL, TAGS_URL, DECODE):
        for query in ("count=" + "1" * 8192, "&".join(f"p{number}=1" for number in range(1998))):
            for _ in range(2):
                answer = ask("get", f"{url}?{query}")
                assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    untouched()


def test_few_of_many_wrong_names_are_told(settings: Any, untouched: Untouched) -> None:
    """Ten of them, none at length, beside each known one that is wrong."""
    settings.DATA_UPLOAD_MAX_NUMBER_FIELDS = None
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    many = {"x" * 5000: 1} | wide(3000)
    for url in (URL, DECODE, GENERATOR_URL, TAGS_URL):
        for answer in (
            client.post(url, json.dumps(many), content_type=JSON),
            client.post(url, "&".join(many), content_type=FORM),
            client.get(f"{url}?{'&'.join(wide(1500))}"),
        ):
            assert answer.status_code == 400
            assert len(answer.content) < 4000
            assert sum(name.startswith(("k", "x")) for name in answer.json()) == 10
    answer = client.post(URL, json.dumps(wide(1000) | {"count": 0}), content_type=JSON)
    assert "count" in answer.json()
    untouched()
