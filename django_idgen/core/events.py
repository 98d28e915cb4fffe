"""Events of generators and sources, and those who listen to them."""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import Protocol

logger = logging.getLogger("django_idgen")


class Emit(Protocol):
    """A listener: called with the name of the event and its values."""

    def __call__(self, name: str, /, **values: object) -> None: ...


def ignore(name: str, /, **values: object) -> None:
    """A listener that does nothing."""


class Outbox:
    """Keeps events while a lock is held, and sends them after its release.

    A listener may itself ask for an id, which would wait forever under the generator's lock.
    Thread-safe.
    """

    __slots__ = ("_events", "_senders", "_sink")

    def __init__(self, sink: Emit) -> None:
        self._sink = sink
        self.clear()

    def put(self, name: str, /, **values: object) -> None:
        """Keep an event until the next :meth:`send`."""
        self._events.append((name, values))

    def send(self) -> None:
        """Send the events in their order. Never raises: it logs the error of a listener.

        A listener that asks for ids may cause more events. The next call sends those, so that
        such a listener neither recurses nor keeps its caller.
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
        except IndexError:  # another thread has sent it
            return
        try:
            self._sink(name, **values)
        except Exception:
            logger.exception("A listener to the event %r failed.", name)

    def clear(self) -> None:
        """In the child of a fork: drop the events, which its parent sends."""
        self._events: deque[tuple[str, dict[str, object]]] = deque()
        self._senders: set[int] = set()
