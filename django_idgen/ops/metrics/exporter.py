"""Switching the metrics on, once in a process and its children; and the view that serves them."""

from __future__ import annotations

import logging
import os
import re
import secrets
import threading
from contextlib import suppress
from functools import partial
from typing import Any, Final

from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_safe

from ... import signals
from ...core.clock import SYSTEM_CLOCK
from ...core.generator import Generator
from ...core.loader import PerProcess, is_prefork
from ...db.transactions import never_atomic
from ...process import lifecycle, maps
from ...settings.config import MetricsSettings
from .collectors import ProcessCollector, SharedCollector
from .process import EVENTS, ProcessMetrics, is_multiprocess

# After our modules, which explain what to do if it is missing.
from prometheus_client import REGISTRY, CollectorRegistry  # isort: skip
from prometheus_client.exposition import choose_encoder  # isort: skip


logger = logging.getLogger("django_idgen")

SHARE: Final = 50
"""A pause is so many times as long as the update before it, which so takes 2 % of the time."""
VERSION = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){0,2} *(?=[;,]|\Z)", re.ASCII)


class Exporter(PerProcess):
    """The metrics of this process. Thread-safe."""

    def __init__(self, settings: MetricsSettings) -> None:
        self.settings = settings
        self.process = ProcessMetrics(most_tags=settings.tags)
        self.shared = SharedCollector(settings)
        self._start_over()

    def _start_over(self) -> None:
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    def connect(self) -> None:
        """Listen to signals, forks and the end of the process."""
        for event in EVENTS:
            signals.connect_quick(event, partial(self._on_event, event))
        maps.on_removed.append(self._on_removed)
        lifecycle.register(close=lambda: self._stop.set(), forget=self.forget)
        lifecycle.watch()
        if not is_multiprocess():
            REGISTRY.register(ProcessCollector(self.process))
            if self.settings.shared:
                REGISTRY.register(self.shared)

    def _on_event(self, event: str, /, **values: Any) -> None:
        self.check_process()
        self.process.happened(event, values)
        if is_multiprocess():
            self._keep_updating()

    def _keep_updating(self) -> None:
        """Start the thread that updates the files of this process, if it does not run."""
        if self._thread is not None or is_prefork():
            return
        with self._lock, suppress(RuntimeError):  # raised by a process that is ending
            if self._thread is None:
                thread = threading.Thread(
                    target=self._update, args=(self._stop,), name="idgen-metrics", daemon=True
                )
                thread.start()
                self._thread = thread

    def _update(self, stop: threading.Event) -> None:
        pause = self.settings.every
        while not stop.wait(pause):
            began = SYSTEM_CLOCK.stopwatch()
            try:
                self.process.look()
            except Exception:
                logger.exception("The metrics of this process could not be updated.")
            pause = max(self.settings.every, SHARE * (SYSTEM_CLOCK.stopwatch() - began))

    def _on_removed(self, kind: str, name: str, generator: Generator) -> None:
        try:
            self.process.count_removed(kind, name, generator)
        except Exception:
            # The process is usually ending: its ids go back even if its figures are lost.
            logger.exception("The last figures of %s %r could not be counted.", kind, name)

    def forget(self) -> None:
        """In the child of a fork: drop the counts and the thread of the parent."""
        self.process.forget()
        self._start_over()


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
    registry.register(ProcessCollector(exporter.process, files=is_multiprocess()))
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
