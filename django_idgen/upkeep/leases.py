"""Renewal from outside: a scheduler keeps the worker ids of processes that can't just now.

A process renews its lease by itself. One that is blocked (in a long call of C code, by
SIGSTOP, by a starved machine) can't, and would come back to a worker id that somebody
else has by then. Whoever calls :func:`renew_worker_leases` about three times a window
keeps it for it, as long as it was seen lately.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from .. import factory, lifecycle
from ..conf import GeneratorSettings, read_settings
from ..core.errors import IdgenError, UpkeepFailed

__all__ = ["LeaseUpkeep", "renew_worker_leases"]

Done = dict[str, dict[str, Any]]


class LeaseUpkeep:
    """Renews what is held of the namespaces of some generators; holds no worker id itself.

    The registries are kept for the next time: one that knows its Redis can renew there
    while the database is away. Thread-safe; the child of a fork begins anew.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[GeneratorSettings, Any]] = {}
        self._lock = threading.Lock()

    def renew(self, generators: Mapping[str, GeneratorSettings]) -> Done:
        """Renew for every holder seen lately; what came of it, by alias.

        Raises :class:`UpkeepFailed` where that failed for some, after all others.
        """
        done: Done = {}
        failures: list[IdgenError] = []
        for alias, entry in generators.items():
            try:
                done[alias] = self._renew(entry)
            except IdgenError as error:
                failures.append(error)
                done[alias] = {"error": f"{type(error).__name__}: {error}"}
        if failures:
            raise UpkeepFailed("Worker leases were not all renewed", done) from failures[0]
        return done

    def _renew(self, entry: GeneratorSettings) -> dict[str, Any]:
        if getattr(entry.leases.load(), "needs_workers", False):
            # Each host is told its worker ids, and nobody else can have them.
            return {"skipped": "its worker ids are not shared"}
        return {"renewed": self._registry(entry).renew_seen(idle_after=entry.idle_after)}

    def _registry(self, entry: GeneratorSettings) -> Any:
        with self._lock:
            known, registry = self._kept.get(entry.alias, (None, None))
            if known != entry:
                if registry is not None:
                    registry.close()
                registry = factory.build_registry(entry)
                self._kept[entry.alias] = entry, registry
                lifecycle.watch()
            return registry

    def close(self) -> None:
        """Close the registries. May be called twice; the next renewal makes new ones."""
        with self._lock:
            kept, self._kept = self._kept, {}
        for _, registry in kept.values():
            registry.close()

    def forget(self) -> None:
        """In the child of a fork: nothing of the parent's is used."""
        self._lock = threading.Lock()
        kept, self._kept = self._kept, {}
        for _, registry in kept.values():
            registry.abandon()


_upkeep = LeaseUpkeep()
lifecycle.register(close=_upkeep.close, forget=_upkeep.forget)


def renew_worker_leases() -> Done:
    """Renew the worker ids of processes that were seen lately, but may be idle or blocked.

    Goes through all of ``IDGEN["GENERATORS"]`` whose worker ids are shared. A holder that
    was not seen for the lease option ``idle_after`` (seconds; five windows unless told)
    is left to lapse. Takes no worker id, lowers no mark, revives nothing that has lapsed,
    and may come late or run twice at once.

    Returns, by alias, ``{"renewed": how many}`` or ``{"skipped": why}``. Raises
    :class:`UpkeepFailed`, after all others were renewed, if that failed for an alias.
    """
    return _upkeep.renew(read_settings().generators)
