"""Requests of tokens seen lately are answered without DRF, and nobody can tell."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from django.db import connection
from django.http import HttpResponse
from django.test.utils import CaptureQueriesContext

from django_idgen import segments
from django_idgen.core.errors import (
    ConfigurationError,
    GeneratorClosed,
    IdgenError,
    SegmentExhausted,
    SegmentUnavailable,
)
from django_idgen.models import AccessToken, LeafAlloc
from django_idgen.process import handlers
from django_idgen.rest import ids
from django_idgen.rest.authentication import TOKENS
from tests.rest.forgetting import forget

from .conftest import GENERATOR_URL, TAG, URL, Asking

pytestmark = pytest.mark.django_db


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
    _ = handlers.segments["named"]
    for _number in range(2):
        assert ask("get", "/idgen/tags/named/ids").status_code == 404
    assert not LeafAlloc.objects.exists()
