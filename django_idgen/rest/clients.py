"""Whom worker ids are lent to over HTTP, and out of which registries. Needs no DRF.

Whose a worker id is says its holder's label, in which the name of a token stands: tokens of one
name are one owner, so that a new secret changes nothing. What an open mount lends has no owner.
The labels of processes that ask the registry themselves begin with no quote.
"""

from __future__ import annotations

import json
import os
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
from ..process.handlers import AliasMap, current_settings
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
        """The label of a client that calls itself ``holder``."""
        return f"{json.dumps(self.name, ensure_ascii=False)} {holder}"

    def instance_label(self, namespace: str, name: str) -> str:
        """The label of a CosId instance, which is known by it alone."""
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


class RegistryMap(AliasMap[Registry]):
    """``REGISTRIES[alias]``: the registry of an alias of ``IDGEN["GENERATORS"]``.

    It is not the generator's own: it lends to others, and holds no grant itself. Follows
    changes of the settings. Raises :class:`KeyError` for an alias that is not configured.
    """

    def __init__(self) -> None:
        super().__init__()
        self._pid = os.getpid()
        lifecycle.register(close=self.close, forget=self.forget)
        setting_changed.connect(self._on_setting_changed)

    def __getitem__(self, alias: str) -> Registry:
        # uWSGI forks without running Python's hooks.
        if self._pid != os.getpid():
            with process_lock():
                if self._pid != os.getpid():
                    self.forget()
        return super().__getitem__(alias)

    def build(self, alias: str) -> Registry:
        return self.open(current_settings().generators[alias])

    def open(self, entry: GeneratorSettings) -> Registry:
        """A registry that is not in use yet. Raises :class:`SettingsError`."""
        registry: Registry = factory.build_registry(entry)
        registry.lend_on()  # the holders' clocks are not this host's
        return registry

    def end(self, alias: str, made: Registry) -> None:  # noqa: ARG002
        made.close()

    def drop_inherited(self, made: Registry) -> None:
        made.abandon()

    def forget(self) -> None:
        super().forget()
        self._pid = os.getpid()  # last: a thread that reads it finds the rest done

    def _on_setting_changed(self, *, setting: str, **_kwargs: Any) -> None:
        if setting in {"IDGEN", "DATABASES", "CACHES"}:
            _owners.clear()
            self.close()


REGISTRIES = RegistryMap()
"""Those of this process."""

_owners: dict[str, DatabaseOwner] = {}
_of_process: dict[int, str] = {}


def installation_of_registry(registry: Registry) -> str:
    """Whose worker ids ``registry`` lends: no other database has the same answer.

    Raises :class:`RegistryUnavailable` where the database can't be asked.
    """
    known = registry.installation()
    if known is not None:
        return known
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
