"""What a service refuses is said at once: waiting does not change its answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from django_idgen.client import Client
from django_idgen.core.errors import RegistryUnavailable, SegmentRefused, TagPaused
from django_idgen.models import LeafAlloc
from tests.places import make_tables

from .scripted import as_json, scripted, segment
from .service import EVERYTHING, SECRET, one_token, service


@pytest.fixture
def url(postgres: str) -> Iterator[str]:
    """A service on PostgreSQL that makes no tags."""
    options = {"OPTIONS": {"database": postgres}}
    idgen = {"GENERATORS": {"default": {"LEASES": options}}, "SEGMENTS": {"SOURCE": options}}
    make_tables(postgres)
    LeafAlloc.objects.using(postgres).create(biz_tag="orders", step=10)
    LeafAlloc.objects.using(postgres).create(biz_tag="paused", step=10, paused=True)
    with service(idgen) as url:
        yield url


def test_an_unknown_tag_is_named_at_once(url: str) -> None:
    """The error names the tag and who can make it, and says nothing of steps (hazard 82)."""
    with Client(url, token=SECRET) as client:
        with pytest.raises(SegmentRefused, match="There is no tag 'ordre'") as raised:
            client.segments["ordre"].next_id()
        assert "step" not in str(raised.value)
        LeafAlloc.objects.using("postgres").create(biz_tag="ordre", step=10)
        assert client.segments["ordre"].next_id() == 1


def test_what_a_token_may_not_have_is_refused_at_once(url: str) -> None:
    """A wrong token, one without the tag, one without the worker ids; each is named."""
    with Client(url, token="idgen_wrong") as client:
        with pytest.raises(SegmentRefused, match="knows the access token"):
            client.segments["orders"].next_id()
        with pytest.raises(RegistryUnavailable, match="knows the access token"):
            client.next_id()
    nothing = replace(EVERYTHING, tags=("others",), leases=())
    with one_token(nothing), Client(url, token=SECRET) as client:
        with pytest.raises(SegmentRefused, match="the token allows this"):
            client.segments["orders"].next_id()
        with pytest.raises(RegistryUnavailable, match="the token allows this"):
            client.next_id()


def test_a_paused_tag_and_a_wrong_alias_are_named_at_once(url: str) -> None:
    """Neither is waited for."""
    with Client(url, token=SECRET) as client:
        with pytest.raises(TagPaused, match="'paused' is paused"):
            client.segments["paused"].next_id()
        with pytest.raises(RegistryUnavailable, match="'defualt'"):
            client.generators["defualt"].next_id()


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_refused_tag_is_asked_for_once(status: int) -> None:
    """One call of a client is one request."""
    refusal = as_json({"detail": "No.", "code": "not_found"}, status)
    with (
        scripted(lambda path, asked: refusal) as server,
        Client(server.url, token="t", wait=0.5) as client,
    ):
        with pytest.raises(SegmentRefused, match=r"No\."):
            client.segments["t"].next_id()
        assert len(server.posts) == 1


def test_a_page_of_what_stands_before_the_service_is_waited_out() -> None:
    """A proxy's 404 while the service starts: the client asks again, and is served."""
    answers = iter([(404, {"Content-Type": "text/html"}, b"Not Found")])
    with (
        scripted(lambda path, asked: next(answers, None) or segment(asked)) as server,
        Client(server.url, token="t", wait=30) as client,
    ):
        assert client.segments["t"].next_id() == 1
        assert len(server.posts) >= 2
