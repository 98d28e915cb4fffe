"""One generator for each tag of a segment source, and what these share."""

from __future__ import annotations

import math
import os
import sys

from .clock import SYSTEM_CLOCK, Clock
from .errors import ConfigurationError
from .events import Emit, ignore
from .loader import AnyLoader, process_lock
from .segment import SegmentSource
from .segment_generator import LockedSegmentGenerator, SegmentGenerator
from .segment_loads import Services

__all__ = ["SegmentAllocator", "Segments"]

_HAS_GIL: bool = getattr(sys, "_is_gil_enabled", lambda: True)()
_GENERATOR = SegmentGenerator if _HAS_GIL else LockedSegmentGenerator


class Segments(dict[str, SegmentGenerator]):
    """The generators by tag, each made once, on first use. Safe to share between threads.

    ``segments[tag]`` of a tag known already is a dictionary look-up. For a new one
    that can't be a tag it raises :class:`~.errors.InvalidTag`.
    """

    def __init__(self, services: Services) -> None:
        super().__init__()
        self._services = services

    def __missing__(self, tag: str) -> SegmentGenerator:
        made = _GENERATOR(tag, self._services)
        return self.setdefault(made.tag, made)  # atomic: of many threads all get the first one's


class SegmentAllocator:
    """Gives out the ids of all tags of one source. Safe to share between threads.

    ``timeout``: seconds that a caller with nothing left waits for a load.
    ``preload_at``: the part of a segment, above 0 and below 1, after which the next one
    is loaded, if the loader has a thread of its own; else it is loaded when the
    segment is used up. ``on_event`` hears ``segment_loaded`` (tag, segment, seconds),
    ``segment_load_failed`` (tag, error) and ``segment_waited`` (tag, seconds); it runs
    in the thread that they happen in, without a lock held, and must not raise.

    Raises :class:`~.errors.ConfigurationError`.
    """

    def __init__(
        self,
        source: SegmentSource,
        loader: AnyLoader,
        *,
        timeout: float = 0.5,
        preload_at: float = 0.10,
        clock: Clock = SYSTEM_CLOCK,
        on_event: Emit = ignore,
    ) -> None:
        if not 0 < timeout < math.inf:
            raise ConfigurationError(f"A timeout must be a number of seconds, not {timeout!r}.")
        if not 0 < preload_at < 1:
            raise ConfigurationError(f"preload_at must lie between 0 and 1, not be {preload_at!r}.")
        self.source = source
        self.loader = loader
        self.timeout = timeout
        self.preload_at = preload_at
        self.clock = clock
        self.on_event = on_event
        self.closed = False
        self.segments = Segments(self)
        self._pid = os.getpid()

    def generator(self, tag: str) -> SegmentGenerator:
        """The generator of ``tag``; always the same one. Raises :class:`~.errors.InvalidTag`."""
        return self.segments[tag]

    def preload_mark(self, length: int) -> int:
        """How many of a segment's ``length`` ids are given before the next load starts."""
        return max(1, int(length * self.preload_at)) if self.loader.background else length

    def check_process(self) -> None:
        """Forget all if this process is a fork's child, whose hooks did not run (uWSGI)."""
        if self._pid != os.getpid():
            with process_lock():
                if self._pid != os.getpid():
                    self.forget()

    def forget(self) -> None:
        """Drop what the child of a fork inherited; the source's connections, too.

        Called in the child, before other threads use the allocator. The loader looks
        after itself.
        """
        for generator in list(self.segments.values()):
            generator.forget()
        self.source.abandon()
        self._pid = os.getpid()  # last: whoever reads it finds the rest done

    def close(self) -> None:
        """Close all generators and the source. May be called twice."""
        self.check_process()
        self.closed = True
        for generator in list(self.segments.values()):
            generator.close()
        self.source.close()
