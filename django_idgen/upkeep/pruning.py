"""Old rows of the history of segments, deleted in every database that has some."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import Error as DatabaseFailure
from django.db import connections
from django.utils import timezone

from .. import handlers, history
from ..core.errors import ConfigurationError, UpkeepFailed
from ..tables import missing_tables

__all__ = ["KEPT_DAYS", "prune_history"]

KEPT_DAYS = 90.0
MOST_DAYS = 36_500.0


def prune_history(days: float = KEPT_DAYS) -> dict[str, dict[str, Any]]:
    """Delete the rows of ids that were handed out more than ``days`` (0 to 36500) ago.

    In batches, each a transaction of its own: may come late, run twice at once, or be
    killed. Returns, by database, ``{"deleted": how many rows}``. Raises
    :class:`UpkeepFailed`, after all others were done, if that failed for a database.
    """
    before = timezone.now() - timedelta(days=_checked(days))
    done: dict[str, dict[str, Any]] = {}
    failures: list[DatabaseFailure] = []
    for alias in _databases():
        try:
            if not missing_tables(connections[alias], ["SegmentHistory"]):
                done[alias] = {"deleted": history.prune_history(before, database=alias)}
        except DatabaseFailure as error:
            failures.append(error)
            done[alias] = {"error": f"{type(error).__name__}: {error}"}
    if failures:
        raise UpkeepFailed("The history was not pruned everywhere", done) from failures[0]
    return done


def _databases() -> list[str]:
    source: Any = handlers.segments.allocator().source
    source = getattr(source, "source", source)  # what stands behind a pool
    return list(source.databases()) if hasattr(source, "databases") else []


def _checked(days: object) -> float:
    number = isinstance(days, (int, float)) and not isinstance(days, bool)
    if not number or not 0 <= days <= MOST_DAYS:  # type: ignore[operator]
        raise ConfigurationError(f"'days' must be 0 to {MOST_DAYS:g}, not {days!r}.")
    return float(days)  # type: ignore[arg-type]
