"""What is wrong is a 4xx that names it; nothing is taken, nothing fails."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import BytesIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.handlers.asgi import ASGIRequest
from django.test import Client
from django.urls import resolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_idgen.models import LeafAlloc
from django_idgen.process import handlers

from .conftest import GENERATOR_URL, URL, Asking

pytestmark = pytest.mark.django_db

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
        assert not handlers.segments
        assert not handlers.generators.made()

    return check


def test_a_count_in_json_is_a_whole_number(ask: Asking, untouched: Untouched) -> None:
    """Nothing else is taken for one, not even a number as text."""
    wrong = (0, -1, 10**9, 10**30, "ten", "10", 1.5, 1e2, True, False, None, [1], {"a": 1}, "")
    for count in wrong:
        for url in (URL, GENERATOR_URL):
            answer = ask("post", url, data=json.dumps({"count": count}), content_type=JSON)
            assert answer.status_code == 400, count
            (words,) = answer.json()["count"]
            if count is None:
                assert words == "This field may not be null."
            else:
                assert words.startswith("It must be a whole number of 1 to 10000, not ")
    untouched()


def test_a_count_in_the_query_is_a_whole_number(ask: Asking, untouched: Untouched) -> None:
    """In plain decimal digits."""
    for query in (
        *("0", "-1", "1000000000", "9" * 5000, "ten", "1.5", "1e3", "true", "null", "", "%2B5"),
        *("1%00", "%D9%A3", "%20 5", "1_0", "[1]", "%FF", "0x10"),
    ):
        for method in ("post", "head", "get", "get"):
            answer = ask(method, f"{URL}?count={query}")
            assert answer.status_code == 400, query
        assert list(answer.json()) == ["count"]
    untouched()


def test_each_parameter_that_is_wrong_is_named(ask: Asking, untouched: Untouched) -> None:
    """One that is given twice, or that there is not, among them."""
    for query, fields in (
        ("count=1&count=1", {"count"}),
        ("as=text", {"as"}),
        ("as=", {"as"}),
        ("as=string&as=number", {"as"}),
        ("counts=3", {"counts"}),
        ("count=0&as=x&a=1&b=2", {"count", "as", "a", "b"}),
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
    (b'{"count": 1, "count": 2}', JSON, 400),
    (b'{"count": ' + b"9" * 5000 + b"}", JSON, 400),
    (b'{"as": ' + b"[" * 20_000 + b"]" * 20_000 + b"}", JSON, 400),
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
    (b"count=1&count=2", FORM, 400),
    (b"count=%FF", FORM, 400),
    (b"count=" + b"1" * MOST, FORM, 413),
)


def test_bodies_that_can_not_be_read(ask: Asking, untouched: Untouched) -> None:
    """Broken, ambiguous, endless, in other encodings and types, or far too large."""
    for body, content_type, status in UNREADABLE:
        # Its method "post" would encode the body again.
        answer = ask("generic", "POST", path=URL, data=body, content_type=content_type)
        assert answer.status_code == status, (body[:40], content_type)
        assert isinstance(answer.json(), dict)
    untouched()


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
    """A charset that Django would decode the query with; types of answers that there are not."""
    for charset in ("utf-16", "cp037"):
        headers = {"Content-Type": f"text/plain; charset={charset}"}
        assert ask("get", f"{URL}?count=1", headers=headers).status_code == 415
    for accept in ("text/plain", "image/png;q=0.3", "nonsense"):
        assert ask("get", URL, headers={"Accept": accept}).status_code == 406
    untouched()


def test_a_length_that_is_none_is_refused(ask: Asking, untouched: Untouched) -> None:
    """No number, or one that no body has."""
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
    """Ten of them, none at length, and how many more there are."""
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
            assert "k5" in answer.json()
            assert "more fields are wrong" in answer.json()["non_field_errors"][0]
    untouched()


def test_what_is_known_is_told_beside_what_is_not(ask: Asking, untouched: Untouched) -> None:
    """However many names there are that nobody knows."""
    answer = ask("post", URL, data=json.dumps(wide(1000) | {"count": 0}), content_type=JSON)
    assert "count" in answer.json()
    untouched()
