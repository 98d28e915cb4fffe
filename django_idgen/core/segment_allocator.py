"""The generators of all tags of a segment source, and what they share."""

from __future__ import annotations

import logging
import math
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final
from weakref import WeakValueDictionary

from .clock import SYSTEM_CLOCK, Clock
from .errors import ConfigurationError
from .events import Emit, ignore
from .generator import HAS_GIL, Watch
from .loader import Loader, PerProcess
from .segment_generator import Growth, Load, LockedSegmentGenerator, SegmentGenerator
from .source import Source

_GENERATOR = SegmentGenerator if HAS_GIL else LockedSegmentGenerator


class Segments(dict[str, SegmentGenerator]):
    """The generators by tag, each made once, on first use. Safe to share between threads.

    ``segments[tag]`` is one dictionary look-up for a known tag. It raises :class:`InvalidTag`.

    A tag never has two generators that can give ids. A dropped generator that a caller kept
    is found again. The floor of a generator that is gone stays known. So the ids of a tag keep
    rising.
    """

    def __init__(self, services: SegmentAllocator) -> None:
        super().__init__()
        self._services = services
        self._dropped: WeakValueDictionary[str, SegmentGenerator] = WeakValueDictionary()
        self._floors: dict[str, int] = {}
        self._in_turn: deque[SegmentGenerator] = deque()
        """All generators, in the order in which the allocator looked at them."""
        self._renew_lock()

    def _renew_lock(self) -> None:
        # Re-entrant: an object that is garbage-collected meanwhile may ask for an id.
        self._lock = threading.RLock()

    def __missing__(self, tag: str) -> SegmentGenerator:
        self._services.check_process()  # or no thread is left to release the lock
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
        generator.is_dropped = False
        generator.looked_at = self._services.clock.stopwatch()
        self[generator.tag] = generator
        self._in_turn.append(generator)
        return generator

    def adopt(self, generator: SegmentGenerator) -> None:
        """Take back a dropped generator that a caller still uses."""
        with self._lock:
            if generator.is_dropped and generator.tag not in self:
                self._add(generator)

    def has_unseen(self, since: float) -> bool:
        """Whether some generator was not looked at after ``since``."""
        try:
            return self._in_turn[0].looked_at <= since
        except IndexError:
            return False

    def look(self, since: float, now: float) -> tuple[SegmentGenerator, list[range] | None] | None:
        """Look at the next generator, and drop it if it was not used since the last look.

        Returns it, with the ids that it held if it was dropped. ``None``: all were looked at.
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
            del self[tag]  # last: a fork in between finds it twice, but never loses it

    def forget(self) -> None:
        """Start over in the child of a fork."""
        self._renew_lock()
        self._in_turn = deque(self.values())
        for generator in self.known():
            generator.forget()

    def known(self) -> list[SegmentGenerator]:
        """All generators that may give ids, also those that were dropped and are kept."""
        return [*self.values(), *self._dropped.values()]


logger = logging.getLogger("django_idgen")

IDLE_AFTER: Final = 900.0
"""Seconds without use after which a tag gives its ids back."""
LEAVE_WITHIN: Final = 2.0
"""Most seconds that closing spends on giving back. Ids that are left then are a gap."""
LOOKS: Final = 64
"""Tags to look at between two loads: at most a hundredth of a second."""


class SegmentAllocator(PerProcess):
    """Gives out the ids of all tags of one source. Safe to share between threads.

    ``timeout``: seconds that a caller with nothing left waits for a load.
    ``first_timeout``: the same for the first load of a tag, while the source has not
    failed; ``None``: ``timeout``.
    ``preload_at``: the part of a segment, above 0 and below 1, after which the next one
    is loaded, if the loader has its own thread; else it is loaded when the
    segment is used up. ``growth``: how segments follow the consumption.
    ``idle_after``: seconds after which an unused tag gives its ids back and is
    dropped from ``segments`` (by the next load of any tag, or by :meth:`sweep`).
    ``on_drop`` is then called with the tag and its generator. ``watch_of``: what looks at the
    tables whose rows get the ids of a generator.

    ``on_event`` is called with ``segment_loaded`` (tag, segment, seconds),
    ``segment_load_failed`` (tag, error), ``segment_paused`` (tag), ``segment_waited`` (tag,
    seconds) and ``segment_given_back`` (tag, ids). It runs in the thread of the event, without
    a lock, and must not raise.

    Raises :class:`ConfigurationError`.
    """

    def __init__(
        self,
        source: Source,
        loader: Loader,
        *,
        timeout: float = 0.5,
        first_timeout: float | None = None,
        preload_at: float = 0.10,
        growth: Growth | None = None,
        idle_after: float = IDLE_AFTER,
        clock: Clock = SYSTEM_CLOCK,
        on_event: Emit = ignore,
        on_drop: Callable[[str, SegmentGenerator], None] | None = None,
        watch_of: Callable[[SegmentGenerator], Watch | None] = lambda _generator: None,
    ) -> None:
        first_timeout = timeout if first_timeout is None else first_timeout
        for name, seconds in (
            ("A timeout", timeout),
            ("first_timeout", first_timeout),
            ("idle_after", idle_after),
        ):
            if not 0 < seconds < math.inf:
                raise ConfigurationError(f"{name} must be a number of seconds, not {seconds!r}.")
        if not 0 < preload_at < 1:
            raise ConfigurationError(f"preload_at must be between 0 and 1, not {preload_at!r}.")
        self.source = source
        self.loader = loader
        self.timeout = timeout
        self.first_timeout = first_timeout
        self.preload_at = preload_at
        self.growth = growth or Growth()
        self.idle_after = idle_after
        self.clock = clock
        self.on_event = on_event
        self.on_drop = on_drop
        self.watch_of = watch_of
        self.closed = False
        self.opened: dict[SegmentGenerator, Iterator[int]] = {}
        """Where the generators lay what their ``next_id`` is to walk next."""
        self.segments = Segments(self)
        self._leave_by = math.inf
        self._start_over()

    def _start_over(self) -> None:
        self.troubled = False
        self._sweep_again_at = -math.inf
        self._pid = os.getpid()

    def generator(self, tag: str) -> SegmentGenerator:
        """The generator of ``tag``, the same one while it is used or kept.

        Raises :class:`InvalidTag`.
        """
        return self.segments[tag]

    def preload(self, tags: Iterable[str], timeout: float = 0.0) -> bool:
        """Load ahead for all ``tags`` at once. Returns whether everything is loaded.

        See :meth:`.SegmentGenerator.preload`.
        """
        deadline = self.clock.stopwatch() + timeout
        chosen = [self.generator(tag) for tag in tags]
        ready = [generator.preload() for generator in chosen]
        if all(ready) or not timeout:
            return all(ready)
        return all(
            generator.preload(max(deadline - self.clock.stopwatch(), 0.001)) for generator in chosen
        )

    def preload_mark(self, length: int) -> int:
        """How many of a segment's ``length`` ids to give before the next load starts."""
        return max(1, int(length * self.preload_at)) if self.loader.background else length

    # --- idle tags -----------------------------------------------------------------

    def granted(self, generator: SegmentGenerator) -> None:
        """After each load: look for idle tags."""
        if generator.is_dropped:
            self.segments.adopt(generator)
        now = self.clock.stopwatch()
        if self.segments.has_unseen(now - self.idle_after) and now >= self._sweep_again_at:
            self._sweep_again_at = now + 1.0
            if self.loader.background:
                self.loader.submit(self._sweep_on)
            else:
                self.sweep(LOOKS)

    def _sweep_on(self) -> None:
        # A few at a time, so that loads in the queue don't wait for all.
        if self.sweep(LOOKS):
            self._sweep_again_at = self.clock.stopwatch() + 1.0
            self.loader.submit(self._sweep_on)

    def sweep(self, most: int = sys.maxsize) -> bool:
        """Look at up to ``most`` tags and drop the idle ones; whether there are more to look at."""
        now = self.clock.stopwatch()
        since = now - self.idle_after
        for _ in range(most):
            looked = self.segments.look(since, now)
            if looked is None:
                return False
            generator, tail = looked
            if tail is None:
                continue
            if self.on_drop is not None:
                self.on_drop(generator.tag, generator)
            self.give_back(generator.tag, tail)
        return self.segments.has_unseen(since)

    def give_back(self, tag: str, ranges: Sequence[range]) -> None:
        """Give unused ids back to the source. Never raises."""
        if not ranges or self.clock.stopwatch() > self._leave_by:
            return
        try:
            self.source.give_back(tag, ranges)
        except Exception:
            logger.exception(
                "Ids of tag %r could not be given back. They are never given out.", tag
            )
            return
        self.on_event("segment_given_back", tag=tag, ids=sum(map(len, ranges)))

    # --- forks and the end -----------------------------------------------------------

    def forget(self) -> None:
        """Drop what the child of a fork inherited, including the source's connections.

        Called in the child, before other threads use the allocator. The loader forgets by itself.
        """
        self.segments.forget()
        self.source.abandon()
        self._start_over()

    def close(self) -> None:
        """Close all generators and the source, giving back what is left. May be called twice.

        Takes :data:`LEAVE_WITHIN` seconds at most, plus the rest of the source's call under way.
        """
        self.check_process()
        self.closed = True
        self._leave_by = min(self._leave_by, self.clock.stopwatch() + LEAVE_WITHIN)
        busy = [generator.leave() for generator in self.segments.known()]
        if self.loader.background:
            self._await_answers([load for load in busy if load is not None])
        self.source.close()

    def _await_answers(self, loads: Iterable[Load]) -> None:
        """Wait for the loads under way: their ids go back, too."""
        for load in loads:
            load.answered.wait(max(self._leave_by - self.clock.stopwatch(), 0.0))
