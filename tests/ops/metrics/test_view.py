"""The view: closed to those it is not meant for, and quick whatever hangs."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser
from django.db import OperationalError
from django.http import HttpResponse
from django.test import RequestFactory, override_settings

from django_idgen import next_id, segments
from django_idgen.ops.metrics import exporter
from django_idgen.ops.metrics.exporter import Exporter
from django_idgen.settings.config import MetricsSettings
from tests.own_servers import pointing_at
from tests.places import idgen_on
from tests.private_postgres import PostgresServer, postgres_farm
from tests.redis_servers import RedisServer, cache_alias, redis_farm
from tests.rest.tags.people import Person

from .samples import Scraped

TOKEN = "a-token-of-the-tests"


@pytest.fixture
def switched(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Metrics that nothing outside of the test hears of; the settings can be changed."""
    options: dict[str, Any] = {"token": TOKEN, "within": 0.5, "max_age": 0.0}
    made: list[Exporter] = []

    def start() -> Exporter:
        if not made:
            made.append(Exporter(MetricsSettings(**options)))
        return made[0]

    monkeypatch.setattr(exporter, "start", start)
    return options


def get(user: Any = None, **headers: str) -> HttpResponse:
    request = RequestFactory().get("/metrics", headers=headers)
    request.user = user or AnonymousUser()
    return exporter.view(request)


def scraped() -> Scraped:
    answer = get(authorization=f"Bearer {TOKEN}")
    assert answer.status_code == 200
    return Scraped(answer.content.decode())


# --- who may look --------------------------------------------------------------------


@pytest.mark.django_db
def test_it_is_closed_but_for_the_token_and_for_staff(switched: dict[str, Any]) -> None:
    """Others are told what to do, and learn nothing else."""
    assert get(authorization=f"Bearer {TOKEN}").status_code == 200
    assert get(authorization=f"bearer   {TOKEN} ").status_code == 200
    assert get(Person(staff=True)).status_code == 200
    for wrong in (f"Bearer {TOKEN}x", "Bearer ", "Bearer é", f"Basic {TOKEN}", TOKEN, ""):
        answer = get(authorization=wrong)
        assert answer.status_code == 401, wrong
        assert "Bearer" in answer["WWW-Authenticate"]
        assert b"django_idgen_" not in answer.content
    assert get(Person()).status_code == 403


@pytest.mark.django_db
def test_without_a_token_it_is_for_staff_alone(switched: dict[str, Any]) -> None:
    """An empty one, or the word None, opens nothing."""
    switched["token"] = None
    for sent in ("Bearer", "Bearer ", "Bearer None"):
        assert get(authorization=sent).status_code == 401
    assert get(Person(staff=True)).status_code == 200


@pytest.mark.django_db
def test_only_reading_is_allowed(switched: dict[str, Any]) -> None:
    """And no cache keeps an answer."""
    request = RequestFactory().post("/metrics", headers={"authorization": f"Bearer {TOKEN}"})
    assert exporter.view(request).status_code == 405
    assert "no-store" in get(authorization=f"Bearer {TOKEN}")["Cache-Control"]


@pytest.mark.django_db
def test_it_speaks_the_format_that_is_asked_for(switched: dict[str, Any]) -> None:
    """Prometheus' text, or OpenMetrics. Whatever stands for a version, no word of it comes back."""

    def asked(accept: str) -> HttpResponse:
        answer = get(authorization=f"Bearer {TOKEN}", accept=accept)
        assert answer.status_code == 200
        return answer

    assert asked("")["Content-Type"].startswith("text/plain")
    openly = asked("application/openmetrics-text; version=1.0.0")
    assert openly["Content-Type"].startswith("application/openmetrics-text")
    assert openly.content.endswith(b"# EOF\n")
    for kind in ("application/openmetrics-text", "text/plain"):
        for version in (
            "x",
            "1..0",
            "1.0.0.x",
            "1.0.0 x",
            "2.0.0.\xb2",
            "9" * 5000,
            "1.0.0\n",
            "é",
        ):
            said = asked(f"{kind}; version={version}")["Content-Type"]
            assert said == "text/plain; version=0.0.4; charset=utf-8", (kind, version)


class Unknown:
    """A user who would have to be looked up in a database that is away."""

    @property
    def is_staff(self) -> bool:
        raise OperationalError("away")


@pytest.mark.django_db
def test_nobody_is_looked_up_for_the_token(switched: dict[str, Any]) -> None:
    """Nor is it a crash where a user can't be."""
    assert get(Unknown(), authorization=f"Bearer {TOKEN}").status_code == 200
    assert get(Unknown()).status_code == 401


# --- what hangs ----------------------------------------------------------------------


def test_a_database_that_hangs_does_not_hang_the_scrape(
    switched: dict[str, Any], django_db_blocker: Any
) -> None:
    """What it would say is left out, up is 0, and the process' own figures are there."""
    with (
        django_db_blocker.unblock(),
        postgres_farm() as farm,
        pointing_at(server := farm.server(), "own") as alias,
        override_settings(IDGEN=idgen_on(alias)),
    ):
        switched["within"] = 20.0
        next_id()
        segments["orders"].next_ids(3)
        assert scraped().one("tag_max_id", tag="orders") > 3
        _hang(switched, server)


def _hang(switched: dict[str, Any], server: PostgresServer) -> None:
    exporter.start().shared._settings = MetricsSettings(within=0.5, max_age=0.0)
    server.pause()
    try:
        for _ in range(3):
            found = scraped()
        for part in ("database:own", "tags:own", "generator:default"):
            assert found.one("up", part=part) == 0
        assert not found.samples("tag_max_id")
        assert not found.samples("worker_ids")
        assert found.one("ids_issued_total") == 1
        assert found.one("segment_ids_issued_total", tag="orders") == 3
        assert found.one("lease_seconds_left") > 0
        assert found.one("generator_exhaustion_seconds") > 1e9
    finally:
        server.resume()


@pytest.mark.django_db
def test_a_redis_that_hangs_does_not_hang_the_scrape(switched: dict[str, Any]) -> None:
    """The pool is told to be away; tags and databases are told as before."""
    switched["within"] = 20.0
    with redis_farm() as farm:
        server = farm.server()
        with (
            cache_alias("own", server.url) as alias,
            override_settings(IDGEN=pooled(alias)),
        ):
            segments["orders"].next_id()
            found = scraped()
            assert found.one("up", part="redis:own") == 1
            assert found.one("pool_memory_bytes") > 1000
            hang_redis(server)


def hang_redis(server: RedisServer) -> None:
    server.pause()
    try:
        found = scraped()
        assert found.one("up", part="redis:own") == 0
        assert found.one("up", part="database:default") == 1
        assert not found.samples("pool_memory_bytes")
        assert found.one("segment_ids_issued_total", tag="orders") == 1
    finally:
        server.resume()


def pooled(alias: str) -> dict[str, Any]:
    pool = {
        "BACKEND": "django_idgen.sources.pool.PoolSource",
        "OPTIONS": {"alias": alias, "source": {"OPTIONS": {"database": "default"}}},
    }
    return {"SEGMENTS": {"SOURCE": pool}}


def test_settings_that_cannot_work_are_a_figure_not_a_crash(switched: dict[str, Any]) -> None:
    """The scrape goes on."""
    with override_settings(IDGEN={"SEGMENTS": {"SOURCE": {"BACKEND": "no.such.Source"}}}):
        assert scraped().one("up", part="settings") == 0
