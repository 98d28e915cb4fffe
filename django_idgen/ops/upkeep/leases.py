"""Renewal from outside: a scheduler keeps the worker ids of processes that can't just now.

A process renews its lease by itself. One that is blocked (in a long call of C code, by
SIGSTOP, by a starved machine) can't, and would come back to a worker id that somebody
else has by then. Whoever calls :func:`renew_worker_leases` about three times a window
keeps it for it, as long as it was seen lately.
"""

from __future__ import annotations

from typing import Any

from ...core.errors import IdgenError, UpkeepFailed
from ...process.registries import registry_of
from ...settings.config import GeneratorSettings, read_settings

__all__ = ["renew_worker_leases"]

Done = dict[str, dict[str, Any]]


def renew_worker_leases() -> Done:
    """Renew the worker ids of processes that were seen lately, but may be idle or blocked.

    Goes through all of ``IDGEN["GENERATORS"]`` whose worker ids are shared. A holder that
    was not seen for the lease option ``idle_after`` (seconds; five windows unless told)
    is left to lapse. Takes no worker id, lowers no mark, revives nothing that has lapsed,
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
    if getattr(entry.leases.load(), "needs_workers", False):
        # Each host is told its worker ids, and nobody else can have them.
        return {"skipped": "its worker ids are not shared"}
    return {"renewed": registry_of(entry).renew_seen(idle_after=entry.idle_after)}
