"""Looks every few seconds, in a process that writes its figures to files."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Final

from ...core.clock import SYSTEM_CLOCK
from ...core.prefork import is_prefork

__all__ = ["Updater"]

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
