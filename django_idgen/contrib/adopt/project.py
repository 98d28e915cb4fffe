"""The table that a user names, in a project: its model, its migrations, its database."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.apps import apps
from django.db import DatabaseError, connections, models, router
from django.db.migrations import Migration
from django.db.migrations.exceptions import BadMigrationError, InconsistentMigrationHistory
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState
from django.db.migrations.writer import MigrationWriter

from ...core.errors import ConfigurationError
from ...fields.filling import count_of

__all__ = ["Node", "Project", "Written"]

Node = tuple[str, str]
INSTALLED = {"site-packages", "dist-packages"}
"""Folders of what was installed: the next installation forgets what was written there."""


@dataclass(frozen=True, slots=True)
class Written:
    """An operation of ``idgen_adopt`` in a migration file of the app."""

    node: Node
    operation: Operation
    applied: bool


@dataclass(slots=True)
class Project:
    """Model ``label`` in the database ``alias``; raises :class:`ConfigurationError`.

    Reads migrations and asks the database; changes nothing.
    """

    label: str
    alias: str
    model: type[models.Model] = field(init=False)
    loader: MigrationLoader = field(init=False)
    state: ProjectState = field(init=False)
    """What the migrations on disk come to."""

    def __post_init__(self) -> None:
        self.model = _model(self.label)
        self._check_model()
        if self.alias not in connections.settings:
            known = ", ".join(map(repr, connections.settings))
            raise ConfigurationError(
                f"There is no database {self.alias!r} in DATABASES. There are {known}."
            )
        try:
            if not router.allow_migrate_model(self.alias, self.model):
                raise ConfigurationError(
                    f"{self.name} is not kept in database {self.alias!r}: a router says so. Name "
                    f"its own with --database."
                )
            self.loader = MigrationLoader(self.connection)
            self.loader.check_consistent_history(self.connection)
        except (BadMigrationError, InconsistentMigrationHistory) as error:
            raise ConfigurationError(f"The migrations can't be read: {error}") from error
        except DatabaseError as error:
            raise self._away(error) from error
        self._check_migrations()
        self.state = self.loader.project_state()

    @property
    def name(self) -> str:
        return self.model._meta.label

    @property
    def app(self) -> str:
        return self.model._meta.app_label

    @property
    def connection(self) -> Any:
        return connections[self.alias]

    @property
    def leaf(self) -> Node:
        """The last migration of the app."""
        node: Node = self.loader.graph.leaf_nodes(self.app)[0]
        return node

    @property
    def key(self) -> Any:
        """The primary key as the running code has it."""
        return self.model._meta.pk

    @property
    def migrated_key(self) -> Any:
        """The primary key as the migrations on disk have it."""
        return self.state.apps.get_model(self.app, self.model.__name__)._meta.pk

    def rows(self) -> int:
        """How many rows the table has."""
        try:
            return count_of(self.connection, self.model._meta.db_table)
        except DatabaseError as error:
            raise self._away(error) from error

    def leaf_of(self, app: str) -> Node | None:
        """The last migration of another app; None if it has none."""
        nodes = self.loader.graph.leaf_nodes(app)
        return nodes[0] if nodes else None

    def written(self, kinds: tuple[type[Operation], ...]) -> Iterator[Written]:
        """Operations of ``kinds`` on the model, in the order of the migrations."""
        for node in self.loader.graph.forwards_plan(self.leaf):
            if node[0] != self.app:
                continue
            for operation in self.loader.graph.nodes[node].operations:
                if isinstance(operation, kinds) and self._is_ours(operation):
                    yield Written(node, operation, node in self.loader.applied_migrations)

    def unapplied(self) -> list[Node]:
        """Migrations of the app that the database doesn't have, with what they need."""
        plan: list[Node] = self.loader.graph.forwards_plan(self.leaf)
        return [node for node in plan if node not in self.loader.applied_migrations]

    def _is_ours(self, operation: Any) -> bool:
        return bool(operation.model_name.lower() == self.model._meta.model_name)

    def _check_model(self) -> None:
        meta = self.model._meta
        if meta.proxy and meta.concrete_model is not None:
            raise ConfigurationError(
                f"{self.name} is a proxy. Adopt {meta.concrete_model._meta.label}, whose table it "
                f"shows."
            )
        if not meta.managed:
            raise ConfigurationError(
                f"{self.name} is not managed by migrations (Meta.managed is False), so that none "
                f"can change its key."
            )
        if meta.pk is None or isinstance(meta.pk, getattr(models, "CompositePrimaryKey", ())):
            raise ConfigurationError(
                f"{self.name} has a composite primary key. Put a field of django_idgen into "
                f"it, or give the table another key."
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
                f"App {self.app!r} is of an installed package: a migration in {str(folder)!r} "
                f"would not be yours to keep. Take its migrations over first, by MIGRATION_MODULES."
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
                f"No migration makes {self.name} yet: run 'manage.py makemigrations {self.app}'. A "
                f"table without rows needs no adoption, just the field in its model."
            )

    def _away(self, error: Exception) -> ConfigurationError:
        words = " ".join(str(error).split())
        return ConfigurationError(f"Database {self.alias!r} can't be asked: {words}")


def _model(label: str) -> type[models.Model]:
    try:
        return apps.get_model(label)
    except (LookupError, ValueError) as error:
        app = label.partition(".")[0]
        known = [
            model._meta.label
            for model in apps.get_models()
            if model._meta.app_label == app or app not in apps.app_configs
        ]
        name = label.rpartition(".")[2].lower()
        # "Order" for "shop.Order", or a wrong app: those of that name are what is meant.
        known = [each for each in known if each.lower().endswith(f".{name}")] or known
        raise ConfigurationError(
            f"There is no model {label!r}: name it as APP.MODEL. There are "
            f"{', '.join(sorted(known)[:12]) or 'none in that app'}."
        ) from error
