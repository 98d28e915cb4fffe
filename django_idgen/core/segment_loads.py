"""The loads of one tag: never two at a time, and always another after a failure."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Protocol

from .clock import Clock
from .errors import (
    ConfigurationError,
    InvalidTag,
    SegmentExhausted,
    SegmentRefused,
    SegmentUnavailable,
    TagPaused,
)
from .generator import MAX_BATCH, Emit
from .loader import AnyLoader
from .segment import LONGEST_STEP, Demand, Segment, check_tag
from .source import Source

__all__ = [
    "CALM",
    "FINAL_ERRORS",
    "LONGEST_CHAIN",
    "SEGMENT_DURATION",
    "Chain",
    "Growth",
    "Load",
    "Services",
    "TagLoads",
]

SEGMENT_DURATION: Final = 900.0
"""Seconds that a segment aims at."""
LONGEST_CHAIN: Final = 8
"""Segments kept ahead at most, by default."""
_MOST_AHEAD: Final = 64


@dataclass(frozen=True, slots=True)
class Growth:
    """How far a tag's segments and its chain may grow. Frozen, freely shared.

    A length is told as a multiple of the row's step, a power of two, so that an edit
    of the row counts from the next fetch on. Raises :class:`ConfigurationError`.
    """

    duration: float = SEGMENT_DURATION
    """Seconds, above 0, that a segment aims at."""
    longest_step: int = LONGEST_STEP
    """Ids, 1 to 1,000,000: no segment grows past it, and 1 keeps all to the row's step."""
    longest_chain: int = LONGEST_CHAIN
    """Segments, 1 to 64, that are kept loaded behind the current one at most."""

    def __post_init__(self) -> None:
        if not 0 < self.duration < math.inf:
            raise ConfigurationError(
                f"segment_duration must be a number of seconds above 0, not {self.duration!r}."
            )
        _check_whole("longest_step", self.longest_step, LONGEST_STEP)
        _check_whole("longest_chain", self.longest_chain, _MOST_AHEAD)

    def doubled(self, times: int, step: int) -> int:
        """Twice ``times``, unless segments of ``step`` would be too long then."""
        return times * 2 if step * times * 2 <= self.longest_step else times

    def fitted(self, times: int, step: int) -> int:
        """``times``, halved for as long as it makes too much of a ``step`` that was raised."""
        while times > 1 and step * times > self.longest_step:
            times //= 2
        return times

    def after(self, times: int, step: int, seconds: float) -> int:
        """What follows ``times`` when a segment was used up in ``seconds``."""
        if seconds < self.duration:
            return self.doubled(times, step)
        if seconds <= 2 * self.duration:
            return times
        return max(1, times // 2)


def _check_whole(name: str, value: object, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ConfigurationError(f"{name} must be a whole number of 1 to {most}, not {value!r}.")


CALM: Final = 5.0
"""Seconds without hunger after which the distance is halved."""


class Chain:
    """What a tag has loaded, in order, and what it should load next.

    Moments are seconds of one stopwatch. Not thread-safe: its owner has a lock.
    """

    __slots__ = (
        "_calm_since",
        "_dry",
        "_opened",
        "_opened_at",
        "distance",
        "hungers",
        "segments",
        "times",
    )

    def __init__(self) -> None:
        self.hungers = 0
        """How often callers came to wait since nothing was ahead."""
        self.reset()

    def reset(self) -> None:
        """Start over as a tag that was never used, except for what was counted."""
        # A tuple, since most hold one: an empty deque takes more than all the rest.
        self.segments: tuple[Segment, ...] = ()
        self.distance = 1
        """Segments to keep ahead."""
        self.times = 1
        """How often the row's step a segment should be: a power of two."""
        self._opened: Segment | None = None
        self._opened_at = self._calm_since = 0.0
        self._dry = 0  # the `times` with which the chain ran dry, until someone is hungry

    def append(self, segment: Segment) -> None:
        self.segments = (*self.segments, segment)

    def open_next(self, now: float) -> Segment | None:
        """The next segment, the current one from now on."""
        if not self.segments:
            return None
        self._opened, *others = self.segments
        self.segments = tuple(others)
        self._opened_at = now
        self._dry = 0
        return self._opened

    def use_up(self, now: float, growth: Growth) -> None:
        """Follow the consumption: the current segment has no ids left. May be called twice."""
        used, self._opened = self._opened, None
        if used is None:
            return
        before = self.times
        if self._tells(used, now - self._opened_at, growth):
            self.times = growth.after(before, used.step, now - self._opened_at)
        if not self.segments:
            self._dry = before
        elif self.distance > 1 and now - self._calm_since >= CALM:
            self.distance //= 2
            self._calm_since = now

    def _tells(self, used: Segment, seconds: float, growth: Growth) -> bool:
        # Of several that were asked for alike, one is enough: the effect of what it
        # changed is to be seen first.
        times = len(used.ids()) / used.step
        return times * 2 >= self.times if seconds < growth.duration else times <= self.times * 2

    def hunger(self, now: float, step: int, growth: Growth) -> None:
        """Somebody waits: keep more ahead from now on. Once for each time it ran dry."""
        if self._dry:
            # Its pace may have doubled it just now: not twice for the same thing.
            self.times = max(self.times, growth.doubled(self._dry, step))
            self.distance = min(self.distance * 2, growth.longest_chain)
            self.hungers += 1
            self._calm_since = now
            self._dry = 0

    def is_short(self, *, past_mark: bool) -> bool:
        """Whether another one is to be loaded; with the current one's mark passed, one more."""
        ahead = self.distance if past_mark or self._opened is None else self.distance - 1
        return len(self.segments) < ahead

    def demand(self, at_least: int, step: int, growth: Growth) -> Demand:
        """What to ask for, where the row said ``step`` the last time (0: not known)."""
        self.times = growth.fitted(self.times, step)
        return Demand(self.times, max(at_least, 1))


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
    """A fetch that was asked for. A caller that has nothing left waits for ``done``."""

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
        with suppress(KeyError):  # the thread that takes a listener out calls it
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
            load.finish()  # its waiters look again
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
