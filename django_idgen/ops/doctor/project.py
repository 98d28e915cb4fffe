"""What is examined: the settings, the databases that can be asked, and what is in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.db import Error as AnyDatabaseError
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from ...core.clock import SYSTEM_CLOCK
from ...core.errors import IdgenError
from ...db.connection import Place, home_connection, is_there, own_connection, place_of
from ...db.sqlite import database_of, file_beside
from ...db.tables import missing_columns, table_names, table_of
from ...process import factory
from ...settings.config import GeneratorSettings, IdgenSettings
from .findings import Affirmed, Finding, Unexamined

__all__ = ["FAILURES", "Project", "attempt", "unexamined", "words_of"]

FAILURES = (IdgenError, AnyDatabaseError, OSError)
"""What can stop an examination, or a fix."""
PATIENCE = 15.0
"""Seconds to wait for a database that doesn't answer."""


class Project:
    """A project's settings, and its databases as far as they can be asked.

    What was found out once (a database that does not answer, its tables) is not asked again. Makes
    no table, file or row. Used by one thread.
    """

    def __init__(
        self,
        settings: IdgenSettings,
        *,
        databases: Sequence[str] | None = None,
        affirmed: Affirmed | None = None,
        now_us: Callable[[], int] = lambda: SYSTEM_CLOCK.wall_ns() // 1000,
    ) -> None:
        self.settings = settings
        self.databases = tuple(connections.settings) if databases is None else tuple(databases)
        self.affirmed = affirmed or Affirmed()
        self.now_us = now_us
        self._away: dict[str, str] = {}
        self._tables: dict[str, frozenset[str]] = {}
        self._lacking: dict[str, dict[str, list[str]]] = {}
        self._registries: dict[str, Any] = {}

    # --- databases ------------------------------------------------------------

    def up(self) -> list[str]:
        """The databases that can be asked."""
        return [alias for alias in self.databases if self.why_away(alias) is None]

    def everywhere(self) -> list[str]:
        """All databases that can be asked, also those that are not to be examined.

        A proof that an id is nowhere, or a record, has to look into all of them.
        """
        return [alias for alias in connections.settings if self.why_away(alias) is None]

    def unseen(self) -> list[str]:
        """The databases, of all that there are, that can't be asked."""
        return [alias for alias in connections.settings if self.why_away(alias) is not None]

    def why_away(self, alias: str) -> str | None:
        """Why ``alias`` can't be asked; None if it can."""
        if alias not in self._away:
            try:
                self._see(alias)
                self._away[alias] = ""
            except FAILURES as error:
                self._away[alias] = words_of(error)
        return self._away[alias] or None

    def _see(self, alias: str) -> None:
        database = database_of(alias)
        if database is not None and not database.exists():
            self._tables[alias] = frozenset()  # asking would make the file
            return
        if place_of(alias) is Place.SERVER and (database is None or file_beside(database).exists()):
            # On a connection that gives up in time, whatever the project has set.
            own_connection(alias).run(_ping, timeout=PATIENCE)
        found = set(table_names(connections[alias]))
        if is_there(alias):
            found |= set(table_names(home_connection(alias)))
        self._tables[alias] = frozenset(found)

    def tables(self, alias: str) -> frozenset[str]:
        """The names of the tables in a database that is up."""
        return self._tables.get(alias, frozenset())

    def has(self, alias: str, *models: str) -> bool:
        """Whether a database that is up has the whole tables of our ``models``."""
        here = self.tables(alias)
        return all(table_of(name) in here and not self.lacks(alias, name) for name in models)

    def lacks(self, alias: str, model: str) -> list[str]:
        """``table.column`` of each column that the table of ``model`` lacks."""
        known = self._lacking.setdefault(alias, {})
        if model not in known:
            missing = table_of(model) not in self.tables(alias)
            known[model] = [] if missing else missing_columns(home_connection(alias), [model])
        return known[model]

    @contextmanager
    def reading(self, alias: str) -> Iterator[BaseDatabaseWrapper]:
        """The calling thread's connection; a statement that fails spoils nothing around it."""
        with transaction.atomic(using=alias):
            yield connections[alias]

    # --- generators -----------------------------------------------------------

    def generators(self) -> list[GeneratorSettings]:
        """Those of the settings, by alias."""
        return list(self.settings.generators.values())

    def registry(self, entry: GeneratorSettings) -> Any:
        """The registry of an entry, made once. Raises :class:`SettingsError`."""
        found = self._registries.get(entry.alias)
        if found is None:
            found = self._registries[entry.alias] = factory.build_registry(entry)
        return found

    def close(self) -> None:
        """Free what was opened. May be called twice."""
        made, self._registries = self._registries, {}
        for registry in made.values():
            registry.close()


def attempt(
    name: str, subject: str, found: Iterable[Finding | Unexamined]
) -> Iterator[Finding | Unexamined]:
    """What examination ``name`` finds of ``subject``, and what stopped it there, if anything."""
    try:
        yield from found
    except FAILURES as error:
        yield unexamined(name, subject, error)


def unexamined(name: str, subject: str, error: BaseException) -> Unexamined:
    """What stopped an examination."""
    return Unexamined(name, subject, words_of(error))


def words_of(error: BaseException) -> str:
    """An error in one line."""
    return " ".join(str(error).split()) or type(error).__name__


def _ping(connection: BaseDatabaseWrapper) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
