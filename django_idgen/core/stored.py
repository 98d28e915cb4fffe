"""The book of a namespace as seen from outside, and how its settings are replaced.

The doctor and its commands use it, for changes that no holder makes: another layout, epoch,
registry or range of worker ids, or a fence past all that a lost or restored database may have
lent. Each change opens a new generation in one transaction, with the namespace locked. A holder
uses up its window; then it is refused, or takes a new worker id. Nothing at or past the fence
was ever lent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .errors import LayoutError
from .layout import BitLayout
from .lease import Namespace

__all__ = [
    "Change",
    "Era",
    "Stored",
    "StoredBook",
    "Successor",
    "epoch_for",
    "era_of",
    "era_words",
    "eras_from",
    "first_tick",
    "highest_id",
    "in_ticks",
    "layout_of",
    "lowest_id",
    "namespace_of",
    "with_highest",
]

_DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Era:
    """What was lent under one set of settings: no tick at or past ``until`` of ``layout``."""

    layout: BitLayout
    workers: range
    until: int

    @property
    def highest(self) -> int:
        """No id of it is above this; -1 if none was made."""
        return highest_id(self.layout, self.until, self.workers) if self.until > 0 else -1


def layout_of(fingerprint: Mapping[str, Any]) -> BitLayout:
    """The layout that a stored fingerprint was written with; its name is not kept.

    Raises :class:`LayoutError` for one that can't be read.
    """
    try:
        return BitLayout(
            fingerprint["fields"], tick_us=fingerprint["tick_us"], epoch_us=fingerprint["epoch_us"]
        )
    except (KeyError, TypeError) as error:
        raise LayoutError(
            f"What is stored of the layout can't be read: {dict(fingerprint)!r}."
        ) from error


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
    """The first tick of ``layout`` from which on no id is one of ``eras``.

    None if it has no such tick: then its ids would have to lie below all of theirs.
    """
    ticks = [_past(layout, workers, era) for era in eras]
    tick = max(ticks, default=0)
    return tick if tick < layout.max_ticks else None


def _past(layout: BitLayout, workers: range, era: Era) -> int:
    if era.until <= 0:
        return 0
    if layout.fields == era.layout.fields:
        # The tick can be read off the id, whatever moment it stands for.
        return era.until
    missing = era.highest + 1 - lowest_id(layout, 0, workers)
    return max(0, -(-missing >> layout.time_shift))


def epoch_for(layout: BitLayout, tick: int, now_us: int) -> BitLayout | None:
    """``layout`` with the latest epoch, of midnight, at which ``tick`` is past by ``now_us``.

    None if there is none since 1970, or its time would be used up.
    """
    epoch_us = (now_us - (tick + 1) * layout.tick_us) // _DAY_US * _DAY_US
    if epoch_us < 0 or tick >= layout.max_ticks:
        return None
    moved = replace(layout, epoch_us=epoch_us)
    return moved if (now_us - epoch_us) // layout.tick_us < layout.max_ticks else None


def namespace_of(namespace: Namespace, fingerprint: Mapping[str, Any]) -> Namespace:
    """``namespace`` as those see it who still have the settings of ``fingerprint``.

    Raises :class:`LayoutError` for one that can't be read.
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
    """A length in ticks of the one, in those of the other; rounded up."""
    return -(-ticks * of.tick_us // layout.tick_us)


@dataclass(frozen=True, slots=True)
class Stored:
    """What a book holds. Frozen; in ticks of the layout that it was written with."""

    fingerprint: Mapping[str, Any]
    """The settings that it was opened with; empty if they are not known."""
    generation: int
    fence: int
    highest: int
    """The first tick that was surely never lent: past every window, the fence and a ceiling."""
    longest: int
    """The largest window that is reckoned with."""
    eras: tuple[Era, ...] = ()
    """What was lent under earlier layouts."""
    lead: int = 0
    """How far any window ended past the time when its holder was seen last; 0 if unknown."""

    @property
    def era(self) -> Era:
        """What was lent so far; raises :class:`LayoutError` if it can't be read."""
        return era_of(self.fingerprint, self.highest)


@dataclass(frozen=True, slots=True)
class Successor:
    """What a book is to hold from now on. Frozen; in ticks of ``fingerprint``'s layout."""

    fingerprint: Mapping[str, Any]
    fence: int
    longest: int
    workers: range
    eras: tuple[Era, ...] = ()
    moved: bool = False
    """Whether its ticks are others than before, so that no mark of a worker id can stay."""
    lowered: bool = False
    """Whether marks past the fence are to be lowered to it. Only where no process holds any."""

    @classmethod
    def after(cls, stored: Stored, fence: int, workers: range) -> Successor:
        """A new generation under the settings of ``stored``."""
        return cls(stored.fingerprint, fence, stored.longest, workers, stored.eras)

    @property
    def resets(self) -> bool:
        return self.moved or self.lowered


Change = Callable[[Stored, int], Successor]
"""What a transaction makes of a book, from what is stored and the registry's time (µs since 1970).

Called anew if the transaction is tried again. What it raises undoes the transaction."""


class StoredBook(ABC):
    """Where a registry keeps one namespace. Safe to use from several threads."""

    namespace: Namespace
    """As it is configured."""
    place: str
    """Where it is, for people: ``database 'default'``."""
    key: tuple[str, ...]
    """Its kind, place and name; equal for two that are one."""

    @abstractmethod
    def read(self) -> Stored | None:
        """What is stored, or None; makes and mends nothing.

        Raises :class:`RegistryUnavailable`.
        """

    @abstractmethod
    def rewrite(self, change: Change) -> Stored:
        """Replace what is stored, in one transaction; returns what is there now.

        What was lost meanwhile is reckoned with first, as an acquire would do it.
        Raises what ``change`` raises, :class:`RegistryUnavailable` (it may
        be done) and :class:`NamespaceMismatch` where another process was quicker.
        """

    def installation(self) -> str:
        """Whose it is, in all of its replicas; empty if it has no such name."""
        return ""

    def entered(self) -> bool:
        """Whether the registry that lends knows of what is stored: see :meth:`enter`."""
        return True

    def is_whole(self) -> bool:
        """Whether the registry outside of the database still has what it was granted.

        Raises :class:`RegistryUnavailable`.
        """
        return True

    def enter(self) -> None:  # noqa: B027 - most have nothing to do
        """Have the registry outside of the database begin anew with what is stored there."""


def era_words(era: Era) -> dict[str, Any]:
    """An era as values that survive a trip through JSON."""
    workers = [era.workers.start, era.workers.stop]
    return {**era.layout.fingerprint(), "workers": workers, "until": era.until}


def eras_from(words: object) -> tuple[Era, ...]:
    """What :func:`era_words` made; one that can't be read is an error.

    Raises :class:`LayoutError`.
    """
    found = words if isinstance(words, list) else []
    return tuple(era_of(each, int(each["until"])) for each in found)


def with_highest(stored: Stored, highest: int) -> Stored:
    """``stored``, of which somebody knows that it lent more."""
    return replace(stored, highest=max(stored.highest, highest))
