"""What happened, told to all listeners, and never from under a lock."""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import Protocol

__all__ = ["Emit", "Outbox", "ignore"]

logger = logging.getLogger("django_idgen")


class Emit(Protocol):
    """A listener: called with the name of the event and its values."""

    def __call__(self, name: str, /, **values: object) -> None: ...


def ignore(name: str, /, **values: object) -> None:
    """The listener of those who don't listen."""


class Outbox:
    """Keeps events while a lock is held, and sends them once it is not.

    A listener may itself ask for an id; sent from under the generator's lock,
    that would wait for ever. Thread-safe.
    """

    __slots__ = ("_events", "_senders", "_sink")

    def __init__(self, sink: Emit) -> None:
        self._sink = sink
        self.clear()

    def put(self, name: str, /, **values: object) -> None:
        """Keep an event until the next :meth:`send`."""
        self._events.append((name, values))

    def send(self) -> None:
        """Send what was put, in its order. Never raises: a listener's fault is logged.

        What a listener causes by asking for ids is sent by the next call, so that
        one which always causes more neither recurses nor keeps its caller.
        """
        if not self._events:
            return
        me = threading.get_ident()
        if me in self._senders:
            return
        self._senders.add(me)
        try:
            for _ in range(len(self._events)):
                self._send_one()
        finally:
            self._senders.discard(me)

    def _send_one(self) -> None:
        try:
            name, values = self._events.popleft()
        except IndexError:  # another thread was quicker
            return
        try:
            self._sink(name, **values)
        except Exception:
            logger.exception("A listener to the event %r failed.", name)

    def clear(self) -> None:
        """Drop what was put, as the child of a fork must: its parent sends it."""
        self._events: deque[tuple[str, dict[str, object]]] = deque()
        self._senders: set[int] = set()
