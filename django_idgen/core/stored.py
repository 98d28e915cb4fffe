"""The content of a book as seen from outside, and how to replace its settings.

The doctor and its commands make the changes that no holder makes: another layout, epoch,
registry or range of worker ids, or a fence past all that a lost or restored database may have
lent. Each change opens a new generation in one transaction, with the namespace locked. A holder
uses up its window; then it is refused, or takes a new worker id. Nothing at or past the fence
was ever lent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .errors import LayoutError
from .layout import BitLayout
from .lease import Namespace

_DAY_US = 86_400_000_000

ALL = ""
"""The key of what an installation stores about all its namespaces; none has that name."""
SERVER = "server"
"""The server that last wrote it."""
FAILOVERS = "failovers_us"
"""When another server took over: the last ten times, µs since 1970."""
LOST = "lost"
"""Whether the names are lost, since the installation was made anew."""
LOST_NAMES = json.dumps({ALL: {LOST: True}})
"""The memory of such an installation."""


@dataclass(frozen=True, slots=True)
class Era:
    """What was made under one set of settings: only ticks of ``layout`` below ``until``.

    It was lent, or made for old rows with a worker id that is not lent (:func:`.book.claim`).
    """

    layout: BitLayout
    workers: range
    until: int
    closes: bool = False
    """Whether it stands for what a loss may have forgotten. It bounds claims, and nothing else:
    leases have the fence of the loss."""

    @property
    def highest(self) -> int:
        """No id of the era is above this; -1 if it made none."""
        return highest_id(self.layout, self.until, self.workers) if self.until > 0 else -1


def layout_of(fingerprint: Mapping[str, Any]) -> BitLayout:
    """The layout of a stored fingerprint, without its name.

    Raises :class:`LayoutError` if it can't be read.
    """
    try:
        return BitLayout(
            fingerprint["fields"], tick_us=fingerprint["tick_us"], epoch_us=fingerprint["epoch_us"]
        )
    except (KeyError, TypeError) as error:
        raise LayoutError(f"The stored layout can't be read: {dict(fingerprint)!r}.") from error


def era_of(fingerprint: Mapping[str, Any], until: int) -> Era:
    """The era of a stored fingerprint that ended at tick ``until``.

    Raises :class:`LayoutError` for one that can't be read.
    """
    layout = layout_of(fingerprint)
    first, end = fingerprint.get("workers") or (0, len(layout.workers))
    return Era(layout, range(int(first), int(end)), until)


def highest_id(layout: BitLayout, until: int, workers: range) -> int:
    """No id of these workers with a tick below ``until`` (1 or more) is above this."""
    return (
        layout.base(min(until, layout.max_ticks) - 1, workers.stop - 1)
        | layout.sequences - 1 << layout.sequence_shift
        | layout.batches - 1 << layout.batch_shift
    )


def lowest_id(layout: BitLayout, tick: int, workers: range) -> int:
    """No id of these workers with ``tick`` or a later one is below this."""
    return layout.base(tick, workers.start)


def first_tick(layout: BitLayout, workers: range, eras: Iterable[Era]) -> int | None:
    """The first tick of ``layout`` whose ids lie above all ids of ``eras``; None if none does."""
    ticks = [_past(layout, workers, era) for era in eras]
    tick = max(ticks, default=0)
    return tick if tick < layout.max_ticks else None


def _past(layout: BitLayout, workers: range, era: Era) -> int:
    if era.until <= 0:
        return 0
    if layout.fields == era.layout.fields:
        # An id shows its tick, whatever moment that is.
        return era.until
    missing = era.highest + 1 - lowest_id(layout, 0, workers)
    return max(0, -(-missing >> layout.time_shift))


def unused_from(stored: Stored, workers: range) -> dict[int, int]:
    """For each of ``workers`` the first tick from which nothing known has made an id with it.

    A worker id that has no such tick is left out. The book knows what its own registry lends and
    has lent under earlier settings, what was claimed, and what a loss has closed. It does not know
    what another registry has lent before it, nor ids of degraded processes.
    """
    now = stored.era
    left = dict.fromkeys(workers, 0)
    for era in (*stored.eras, now):
        concerned = workers
        if era.layout.fields == now.layout.fields:
            first, end = era.workers.start, era.workers.stop
            concerned = range(max(workers.start, first), min(workers.stop, end))
        for worker in concerned:
            past = _past(now.layout, range(worker, worker + 1), era)
            left[worker] = max(left[worker], past)
    return {worker: tick for worker, tick in left.items() if tick < now.layout.max_ticks}


def latest_eras(eras: Iterable[Era]) -> tuple[Era, ...]:
    """One era for each layout and range of worker ids, with the latest end."""
    latest: dict[tuple[object, ...], Era] = {}
    for era in eras:
        key = (era.layout, era.workers, era.closes)
        known = latest.get(key)
        if era.until > 0 and (known is None or known.until < era.until):
            latest[key] = era
    return tuple(latest.values())


def epoch_for(layout: BitLayout, tick: int, now_us: int) -> BitLayout | None:
    """``layout`` with the latest epoch, at midnight, for which ``tick`` is past at ``now_us``.

    None if that is before 1970, or the time bits would be used up.
    """
    epoch_us = (now_us - (tick + 1) * layout.tick_us) // _DAY_US * _DAY_US
    if epoch_us < 0 or tick >= layout.max_ticks:
        return None
    moved = replace(layout, epoch_us=epoch_us)
    return moved if (now_us - epoch_us) // layout.tick_us < layout.max_ticks else None


def namespace_of(namespace: Namespace, fingerprint: Mapping[str, Any]) -> Namespace:
    """``namespace`` with the settings of ``fingerprint``.

    Raises :class:`LayoutError` if they can't be read.
    """
    era = era_of(fingerprint, 0)
    return replace(
        namespace,
        epoch_us=era.layout.epoch_us,
        tick_us=era.layout.tick_us,
        max_ticks=era.layout.max_ticks,
        workers=era.workers,
        window_ticks=max(1, in_ticks(namespace.window_ticks, namespace, era.layout)),
        skew_ticks=in_ticks(namespace.skew_ticks, namespace, era.layout),
        ahead_ticks=in_ticks(namespace.ahead_ticks, namespace, era.layout),
        fingerprint=fingerprint,
    )


def in_ticks(ticks: int, of: Namespace | BitLayout, layout: Namespace | BitLayout) -> int:
    """A length in ticks ``of`` one, in ticks of ``layout``; rounded up."""
    return -(-ticks * of.tick_us // layout.tick_us)


@dataclass(frozen=True, slots=True)
class Stored:
    """The content of a book. Frozen; in ticks of its own layout."""

    fingerprint: Mapping[str, Any]
    """Its settings; empty if unknown."""
    generation: int
    fence: int
    highest: int
    """The first tick that was certainly never lent: past all windows, the fence and a ceiling."""
    longest: int
    """The largest window to reckon with."""
    eras: tuple[Era, ...] = ()
    """What was lent under earlier settings, what was claimed, and what a loss has closed."""
    lead: int = 0
    """How far any window ended past the time when its holder was last seen; 0 if unknown."""

    @property
    def era(self) -> Era:
        """What was lent so far; raises :class:`LayoutError` if it can't be read."""
        return era_of(self.fingerprint, self.highest)


@dataclass(frozen=True, slots=True)
class Successor:
    """The new content of a book. Frozen; in ticks of the layout of ``fingerprint``."""

    fingerprint: Mapping[str, Any]
    fence: int
    longest: int
    workers: range
    eras: tuple[Era, ...] = ()
    moved: bool = False
    """Whether the ticks change their meaning, so that no mark can stay."""
    lowered: bool = False
    """Whether to lower marks past the fence to it. Only while no process holds any."""

    @classmethod
    def after(cls, stored: Stored, fence: int, workers: range) -> Successor:
        """A new generation under the settings of ``stored``."""
        return cls(stored.fingerprint, fence, stored.longest, workers, stored.eras)

    @property
    def resets(self) -> bool:
        return self.moved or self.lowered


Claim = Callable[[Stored, int], Era]
"""Returns what it takes, given the stored content and the registry's time (µs since 1970).

A transaction calls it again when it is retried. If it raises, nothing is taken."""
Change = Callable[[Stored, int], Successor]
"""Returns the new content, given the stored one and the registry's time (µs since 1970).

A transaction calls it again when it is retried. If it raises, the transaction is undone."""


def era_words(era: Era) -> dict[str, Any]:
    """An era as JSON values."""
    workers = [era.workers.start, era.workers.stop]
    words: dict[str, Any] = {**era.layout.fingerprint(), "workers": workers, "until": era.until}
    return {**words, "closes": True} if era.closes else words


def eras_from(words: object) -> tuple[Era, ...]:
    """The eras of :func:`era_words`. Raises :class:`LayoutError` if one can't be read."""
    found = words if isinstance(words, list) else []
    return tuple(
        replace(era_of(each, int(each["until"])), closes=bool(each.get("closes"))) for each in found
    )


def with_highest(stored: Stored, highest: int) -> Stored:
    """``stored``, which has lent at least up to ``highest``."""
    return replace(stored, highest=max(stored.highest, highest))
