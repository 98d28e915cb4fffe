"""Answers as TinyID's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from django_idgen import segments
from django_idgen.contrib.old_servers import tinyid
from django_idgen.core.segment import Segment
from django_idgen.process import maps
from tests.tiers import long

from .conftest import asking
from .old_clients import TinyClient, TinySegment


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
        **settings.IDGEN,  # the URLs name its generators
        "SEGMENTS": {"SOURCE": source, "OPTIONS": {"default_step": 10, "timeout": 30}},
    }
    segments["t"].next_id()  # makes it
    clients = [TinyClient(asking(Client(), "/open"), "t", "-") for _ in range(3)]
    ids = [client.next_id() for _ in range(60) for client in clients]
    ids += segments["t"].next_ids(60)
    assert len(set(ids)) == len(ids)
    deltas = {segment.delta for client in clients for segment in client.segments}
    assert deltas == {databases}
    maps.reset()  # before the databases go
