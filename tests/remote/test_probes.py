"""What readiness asks of services over HTTP: whether one answers, and no more."""

from __future__ import annotations

import os
from typing import Any

import pytest
from django.db import connections
from django.test import override_settings

from django_idgen.core.errors import ConfigurationError, RegistryUnavailable, SegmentUnavailable
from django_idgen.leases.http import HttpLeases
from django_idgen.ops import health
from django_idgen.ops.probes import Probes
from django_idgen.process import maps
from django_idgen.process.factory import build_registry
from django_idgen.process.maps import current_settings
from django_idgen.sources.http import HttpSource
from tests.places import idgen_on
from tests.tables import refused

from .scripted import Said, Script, as_json, closed_url, scripted, wire
from .service import SECRET, service

PATIENCE = 60
"""Seconds that a loaded machine may take; never reached when all is well."""
BACKENDS = {
    "source": "django_idgen.sources.http.HttpSource",
    "leases": "django_idgen.leases.http.HttpLeases",
}
UNAVAILABLE = {"source": SegmentUnavailable, "leases": RegistryUnavailable}


def adapter(kind: str, urls: str | list[str], **options: Any) -> HttpSource | HttpLeases:
    options = {"base_urls": urls, "installation": "one", "token": SECRET, **options}
    if kind == "source":
        return HttpSource(**options)
    leases = {"BACKEND": BACKENDS["leases"], "OPTIONS": options}
    with override_settings(IDGEN={"GENERATORS": {"default": {"LEASES": leases}}}):
        made: HttpLeases = build_registry(current_settings().generators["default"])
    return made


def ask(kind: str, url: str, **options: Any) -> None:
    made = adapter(kind, url, **options)
    ((name, asked),) = made.probes().items()
    assert name == f"service {url}"
    try:
        asked()
    finally:
        made.close()


@pytest.fixture(params=list(BACKENDS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_service_that_answers_is_well(kind: str, postgres: str) -> None:
    """A real one, at its API, with a token and without; nothing is granted, and no table made."""
    with service(idgen_on(postgres)) as url:
        ask(kind, url)
        ask(kind, url, token=None)
        made = maps.generators.made()
    assert not made
    assert connections[postgres].introspection.table_names() == []


def test_one_that_can_t_be_reached_is_not(kind: str) -> None:
    """With its address, for whoever has to look for it."""
    url = closed_url()
    with pytest.raises(UNAVAILABLE[kind], match=url):
        ask(kind, url)


HTML = {"Content-Type": "text/html"}
STRANGERS: list[tuple[Said, str]] = [
    (as_json({"live": False}), "base_urls"),
    (as_json({"status": "ok"}), "base_urls"),
    ((200, HTML, b"<p>Welcome"), "proxy"),
    ((404, HTML, b"<p>Nothing"), "base_urls"),
    ((502, HTML, b"<p>Bad gateway"), "502"),
    ((302, {"Location": "/login"}, b""), "redirect"),
]


def test_what_answers_must_be_a_service_of_ours(kind: str) -> None:
    """A page of a proxy, or of another application, lends no ids."""
    answers = [said for said, _ in STRANGERS]
    with scripted(lambda path, body: answers.pop(0)) as server:
        for _, words in STRANGERS:
            refused(UNAVAILABLE[kind], ask, kind, server.url, match=words)


def test_it_is_one_cheap_request(kind: str) -> None:
    """A GET that the service answers without its database."""
    with scripted(_saying(as_json({"live": True}))) as server:
        ask(kind, server.url)
    ((method, path, _, _),) = server.requests
    assert (method, path) == ("GET", "/idgen/health/live")


def test_one_that_hangs_is_given_up_in_time(kind: str) -> None:
    """After the timeout of a call."""
    with scripted(_saying(as_json({"live": True}))) as server, wire(server.url) as hung:
        hung.mode = "silent"
        with pytest.raises(UNAVAILABLE[kind], match="no answer within"):
            ask(kind, hung.url, timeout=0.3)


def test_a_token_that_can_t_be_read_is_told(kind: str) -> None:
    """Without it no id can be had."""
    with pytest.raises(ConfigurationError, match="IDGEN_TEST_NO_SUCH_TOKEN"):
        ask(kind, closed_url(), token=lambda: os.environ["IDGEN_TEST_NO_SUCH_TOKEN"])


def _saying(said: Said) -> Script:
    return lambda path, body: said


# --- a process that has its ids from services ------------------------------------------


def ready(urls: list[str], monkeypatch: pytest.MonkeyPatch) -> health.Readiness:
    monkeypatch.setattr(health, "_probes", Probes())
    options = {"base_urls": urls, "installation": "one", "token": SECRET}
    source = {"BACKEND": BACKENDS["source"], "OPTIONS": options}
    with override_settings(IDGEN={"SEGMENTS": {"SOURCE": source}}):
        return health.readiness(max_age=0, within=PATIENCE)


def test_a_process_whose_services_are_away_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one whose database is; of several services each is named."""
    urls = [closed_url(), closed_url()]
    found = ready(urls, monkeypatch)
    assert found.failing == ("segments",)
    assert all(url in found.parts[0].detail for url in urls)


def test_one_service_that_answers_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it stands in the list."""
    with scripted(_saying(as_json({"live": True}))) as server:
        assert ready([server.url], monkeypatch).ready
        assert ready([closed_url(), server.url], monkeypatch).ready
        assert ready([server.url, closed_url()], monkeypatch).ready
