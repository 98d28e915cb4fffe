"""The stages of a table with a UUID for a key, and of the way back to it."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.db import models
from django.db.migrations.writer import MigrationWriter

from ...core.errors import ConfigurationError
from ...fields.base import GeneratedOnSave
from .files import MigrationFile, edit_of_model
from .filling import Filling
from .links import Keyed, keyed, refuse_unsupported
from .plans import Plan, Report
from .project import Project
from .reading import columns_of, count_of
from .swap_operations import AddNewKey, SwitchKey, taker
from .wishes import Wishes

__all__ = ["OPERATIONS", "UuidKey"]

OPERATIONS = (AddNewKey, SwitchKey)


class UuidKey:
    """What is to be done next with the key of ``project``'s model, a UUID now or before."""

    def __init__(self, project: Project, wishes: Wishes) -> None:
        self.project = project
        self.wishes = wishes
        self.name = project.key.name
        self._written = list(project.written(OPERATIONS))
        self._state = project.state

    def plan(self) -> Plan:
        """Raises :class:`ConfigurationError` where there is no way on."""
        last = self._last
        if isinstance(last, AddNewKey):
            if self.wishes.back != (last.source is not None):
                raise self._half_way()
            return self._fill() if self._open_rows() else self._switch(last)
        switched = isinstance(last, SwitchKey)
        if switched and not self._written[-1].applied:
            return self._before_switch()
        if switched and self.wishes.back == (last.source is not None):
            return Plan([f"{self.project.name} has its new key: nothing is left to be done."])
        return self._add(last)

    @property
    def _last(self) -> Any:
        return self._written[-1].operation if self._written else None

    # --- add -------------------------------------------------------------------------

    def _add(self, last: Any) -> Plan:
        source = last.kept if self.wishes.back else None
        field = self._field(source)
        table = self._table()
        refuse_unsupported(self.project.connection, table, apps)
        _free_name(table, self._kept, besides=source)
        operation = AddNewKey(self._model_name, self.name, field, source=source)
        rows = [f"{name} ({self._count(name)} rows)" for name in table.tables]
        return Plan(
            [
                f"The key of {self.project.name} becomes a {type(field).__name__}, and so does "
                f"what refers to it. Tables: {', '.join(rows)}.",
                "First they get columns for the new key, which are empty and which no model "
                "knows of. That locks each table for a moment, and rewrites none.",
            ],
            self._file("add_new_key", operation, table),
            after=[
                "Commit the migration; the models stay as they are.",
                f"Deploy it: 'manage.py migrate {self.project.app}'. Processes go on meanwhile.",
                "Run this command again, in each place that has a database: it fills the columns.",
            ],
        )

    def _field(self, source: str | None) -> models.Field[Any, Any]:
        """The new key."""
        if source is None:
            return self.wishes.field("snowflake", db_column=self.project.key.db_column)
        kept: Any = self.project.model._meta.get_field(source)
        field = kept.clone()
        field.primary_key, field._unique, field.serialize = True, False, False
        field.db_column = self.project.key.db_column
        return _cleaned(field)

    # --- fill ------------------------------------------------------------------------

    def _fill(self) -> Plan:
        table = self._table()
        counts = [f"{name} ({self._count(name)} rows)" for name in table.tables]
        return Plan(
            [
                f"{self._open_rows()} rows have no new key, or no new reference, yet: "
                f"{', '.join(counts)}.",
                f"They are filled {self.wishes.batch} at a time, while the site is up. This may be "
                f"broken off and run again.",
            ],
            work=self._run_filling,
            after=[
                "Where you develop, run this command again: it writes the migration that switches.",
            ],
        )

    def _run_filling(self, report: Report) -> str:
        filled = self._filling().run(report)
        return f"{filled} rows were filled; {self._open_rows()} are empty by now."

    def _filling(self) -> Filling:
        last: Any = self._last
        table = self._table()
        source = last.source
        take = None if source else taker(_bound(last.field, self.project.model))
        for each in [table.table] if source is None else []:
            self._check_column(each, table.new_column)
        for link in table.links:
            self._check_column(link.table, link.new_column)
        there: Any = table.model._meta.get_field(source) if source else None
        new = there.column if source else table.new_column
        return Filling(
            self.project.connection,
            table,
            old=table.column,
            new=str(new),
            take=take,
            batch=self.wishes.batch,
        )

    def _check_column(self, table: str, column: str) -> None:
        if column not in columns_of(self.project.connection, table):
            raise ConfigurationError(
                f"Table {table} has no column {column}, though the migration that adds it is "
                f"applied: another one has rewritten the table since, or the reference is newer. "
                f"Migrate back to before {self._written[-1].node[1]}, and forward again."
            )

    def _open_rows(self) -> int:
        return self._filling().open_rows()

    # --- switch ----------------------------------------------------------------------

    def _switch(self, last: AddNewKey) -> Plan:
        table = self._table()
        kept_field = self._kept_field()
        _free_name(table, self._kept, besides=last.source)
        operation = SwitchKey(
            self._model_name, self.name, last.field, self._kept, kept_field, source=last.source
        )
        counts = [f"{name} ({self._count(name)} rows)" for name in table.tables]
        return Plan(
            [
                "Everything is filled here. The new key takes the place of the old one, which "
                f"stays as {self._kept!r}, a unique column.",
                f"The tables are locked meanwhile, and their indexes made anew: "
                f"{', '.join(counts)}. On MariaDB and MySQL they are written anew.",
            ],
            self._file("switch", operation, table),
            self._switch_edit(last, kept_field),
            after=[
                "Make this edit, see to what uses the old keys (URLs, tasks, what other systems "
                "hold), and commit it with the migration.",
                "Where the site runs, run this command until it says that everything is filled.",
                f"Stop all processes, run 'manage.py migrate {self.project.app}', and start them "
                f"with the new code: no process can work with both kinds of key.",
            ],
        )

    def _switch_edit(self, last: AddNewKey, kept_field: models.Field[Any, Any]) -> str:
        plain: Any = last.field.clone()
        plain.serialize = True
        key, key_imports = _written_out(plain)
        kept, kept_imports = _written_out(kept_field)
        return edit_of_model(
            self.project.model,
            [f"{self.name} = {key}", f"{self._kept} = {kept}"],
            [self.name, *([last.source] if last.source else [])],
            sorted({*key_imports, *kept_imports}),
        )

    def _kept_field(self) -> models.Field[Any, Any]:
        key: Any = self.project.key.clone()
        key.primary_key, key._unique, key.serialize = False, True, True
        key.db_column = None
        if not isinstance(key, GeneratedOnSave):
            key.editable = False
        return _cleaned(key)

    def _before_switch(self) -> Plan:
        """The switch is written, and not applied here: it may be that rows are to be filled."""
        self._written = self._written[:-1]
        self._state = self.project.loader.project_state(self._written[-1].node)
        if self._open_rows():
            return self._fill()
        return Plan(
            ["Everything is filled."],
            after=[
                f"Stop all processes, run 'manage.py migrate {self.project.app}', and start them "
                f"with the new code.",
            ],
        )

    # --- how far it is -----------------------------------------------------------------

    def status(self) -> list[str]:
        """How far the table is, in words."""
        lines = [
            f"{self.project.name}: {self.project.rows()} rows in {self.project.alias!r}.",
            f"Key in the code: {type(self.project.key).__name__}; in the migrations: "
            f"{type(self.project.migrated_key).__name__}.",
            *(
                f"{'Applied' if each.applied else 'Not applied'}: {each.node[1]} "
                f"({each.operation.describe()})"
                for each in self._written
            ),
        ]
        if isinstance(self._last, AddNewKey) and self._written[-1].applied:
            lines.append(f"{self._open_rows()} rows are to be filled.")
        return lines

    # --- all ---------------------------------------------------------------------------

    @property
    def _model_name(self) -> str:
        return self.project.model.__name__.lower()

    @property
    def _kept(self) -> str:
        return self.wishes.keep_as or ("number" if self.wishes.back else "uuid")

    def _table(self) -> Keyed:
        return keyed(self._state.apps, self.project.app, self.project.model.__name__)

    def _count(self, table: str) -> int:
        return count_of(self.project.connection, table)

    def _file(self, what: str, operation: Any, table: Keyed) -> MigrationFile:
        others = {link.model._meta.app_label for link in table.links} - {self.project.app}
        needs = [self.project.leaf_of(app) for app in sorted({*others, "django_idgen"})]
        name = f"{self._model_name}_{self.name}_{what}"
        return MigrationFile(self.project.leaf, name, [operation], [n for n in needs if n])

    def _half_way(self) -> ConfigurationError:
        node = self._written[-1].node
        return ConfigurationError(
            f"{self.project.name} is half-way to another key ({node[1]}). To give that up, migrate "
            f"back to before that migration, which drops the new columns, and delete its file; "
            f"to go on, run this command {'without' if self.wishes.back else 'with'} --back."
        )


def _free_name(table: Keyed, name: str, *, besides: str | None) -> None:
    taken = {field.name for field in table.model._meta.get_fields()} - {besides}
    if not name.isidentifier() or name.startswith("_") or "__" in name or name in taken:
        raise ConfigurationError(
            f"The old key can't be kept as {name!r}: it is taken, or no name for a field. Give "
            f"another one with --keep-as."
        )


def _bound(field: models.Field[Any, Any], model: type[models.Model]) -> Any:
    """A copy that knows its model, of whose name the tag is made."""
    copy: Any = field.clone()
    copy.model = model
    return copy


def _cleaned(field: Any) -> models.Field[Any, Any]:
    """A copy that is built from what the field says of itself by now."""
    copy: models.Field[Any, Any] = field.clone()
    return copy


def _written_out(field: models.Field[Any, Any]) -> tuple[str, set[str]]:
    text, imports = MigrationWriter.serialize(field)
    module, _, name = text.partition("(")[0].rpartition(".")
    if module == "django_idgen.fields":
        return text.removeprefix(f"{module}."), {f"from django_idgen.fields import {name}"}
    return text, set(imports)
