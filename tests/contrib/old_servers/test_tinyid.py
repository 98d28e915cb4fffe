"""Answers as TinyID's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest
from django.db import OperationalError
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from django_idgen import segments
from django_idgen.contrib.old_servers import tinyid
from django_idgen.core.errors import SegmentUnavailable
from django_idgen.core.segment import Segment
from django_idgen.models import LeafAlloc
from django_idgen.process import maps
from tests.tiers import long

from .conftest import TAG, asking, assert_never_cached, marks
from .old_clients import TinyClient, TinySegment

FULL = ["nextId", "nextSegmentId"]
SIMPLE = ["nextIdSimple", "nextSegmentIdSimple"]
TOKEN_ERROR = b'{"data":null,"code":5,"message":"token is error"}'


def test_ids_to_the_byte(tag: str, secret: str) -> None:
    """One, and several; the token in the query."""
    query = f"bizType={tag}&token={secret}"
    for turn, method in enumerate(("get", "post", "put", "delete")):
        ask, last = getattr(Client(), method), 7 * turn
        one = ask(f"/tinyid/id/nextId?{query}")
        assert one.content == b'{"data":[%d],"code":200,"message":""}' % (last + 1)
        assert one.headers["Content-Type"] == "application/json;charset=UTF-8"
        assert_never_cached(one)
        assert ask(f"/tinyid/id/nextId?{query}&batchSize=2").content == (
            b'{"data":[%d,%d],"code":200,"message":""}' % (last + 2, last + 3)
        )
        simple = ask(f"/tinyid/id/nextIdSimple?{query}&batchSize=3")
        assert simple.content == b"%d,%d,%d" % (last + 4, last + 5, last + 6)
        assert ask(f"/tinyid/id/nextIdSimple/?{query}").content == b"%d" % (last + 7)
        assert simple.headers["Content-Type"] == "text/plain;charset=UTF-8"


def test_a_form_and_a_header_do_as_well(client: Client, tag: str, secret: str) -> None:
    """All of the parameters may be in the body of a POST; the header is the better place."""
    form = {"bizType": tag, "token": secret, "batchSize": "2"}
    assert Client().post("/tinyid/id/nextIdSimple", form).content == b"1,2"
    encoded = Client().post(
        "/tinyid/id/nextIdSimple",
        f"bizType={tag}&token={secret}",
        content_type="application/x-www-form-urlencoded",
    )
    assert encoded.content == b"3"
    assert client.get("/tinyid/id/nextIdSimple", {"bizType": tag}).content == b"4"


def test_segments_to_the_byte(tag: str, secret: str) -> None:
    """Real ones, out of the row: the next one is another."""
    query = f"bizType={tag}&token={secret}"
    assert Client().get(f"/tinyid/id/nextSegmentId?{query}").content == (
        b'{"data":{"currentId":{"value":0},"loadingId":200,"maxId":1000,"delta":1,"remainder":0},'
        b'"code":200,"message":""}'
    )
    assert Client().get(f"/tinyid/id/nextSegmentIdSimple?{query}").content == (
        b"1000,1200,2000,1,0"
    )
    assert segments[tag].next_id() == 2001
    assert marks()[tag] == 3001


def test_a_wrong_token_is_code_5(tag: str, secret: str) -> None:
    """With HTTP 200, and nothing is taken. It is for the tags that it names.

    Without a tag, too: TinyID asks first whether the token may visit it, and no token may.
    """
    LeafAlloc.objects.create(biz_tag="invoices")
    wrong = ("", "&token=", "&token=wrong", f"&token=idgen_{'x' * 43}", f"&token={'x' * 5000}")
    asked = [f"/tinyid/id/{{}}?bizType={tag}{token}" for token in wrong]
    asked += [f"/tinyid/id/{{}}?bizType={tag}&token={secret}" for tag in ("invoices", "nothing")]
    for query in ("", "bizType="):
        asked += [f"/open/tinyid/id/{{}}?{query}", f"/tinyid/id/{{}}?{query}&token={secret}"]
    for url in asked:
        for path in FULL:
            answer = Client().get(url.format(path))
            assert (answer.status_code, answer.content) == (200, TOKEN_ERROR), url
    assert marks() == {TAG: 1, "invoices": 1}


def test_simple_errors_are_empty(tag: str, secret: str) -> None:
    """Whatever is wrong."""
    for path in SIMPLE:
        for query in (f"bizType={tag}", f"bizType=nothing&token={secret}", f"token={secret}"):
            answer = Client().get(f"/tinyid/id/{path}?{query}")
            assert (answer.status_code, answer.content) == (200, b"")
    assert marks() == {TAG: 1}


def test_a_tag_that_is_not_there_is_code_6(tag: str) -> None:
    """And is not made."""
    for other in ("nothing", "%00", "x" * 129, "%F0%9F%98%80", "a/b/c"):
        for path in FULL:
            answer = Client().get(f"/open/tinyid/id/{path}?bizType={other}")
            assert (answer.status_code, answer.json()["code"]) == (200, 6), other
            assert answer.json()["data"] is None
    assert marks() == {TAG: 1}


def test_a_count_that_is_none_is_code_6(tag: str) -> None:
    """And takes nothing."""
    for count in ("0", "-1", "x", "1.5", "1e3", "９", "9" * 40, " 1"):
        answer = Client().get("/open/tinyid/id/nextId", {"bizType": tag, "batchSize": count})
        assert (answer.status_code, answer.json()["code"]) == (200, 6), count
        simple = Client().get("/open/tinyid/id/nextIdSimple", {"bizType": tag, "batchSize": count})
        assert (simple.status_code, simple.content) == (200, b""), count
    assert marks() == {TAG: 1}


def test_no_ids_is_code_6(tag: str, secret: str) -> None:
    """Never a list without ids under code 200; nor where tokens can't be checked."""
    segments[tag]
    error = SegmentUnavailable("x")
    with patch("django_idgen.core.segment_generator.SegmentGenerator.next_ids", side_effect=error):
        answer = Client().get("/open/tinyid/id/nextId", {"bizType": tag})
    assert (answer.status_code, answer.json()["code"], answer.json()["data"]) == (200, 6, None)
    with patch("django_idgen.rest.authentication.TOKENS._find", side_effect=OperationalError):
        answer = Client().get("/tinyid/id/nextId", {"bizType": tag, "token": secret})
    assert (answer.status_code, answer.json()["code"]) == (200, 6)


def test_one_request_gives_no_more_than_the_setting(tag: str, secret: str, settings: Any) -> None:
    """``max_count``, as everywhere; who asks for more gets that many, as of TinyID.

    Where it allows as many, 100,000, as TinyID's own.
    """
    for most, count, number in (
        *((7, 7, 7), (7, 8, 7), (7, 10**9, 7), (7, 3, 3)),
        (10**9, 10**9, 100_000),
    ):
        settings.IDGEN = {**settings.IDGEN, "REST": {"max_count": most}}
        url = f"/tinyid/id/nextIdSimple?bizType={tag}&token={secret}&batchSize={count}"
        assert len(Client().get(url).content.split(b",")) == number


# --- what a client makes of a segment ---------------------------------------------------


def walked(segment: TinySegment) -> Iterator[int]:
    while (taken := segment.take()[0]) is not None:
        yield taken


@given(
    st.integers(1, 2**62),
    st.integers(1, 300),
    st.integers(1, 1024),
)
def test_a_client_gives_out_exactly_the_segment(start: int, count: int, delta: int) -> None:
    """The first, the last and all between, for any delta; a client that doesn't align, too."""
    segment = Segment("t", start, start + (count - 1) * delta + 1, 1000, delta)
    values = tinyid._as_tinyid(segment)
    text = ",".join(map(str, values))
    assert list(walked(TinySegment.read(text))) == list(segment.ids())
    assert list(walked(TinySegment(*values, aligned=True))) == list(segment.ids())
    assert values[0] <= values[1] <= values[2]


@pytest.mark.parametrize("databases", [2, *long(1, 4)])
def test_clients_and_our_own_processes_never_meet(
    shards: list[str],
    databases: int,
    settings: Any,
) -> None:
    """Of one tag, whether it comes from one database or from several."""
    used = shards[:databases]
    source = {
        "BACKEND": "django_idgen.contrib.sharding.ShardedSource",
        "OPTIONS": {"databases": used},
    }
    settings.IDGEN = {
        "SEGMENTS": {"SOURCE": source, "OPTIONS": {"default_step": 10, "timeout": 30}}
    }
    segments["t"].next_id()  # makes it
    clients = [TinyClient(asking(Client(), "/open"), "t", "-") for _ in range(3)]
    ids = [client.next_id() for _ in range(60) for client in clients]
    ids += segments["t"].next_ids(60)
    assert len(set(ids)) == len(ids)
    deltas = {segment.delta for client in clients for segment in client.segments}
    assert deltas == {databases}
    maps.reset()  # before the databases go
