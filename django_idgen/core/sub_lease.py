"""What a registry that can forget may lend: ticks that are lent to it in turn (rule L6).

A database remembers; Redis may be flushed, evicted, restarted empty, or replaced by
a replica that missed the last writes. So the ticks that such a registry may grant
are themselves a grant, of the database: those of ``[fence, ceiling)``. Whatever is
forgotten lay below the ceiling, and the next *generation* begins at it.

The rules here are pure; the book applies them in a transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from .lease import Namespace

__all__ = ["Change", "SubLease", "reaching"]


@dataclass(frozen=True, slots=True)
class SubLease:
    """What the database has lent to the current generation of a registry. Frozen."""

    installation: str
    """Whose database it is."""
    generation: int
    fence: int
    """The first tick that may be lent."""
    ceiling: int
    """The first tick that may not; only ever raised. Not past the fence: nothing is lent yet."""
    incarnation: str = ""
    """Which life of the registry the generation was opened for."""

    @property
    def is_laid(self) -> bool:
        """Whether anything may be lent; not so before the first use, and after a loss (L7)."""
        return self.ceiling > self.fence

    def serves(self, other: SubLease) -> bool:
        """Whether ``other`` is of the same generation: a fence tells more than a number."""
        return (self.generation, self.fence, self.incarnation) == (
            other.generation,
            other.fence,
            other.incarnation,
        )

    def opened(self, incarnation: str, *, now: int, stride: int) -> SubLease:
        """The sub-lease of ``incarnation``, a new generation unless it has one already.

        Nothing that an earlier generation may have lent lies past its ceiling.
        """
        if self.is_laid and self.incarnation == incarnation:
            return self
        if not self.ceiling:  # nothing was ever lent
            fence, generation = self.fence, self.generation
        else:
            fence, generation = max(self.fence, self.ceiling, now), self.generation + 1
        return replace(
            self,
            generation=generation,
            fence=fence,
            ceiling=max(fence, now) + stride,
            incarnation=incarnation,
        )

    def lifted(self, *, wanted: int, stride: int) -> SubLease:
        """The sub-lease with its ceiling ``stride`` past ``wanted``, the latest tick in use."""
        return replace(self, ceiling=max(self.ceiling, max(self.fence, wanted) + stride))

    def raised_for(self, seen: SubLease, *, now: int, wanted: int, stride: int) -> SubLease:
        """What becomes of it when a user of generation ``seen`` asks for a higher ceiling.

        Only the current generation is lifted. One that a loss of the database has
        left without ticks goes to the process that asks first, past what that one still knows
        to have been lent; another stays as it is.
        """
        if not self.is_laid:
            known = replace(self, fence=max(self.fence, seen.ceiling))
            return known.opened(seen.incarnation, now=now, stride=stride)
        return self.lifted(wanted=wanted, stride=stride) if self.serves(seen) else self


Change = Callable[[SubLease], SubLease]
"""What a transaction makes of a sub-lease."""


def reaching(namespace: Namespace, sub_lease: SubLease, *, now: int, stride: int) -> Namespace:
    """``namespace`` with the largest window that a loss of ``sub_lease`` must reckon with (L7).

    Since then its ceiling may have been raised, to as far past the time as it lay at
    ``now``, or a generation may have been opened at it: that is a stride more.
    """
    lead = max(sub_lease.ceiling - now, stride)
    return replace(namespace, window_ticks=namespace.window_ticks + lead + stride)
