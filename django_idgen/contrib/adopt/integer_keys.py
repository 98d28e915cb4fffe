"""The stages of a table with an integer key: see :mod:`django_idgen.contrib.adopt`."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.migrations.operations import AlterField

from ...core.errors import ConfigurationError
from ...fields import SegmentIdField, SegmentSource
from ...fields.base import GeneratedOnSave
from .key_operations import AdoptKey, DropCounter, FreeCounter, ReturnKey, counter_behind
from .plans import Plan, Stages, edit_of_model
from .tables import keyed

__all__ = ["IntegerKey"]


class IntegerKey(Stages):
    """The stages of an integer key."""

    operations = (AdoptKey, DropCounter, ReturnKey, FreeCounter)

    def plan(self) -> Plan:
        return self._back() if self.options.back else self._forward()

    # --- there -----------------------------------------------------------------------

    def _forward(self) -> Plan:
        last, key = self.last, self.project.migrated_key
        if isinstance(last, AdoptKey) and not last.at_once:
            return self._drop()
        if isinstance(last, AdoptKey | DropCounter):
            return Plan([f"{self.project.name} is adopted: nothing is left to be done."])
        if isinstance(key, GeneratedOnSave):
            raise ConfigurationError(
                f"The key of {self.project.name} is a {type(key).__name__} already. --back would "
                f"give it back to the database."
            )
        if not isinstance(key, models.BigAutoField) and not self.options.at_once:
            return self._widen(key)
        return self._adopt()

    def _widen(self, key: Any) -> Plan:
        table = keyed(self.project.state.apps, self.project.app, self.project.model.__name__)
        field = _big_auto(key)
        return Plan(
            [
                f"{self.rows()} Its key ({type(key).__name__}) has 32 bits or fewer.",
                f"First the key and {len(table.links)} columns that refer to it are widened to 64 "
                f"bits. PostgreSQL, MariaDB and MySQL write such a table anew and lock it "
                f"meanwhile; choose a quiet hour if that takes too long.",
            ],
            self.file("widen", AlterField(self.model_name, self.name, field)),
            self._edit_back(),
            after=[
                "Make this edit, and commit it with the migration.",
                f"Deploy, with 'manage.py migrate {self.project.app}'. 'manage.py check --database "
                f"{self.project.alias}' names columns that no migration widens, such as those of a "
                f"GenericForeignKey (W002, W003).",
                "When every process runs the new code, run this command again: a process with "
                "the old code would not find rows whose id is past 2**31.",
            ],
        )

    def _adopt(self) -> Plan:
        options, key = self.options, self.project.migrated_key
        field = options.field(db_column=key.db_column)
        line = f"{self.name} = {options.field_text(_column(key))}"
        operation = AdoptKey(self.model_name, self.name, field, **options.for_operation())
        return Plan(
            [self.rows(), *self._how(isinstance(field, SegmentIdField))],
            self.file(type(field).__name__.removesuffix("Field").lower(), operation),
            self._edit(line, f"from django_idgen.fields import {type(field).__name__}"),
            after=self._after_adopting(),
        )

    def _how(self, segments: bool) -> list[str]:
        kept = "All ids are kept."
        if self.options.at_once:
            return [f"{kept} The database stops giving ids in the migration itself."]
        new = "New ones go on above a margin" if segments else "New ones are snowflakes, far above"
        return [
            f"{kept} {new}; the database's counter is held below them, for the processes that "
            f"take ids from it until they are replaced (SQLite and MySQL can't hold it: there "
            f"the database stops giving ids in the migration itself)."
        ]

    def _after_adopting(self) -> list[str]:
        app = self.project.app
        commit = "Make this edit, and commit it with the migration."
        migrate = f"'manage.py migrate {app}'"
        if self.options.at_once:
            return [commit, f"Stop all processes, run {migrate}, and start them anew. That is all."]
        return [
            commit,
            f"Deploy, with {migrate} before the first process starts with the new code. On "
            f"PostgreSQL and MariaDB old and new ones may insert side by side; on SQLite and "
            f"MySQL stop the old ones before (an INSERT of theirs would fail).",
            "When no old process is left, run this command again: it drops the counter.",
        ]

    def _drop(self) -> Plan:
        self._check_code(GeneratedOnSave)
        operation = DropCounter(self.model_name, self.name)
        return Plan(
            [self.rows(), "The database's counter is dropped: no process may use it any more."],
            self.file("drop_counter", operation),
            after=[
                f"Commit the migration, and deploy with 'manage.py migrate {self.project.app}'."
            ],
        )

    # --- and back ----------------------------------------------------------------------

    def _back(self) -> Plan:
        last, key = self.last, self.project.migrated_key
        if isinstance(last, FreeCounter) or (isinstance(last, ReturnKey) and last.at_once):
            return Plan([f"The ids of {self.project.name} come from the database again."])
        if isinstance(last, ReturnKey):
            return self._free()
        if not isinstance(key, GeneratedOnSave):
            raise ConfigurationError(
                f"The key of {self.project.name} is a {type(key).__name__}: its ids come from the "
                f"database already."
            )
        auto, how = _big_auto(key), self.options.for_operation()
        operation = ReturnKey(self.model_name, self.name, auto, **how)
        return Plan(
            [
                self.rows(),
                "The key becomes a BigAutoField. The database's counter goes on above every id "
                "that is in the table or was handed out; processes with the old code get no id "
                "that the counter gives.",
            ],
            self.file("back", operation),
            self._edit_back(),
            after=[
                "Make this edit, and commit it with the migration.",
                f"Deploy, with 'manage.py migrate {self.project.app}' before the first process "
                f"starts with the new code (on SQLite and MySQL stop the old ones before).",
                "When no process with the old code is left, run this command with --back again: "
                "it lets the counter go on without bounds. For snowflakes do so within 30 days.",
            ],
        )

    def _free(self) -> Plan:
        self._check_code(models.AutoField)
        former = self.written[-1].node
        before = self.project.loader.project_state(former, at_end=False)
        ours = before.apps.get_model(self.project.app, self.project.model.__name__)._meta.pk
        tag = {"tag": ours.resolved_tag} if isinstance(ours, SegmentSource) else {}
        operation = FreeCounter(self.model_name, self.name, **tag)
        return Plan(
            [self.rows(), "The database's counter goes on without bounds."],
            self.file("free_counter", operation),
            after=[
                f"Commit the migration, and deploy with 'manage.py migrate {self.project.app}'."
            ],
        )

    # --- both ----------------------------------------------------------------------------

    def status(self) -> list[str]:
        lines = super().status()
        counter = counter_behind(self.project.connection, self.project.migrated_key)
        if not counter.exists():
            return [*lines, "The database gives this column no ids."]
        limit = counter.limit()
        end = "without bounds" if limit is None else f"and ends at {limit}"
        return [*lines, f"The database's counter stands at {counter.position()}, {end}."]

    def _check_code(self, kind: Any) -> None:
        if not isinstance(self.project.key, kind):
            raise ConfigurationError(
                f"The migrations say that the key of {self.project.name} is a "
                f"{type(self.project.migrated_key).__name__}, but the model has a "
                f"{type(self.project.key).__name__}. Make the edit that was shown when the last "
                f"migration was written, deploy it, and run this again."
            )

    def _edit(self, line: str, *imports: str) -> str:
        return edit_of_model(self.project.model, [line], [self.name], imports)

    def _edit_back(self) -> str:
        column = _column(self.project.migrated_key)
        return self._edit(f"{self.name} = models.BigAutoField(primary_key=True{column})")


def _big_auto(key: Any) -> models.Field[Any, Any]:
    # As Django writes down any primary key.
    return models.BigAutoField(primary_key=True, serialize=False, db_column=key.db_column)


def _column(key: Any) -> str:
    return f", db_column={key.db_column!r}" if key.db_column else ""
