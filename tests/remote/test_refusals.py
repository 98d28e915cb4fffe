"""What a service refuses is said at once: waiting does not change its answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from django_idgen.client import Client
from django_idgen.core.errors import RegistryUnavailable, SegmentRefused, TagPaused
from django_idgen.models import LeafAlloc, WorkerLease
from tests import warm
from tests.places import idgen_on, make_tables

from .scripted import refusal, scripted, segment
from .service import EVERYTHING, SECRET, one_token, service


@pytest.fixture
def url(postgres: str) -> Iterator[str]:
    """A service on PostgreSQL that makes no tags."""
    make_tables(postgres)
    LeafAlloc.objects.using(postgres).create(biz_tag="orders", step=10)
    LeafAlloc.objects.using(postgres).create(biz_tag="paused", step=10, paused=True)
    with service(idgen_on(postgres)) as url:
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
        with pytest.raises(RegistryUnavailable, match="names it in 'leases'"):
            client.next_id()


DOCTOR = """
import json, sys
import django
from django.conf import settings
url, token, tag, generator = sys.argv[1:]
service = {"base_urls": url, "token": token}
settings.configure(
    INSTALLED_APPS=["django_idgen"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    IDGEN={
        "GENERATORS": {"default": {**json.loads(generator), "LEASES": {
            "BACKEND": "django_idgen.leases.http.HttpLeases", "OPTIONS": service}}},
        "SEGMENTS": {"SOURCE": {
            "BACKEND": "django_idgen.sources.http.HttpSource", "OPTIONS": service}},
    },
)
django.setup()
from django.core.management import call_command
from django.db import models
from django_idgen.fields import SegmentIdField
class Order(models.Model):
    id = SegmentIdField(primary_key=True, tag=tag)
    class Meta:
        app_label = "shop"
call_command("idgen_doctor", "--only", "services", "--json")
"""


def diagnosis(url: str, tag: str, **generator: Any) -> tuple[int, dict[str, str]]:
    """The doctor's exit code in a project behind the service; what it finds, by subject."""
    root = Path(__file__).parents[2]
    done = warm.run(["-c", DOCTOR, url, SECRET, tag, json.dumps(generator)], cwd=root)
    found = json.loads(done.stdout)["findings"]
    return done.returncode, {each["subject"]: each["what"] for each in found}


def test_the_doctor_names_what_the_service_refuses(url: str) -> None:
    """A tag that is not there, a token without the tag or the worker ids; nothing is taken."""
    assert diagnosis(url, "orders") == (0, {})
    code, found = diagnosis(url, "ordre")
    assert (code, list(found)) == (2, ["tag 'ordre'"])
    assert "There is no tag 'ordre'" in found["tag 'ordre'"]
    with one_token(replace(EVERYTHING, tags=("others",), leases=())):
        code, found = diagnosis(url, "orders")
    assert (code, sorted(found)) == (2, ["generator 'default'", "tag 'orders'"])
    assert "names it in 'leases'" in found["generator 'default'"]
    assert LeafAlloc.objects.using("postgres").get(pk="orders").max_id == 1
    assert WorkerLease.objects.using("postgres").count() == 0


REFUSED_SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"LAYOUT": "js_safe"}, "with fields="),
    ({"EPOCH": "2024-01-01T00:00:00Z"}, "with epoch_us="),
    ({"OPTIONS": {"max_ahead": 60}}, "'max_ahead' of this process is 60000 ticks"),
]


def test_the_doctor_names_settings_that_the_service_refuses(url: str) -> None:
    """Before the first id; the way out is not the doctor's --fix, which is the service's."""
    for generator, words in REFUSED_SETTINGS:
        code, found = diagnosis(url, "orders", **generator)
        assert (code, list(found)) == (2, ["generator 'default'"])
        assert words in found["generator 'default'"]
        assert "--fix" not in found["generator 'default'"]


def test_a_paused_tag_and_a_wrong_alias_are_named_at_once(url: str) -> None:
    """Neither is waited for."""
    with Client(url, token=SECRET) as client:
        with pytest.raises(TagPaused, match="'paused' is paused"):
            client.segments["paused"].next_id()
        with pytest.raises(RegistryUnavailable, match="'defualt'"):
            client.generators["defualt"].next_id()


def test_a_refused_tag_is_asked_for_once() -> None:
    """One call of a client is one request."""
    statuses = [401, 403, 404]
    with (
        scripted(lambda path, asked: refusal("not_found", statuses.pop())) as server,
        Client(server.url, token="t", wait=30) as client,
    ):
        for asked in (1, 2, 3):
            with pytest.raises(SegmentRefused, match=r"No\."):
                client.segments[f"t{asked}"].next_id()
            assert len(server.posts) == asked


def test_a_page_of_what_stands_before_the_service_is_waited_out() -> None:
    """A proxy's 404 while the service starts: the client asks again, and is served."""
    answers = iter([(404, {"Content-Type": "text/html"}, b"Not Found")])
    with (
        scripted(lambda path, asked: next(answers, None) or segment(asked)) as server,
        Client(server.url, token="t", wait=30) as client,
    ):
        assert client.segments["t"].next_id() == 1
        assert len(server.posts) >= 2
