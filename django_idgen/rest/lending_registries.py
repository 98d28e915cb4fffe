"""The lease registries out of which worker ids are lent over HTTP, and whose ids those are."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from secrets import token_hex
from typing import Any

from django.core.signals import setting_changed

from ..core.errors import RegistryUnavailable, SegmentUnavailable
from ..core.lease import LeaseRegistry
from ..core.loader import process_lock
from ..db.connection import place_of
from ..db.installation import DatabaseOwner
from ..process import factory, lifecycle
from ..process.handlers import current_settings
from ..settings.config import GeneratorSettings

__all__ = ["REGISTRIES", "RegistryMap", "installation_of_registry", "installation_of_source"]

OWNER_AGE = 60.0
"""Seconds after which it is looked again whether a database is still the same one."""


class RegistryMap:
    """``REGISTRIES[alias]``: the registry of an alias of ``IDGEN["GENERATORS"]``.

    One for each alias and process, made on first use, and not the generator's own: it
    lends to others. It holds no grant, so that nothing has to be given back. Thread-safe.
    """

    def __init__(self) -> None:
        self._start_over()

    def _start_over(self) -> None:
        self._made: dict[str, LeaseRegistry] = {}
        self._lock = threading.Lock()
        self._pid = os.getpid()  # last: whoever reads it finds the rest done

    def __getitem__(self, alias: str) -> LeaseRegistry:
        """Raises :class:`KeyError` for an alias that is not configured."""
        self._check_process()
        found = self._made.get(alias)
        return self._make(alias) if found is None else found

    def _make(self, alias: str) -> LeaseRegistry:
        with self._lock:
            if alias not in self._made:
                self._made[alias] = self.build(current_settings().generators[alias])
                lifecycle.watch()
            return self._made[alias]

    def build(self, entry: GeneratorSettings) -> LeaseRegistry:
        """A registry that is not in use yet. Raises :class:`SettingsError`."""
        registry: LeaseRegistry = factory.build_registry(entry)
        told = getattr(registry, "lend_on", None)
        if told is not None:
            told()  # the holders' clocks are not this host's
        return registry

    def _check_process(self) -> None:
        # uWSGI forks without running Python's hooks.
        if self._pid != os.getpid():
            with process_lock():
                if self._pid != os.getpid():
                    self.forget()

    @contextmanager
    def override(self, alias: str, registry: LeaseRegistry) -> Iterator[LeaseRegistry]:
        """Lend out of ``registry`` under ``alias`` in a block (of a test)."""
        before = self._made.get(alias)
        self._made[alias] = registry
        try:
            yield registry
        finally:
            del self._made[alias]
            if before is not None:
                self._made[alias] = before

    def close(self) -> None:
        """Close all of them; the next use makes them anew. May be called twice."""
        with self._lock:
            made, self._made = self._made, {}
        for registry in made.values():
            registry.close()

    def forget(self) -> None:
        """After a fork: drop what came from the parent."""
        for registry in self._made.values():
            registry.abandon()
        made = self._made
        self._start_over()
        self._made = made


REGISTRIES = RegistryMap()
"""Those of this process."""

_owners: dict[str, DatabaseOwner] = {}
_of_process: dict[int, str] = {}


def installation_of_registry(registry: LeaseRegistry) -> str:
    """Whose worker ids ``registry`` lends: no other database has the same answer.

    Raises :class:`RegistryUnavailable` where the database can't be asked.
    """
    lender: Any = registry
    while not hasattr(lender, "database") and hasattr(lender, "primary"):
        lender = lender.primary
    if callable(getattr(lender, "installation", None)):
        return str(lender.installation())
    alias = getattr(lender, "database", None)
    if alias is None or place_of(alias).in_process:
        return _this_process()
    found = _owner_of(alias).current(max_age=OWNER_AGE)
    if not found:
        raise RegistryUnavailable(
            f"Database {alias!r} can't be asked whose worker ids it lends. It is asked again "
            f"within half a minute."
        )
    return found


def installation_of_source(source: Any, tag: str) -> str:
    """Whose ids ``source`` gives out under ``tag``: no other database has the same answer.

    Raises :class:`SegmentUnavailable` where the database can't be asked.
    """
    source = source.behind
    if not source.can_be_pooled:
        return _this_process()
    found = str(source.owner(tag, max_age=OWNER_AGE))
    if found:
        return found
    if source.keeps_rows and place_of(source.route(tag)[0]).in_process:
        return _this_process()
    raise SegmentUnavailable(
        f"The database of tag {tag!r} can't be asked whose ids it gives out. It is asked again "
        f"within half a minute."
    )


def _owner_of(alias: str) -> DatabaseOwner:
    return _owners.get(alias) or _owners.setdefault(alias, DatabaseOwner(alias))


def _this_process() -> str:
    """Of ids that no other process knows of: two such processes must not serve one client."""
    pid = os.getpid()
    return _of_process.get(pid) or _of_process.setdefault(pid, f"process-{token_hex(8)}")


def _on_setting_changed(*, setting: str, **_kwargs: Any) -> None:
    if setting in {"IDGEN", "DATABASES", "CACHES"}:
        _owners.clear()
        REGISTRIES.close()


lifecycle.register(close=REGISTRIES.close, forget=REGISTRIES.forget)
setting_changed.connect(_on_setting_changed, dispatch_uid="django_idgen.lending")
