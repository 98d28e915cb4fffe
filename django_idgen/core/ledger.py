"""What a registry has stored of a namespace as a whole, and how that is replaced.

For whoever looks at it from outside, and for the few changes that are no business of a
holder: another layout, epoch, registry or range of worker ids, or a fence past whatever
a lost or restored database may have lent. Each opens a new generation in one transaction,
with the namespace locked: whoever holds a worker id uses up its window, and is refused or
takes a new one; nothing at or past the fence was ever lent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .lease import Namespace
from .succession import Era, era_of

__all__ = ["Change", "Ledger", "Stored", "Successor", "era_words", "eras_from", "with_highest"]


@dataclass(frozen=True, slots=True)
class Stored:
    """What a ledger holds. Frozen; in ticks of the layout that it was written with."""

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
    """What a ledger is to hold from now on. Frozen; in ticks of ``fingerprint``'s layout."""

    fingerprint: Mapping[str, Any]
    fence: int
    longest: int
    workers: range
    eras: tuple[Era, ...] = ()
    moved: bool = False
    """Whether its ticks are others than before, so that no mark of a worker id can stay."""
    lowered: bool = False
    """Whether marks past the fence are to be lowered to it. Only where nobody holds any."""

    @classmethod
    def after(cls, stored: Stored, fence: int, workers: range) -> Successor:
        """A new generation under the settings of ``stored``."""
        return cls(stored.fingerprint, fence, stored.longest, workers, stored.eras)

    @property
    def resets(self) -> bool:
        return self.moved or self.lowered


Change = Callable[[Stored, int], Successor]
"""What a transaction makes of a ledger; it is told the registry's time, µs since 1970.

Called anew if the transaction is tried again. What it raises undoes the transaction."""


class Ledger(ABC):
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
        """Whether a lender outside of the database still has what it was given.

        Raises :class:`RegistryUnavailable`.
        """
        return True

    def enter(self) -> None:  # noqa: B027 - most have nothing to do
        """Have a lender outside of the database begin anew with what is stored there."""


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
