"""What a scheduler does for all processes: renew their worker ids, and prune the history.

A process renews its own lease. One that is blocked (in a long call of C code, by SIGSTOP, by
a starved machine) can't, and would come back to a worker id that another process has by
then. A scheduler that calls :func:`renew_worker_leases` about three times a window keeps it,
as long as the process was seen lately. The third job is in :mod:`.preloading`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

from django.db import Error as DatabaseFailure
from django.utils import timezone

from ..core.errors import ConfigurationError, IdgenError, UpkeepFailed
from ..db.connection import Place, home_connection, place_of
from ..db.tables import missing_tables
from ..leases import history as lease_history
from ..process.factory import lease_databases, registry_of
from ..process.tags import source_behind_pool
from ..settings.config import GeneratorSettings, read_settings
from ..sources import history

__all__ = ["KEPT_DAYS", "prune_history", "renew_worker_leases"]

Done = dict[str, dict[str, Any]]


def renew_worker_leases() -> Done:
    """Renew the worker ids of processes that were seen lately, but may be idle or blocked.

    Goes through all of ``IDGEN["GENERATORS"]`` whose worker ids are shared. A holder that
    was not seen for the lease option ``idle_after`` (seconds; five windows by default)
    is left to expire. Takes no worker id, lowers no mark, revives nothing that has expired,
    and may come late or run twice at once.

    Returns, by alias, ``{"renewed": how many}`` or ``{"skipped": why}``. Raises
    :class:`UpkeepFailed`, after all others were renewed, if that failed for an alias.
    """
    done: Done = {}
    failures: list[IdgenError] = []
    for alias, entry in read_settings().generators.items():
        try:
            done[alias] = _renew(entry)
        except IdgenError as error:
            failures.append(error)
            done[alias] = {"error": f"{type(error).__name__}: {error}"}
    if failures:
        raise UpkeepFailed("Worker leases were not all renewed", done) from failures[0]
    return done


def _renew(entry: GeneratorSettings) -> dict[str, Any]:
    if entry.leases.load().needs_workers:
        # Each host has its own worker ids, which no other host can have.
        return {"skipped": "its worker ids are not shared"}
    return {"renewed": registry_of(entry).renew_seen(idle_after=entry.idle_after)}


KEPT_DAYS = 90.0
MOST_DAYS = 36_500.0


def prune_history(days: float = KEPT_DAYS) -> dict[str, dict[str, Any]]:
    """Delete the rows of ids that were handed out more than ``days`` (0 to 36500) ago.

    And of worker ids that were lent on before that: who has one still is not forgotten.
    In batches, each a transaction of its own: may come late, run twice at once, or be
    killed. Returns, by database, ``{"deleted": how many rows}``. Raises
    :class:`UpkeepFailed`, after all others were done, if that failed for a database.
    """
    before = timezone.now() - timedelta(days=_checked(days))
    done: dict[str, dict[str, Any]] = {}
    failures: list[Exception] = []
    for alias, prune in (*_segments(), *_leases()):
        try:
            deleted = prune(before, database=alias)
        except DatabaseFailure as error:
            failures.append(error)
            done[alias] = {"error": f"{type(error).__name__}: {error}"}
        else:
            if deleted is not None:
                entry = done.setdefault(alias, {"deleted": 0})
                entry["deleted"] = entry.get("deleted", 0) + deleted
    if failures:
        raise UpkeepFailed("The history was not pruned everywhere", done) from failures[0]
    return done


Prune = Callable[..., int | None]


def _segments() -> Iterator[tuple[str, Prune]]:
    for alias in source_behind_pool().databases():
        yield alias, _if_there("SegmentHistory", history.prune_history)


def _leases() -> Iterator[tuple[str, Prune]]:
    for alias in lease_databases():
        if place_of(alias) is Place.SERVER:
            yield alias, _if_there("LeaseHistory", lease_history.prune_leases)


def _if_there(model: str, prune: Prune) -> Prune:
    """``prune``, where its table is there: it is not made for that."""

    def run(before: datetime, *, database: str) -> int | None:
        there = not missing_tables(home_connection(database), [model])
        return prune(before, database=database) if there else None

    return run


def _checked(days: object) -> float:
    number = isinstance(days, (int, float)) and not isinstance(days, bool)
    if not number or not 0 <= days <= MOST_DAYS:  # type: ignore[operator]
        raise ConfigurationError(f"'days' must be 0 to {MOST_DAYS:g}, not {days!r}.")
    return float(days)  # type: ignore[arg-type]
