"""Whom worker ids are lent to over HTTP, and out of which registries. Needs no DRF.

Whose a worker id is says its holder's label, in which the name of a token stands: tokens of one
name are one owner, so that a new secret changes nothing. What an open mount lends has no owner.
The labels of processes that ask the registry themselves begin with no quote.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

from django.core.signals import setting_changed

from ..core.errors import RegistryUnavailable, SegmentUnavailable
from ..core.lease import OLD_CLIENTS
from ..core.loader import process_lock
from ..core.registry import Registry
from ..db.connection import place_of
from ..db.installation import DatabaseOwner
from ..process import factory, lifecycle
from ..process.handlers import current_settings
from ..settings.config import GeneratorSettings
from .tokens import KnownToken

__all__ = [
    "MOST_LABEL",
    "OPEN",
    "REGISTRIES",
    "Owner",
    "RegistryMap",
    "handed_over",
    "installation_of_registry",
    "installation_of_source",
]

MOST_LABEL = 200
"""Characters that a registry keeps of a holder's name."""
OWNER_AGE = 60.0
"""Seconds after which it is looked again whether a database is still the same one."""


# --- whose a worker id is ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Owner:
    """The tokens of one name; ``None``: all who come through open mounts."""

    name: str | None

    @classmethod
    def of(cls, token: KnownToken | None) -> Owner:
        return OPEN if token is None else cls(token.name)

    def label(self, holder: str) -> str:
        """That of a borrower which calls itself ``holder``."""
        return f"{json.dumps(self.name, ensure_ascii=False)} {holder}"

    def instance_label(self, namespace: str, name: str) -> str:
        """That of a CosId instance, which is known by it alone."""
        return OLD_CLIENTS + self.label(f"{json.dumps(namespace, ensure_ascii=False)} {name}")

    def has(self, label: str) -> bool:
        """Whether ``label`` is one of this owner's."""
        return label.removeprefix(OLD_CLIENTS).startswith(self.label(""))


OPEN = Owner(None)


def handed_over(label: str, giver: Owner, taker: Owner, instance: str | None = None) -> str | None:
    """What the label of a CosId instance of ``giver`` becomes; None for all other labels.

    ``instance``: of that one alone.
    """
    prefix = OLD_CLIENTS + giver.label("")
    if not label.startswith(prefix):
        return None
    rest = label.removeprefix(prefix)
    _, end = json.JSONDecoder().raw_decode(rest)
    if instance not in (None, rest[end + 1 :]):
        return None
    return OLD_CLIENTS + taker.label(rest)


# --- out of which registries ---------------------------------------------------------


class RegistryMap:
    """``REGISTRIES[alias]``: the registry of an alias of ``IDGEN["GENERATORS"]``.

    One for each alias and process, made on first use, and not the generator's own: it
    lends to others. It holds no grant, so that nothing has to be given back. Thread-safe.
    """

    def __init__(self) -> None:
        self._start_over()

    def _start_over(self) -> None:
        self._made: dict[str, Registry] = {}
        self._lock = threading.Lock()
        self._pid = os.getpid()  # last: whoever reads it finds the rest done

    def __getitem__(self, alias: str) -> Registry:
        """Raises :class:`KeyError` for an alias that is not configured."""
        self._check_process()
        found = self._made.get(alias)
        return self._make(alias) if found is None else found

    def _make(self, alias: str) -> Registry:
        with self._lock:
            if alias not in self._made:
                self._made[alias] = self.build(current_settings().generators[alias])
                lifecycle.watch()
            return self._made[alias]

    def build(self, entry: GeneratorSettings) -> Registry:
        """A registry that is not in use yet. Raises :class:`SettingsError`."""
        registry: Registry = factory.build_registry(entry)
        registry.lend_on()  # the holders' clocks are not this host's
        return registry

    def _check_process(self) -> None:
        # uWSGI forks without running Python's hooks.
        if self._pid != os.getpid():
            with process_lock():
                if self._pid != os.getpid():
                    self.forget()

    @contextmanager
    def override(self, alias: str, registry: Registry) -> Iterator[Registry]:
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


def installation_of_registry(registry: Registry) -> str:
    """Whose worker ids ``registry`` lends: no other database has the same answer.

    Raises :class:`RegistryUnavailable` where the database can't be asked.
    """
    told = registry.installation()
    if told is not None:
        return told
    alias = registry.database
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
