"""The worker ids of a generator as a map: what its cells, its table and its details show.

Each cell is one worker id. A layout of more than :data:`MOST_CELLS` is drawn in ranges,
each of which leads to a map of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ...core.inspection import WorkerEntry, WorkerMap, WorkerState

__all__ = [
    "MOST_CELLS",
    "SORTS",
    "Cell",
    "Drawing",
    "Key",
    "cells_of",
    "clock_offset",
    "drawing_of",
    "key_of",
    "sorted_entries",
    "time_left",
]

MOST_CELLS = 2048
"""Of one map; so many worker ids are drawn one by one."""
LEAST_RANGE = 1024
COLUMNS = 32

SIGNS = {
    WorkerState.HELD: "●",
    WorkerState.OVERDUE: "◐",
    WorkerState.EXPIRED: "○",
    WorkerState.FREE: "·",
    WorkerState.RESERVED: "–",
    WorkerState.UNKNOWN: "?",
}
"""Shapes, for who sees no colours, and in every language."""
_BY_WEIGHT = (
    WorkerState.OVERDUE,
    WorkerState.HELD,
    WorkerState.EXPIRED,
    WorkerState.UNKNOWN,
    WorkerState.FREE,
    WorkerState.RESERVED,
)
"""What a cell of several worker ids is marked as: the first of these that one of them is in."""

IN_USE = (WorkerState.HELD, WorkerState.OVERDUE, WorkerState.EXPIRED)


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of the map: a worker id, or a range of them."""

    first: int
    last: int
    state: WorkerState
    title: str
    query: str
    row_label: int | None
    """The number of its first cell, if a row begins here."""
    is_chosen: bool = False

    @property
    def sign(self) -> str:
        return SIGNS[self.state]


@dataclass(frozen=True, slots=True)
class Key:
    """One entry of the legend."""

    state: WorkerState
    name: str
    sign: str
    count: int
    meaning: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """What part of the map is drawn, and how."""

    shown: range
    size: int
    """Worker ids of a cell."""

    @property
    def is_of_ranges(self) -> bool:
        return self.size > 1


def drawing_of(workers: range, part: range | None, worker: int | None) -> Drawing:
    """How to draw ``part`` of ``workers``; without one, what is around ``worker``, else all."""
    shown = part or workers
    drawing = Drawing(shown, _cell_size(len(shown)))
    while part is None and worker is not None and drawing.is_of_ranges:
        first = shown.start + (worker - shown.start) // drawing.size * drawing.size
        shown = range(first, min(first + drawing.size, shown.stop))
        drawing = Drawing(shown, _cell_size(len(shown)))
    return drawing


def _cell_size(count: int) -> int:
    """Worker ids a cell: 1, or so many that a cell's own map is not too small to be of use."""
    if count <= MOST_CELLS:
        return 1
    return max(LEAST_RANGE, 1 << (-(-count // MOST_CELLS) - 1).bit_length())


# --- cells --------------------------------------------------------------------------------


def cells_of(found: WorkerMap, drawing: Drawing, chosen: int | None) -> Iterator[Cell]:
    """The cells of the part that is drawn, in order."""
    counted: dict[int, Counter[WorkerState]] = {}
    for worker, entry in found.entries.items():
        if worker in drawing.shown:
            index = (worker - drawing.shown.start) // drawing.size
            counted.setdefault(index, Counter())[entry.state] += 1
    for index, first in enumerate(range(drawing.shown.start, drawing.shown.stop, drawing.size)):
        last = min(first + drawing.size, drawing.shown.stop) - 1
        label = first if index % COLUMNS == 0 else None
        if drawing.is_of_ranges:
            yield _range_cell(found, range(first, last + 1), counted.get(index), label)
        else:
            yield _single_cell(found, first, label, first == chosen)


def _single_cell(found: WorkerMap, worker: int, label: int | None, chosen: bool) -> Cell:
    state = found.state(worker)
    entry = found.entries.get(worker)
    words = {"worker": worker, "state": state_name(state)}
    if entry is not None and state in IN_USE:
        words["holder"] = entry.holder or _("somebody without a name")
        title = _("%(worker)d: %(state)s, %(holder)s") % words
    else:
        title = _("%(worker)d: %(state)s") % words
    return Cell(worker, worker, state, title, urlencode({"worker": worker}), label, chosen)


def _range_cell(
    found: WorkerMap, part: range, counted: Counter[WorkerState] | None, label: int | None
) -> Cell:
    counts = _counts(found, part, counted or Counter())
    state = next((each for each in _BY_WEIGHT if counts[each]), WorkerState.RESERVED)
    names = _(", ").join(
        _("%(count)d %(state)s") % {"count": counts[each], "state": state_name(each)}
        for each in _BY_WEIGHT
        if counts[each]
    )
    words = {"first": part.start, "last": part.stop - 1, "states": names}
    title = _("%(first)d to %(last)d: %(states)s") % words
    query = urlencode({"from": part.start, "to": part.stop})
    return Cell(part.start, part.stop - 1, state, title, query, label)


def _counts(found: WorkerMap, part: range, stored: Counter[WorkerState]) -> Counter[WorkerState]:
    """How many of ``part`` are in each state; ``stored`` has those that were ever lent."""
    lent = sum(_overlap(part, each) for each in found.lent)
    unseen = sum(_overlap(part, each) for each in found.unseen)
    counts = Counter(stored)
    counts[WorkerState.FREE] += max(0, lent - stored.total())
    counts[WorkerState.UNKNOWN] += unseen
    counts[WorkerState.RESERVED] += max(0, len(part) - max(lent, stored.total()) - unseen)
    return counts


def _overlap(first: range, second: range) -> int:
    return max(0, min(first.stop, second.stop) - max(first.start, second.start))


# --- the legend and the table -----------------------------------------------------------------


def key_of(counts: Mapping[WorkerState, int]) -> list[Key]:
    """The legend: every state, with how many worker ids are in it."""
    return [
        Key(state, state_name(state), sign, counts.get(state, 0), _MEANINGS[state]())
        for state, sign in SIGNS.items()
        if state is not WorkerState.UNKNOWN or counts.get(state)
    ]


def state_name(state: WorkerState) -> str:
    return _NAMES[state]()


_NAMES: dict[WorkerState, Callable[[], str]] = {
    WorkerState.HELD: lambda: _("held"),
    WorkerState.OVERDUE: lambda: _("overdue"),
    WorkerState.EXPIRED: lambda: _("expired"),
    WorkerState.FREE: lambda: _("free"),
    WorkerState.RESERVED: lambda: _("reserved"),
    WorkerState.UNKNOWN: lambda: _("unknown"),
}
_MEANINGS: dict[WorkerState, Callable[[], str]] = {
    WorkerState.HELD: lambda: _("a process has it, and renews it"),
    WorkerState.OVERDUE: lambda: _("its renewal is overdue"),
    WorkerState.EXPIRED: lambda: _("its window is over; the next process may take it"),
    WorkerState.FREE: lambda: _("never lent, or given back"),
    WorkerState.RESERVED: lambda: _("in the layout, but not lent here"),
    WorkerState.UNKNOWN: lambda: _("its registry can’t be asked just now"),
}

SORTS: dict[str, Callable[[WorkerEntry], Any]] = {
    "worker": lambda entry: entry.worker,
    "state": lambda entry: (_BY_WEIGHT.index(entry.state), entry.worker),
    "holder": lambda entry: (entry.holder, entry.worker),
    "seen": lambda entry: (entry.seen_at is None, entry.seen_at, entry.worker),
    "left": lambda entry: (entry.window_left is None, entry.window_left, entry.worker),
    "offset": lambda entry: (-abs(entry.clock_offset or 0.0), entry.worker),
}
"""By the name in the address: what the table of ids in use may be sorted by."""


def sorted_entries(found: WorkerMap, sort: str) -> list[WorkerEntry]:
    """The worker ids in use, sorted by one of :data:`SORTS`."""
    used = [entry for entry in found.entries.values() if entry.state in IN_USE]
    return sorted(used, key=SORTS[sort])


# --- in words ------------------------------------------------------------------------------------


def time_left(seconds: float | None) -> str:
    """``2 min 5 s``; empty for what isn't known."""
    if seconds is None:
        return ""
    whole = int(seconds)
    minutes, rest = divmod(whole, 60)
    if minutes >= 60:
        return ngettext("%(count)d minute", "%(count)d minutes", minutes) % {"count": minutes}
    if minutes:
        return _("%(minutes)d min %(seconds)d s") % {"minutes": minutes, "seconds": rest}
    return _("%(seconds)d s") % {"seconds": rest}


def clock_offset(seconds: float | None) -> str:
    """``+12 ms`` where the holder's clock is ahead; empty for what isn't known."""
    if seconds is None:
        return ""
    if abs(seconds) < 1:
        return _("%(milliseconds)+d ms") % {"milliseconds": round(seconds * 1000)}
    return _("%(seconds)+.1f s") % {"seconds": seconds}
