"""Metrics switched on: once in a process, and from then on in all its children."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from ... import signals
from ...core.clock import SYSTEM_CLOCK
from ...core.generator import Generator, is_prefork
from ...process import handlers, lifecycle
from ...settings.config import MetricsSettings
from .collectors import ProcessCollector, SharedCollector
from .process import EVENTS, ProcessMetrics, is_multiprocess

from prometheus_client import REGISTRY  # isort: skip

__all__ = ["Switched", "start"]

logger = logging.getLogger("django_idgen")

SHARE: Final = 50
"""A pause is so many times as long as the look before it: looks take 2 % of the time at most."""


class Updater:
    """A daemon thread that calls ``look`` every ``every`` seconds. Thread-safe.

    It is started by :meth:`ensure`, in each process that does something; what is in its
    way is logged, and it goes on.
    """

    def __init__(self, look: Callable[[], None], every: float) -> None:
        self._look = look
        self._every = every
        self.forget()

    def forget(self) -> None:
        """In the child of a fork: the thread is the parent's."""
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    def ensure(self) -> None:
        """Have the thread run; nothing is done where it does."""
        if self._pid != os.getpid():
            self.forget()
        if self._thread is not None or self._stop.is_set() or is_prefork():
            return
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(
                    target=self._run, args=(self._stop,), name="idgen-metrics", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError:  # the process is about to end
                    return
                self._thread = thread

    def stop(self) -> None:
        """Let it end; for good, in this process."""
        self._stop.set()

    def _run(self, stop: threading.Event) -> None:
        pause = self._every
        while not stop.wait(pause):
            began = SYSTEM_CLOCK.stopwatch()
            try:
                self._look()
            except Exception:
                logger.exception("The metrics of this process could not be brought up to date.")
            pause = max(self._every, SHARE * (SYSTEM_CLOCK.stopwatch() - began))


class Switched:
    """What was switched on in this process."""

    def __init__(self, settings: MetricsSettings) -> None:
        self.settings = settings
        self.process = ProcessMetrics(most_tags=settings.tags)
        self.updater = Updater(self.process.look, settings.every)
        self.shared = SharedCollector(settings)

    def connect(self) -> None:
        """Listen to signals, forks and the end of the process."""
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

    def _on_goodbye(self, kind: str, name: str, generator: Generator) -> None:
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

    ``settings``: those of ``IDGEN["METRICS"]`` by default; they count for good.
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
