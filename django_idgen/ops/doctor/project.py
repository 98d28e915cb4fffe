"""The project under examination: its settings, its databases, and the columns that hold our ids."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from django.apps import apps
from django.core.checks import CheckMessage
from django.db import DataError, connections, router, transaction
from django.db import Error as AnyDatabaseError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import F, Max, Min, QuerySet

from ...core.clock import SYSTEM_CLOCK
from ...core.errors import IdgenError, one_line
from ...core.segment import Shard
from ...core.store import StoredBook
from ...db.connection import Place, home_connection, is_there, own_connection, place_of
from ...db.rows import read_aggregate
from ...db.sqlite import database_of, file_beside
from ...db.tables import (
    MODELS,
    has_table,
    missing_columns,
    our_tables,
    table_names,
    table_of,
)
from ...fields import SegmentSource, SnowflakeSource
from ...process.maps import registries
from ...settings.config import GeneratorSettings, IdgenSettings
from .findings import Finding, not_examined

T = TypeVar("T", bound=Finding | CheckMessage)
FAILURES = (IdgenError, AnyDatabaseError, OSError)
"""What can stop a fix."""
PATIENCE = 15.0
"""Seconds to wait for a database that does not answer."""


class Project:
    """A project's settings and the databases that answer.

    It remembers which databases did not answer and which tables exist. It creates no table,
    file or row. Not thread-safe.

    ``databases``: the aliases to examine, all by default. ``assurances``: the options
    (:data:`OTHERS_STOPPED`, :data:`TRUST_TABLES`) that the operator gave. ``moved_from``: the
    aliases of databases that the namespaces were moved from.
    """

    def __init__(
        self,
        settings: IdgenSettings,
        *,
        databases: Sequence[str] | None = None,
        assurances: Collection[str] = (),
        moved_from: Collection[str] = (),
        now_us: Callable[[], int] = lambda: SYSTEM_CLOCK.wall_ns() // 1000,
    ) -> None:
        self.settings = settings
        self.generators = list(settings.generators.values())
        self.databases = list(connections.settings if databases is None else databases)
        self.assurances = frozenset(assurances)
        self.moved_from = frozenset(moved_from)
        self.now_us = now_us
        self._errors: dict[str, str] = {}
        self._tables: dict[str, frozenset[str]] = {}
        self._lacking: dict[str, list[str]] = {}

    # --- databases ------------------------------------------------------------

    def reachable(self) -> list[str]:
        """The databases to examine that answer."""
        return [alias for alias in self.databases if not self.connection_error(alias)]

    def all_reachable(self) -> list[str]:
        """The databases of the whole project that answer.

        A proof that an id is nowhere has to look into all of them.
        """
        return [alias for alias in connections.settings if not self.connection_error(alias)]

    def all_unreachable(self) -> list[str]:
        """The databases of the whole project that do not answer."""
        return [alias for alias in connections.settings if self.connection_error(alias)]

    def connection_error(self, alias: str) -> str:
        """Why the database does not answer; empty if it does."""
        if alias not in self._errors:
            self._tables[alias], self._lacking[alias], self._errors[alias] = frozenset(), [], ""
            try:
                self._look_into(alias)
            except Exception as error:  # noqa: BLE001 - an engine may raise anything
                self._errors[alias] = one_line(error)
        return self._errors[alias]

    def _look_into(self, alias: str) -> None:
        database = database_of(alias)
        if database is not None and not database.exists():
            return  # a connection would create the file
        if place_of(alias) is Place.SERVER and (database is None or file_beside(database).exists()):
            # On a connection that gives up in time, whatever timeout the project has set.
            own_connection(alias).run(_ping, timeout=PATIENCE)
        found = set(table_names(connections[alias]))
        if is_there(alias):
            home = home_connection(alias)
            found |= set(our_tables(home))
            self._lacking[alias] = missing_columns(home)
        self._tables[alias] = frozenset(found)

    def tables(self, alias: str) -> frozenset[str]:
        """The names of the tables in a reachable database."""
        return self._tables.get(alias, frozenset())

    def has(self, alias: str, *models: str) -> bool:
        """Whether a reachable database has the complete tables of our ``models``."""
        here = self.tables(alias)
        return all(table_of(name) in here and not self.missing(alias, name) for name in models)

    def has_rows_of(self, alias: str, model: Any) -> bool:
        """Whether a reachable database has the table of a ``model`` of the project."""
        if not router.allow_migrate_model(alias, model):
            return False
        table, known = model._meta.db_table, self.tables(alias)
        # Without any table the database may be a file that a connection would create.
        return table in known or (bool(known) and has_table(connections[alias], table))

    def missing(self, alias: str, *models: str) -> list[str]:
        """``table.column`` of each column that our tables lack, or those of ``models``."""
        tables = [table_of(name) for name in models or MODELS]
        lacking = self._lacking.get(alias, [])
        return [column for column in lacking if column.rpartition(".")[0] in tables]

    # --- generators -----------------------------------------------------------

    def book(self, entry: GeneratorSettings) -> StoredBook | None:
        """The book of a generator's registry; None if this project does not store it."""
        return registries[entry.alias].stored_book()

    # --- columns ----------------------------------------------------------------

    def segment_columns(self, aliases: Iterable[str]) -> Iterator[IdColumn]:
        """The columns in ``aliases`` (reachable databases) whose ids come from a tag."""
        return self._columns(aliases, SegmentSource)

    def snowflake_columns(self, aliases: Iterable[str]) -> Iterator[IdColumn]:
        """The columns in ``aliases`` (reachable databases) whose ids come from a generator."""
        return self._columns(aliases, SnowflakeSource)

    def _columns(self, aliases: Iterable[str], kind: type) -> Iterator[IdColumn]:
        for model in apps.get_models(include_auto_created=True):
            fields = [each for each in model._meta.local_concrete_fields if isinstance(each, kind)]
            for field in fields:
                for alias in aliases:
                    if self.has_rows_of(alias, model):
                        yield IdColumn(field, alias)


@dataclass(frozen=True, slots=True)
class IdColumn:
    """A field that holds our ids, in one database.

    Its queries raise :class:`django.db.Error`, also for values that are not integers.
    """

    field: Any
    alias: str

    def __str__(self) -> str:
        model = self.field.model._meta
        return f"{model.label}.{self.field.name} (table {model.db_table!r}, {self.alias!r})"

    def highest(self) -> int | None:
        return self._aggregate(Max)

    def lowest(self) -> int | None:
        return self._aggregate(Min)

    def highest_of(self, shard: Shard, least: int) -> int | None:
        """The highest id of ``shard`` that is at least ``least``."""
        if shard.delta == 1:
            top = self.highest()
            return top if top is not None and top >= least else None
        name = self.field.attname
        # Few rows lie above the mark, if any.
        rows = self._rows().filter(**{f"{name}__gte": least})
        return self._aggregate(Max, rows.alias(of=F(name) % shard.delta).filter(of=shard.remainder))

    def _aggregate(self, aggregate: Any, rows: Any = None) -> int | None:
        rows = self._rows() if rows is None else rows
        try:
            # A failing statement does not break the caller's transaction.
            with transaction.atomic(using=self.alias):
                found = read_aggregate(rows, aggregate(self.field.attname))
            return None if found is None else int(found)
        except (ValueError, TypeError, OverflowError) as error:
            # The model says bigint, but the table has text or money.
            raise DataError(f"{self} holds a value that is not an id: {error}") from error

    def _rows(self) -> Any:
        return QuerySet(self.field.model, using=self.alias)


def attempt(subject: str, found: Iterable[T]) -> Iterator[T | CheckMessage]:
    """Yield what an examination finds about ``subject``, and the error that stops it, if any."""
    try:
        yield from found
    except Exception as error:  # noqa: BLE001 - a check never raises
        yield not_examined(subject, error)


def _ping(connection: BaseDatabaseWrapper) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
