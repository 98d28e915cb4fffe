"""What an examination comes to: findings, how grave they are, and what would mend them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

__all__ = ["Affirmed", "Finding", "Fix", "Severity", "Unexamined"]


class Severity(IntEnum):
    """How grave a finding is."""

    INFO = 0
    """Nothing has to be done."""
    WARNING = 1
    """Ids are unique and flow; something will end, or cost more than it has to."""
    ERROR = 2
    """Ids would repeat, or can't be had, or won't be soon."""


@dataclass(frozen=True, slots=True)
class Affirmed:
    """What can't be seen from here, and somebody vouches for. Frozen."""

    others_stopped: bool = False
    """No process of the namespace runs: neither on this host nor on another one."""
    trust_tables: bool = False
    """No id is anywhere (logs, queues, other services) that the tables don't have."""

    moved_from: frozenset[str] = frozenset()
    """Aliases of databases from which the namespaces were moved to others."""

    def given(self) -> frozenset[str]:
        """The options that say so."""
        words = {"--others-stopped": self.others_stopped, "--trust-tables": self.trust_tables}
        return frozenset(name for name, said in words.items() if said)


@dataclass(frozen=True, slots=True)
class Fix:
    """What mends a finding. Frozen."""

    does: str
    """What it will do, for people."""
    apply: Callable[[], str]
    """Does it, and says what was done. Looks again first, in the transaction that changes
    anything. Raises :class:`IdgenError`."""
    needs: frozenset[str] = frozenset()
    """The options without which it is not done: see :class:`Affirmed`."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not well, or that is good to know. Frozen."""

    examination: str
    severity: Severity
    subject: str
    what: str
    why: str
    """Why it matters."""
    todo: str
    """What to do about it, if there is no fix or it is not wanted."""
    fix: Fix | None = None


@dataclass(frozen=True, slots=True)
class Unexamined:
    """Something that could not be looked at. Frozen."""

    examination: str
    subject: str
    why: str
