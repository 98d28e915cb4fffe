"""The daemon thread that renews a lease while its owner lives."""

from __future__ import annotations

import threading
import weakref
from functools import partial
from typing import Protocol

from .threads import BackgroundThread

__all__ = ["Renewable", "RenewalThread"]


class Renewable(Protocol):
    """What the thread calls, again and again."""

    def renew_in_background(self) -> float:
        """One turn; returns the seconds until the next. Never raises."""
        ...


class RenewalThread:
    """Calls ``owner.renew_in_background()`` every so often, first after ``pause`` seconds.

    The owner is held by a weak reference only: one that its user dropped must not
    live on here. A fork ends the thread; the owner starts it again at its next use.
    Not thread-safe: the owner starts and stops it under its lock.
    """

    __slots__ = ("_stop", "_thread")

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread: BackgroundThread | None = None

    def is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self, owner: Renewable, *, pause: float, name: str) -> None:
        """Start it, unless it runs. Where no thread can be started nothing happens."""
        if self.is_alive():
            return
        # An event of its own: a thread that was told to stop stays told.
        self._stop = threading.Event()
        turns = partial(_loop, weakref.ref(owner), self._stop, pause)
        thread = BackgroundThread(name, turns, before_fork=self._stop.set)
        if thread.start_if_possible():
            self._thread = thread

    def stop(self) -> None:
        """Tell it to stop, without waiting. May be called twice, and before the start."""
        self._stop.set()
        self._thread = None


def _loop(reference: weakref.ref[Renewable], stop: threading.Event, pause: float) -> None:
    while not stop.wait(pause):
        owner = reference()
        if owner is None:
            return
        pause = owner.renew_in_background()
        del owner
