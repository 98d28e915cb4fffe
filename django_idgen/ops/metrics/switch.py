"""Metrics switched on: once in a process, and from then on in all its children."""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import Any

from ... import signals
from ...process import handlers, lifecycle
from ...settings.metrics import MetricsSettings
from .library import is_multiprocess
from .process import EVENTS, ProcessMetrics
from .registered import ProcessCollector, SharedCollector
from .updating import Updater

from prometheus_client import REGISTRY  # isort: skip

__all__ = ["Switched", "start"]

logger = logging.getLogger("django_idgen")


class Switched:
    """What was switched on in this process."""

    def __init__(self, settings: MetricsSettings) -> None:
        self.settings = settings
        self.process = ProcessMetrics(most_tags=settings.tags)
        self.updater = Updater(self.process.look, settings.every)
        self.shared = SharedCollector(settings)

    def connect(self) -> None:
        """Listen, and be told of forks and of the end."""
        for event in EVENTS:
            signals.connect_quick(event, partial(self._on_event, event))
        handlers.on_goodbye.append(self._on_goodbye)
        lifecycle.register(close=self.updater.stop, forget=self._forget)
        lifecycle.watch()
        if not is_multiprocess():
            REGISTRY.register(ProcessCollector(self.process))
            if self.settings.shared:
                REGISTRY.register(self.shared)

    def _on_event(self, event: str, /, **values: Any) -> None:
        self.process.happened(event, values)
        if is_multiprocess():
            self.updater.ensure()

    def _on_goodbye(self, kind: str, name: str, generator: object) -> None:
        try:
            self.process.say_goodbye(kind, name, generator)
        except Exception:
            # It is a process' end, as a rule: ids go back whatever becomes of its figures.
            logger.exception("What %s %r did last could not be counted.", kind, name)

    def _forget(self) -> None:
        self.process.forget()
        self.updater.forget()
        self.shared.forget()


_switched: list[Switched] = []
_lock = threading.Lock()


def start(settings: MetricsSettings | None = None) -> Switched:
    """Switch the metrics on, if they are not yet. Thread-safe.

    ``settings`` are those of ``IDGEN["METRICS"]`` unless given; they count for good.
    """
    for switched in _switched:
        return switched
    with _lock:
        if not _switched:
            chosen = settings or handlers.current_settings().metrics or MetricsSettings()
            made = Switched(chosen)
            made.connect()
            _switched.append(made)
    return _switched[0]
