"""The registries that a process looks after, or into: they hold no worker id themselves."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from django.db import connections

from ..core.registry import Registry
from ..settings.config import (
    DEFAULT_ALIAS,
    BackendSettings,
    GeneratorSettings,
    nested_leases,
    read_settings,
)
from . import factory, lifecycle

__all__ = ["KeptRegistries", "lease_databases", "registry_of"]


class KeptRegistries:
    """The registry of a generator's settings, kept for the next time.

    One that knows its Redis can be asked there while the database is down. Thread-safe;
    the child of a fork begins anew.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[GeneratorSettings, Registry]] = {}
        self._lock = threading.Lock()
        lifecycle.register(close=self.close, forget=self.forget)

    def of(self, entry: GeneratorSettings) -> Registry:
        """The one of ``entry``, made when it is first asked for, or when it has changed."""
        with self._lock:
            kept = self._kept.get(entry.alias)
            if kept is None or kept[0] != entry:
                if kept is not None:
                    kept[1].close()
                kept = self._kept[entry.alias] = entry, factory.build_registry(entry)
                lifecycle.watch()
            return kept[1]

    def close(self) -> None:
        """Close the registries. May be called twice; the next use makes new ones."""
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


_registries = KeptRegistries()
registry_of = _registries.of


def lease_databases() -> dict[str, list[GeneratorSettings]]:
    """All databases that lend worker ids, or remember for a registry that does, by their aliases.

    With the generators whose worker ids those are.
    """
    found: dict[str, list[GeneratorSettings]] = {}
    for entry in read_settings().generators.values():
        for alias in dict.fromkeys(_named_by(entry.leases)):
            found.setdefault(alias, []).append(entry)
    return found


def _named_by(leases: BackendSettings) -> Iterator[str]:
    backend = leases.load()
    if backend.uses_database:
        alias = str(leases.options.get("database", DEFAULT_ALIAS))
        if alias in connections.settings:
            yield alias
    for name in backend.nested:
        yield from _named_by(nested_leases(leases, name))
