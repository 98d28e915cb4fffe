"""The loads of one tag: never two at a time, and always another after a failure."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, Protocol

from .chain import Chain
from .clock import Clock
from .counts import MAX_BATCH
from .errors import (
    ConfigurationError,
    InvalidTag,
    SegmentExhausted,
    SegmentRefused,
    SegmentUnavailable,
    TagPaused,
)
from .events import Emit
from .loader import AnyLoader
from .segment import Demand, Segment, check_tag
from .source import Source
from .step import Growth

__all__ = ["FINAL_ERRORS", "Load", "Services", "TagLoads"]

REFUSALS: Final = 3
"""Segments refused in a row before the load counts as failed."""
FIRST_BACKOFF: Final = 0.01
LONGEST_BACKOFF: Final = 0.25
REFUSED_BACKOFF: Final = 0.02
"""So that a tag that is refused to many keeps no source busy, and is soon seen to go on."""
STALE_AFTER: Final = 60.0
"""Seconds after which a load that never answered is given up, its answer included."""

REFUSED_ERRORS: Final = (TagPaused, SegmentRefused)
"""What somebody may change at any time, though waiting does not."""
FINAL_ERRORS: Final = (SegmentExhausted, InvalidTag, ConfigurationError, *REFUSED_ERRORS)
"""What waiting doesn't mend: raised at once."""


class Services(Protocol):
    """What all tags of one source share: see :class:`SegmentAllocator`."""

    source: Source
    loader: AnyLoader
    clock: Clock
    growth: Growth
    on_event: Emit
    timeout: float
    first_timeout: float
    troubled: bool
    """Whether the source last failed, or kept somebody waiting for too long: a mere hint."""
    closed: bool

    def check_process(self) -> None: ...

    def preload_mark(self, length: int) -> int: ...

    def granted(self, generator: Any) -> None:
        """Hear that ``generator`` was granted a segment. Not called under its lock."""
        ...

    def give_back(self, tag: str, ranges: Sequence[range]) -> None:
        """Hand ids to the source that will not be given out. Never raises."""
        ...


class Load:
    """A fetch that was asked for. Whoever has nothing left waits for ``done``."""

    __slots__ = (
        "_listeners",
        "answered",
        "at_least",
        "began",
        "done",
        "error",
        "given_back",
        "sent",
    )

    def __init__(self) -> None:
        self.at_least = 0
        """Ids that callers wait for."""
        self.began: float | None = None
        self.done = threading.Event()
        self.answered = threading.Event()
        """Once it has begun: whether its answer is put to use, or given back."""
        self.error: BaseException | None = None
        self.sent = False
        """Whether the loader has it."""
        self.given_back = False
        """Whether its answer, when it comes, goes back to the source."""
        self._listeners: set[Callable[[], object]] = set()

    def need(self, count: int) -> None:
        """One more caller waits, for ``count`` ids. With the tag's lock held."""
        self.at_least = min(self.at_least + count, MAX_BATCH)

    def listen(self, listener: Callable[[], object]) -> None:
        """Call ``listener`` when it is done; at once, if it is."""
        self._listeners.add(listener)
        if self.done.is_set():
            self._tell()

    def ignore(self, listener: Callable[[], object]) -> None:
        self._listeners.discard(listener)

    def finish(self) -> None:
        """Wake all that wait. May be called twice."""
        self.done.set()
        self._tell()

    def _tell(self) -> None:
        with suppress(KeyError):  # whoever takes a listener out is the one to call it
            while True:
                self._listeners.pop()()


class TagLoads:
    """Fetches segments of ``tag``, in order, each at or above the end of the last.

    The lock guards all state, and is never held during I/O. An answer counts only
    if its load is still the pending one: a late answer is a lost segment.
    """

    __slots__ = (
        "_backoff",
        "_chain",
        "_error",
        "_failures",
        "_floor",
        "_given_back",
        "_loaded_past",
        "_loads",
        "_lock",
        "_past_mark",
        "_pending",
        "_retry_at",
        "_services",
        "_step",
        "tag",
    )

    def __init__(self, tag: str, services: Services, floor: int = 0) -> None:
        # Exactly a str: a member of an enum would hold on to its class.
        self.tag = str.__str__(check_tag(tag))
        self._services = services
        self._floor = floor
        self._loaded_past = 0
        """The end of the ids that rows from elsewhere have."""
        self._forget_loads()

    def _forget_loads(self) -> None:
        # Nothing inherited is touched: its locks may be held by no one for ever.
        self._lock = threading.Lock()
        self._chain = Chain()
        self._past_mark = False
        self._pending: Load | None = None
        self._loads = self._failures = self._given_back = self._step = 0
        self._backoff = self._retry_at = 0.0
        self._error: BaseException | None = None

    # --- with the lock held ----------------------------------------------------

    @property
    def lowest(self) -> int:
        """The lowest id that it may still be granted."""
        return max(self._floor, self._loaded_past)

    def _demand(self, load: Load) -> Demand:
        demand = self._chain.demand(load.at_least, self._step, self._services.growth)
        granted = self._floor if self._floor < self._loaded_past else None
        return demand if granted is None else replace(demand, granted=granted)

    def _arm(self, now: float) -> Load | None:
        """The load under way, else a new one; none while backing off."""
        load = self._pending
        if load is not None and load.began is not None and now - load.began > STALE_AFTER:
            self._pending = None
            load.finish()  # whoever waits for it looks again
            load = None
        if load is None and now >= self._retry_at:
            load = self._pending = Load()
        return load

    def _arm_preload(self, now: float) -> Load | None:
        """A load, if more is to be ahead and there is a thread to see to it."""
        wanted = self._services.loader.background and self._is_short()
        return self._arm(now) if wanted else None

    def _is_short(self) -> bool:
        return self._chain.is_short(past_mark=self._past_mark)

    def _detach(self) -> Load | None:
        """Call the load under way off; what it brings goes back. Finish it without the lock."""
        load, self._pending = self._pending, None
        if load is not None:
            load.given_back = True
        return load

    # --- without it ------------------------------------------------------------

    def _submit(self, load: Load, *, urgent: bool) -> None:
        """Have ``load`` run. Of several times only the first one counts."""
        future = self._services.loader.submit(partial(self._run, load), urgent=urgent)
        load.sent = True
        if future.done():
            error = future.exception()
            if error is not None and not isinstance(error, Exception):
                raise error  # an interrupt that hit this thread

    def _run(self, load: Load) -> None:
        stopwatch = self._services.clock.stopwatch
        began: float | None = None
        try:
            with self._lock:
                if load.began is not None or load is not self._pending:
                    return
                load.began = began = stopwatch()
                floor, demand = self.lowest, self._demand(load)
            segment = self._fetch(floor, demand)
        except BaseException as error:
            self._failed(load, error)
            if not isinstance(error, Exception):
                raise
        else:
            self._loaded(load, segment, began)
        finally:
            if began is not None:
                load.answered.set()

    def _fetch(self, floor: int, demand: Demand) -> Segment:
        for attempt in range(1, REFUSALS + 1):
            segment = self._services.source.fetch(self.tag, floor=floor, demand=demand)
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

    def _loaded(self, load: Load, segment: Segment, began: float) -> None:
        now = self._services.clock.stopwatch()
        following = None
        with self._lock:
            pending = load is self._pending
            # Below the floor it may have been granted a second time since it was asked for.
            unwanted = not pending and load.given_back and segment.start >= self.lowest
            if pending:
                self._accept(segment)
                self._services.troubled = False
                following = self._arm_preload(now)
            elif unwanted:
                self._floor = segment.stop
                self._given_back += len(segment.ids())
        load.finish()
        if unwanted:
            self._services.give_back(self.tag, [segment.ids()])
        if pending:
            self._services.on_event(
                "segment_loaded", tag=self.tag, segment=segment, seconds=now - began
            )
            self._services.granted(self)
        if following is not None:
            self._submit(following, urgent=False)

    def _accept(self, segment: Segment) -> None:
        self._pending = None
        self._chain.append(segment)
        self._floor = max(self._floor, segment.stop)
        self._step = segment.step
        self._loads += 1
        self._backoff = self._retry_at = 0.0
        self._error = None

    def _failed(self, load: Load, error: BaseException) -> None:
        with self._lock:
            pending = load is self._pending
            known = isinstance(self._error, TagPaused)
            if pending:
                self._pending = None
                self._error = load.error = error
                self._back_off_after(error)
        load.finish()
        if pending and isinstance(error, TagPaused):
            # Somebody wants it so: that is no failure, and told once.
            if not known:
                self._services.on_event("segment_paused", tag=self.tag)
        elif pending:
            self._services.troubled = True
            self._report_failure(error)

    def _back_off_after(self, error: BaseException) -> None:
        # At most half the timeout, so that each waiting caller sees an attempt.
        longest = min(LONGEST_BACKOFF, self._services.timeout / 2)
        if isinstance(error, REFUSED_ERRORS):
            self._backoff = min(REFUSED_BACKOFF, longest)
        elif not isinstance(error, FINAL_ERRORS):
            self._backoff = min(self._backoff * 2 or FIRST_BACKOFF, longest)
        else:
            return
        self._retry_at = self._services.clock.stopwatch() + self._backoff

    def _report_failure(self, error: BaseException) -> None:
        with self._lock:
            self._failures += 1
        self._services.on_event("segment_load_failed", tag=self.tag, error=error)
