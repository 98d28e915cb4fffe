"""What :meth:`.registry.Registry.inspect` returns, and the map of worker ids made of it.

The map shows, alike for all registries, who holds a worker id, whose renewal is overdue, and
which worker ids were never lent.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum

from .clock import MAX_UNIX_US, moment
from .errors import WorkerOutOfRange
from .lease import Mark, Namespace

OVERDUE = 1 / 2
"""Part of a window without a renewal. A holder renews at a third, so it has missed one."""
SHORT = 1 / 3
"""Part of a window that is left. The holder has missed two renewals, or its end is held back."""


class WorkerState(Enum):
    """Whether a worker id is in use."""

    FREE = "free"
    """Never lent, or given back."""
    HELD = "held"
    OVERDUE = "lapsing"
    """Held, but not renewed for more than half a window, or less than a third is left."""
    EXPIRED = "lapsed"
    """The window is over, or void after a loss: the next caller may get the worker id."""
    USED = "used"
    """Its holder has ended, and the registry lends no worker id again."""
    RESERVED = "reserved"
    """In the layout, but not lent by this registry."""


@dataclass(frozen=True, slots=True)
class InspectedMark:
    """What a registry stores of one worker id; moments in µs since 1970, None if unknown."""

    mark: Mark
    seen_us: int | None = None
    """When its holder acquired it, renewed it or gave it back."""
    acquired_us: int | None = None
    offset_us: int | None = None
    """How far its holder's wall clock was ahead of the registry's when last seen."""
    void: bool = False
    """Whether it is of an earlier generation, so that the holder can't renew it."""
    lease: str | None = None
    """The name of its lease (:func:`name_of`), if the mark does not have the token."""

    @property
    def acquired_at(self) -> datetime | None:
        return _moment(self.acquired_us)


@dataclass(frozen=True, slots=True)
class Ticks:
    """The time of a namespace's ticks. Frozen."""

    epoch_us: int
    tick_us: int
    window: int
    """Length in ticks."""


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a registry stores of its worker ids, at one moment. Frozen."""

    kind: str
    namespace: Namespace
    now_us: int
    """The registry's time (µs since 1970); this host's where the two are not one."""
    marks: Iterable[InspectedMark] = ()
    """The others were never lent."""
    workers: range | None = None
    """The worker ids that it lends, if not all of the namespace's."""
    place: str = ""
    """Where the marks are, such as the alias of a database; empty if unknown."""

    @property
    def lent(self) -> range:
        return self.namespace.workers if self.workers is None else self.workers


@dataclass(frozen=True, slots=True)
class WorkerEntry:
    """One worker id that was lent before. Frozen."""

    worker: int
    state: WorkerState
    holder: str
    """A label, never proof; of a free worker id, the last holder."""
    acquired_at: datetime | None
    seen_at: datetime | None
    """When the holder acquired it, renewed it or gave it back. A scheduler does not count."""
    until: datetime | None
    """The mark: this holder stamps no id later, and the next one no id earlier."""
    window_left: float | None
    """Seconds that its holder may still stamp without a renewal; None without a holder."""
    clock_offset: float | None
    """Seconds that the holder's wall clock was ahead of the registry's when last seen (below 0:
    behind), within a round trip. None if unknown, or if both are this host's."""
    namespace: str = ""
    registry: str = ""
    place: str = ""
    """See :attr:`Inspection.place`."""
    lease: str = ""
    """The name of its lease, which does not allow renewal; empty if it is free."""


def name_of(token: str) -> str:
    """The public name of the lease of a token, unique; empty for none."""
    # SHA-1, as Redis' scripts have it; a digest of 128 random bits reveals nothing.
    return hashlib.sha1(token.encode(), usedforsecurity=False).hexdigest()[:16] if token else ""


@dataclass(frozen=True, slots=True)
class WorkerMap:
    """The worker ids of a generator, at one moment. Frozen.

    It has entries only for worker ids with a mark, so that it is small for a layout of millions.
    """

    alias: str
    namespace: str
    kind: str
    """The kind of the registry: ``database``, ``redis``, ... or a dotted path."""
    workers: range
    """All of the layout."""
    entries: Mapping[int, WorkerEntry]
    """By worker id, rising."""
    read_at: datetime
    """By the registry's clock."""
    lent: range
    """The worker ids that the registry lends; the rest is reserved."""
    used: range = range(0)
    """Those that it has lent, if it lends each once, in their order."""

    def state(self, worker: int) -> WorkerState:
        """The state of any worker id of the layout. Raises :class:`WorkerOutOfRange`."""
        if worker not in self.workers:
            raise WorkerOutOfRange(worker, self.workers)
        entry = self.entries.get(worker)
        if entry is not None:
            return entry.state
        if worker in self.used:
            return WorkerState.USED  # its row was deleted
        return WorkerState.FREE if worker in self.lent else WorkerState.RESERVED

    def counts(self) -> Mapping[WorkerState, int]:
        """How many worker ids of the layout are in each state."""
        counted = Counter(entry.state for entry in self.entries.values())
        outside = sum(worker not in self.lent for worker in self.entries)
        unlisted = len(self.used) - sum(worker in self.used for worker in self.entries)
        counted[WorkerState.USED] += unlisted
        counted[WorkerState.FREE] += len(self.lent) - (len(self.entries) - outside) - unlisted
        counted[WorkerState.RESERVED] += len(self.workers) - len(self.lent) - outside
        return {state: counted[state] for state in WorkerState}


def drawn(alias: str, kind: str, workers: range, inspection: Inspection) -> WorkerMap:
    """The map of ``workers``."""
    found = [
        _as_lent(entry, inspection)
        for entry in entries_of(inspection)
        if entry.worker in workers  # an earlier layout had more
    ]
    lends_once = inspection.namespace.unused == "only"
    return WorkerMap(
        alias=alias,
        namespace=inspection.namespace.name,
        kind=kind,
        workers=workers,
        entries={entry.worker: entry for entry in sorted(found, key=lambda each: each.worker)},
        read_at=moment(min(max(inspection.now_us, 0), MAX_UNIX_US)),
        lent=inspection.lent,
        used=_used(inspection.lent, found) if lends_once else range(0),
    )


def _as_lent(entry: WorkerEntry, inspection: Inspection) -> WorkerEntry:
    """``entry``, which says so if nobody holds the worker id and nobody will get it."""
    if entry.state not in (WorkerState.FREE, WorkerState.EXPIRED):
        return entry
    if entry.worker not in inspection.lent:
        return replace(entry, state=WorkerState.RESERVED, window_left=None)
    if inspection.namespace.unused == "only":
        return replace(entry, state=WorkerState.USED, window_left=None)
    return entry


def _used(workers: range, entries: Iterable[WorkerEntry]) -> range:
    # Not by the number of rows: old ones may be deleted.
    lent = [workers.index(entry.worker) for entry in entries if entry.worker in workers]
    return workers[: max(lent, default=-1) + 1]


def entries_of(inspection: Inspection) -> Iterable[WorkerEntry]:
    """An entry for each worker id with a mark."""
    space = inspection.namespace
    ticks = Ticks(space.epoch_us, space.tick_us, space.window_ticks)
    for inspected in inspection.marks:
        yield entry_of(
            inspected,
            ticks,
            now_us=inspection.now_us,
            namespace=space.name,
            registry=inspection.kind,
            place=inspection.place,
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
    """The entry of a mark at ``now_us`` (µs since 1970); without ``ticks`` it has no moments."""
    mark = inspected.mark
    until_us = None if ticks is None else ticks.epoch_us + mark.until * ticks.tick_us
    left_us = None if until_us is None else until_us - now_us
    state = _state(inspected, ticks, now_us, left_us)
    is_lent = state is not WorkerState.FREE and left_us is not None
    return WorkerEntry(
        worker=mark.worker,
        state=state,
        holder=mark.holder,
        acquired_at=inspected.acquired_at,
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
