"""What a registry can tell of its worker ids, and the map that is drawn of it.

A registry reads what it has stored and changes nothing by that
(:meth:`.registry.Registry.inspect`). Here is what that means, alike for all of them: who
holds a worker id, whose renewal is overdue, and what was never lent.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from .clock import MAX_UNIX_US, moment
from .errors import WorkerOutOfRange
from .lease import Mark, Namespace

__all__ = [
    "InspectedMark",
    "Inspection",
    "PastLease",
    "Ticks",
    "WorkerEntry",
    "WorkerMap",
    "WorkerState",
    "drawn",
    "entries_of",
    "entry_of",
    "name_of",
]

OVERDUE = 1 / 2
"""Of a window, since its holder was seen last. It renews at a third: by then one was missed."""
SHORT = 1 / 3
"""Of a window, that is left: where two renewals were missed, or the end is held back."""


class WorkerState(Enum):
    """Whether a worker id is in use."""

    FREE = "free"
    """Never lent, or given back."""
    HELD = "held"
    OVERDUE = "lapsing"
    """Held, but the renewal is overdue: it was not seen for more than half a window, or less
    than a third of its window is left."""
    EXPIRED = "lapsed"
    """The window is over, or void since the registry had lost it: the next caller may have it."""
    RESERVED = "reserved"
    """In the layout, but never lent by this registry."""
    UNKNOWN = "unknown"
    """Its registry, one of several, can't be asked just now."""


@dataclass(frozen=True, slots=True)
class InspectedMark:
    """What a registry has stored of one worker id; moments in µs since 1970, ``None`` unknown."""

    mark: Mark
    seen_us: int | None = None
    """When its holder acquired it, renewed it or gave it back."""
    acquired_us: int | None = None
    offset_us: int | None = None
    """How far its holder's wall clock was ahead of the registry's when it was seen last."""
    void: bool = False
    """Whether it is of a generation that is over: the holder can't renew it."""
    lease: str | None = None
    """What its lease is called, if the mark has not the token itself: see :func:`name_of`."""

    def as_lease(self) -> PastLease:
        """Who it was lent to."""
        return PastLease(self.mark.holder, _moment(self.acquired_us), self.mark.start)


@dataclass(frozen=True, slots=True)
class Ticks:
    """What the ticks of a namespace mean. Frozen."""

    epoch_us: int
    tick_us: int
    window: int
    """In ticks: for how long a worker id is lent at a time."""


@dataclass(frozen=True, slots=True)
class Inspection:
    """What one registry knows of its worker ids, at one moment. Frozen."""

    kind: str
    namespace: Namespace
    now_us: int
    """The registry's time (µs since 1970); this host's where the two are not one."""
    marks: Iterable[InspectedMark] = ()
    """Of the worker ids that it has a mark of: never lent are all the others."""
    workers: range | None = None
    """Those that it lends, if not all of the namespace's."""
    failure: str = ""
    """Why it could not be asked; then there are no marks."""
    place: str = ""
    """Where it is kept: the alias of its database, say. Other marks of the same kind and
    namespace are in another place; empty where that is not known."""

    @property
    def lent(self) -> range:
        return self.namespace.workers if self.workers is None else self.workers


@dataclass(frozen=True, slots=True)
class PastLease:
    """Who was lent a worker id: from tick ``start`` on, no earlier holder stamped with it."""

    holder: str
    acquired_at: datetime | None
    start: int


@dataclass(frozen=True, slots=True)
class WorkerEntry:
    """One worker id that was lent before. Frozen."""

    worker: int
    state: WorkerState
    holder: str
    """A label (host and process), never proof; of a free one, who had it last."""
    acquired_at: datetime | None
    seen_at: datetime | None
    """When the holder acquired it, renewed it or gave it back; a scheduler doesn't count."""
    until: datetime | None
    """The mark: no id is stamped later by this holder, or earlier by the next one."""
    window_left: float | None
    """Seconds that its holder may still stamp without a renewal; ``None`` if there is no holder."""
    clock_offset: float | None
    """Seconds that the holder's wall clock was ahead of the registry's (below 0: behind) when
    it was seen last, within a round trip. ``None`` where it isn't known, or where both are
    this host's."""
    namespace: str = ""
    registry: str = ""
    """The kind of the registry that lends it."""
    place: str = ""
    """Where that one keeps it: see :attr:`Inspection.place`."""
    lease: str = ""
    """The name of its present lease, with which no reader can renew it; empty if it is free."""


def name_of(token: str) -> str:
    """What a lease is called by those who only look at it; empty for none. No other one is."""
    # As Redis' scripts can do it; of 128 random bits no digest tells anything.
    return hashlib.sha1(token.encode(), usedforsecurity=False).hexdigest()[:16] if token else ""


@dataclass(frozen=True, slots=True)
class WorkerMap:
    """The worker ids of a generator, at one moment. Frozen; has entries only where there is
    something to tell, so that it is small for a layout of millions, too."""

    alias: str
    namespace: str
    kind: str
    """Of the registry: ``database``, ``redis``, ``fallback``, ``static`` or a dotted path."""
    workers: range
    """All of the layout."""
    entries: Mapping[int, WorkerEntry]
    """By worker id, rising."""
    read_at: datetime
    """By the registry's clock, or by this host's where that is a registry of this host."""
    lent: Sequence[range] = ()
    """What the registries lend; the rest is reserved."""
    unseen: Mapping[range, str] = field(default_factory=dict)
    """What can't be seen just now, and why."""
    once: Sequence[range] = ()
    """Of what is lent, the worker ids that are lent once each, in their order."""

    def state(self, worker: int) -> WorkerState:
        """Of any worker id of the layout. Raises :class:`WorkerOutOfRange`."""
        if worker not in self.workers:
            raise WorkerOutOfRange(worker, self.workers)
        entry = self.entries.get(worker)
        if entry is not None:
            return entry.state
        if any(worker in part for part in self.unseen):
            return WorkerState.UNKNOWN
        known = any(worker in part for part in self.lent)
        return WorkerState.FREE if known else WorkerState.RESERVED

    def counts(self) -> Mapping[WorkerState, int]:
        """How many worker ids of the layout are in each state; those that are in none: 0."""
        counted = Counter(entry.state for entry in self.entries.values())
        outside = sum(not any(worker in part for part in self.lent) for worker in self.entries)
        lent = sum(len(part) for part in self.lent)
        unseen = sum(len(part) for part in self.unseen)
        counted[WorkerState.FREE] += lent - (len(self.entries) - outside)
        counted[WorkerState.UNKNOWN] += unseen
        counted[WorkerState.RESERVED] += len(self.workers) - lent - unseen - outside
        return {state: counted[state] for state in WorkerState}


def drawn(alias: str, kind: str, workers: range, surveys: Sequence[Inspection]) -> WorkerMap:
    """The map of ``workers`` that ``surveys`` (at least one) give, each of other worker ids."""
    found = [
        entry
        for survey in surveys
        for entry in entries_of(survey)
        if entry.worker in workers  # a layout of before had more
    ]
    seen = [survey for survey in surveys if not survey.failure]
    return WorkerMap(
        alias=alias,
        namespace=surveys[0].namespace.name,
        kind=kind,
        workers=workers,
        entries={entry.worker: entry for entry in sorted(found, key=lambda each: each.worker)},
        read_at=moment(min(max((seen or surveys)[0].now_us, 0), MAX_UNIX_US)),
        lent=[survey.lent for survey in seen],
        unseen={survey.lent: survey.failure for survey in surveys if survey.failure},
        once=[survey.lent for survey in seen if survey.namespace.unused == "only"],
    )


def entries_of(survey: Inspection) -> Iterable[WorkerEntry]:
    """What ``survey`` says of each worker id that it has a mark of."""
    space = survey.namespace
    ticks = Ticks(space.epoch_us, space.tick_us, space.window_ticks)
    for inspected in survey.marks:
        yield entry_of(
            inspected,
            ticks,
            now_us=survey.now_us,
            namespace=space.name,
            registry=survey.kind,
            place=survey.place,
        )


def entry_of(
    inspected: InspectedMark,
    ticks: Ticks | None,
    *,
    now_us: int,
    namespace: str,
    registry: str,
    place: str,
) -> WorkerEntry:
    """What ``inspected`` means at ``now_us`` (µs since 1970); without ``ticks`` no moment of it."""
    mark = inspected.mark
    until_us = None if ticks is None else ticks.epoch_us + mark.until * ticks.tick_us
    left_us = None if until_us is None else until_us - now_us
    state = _state(inspected, ticks, now_us, left_us)
    is_lent = state is not WorkerState.FREE and left_us is not None
    return WorkerEntry(
        worker=mark.worker,
        state=state,
        holder=mark.holder,
        acquired_at=_moment(inspected.acquired_us),
        seen_at=_moment(inspected.seen_us),
        until=_moment(until_us),
        window_left=max(0, left_us or 0) / 1e6 if is_lent else None,
        clock_offset=None if inspected.offset_us is None else inspected.offset_us / 1e6,
        namespace=namespace,
        registry=registry,
        place=place,
        lease=name_of(mark.token) if inspected.lease is None else inspected.lease,
    )


def _state(
    inspected: InspectedMark, ticks: Ticks | None, now_us: int, left_us: int | None
) -> WorkerState:
    if not inspected.mark.token:
        return WorkerState.FREE
    if inspected.void or (left_us is not None and left_us <= 0):
        return WorkerState.EXPIRED
    if ticks is None or left_us is None:
        return WorkerState.HELD
    window_us = ticks.window * ticks.tick_us
    unseen_us = 0 if inspected.seen_us is None else now_us - inspected.seen_us
    overdue = unseen_us > window_us * OVERDUE or left_us < window_us * SHORT
    return WorkerState.OVERDUE if overdue else WorkerState.HELD


def _moment(us: int | None) -> datetime | None:
    return moment(us) if us is not None and 0 <= us <= MAX_UNIX_US else None
