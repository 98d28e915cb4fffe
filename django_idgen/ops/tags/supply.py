"""Ids of a tag kept at hand: loaded ahead or cleared on request."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...core.errors import ConfigurationError, SegmentUnavailable
from ...core.segment import check_tag
from ...models import LeafAlloc
from ...process import handlers
from ...process.tags import source_in_use
from ..preloading import Forecast

__all__ = [
    "LetGo",
    "clear_here",
    "clear_pool",
    "fill_pool",
    "held_here",
    "let_go",
    "load_ahead",
]


class LetGo(NamedTuple):
    """What was let go of."""

    held: int
    """Ids that this process had."""
    pool: bool | None
    """See :func:`clear_pool`."""


def load_ahead(tag: str) -> bool:
    """Load now what this process keeps ahead of ``tag``; whether it came in time.

    Waits as long as a caller for an id does, and raises as for one.
    """
    allocator = handlers.segments.allocator()
    generator: Any = handlers.segments[check_tag(tag)]
    return bool(generator.preload(allocator.timeout))


def held_here(tag: str) -> int:
    """How many ids of ``tag`` this process holds; 0 if it doesn't use the tag."""
    made = handlers.segments.get(tag)
    stats: Any = None if made is None else made.stats()
    return 0 if stats is None else int(stats.remaining)


def fill_pool(row: LeafAlloc) -> int | None:
    """Put into the pool what the tag uses in the outage of the settings, or a step at least.

    Returns how many ids were put in; None where there is no pool. Raises
    :class:`SegmentUnavailable`.
    """
    pool = source_in_use()
    if not pool.is_pool:
        return None
    outage = handlers.current_settings().segments.outage
    wanted = max(Forecast(row.pk, row.rate, 0).wanted(outage), row.step)
    return pool.refill(row.pk, wanted)


def clear_here(tag: str) -> int:
    """Give back what this process holds of ``tag``; how many ids that were.

    They go into the pool, or are a gap where there is none. Other processes keep theirs.
    """
    made: Any = handlers.segments.get(check_tag(tag))
    return 0 if made is None else int(made.clear())


def let_go(tag: str) -> LetGo:
    """Clear ``tag`` here and in the pool, after it has skipped ahead."""
    # In this order: what this process gives back goes into the pool.
    return LetGo(clear_here(tag), clear_pool(tag))


def clear_pool(tag: str) -> bool | None:
    """Throw away what lies in the pool of ``tag``; None where there is no pool.

    False if Redis can't be asked, or refuses: then the pool may still hand them out.
    """
    pool = source_in_use()
    if not pool.is_pool:
        return None
    try:
        pool.clear([check_tag(tag)])
    except (SegmentUnavailable, ConfigurationError):
        return False
    return True
