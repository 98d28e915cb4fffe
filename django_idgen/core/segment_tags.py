"""The generators of a source by tag: made on first use, dropped when nobody uses them."""

from __future__ import annotations

import sys
import threading
from collections import deque
from weakref import WeakValueDictionary

from .segment_generator import LockedSegmentGenerator, SegmentGenerator
from .segment_loads import Services

__all__ = ["Segments"]

_HAS_GIL: bool = getattr(sys, "_is_gil_enabled", lambda: True)()
_GENERATOR = SegmentGenerator if _HAS_GIL else LockedSegmentGenerator


class Segments(dict[str, SegmentGenerator]):
    """The generators by tag, each made once, on first use. Safe to share between threads.

    ``segments[tag]`` of a tag known already is a dictionary look-up. For a new one
    that can't be a tag it raises :class:`InvalidTag`.

    There is never more than one generator of a tag that can give ids: one that was
    dropped and is still held by somebody is found again, and of one that is gone the
    floor stays known. So the ids of a tag go on rising.
    """

    def __init__(self, services: Services) -> None:
        super().__init__()
        self._services = services
        self._dropped: WeakValueDictionary[str, SegmentGenerator] = WeakValueDictionary()
        self._floors: dict[str, int] = {}
        self._in_turn: deque[SegmentGenerator] = deque()
        """All of them, the one first that was looked at the longest ago."""
        self._renew_lock()

    def _renew_lock(self) -> None:
        # Re-entrant: what is collected while it is held may ask for an id, too.
        self._lock = threading.RLock()

    def __missing__(self, tag: str) -> SegmentGenerator:
        self._services.check_process()  # or the lock may be one that no one will release
        with self._lock:
            found = self.get(tag)
            return self._add(self._known_or_new(tag)) if found is None else found

    def _known_or_new(self, tag: str) -> SegmentGenerator:
        known = self._dropped.get(tag)
        if known is None:
            return _GENERATOR(tag, self._services, self._floors.pop(tag, 0))
        if known.closed:
            return _GENERATOR(tag, self._services, known.lowest)
        return known

    def _add(self, generator: SegmentGenerator) -> SegmentGenerator:
        generator.has_left = False
        generator.looked_at = self._services.clock.stopwatch()
        self[generator.tag] = generator
        self._in_turn.append(generator)
        return generator

    def adopt(self, generator: SegmentGenerator) -> None:
        """Take one back that was dropped, and that somebody went on using."""
        with self._lock:
            if generator.has_left and generator.tag not in self:
                self._add(generator)

    def has_unseen(self, since: float) -> bool:
        """Whether one of them was not looked at since then."""
        try:
            return self._in_turn[0].looked_at <= since
        except IndexError:
            return False

    def look(self, since: float, now: float) -> tuple[SegmentGenerator, list[range] | None] | None:
        """Look at the next one, and drop it if it was not used since the last look.

        It comes with what it still held if it was dropped. ``None``: all were looked at.
        """
        with self._lock:
            if not self.has_unseen(since):
                return None
            generator = self._in_turn.popleft()
            tail = generator.tail_if_idle()
            if tail is None:
                generator.looked_at = now
                self._in_turn.append(generator)
            else:
                self._drop(generator)
            return generator, tail

    def _drop(self, generator: SegmentGenerator) -> None:
        tag = generator.tag
        self._dropped[tag] = generator
        if generator.lowest:
            self._floors[tag] = generator.lowest
        if self.get(tag) is generator:
            del self[tag]  # last: a fork in between finds it twice, and never not at all

    def forget(self) -> None:
        """In the child of a fork: all start over."""
        self._renew_lock()
        self._in_turn = deque(self.values())
        for generator in (*self.values(), *self._dropped.values()):
            generator.forget()
