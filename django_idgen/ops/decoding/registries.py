"""What registries tell of an id: who held its worker id, and how ids were laid out before."""

from __future__ import annotations

from contextlib import suppress

from django.db import DatabaseError
from django.utils.translation import gettext as _

from ...core.errors import IdgenError, InvalidId, RegistryUnavailable
from ...core.layout import IdParts
from ...core.succession import Era
from ...process.registries import registry_of
from ...settings.config import GeneratorSettings
from ..worker_map import Tenure, who_held

__all__ = ["Registries"]


class Registries:
    """Asks the registries of generators, for all ids of a text; one that is away only once.

    To find that out may take seconds. Not thread-safe.
    """

    def __init__(self) -> None:
        self._away: dict[str, str] = {}
        self._eras: dict[str, tuple[Era, ...]] = {}

    def era(self, number: int, entry: GeneratorSettings) -> Era | None:
        """Under which earlier settings of its namespace ``number`` can have been made.

        No id of today's settings can: see :mod:`...core.succession`.
        """
        if entry.alias not in self._eras:
            self._eras[entry.alias] = self._read(entry)
        return next((era for era in self._eras[entry.alias] if _has(era, number)), None)

    def tenure(self, alias: str, parts: IdParts) -> tuple[Tenure | None, str]:
        """Who held the worker id at that time; or why that can't be told."""
        if alias in self._away:
            return None, self._away[alias]
        try:
            found = who_held(alias, parts.worker, parts.tick)
        except (IdgenError, DatabaseError) as error:
            return None, self._note(alias, error)
        return found, "" if found else _("no record of it")

    def _read(self, entry: GeneratorSettings) -> tuple[Era, ...]:
        found: list[Era] = []
        try:
            for ledger in getattr(registry_of(entry), "ledgers", list)():
                stored = ledger.read()
                found += () if stored is None else stored.eras
        except (IdgenError, DatabaseError) as error:
            self._note(entry.alias, error)
        return tuple(found)

    def _note(self, alias: str, error: Exception) -> str:
        words = " ".join(str(error).split())
        if isinstance(error, RegistryUnavailable):
            self._away[alias] = words
        return words


def _has(era: Era, number: int) -> bool:
    with suppress(InvalidId):
        parts = era.layout.unpack(number)
        return parts.tick < era.until and parts.worker in era.workers
    return False
