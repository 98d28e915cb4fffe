"""``ATOMIC_REQUESTS`` on any database leaves our views alone, down to one that is dead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import OperationalError, connections
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import include, path

import django_idgen.ops.metrics
from django_idgen.contrib.old_servers import cosid, finger_mark, go_leaf, leaf, tinyid
from django_idgen.ops import health
from django_idgen.ops.probes import Probes
from django_idgen.process import handlers
from tests.servers import free_port

ALIAS = "reports"


def of_the_project(_request: HttpRequest) -> HttpResponse:
    return HttpResponse("done")


urlpatterns = [
    path("project", of_the_project),
    path("live", health.live),
    path("ready", health.ready),
    path("metrics", django_idgen.ops.metrics.view),
    path("idgen/", include("django_idgen.rest.urls")),
    path("leaf/", include(leaf.urls())),
    path("go/", include(go_leaf.urls())),
    path("tinyid/", include(tinyid.urls())),
    path("cosid/", include(cosid.urls())),
    path("finger/", include(finger_mark.urls())),
]

ANSWERS = {
    "/live": 200,
    "/ready": 200,
    "/metrics": 401,
    "/idgen/health/live": 200,
    "/idgen/health/ready": 200,
    "/idgen/tags/orders/ids": 401,
    "/idgen/generators/default/ids": 401,
    "/idgen/generators/default/leases": 401,
    "/idgen/tags/": 401,
    "/idgen/decode?id=1": 401,
    "/leaf/api/segment/get/orders": 401,
    "/go/api/leaf?biz_tag=orders": 401,
    "/tinyid/id/nextId?bizType=orders": 200,
    "/cosid/ids": 401,
    "/finger/idGen/getId": 401,
}
"""What each view says to somebody unknown; TinyID's tells of it in its own words."""


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[Client]:
    """Of a project with two databases, of which the second one, which is dead, wraps requests."""
    settings.ROOT_URLCONF = __name__
    monkeypatch.setattr(health, "_probes", Probes())
    handlers.reset()
    dead = {"ENGINE": "django.db.backends.postgresql", "HOST": "127.0.0.1", "NAME": "reports"}
    connections.settings[ALIAS] = {
        **connections.settings["default"],
        **dead,
        "PORT": str(free_port()),
        "ATOMIC_REQUESTS": True,
    }
    yield Client()
    handlers.reset()
    connections[ALIAS].close()
    del connections[ALIAS]
    del connections.settings[ALIAS]


@pytest.mark.django_db
def test_our_views_begin_no_transaction(client: Client) -> None:
    """Each answers, whatever has become of a database that it has nothing to do with."""
    assert {url: client.get(url).status_code for url in ANSWERS} == ANSWERS


def test_others_begin_theirs(client: Client, django_db_blocker: Any) -> None:
    """A view of the project fails with it, as the project asked for."""
    with django_db_blocker.unblock(), pytest.raises(OperationalError):
        client.get("/project")
