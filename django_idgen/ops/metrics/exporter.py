"""Switching the metrics on, once in a process and its children; and the view that serves them."""

from __future__ import annotations

import re
import secrets
import sys
import threading
from functools import partial
from importlib import import_module
from typing import Any

from django.core.signals import request_finished
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_safe

from ... import signals
from ...db.transactions import never_atomic
from ...process import lifecycle, maps
from ...settings.config import MetricsSettings
from .collectors import ProcessCollector, SharedCollector
from .process import EVENTS, Figures, is_multiprocess

# After our modules, which explain what to do if it is missing.
from prometheus_client import REGISTRY, CollectorRegistry  # isort: skip
from prometheus_client.exposition import choose_encoder  # isort: skip


VERSION = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){0,2} *(?=[;,]|\Z)", re.ASCII)


class Exporter:
    """The metrics of this process, and what all processes share. Thread-safe."""

    def __init__(self, settings: MetricsSettings) -> None:
        self.settings = settings
        self.figures = Figures(settings)
        self.shared = SharedCollector(settings)

    def connect(self) -> None:
        """Listen to what says that there is something new to count."""
        for event in EVENTS:
            signals.connect_quick(event, partial(self.figures.on_event, event))
        request_finished.connect(self.figures.look_if_due, weak=False)
        if sys.modules.get("celery") is not None:
            celery: Any = import_module("celery.signals")
            celery.task_postrun.connect(self.figures.look_if_due, weak=False)
        maps.on_removed.append(self.figures.on_removed)
        lifecycle.register(forget=self.figures.forget, before_fork=_before_fork)
        lifecycle.watch()
        if not is_multiprocess():
            REGISTRY.register(ProcessCollector(self.figures))
            if self.settings.shared:
                REGISTRY.register(self.shared)


def _before_fork() -> None:
    for each in _started:
        each.figures.before_fork()


_started: list[Exporter] = []
_lock = threading.Lock()


def start(settings: MetricsSettings | None = None) -> Exporter:
    """Switch the metrics on, if they are off. Thread-safe.

    ``settings`` default to ``IDGEN["METRICS"]``; those of the first call count.
    """
    if not _started:
        with _lock:
            if not _started:
                chosen = settings or maps.current_settings().metrics or MetricsSettings()
                made = Exporter(chosen)
                made.connect()
                _started.append(made)
    return _started[0]


@csrf_exempt
@require_safe
@never_cache
@never_atomic
def view(request: HttpRequest) -> HttpResponse:
    """All our figures, of this process or of all, in the requested format.

    For clients with the token of ``IDGEN["METRICS"]``, and for staff that is logged in.
    Others get 401, or 403 if they are logged in.
    """
    exporter = start()
    refusal = _refusal(request, exporter.settings.token)
    if refusal is not None:
        return refusal
    content, content_type = exposition(exporter, request.headers.get("Accept", ""))
    return HttpResponse(content, content_type=content_type)


def exposition(exporter: Exporter, accept: str = "") -> tuple[bytes, str]:
    """The figures as bytes, and their content type."""
    registry = CollectorRegistry()
    registry.register(ProcessCollector(exporter.figures, files=is_multiprocess()))
    if exporter.settings.shared:
        registry.register(exporter.shared)
    # The library fails on an invalid version, and echoes what follows a valid one.
    versions = accept.split("version=")[1:]
    encode, content_type = choose_encoder(accept if all(map(VERSION.match, versions)) else "")
    return encode(registry), content_type


@sensitive_variables("token", "sent")
def _refusal(request: HttpRequest, token: str | None) -> HttpResponse | None:
    scheme, _, sent = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        # Needs no database, so it works while that hangs.
        if token is not None and secrets.compare_digest(_bytes(sent.strip()), _bytes(token)):
            return None
        return _refused(401, "This is not the token of IDGEN['METRICS'].")
    user: Any = getattr(request, "user", None)
    try:
        bool(getattr(user, "is_staff", False))  # lazy, and the database may not answer
    except DatabaseError:
        user = None
    if getattr(user, "is_staff", False) and getattr(user, "is_active", False):
        return None
    if getattr(user, "is_authenticated", False):
        return _refused(403, "Only staff may see the metrics.")
    return _refused(
        401, "Send the token of IDGEN['METRICS'] as a bearer token, or log in to the admin."
    )


def _refused(status: int, text: str) -> HttpResponse:
    response = HttpResponse(text + "\n", status=status, content_type="text/plain; charset=utf-8")
    if status == 401:
        response["WWW-Authenticate"] = 'Bearer realm="metrics"'
    return response


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
