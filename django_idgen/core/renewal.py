"""The daemon thread that renews a lease while its owner lives."""

from __future__ import annotations

import threading
import weakref
from typing import Protocol

__all__ = ["Renewable", "RenewalThread"]


class Renewable(Protocol):
    """What the thread calls, again and again."""

    def renew_in_background(self) -> float:
        """One turn; returns the seconds until the next. Never raises."""
        ...


class RenewalThread:
    """Calls ``owner.renew_in_background()`` every so often, first after ``pause`` seconds.

    The owner is held by a weak reference only: one that its user dropped must not
    live on here. Not thread-safe: the owner starts and stops it under its lock.
    """

    __slots__ = ("_stop", "_thread")

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self, owner: Renewable, *, pause: float, name: str) -> None:
        """Start it, unless it runs. Where no thread can be started nothing happens."""
        if self.is_alive():
            return
        # An event of its own: a thread that was told to stop stays told.
        self._stop = threading.Event()
        thread = threading.Thread(
            target=_loop, args=(weakref.ref(owner), self._stop, pause), name=name, daemon=True
        )
        try:
            thread.start()
        except RuntimeError:
            return  # the interpreter is ending, or the system is out of threads
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
