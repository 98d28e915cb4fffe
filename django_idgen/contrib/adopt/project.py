"""The table that a user names, in a project: its model, its migrations, its database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.apps import apps
from django.db import DatabaseError, connections, models, router
from django.db.migrations import Migration
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.exceptions import BadMigrationError, InconsistentMigrationHistory
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation
from django.db.migrations.writer import MigrationWriter

from ...core.errors import ConfigurationError, one_line
from ...fields.operations import count_rows

Node = tuple[str, str]
INSTALLED = {"site-packages", "dist-packages"}
"""Folders of installed packages: the next installation removes what was written there."""


@dataclass(frozen=True, slots=True)
class Written:
    """An operation of ``idgen_adopt`` in a migration file of the app."""

    node: Node
    operation: Any
    applied: bool


class Project:
    """Model ``label`` in the database ``alias``. Raises :class:`ConfigurationError`.

    Reads migrations and the database; changes only files, by :meth:`write`.
    """

    def __init__(self, label: str, alias: str) -> None:
        try:
            self.model: type[models.Model] = apps.get_model(label)
        except (LookupError, ValueError) as error:
            raise ConfigurationError(
                f"There is no model {label!r}: name it as APP.MODEL. {error}"
            ) from error
        self.alias = alias
        self.name = self.model._meta.label
        self.app = self.model._meta.app_label
        self._check_model()
        check_alias(alias)
        if not router.allow_migrate_model(alias, self.model):
            raise ConfigurationError(
                f"A router keeps {self.name} out of database {alias!r}. Name its own database "
                f"with --database."
            )
        self.connection: Any = connections[alias]
        try:
            self.loader = MigrationLoader(self.connection)
            self.loader.check_consistent_history(self.connection)
        except (BadMigrationError, InconsistentMigrationHistory) as error:
            raise ConfigurationError(f"The migrations can't be read: {error}") from error
        except DatabaseError as error:
            raise _unreachable(alias, error) from error
        self._check_migrations()
        self.leaf: Node = self.loader.graph.leaf_nodes(self.app)[0]
        """The last migration of the app."""
        self.state = self.loader.project_state()
        """The state after the migrations on disk."""
        self.key: Any = self.model._meta.pk
        """The primary key in the running code."""
        self.migrated_key: Any = self.state.apps.get_model(self.app, self.model.__name__)._meta.pk
        """The primary key in the migrations on disk."""

    def count(self) -> int:
        """How many rows the table has."""
        try:
            return count_rows(self.connection, self.model._meta.db_table)
        except DatabaseError as error:
            raise _unreachable(self.alias, error) from error

    def written(self, kinds: tuple[type[Operation], ...]) -> Iterator[Written]:
        """Operations of ``kinds`` on the model, in the order of the migrations."""
        for node in self.loader.graph.forwards_plan(self.leaf):
            if node[0] != self.app:
                continue
            for operation in self.loader.graph.nodes[node].operations:
                if isinstance(operation, kinds):
                    model_name: str = operation.model_name  # type: ignore[attr-defined]
                    if model_name.lower() == self.model._meta.model_name:
                        yield Written(node, operation, node in self.loader.applied_migrations)

    def state_before(self, written: Written) -> Any:
        """The state that the migrations make before ``written``."""
        return self.loader.project_state(written.node, at_end=False)

    def unapplied(self) -> list[Node]:
        """Migrations of the app, and those they need, that the database does not have."""
        plan: list[Node] = self.loader.graph.forwards_plan(self.leaf)
        return [node for node in plan if node not in self.loader.applied_migrations]

    def migration(
        self, name: str, operation: Operation, needs: Sequence[str] = ()
    ) -> MigrationWriter:
        """A migration after the last one of the app, and after those of the apps ``needs``."""
        app, last = self.leaf
        leaves = self.loader.graph.leaf_nodes
        dependencies = {self.leaf, *(leaves(each)[0] for each in needs if leaves(each))}
        number = (MigrationAutodetector.parse_number(last) or 0) + 1
        kind = type(
            "Migration",
            (Migration,),
            {"operations": [operation], "dependencies": sorted(dependencies)},
        )
        return MigrationWriter(kind(f"{number:04d}_{name}", app))

    def _check_model(self) -> None:
        meta = self.model._meta
        if meta.proxy and meta.concrete_model is not None:
            raise ConfigurationError(
                f"{self.name} is a proxy. Adopt {meta.concrete_model._meta.label}, whose table it "
                f"uses."
            )
        if not meta.managed:
            raise ConfigurationError(
                f"{self.name} is not managed by migrations (Meta.managed is False), so no "
                f"migration can change its key."
            )
        if isinstance(meta.pk, models.CompositePrimaryKey):
            raise ConfigurationError(
                f"{self.name} has a composite primary key. Add a field of django_idgen to it, or "
                f"give the table another key."
            )
        if isinstance(meta.pk, models.ForeignKey):
            target = meta.pk.remote_field.model._meta.label
            raise ConfigurationError(
                f"The key of {self.name} is its reference to {target}. Adopt {target} instead."
            )

    def _check_migrations(self) -> None:
        if self.app in self.loader.unmigrated_apps:
            raise ConfigurationError(
                f"App {self.app!r} has no migrations package. Make one first: 'manage.py "
                f"makemigrations {self.app}', and 'manage.py migrate {self.app} --fake-initial'."
            )
        folder = Path(MigrationWriter(Migration("next", self.app)).basedir)
        if not INSTALLED.isdisjoint(folder.parts):
            raise ConfigurationError(
                f"App {self.app!r} is part of an installed package: the next installation would "
                f"remove a migration in {str(folder)!r}. Copy its migrations into your project, "
                f"and name them in MIGRATION_MODULES."
            )
        leaves = self.loader.graph.leaf_nodes(self.app)
        if len(leaves) > 1:
            names = ", ".join(name for _, name in leaves)
            raise ConfigurationError(
                f"App {self.app!r} has several last migrations ({names}). Join them first: "
                f"'manage.py makemigrations --merge'."
            )
        key = self.app, self.model._meta.model_name
        if not leaves or key not in self.loader.project_state().models:
            raise ConfigurationError(
                f"No migration makes {self.name} yet: run 'manage.py makemigrations {self.app}'. "
                f"A table without rows needs only the field in its model, no adoption."
            )


def check_alias(alias: str) -> None:
    """Raise :class:`ConfigurationError` for an alias that is not in ``DATABASES``."""
    if alias not in connections.settings:
        known = ", ".join(map(repr, connections.settings))
        raise ConfigurationError(
            f"There is no database {alias!r} in DATABASES. Known databases: {known}."
        )


def _unreachable(alias: str, error: DatabaseError) -> ConfigurationError:
    return ConfigurationError(f"Database {alias!r} does not answer: {one_line(error)}")
