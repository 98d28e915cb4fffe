"""The site's view that takes ids, and the metrics."""

from __future__ import annotations

import os
import signal

from django.http import HttpRequest, HttpResponse
from django.urls import path
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

import django_idgen.ops.metrics
from tests.faults.site.urls import urlpatterns as site_urls


def files(request: HttpRequest) -> HttpResponse:
    """What the library's own collector makes of the files, as django-prometheus' view does."""
    registry = CollectorRegistry()
    MultiProcessCollector(registry)
    return HttpResponse(generate_latest(registry))


def die(request: HttpRequest) -> HttpResponse:
    """The worker that answers is killed."""
    os.kill(os.getpid(), signal.SIGKILL)
    return HttpResponse()


urlpatterns = [
    *site_urls,
    path("metrics", django_idgen.ops.metrics.view),
    path("files", files),
    path("die", die),
]
