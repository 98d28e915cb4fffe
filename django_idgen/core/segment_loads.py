"""The loads of one tag: never two at a time, and always another after a failure."""

from __future__ import annotations

import threading
from functools import partial
from typing import Final, Protocol

from .clock import Clock
from .errors import ConfigurationError, InvalidTag, SegmentExhausted, SegmentUnavailable
from .events import Emit
from .loader import AnyLoader
from .segment import Segment, SegmentSource, check_tag

__all__ = ["FINAL_ERRORS", "Load", "Services", "TagLoads"]

REFUSALS: Final = 3
"""Segments refused in a row before the load counts as failed."""
FIRST_BACKOFF: Final = 0.01
LONGEST_BACKOFF: Final = 0.25
STALE_AFTER: Final = 60.0
"""Seconds after which a load that never answered is given up, its answer included."""

FINAL_ERRORS: Final = (SegmentExhausted, InvalidTag, ConfigurationError)
"""What waiting doesn't mend: raised at once."""


class Services(Protocol):
    """What all tags of one source share: see :class:`.segment_allocator.SegmentAllocator`."""

    source: SegmentSource
    loader: AnyLoader
    clock: Clock
    on_event: Emit
    timeout: float
    closed: bool

    def check_process(self) -> None: ...

    def preload_mark(self, length: int) -> int: ...


class Load:
    """A fetch that was asked for. Whoever has nothing left waits for ``done``."""

    __slots__ = ("began", "done", "error")

    def __init__(self) -> None:
        self.began: float | None = None
        self.done = threading.Event()
        self.error: BaseException | None = None


class TagLoads:
    """Fetches segments of ``tag``, in order, each at or above the end of the last.

    The lock guards all state, and is never held during I/O. An answer counts only
    if its load is still the pending one: a late answer is a lost segment.
    """

    __slots__ = (
        "_backoff",
        "_error",
        "_failures",
        "_floor",
        "_loads",
        "_lock",
        "_next",
        "_pending",
        "_retry_at",
        "_services",
        "tag",
    )

    def __init__(self, tag: str, services: Services) -> None:
        # Exactly a str: a member of an enum would hold on to its class.
        self.tag = str.__str__(check_tag(tag))
        self._services = services
        self._floor = 0
        self._forget_loads()

    def _forget_loads(self) -> None:
        # Nothing inherited is touched: its locks may be held by no one for ever.
        self._lock = threading.Lock()
        self._next: Segment | None = None
        self._pending: Load | None = None
        self._loads = self._failures = 0
        self._backoff = self._retry_at = 0.0
        self._error: BaseException | None = None

    def _arm(self, now: float) -> Load | None:
        """The load under way, else a new one; none while backing off. With the lock held."""
        load = self._pending
        if load is not None and load.began is not None and now - load.began > STALE_AFTER:
            load = self._pending = None
        if load is None and self._next is None and now >= self._retry_at:
            load = self._pending = Load()
        return load

    def _submit(self, load: Load, *, urgent: bool) -> None:
        """Have ``load`` run, without the lock. Of several times only the first one counts."""
        future = self._services.loader.submit(partial(self._run, load), urgent=urgent)
        if future.done():
            error = future.exception()
            if error is not None and not isinstance(error, Exception):
                raise error  # an interrupt that hit this thread

    def _run(self, load: Load) -> None:
        stopwatch = self._services.clock.stopwatch
        try:
            with self._lock:
                if load.began is not None or load is not self._pending:
                    return
                load.began = began = stopwatch()
                floor = self._floor
            segment = self._fetch(floor)
        except BaseException as error:
            self._failed(load, error)
            if not isinstance(error, Exception):
                raise
        else:
            self._loaded(load, segment, stopwatch() - began)

    def _fetch(self, floor: int) -> Segment:
        for attempt in range(1, REFUSALS + 1):
            segment = self._services.source.fetch(self.tag, floor=floor)
            if segment.start >= floor and segment.tag == self.tag:
                break
            error = SegmentUnavailable(
                f"The source answered with [{segment.start}, {segment.stop}) of tag "
                f"{segment.tag!r}, but {floor} is the lowest that {self.tag!r} may still be "
                f"granted. It was refused, since its ids could repeat: look whether the source "
                f"was flushed or restored, and move its max_id past {floor}."
            )
            if attempt == REFUSALS:
                raise error
            self._report_failure(error)
        return segment

    def _loaded(self, load: Load, segment: Segment, seconds: float) -> None:
        with self._lock:
            pending = load is self._pending
            if pending:
                self._pending = None
                self._next = segment
                self._floor = max(self._floor, segment.stop)
                self._loads += 1
                self._backoff = self._retry_at = 0.0
                self._error = None
        load.done.set()
        if pending:
            self._services.on_event(
                "segment_loaded", tag=self.tag, segment=segment, seconds=seconds
            )

    def _failed(self, load: Load, error: BaseException) -> None:
        with self._lock:
            pending = load is self._pending
            if pending:
                self._pending = None
                self._error = load.error = error
                if not isinstance(error, FINAL_ERRORS):
                    self._back_off()
        load.done.set()
        if pending:
            self._report_failure(error)

    def _back_off(self) -> None:
        # At most half the timeout, so that each waiting caller sees an attempt.
        longest = min(LONGEST_BACKOFF, self._services.timeout / 2)
        self._backoff = min(self._backoff * 2 or FIRST_BACKOFF, longest)
        self._retry_at = self._services.clock.stopwatch() + self._backoff

    def _report_failure(self, error: BaseException) -> None:
        with self._lock:
            self._failures += 1
        self._services.on_event("segment_load_failed", tag=self.tag, error=error)
