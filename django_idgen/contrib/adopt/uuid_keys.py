"""The stages of a table with a UUID for a key, and of the way back to it."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.db import models
from django.db.migrations.writer import MigrationWriter

from ...core.errors import ConfigurationError
from ...fields.base import GeneratedOnSave
from ...fields.filling import Report, count_of
from .filling import Filling
from .plans import MigrationFile, Options, Plan, Stages, edit_of_model
from .project import Project
from .swap_operations import AddNewKey, SwitchKey
from .tables import Keyed, columns_of, keyed, refuse_unsupported

__all__ = ["UuidKey"]


class UuidKey(Stages):
    """The stages of a key that is a UUID now, or was before."""

    operations = (AddNewKey, SwitchKey)

    def __init__(self, project: Project, options: Options) -> None:
        super().__init__(project, options)
        self._state = project.state

    def plan(self) -> Plan:
        last = self.last
        if isinstance(last, AddNewKey):
            if self.options.back != (last.source is not None):
                raise self._half_way()
            return self._fill() if self._open_rows() else self._switch(last)
        switched = isinstance(last, SwitchKey)
        if switched and not self.written[-1].applied:
            return self._before_switch()
        if switched and self.options.back == (last.source is not None):
            return Plan([f"{self.project.name} has its new key: nothing is left to be done."])
        return self._add(last)

    # --- add -------------------------------------------------------------------------

    def _add(self, last: Any) -> Plan:
        source = last.kept if self.options.back else None
        field = self._field(source)
        table = self._table()
        refuse_unsupported(self.project.connection, table, apps)
        _free_name(table, self._kept, besides=source)
        back = {"source": source} if source else {}
        operation = AddNewKey(self.model_name, self.name, field, **back)
        return Plan(
            [
                f"The key of {self.project.name} becomes a {type(field).__name__}, and so does "
                f"what refers to it. Tables: {self._counts(table)}.",
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
            return self.options.field("snowflake", db_column=self.project.key.db_column)
        kept: Any = self.project.model._meta.get_field(source)
        field = kept.clone()
        field.primary_key, field._unique, field.serialize = True, False, False
        field.db_column = self.project.key.db_column
        return _cleaned(field)

    # --- fill ------------------------------------------------------------------------

    def _fill(self) -> Plan:
        table = self._table()
        return Plan(
            [
                f"{self._open_rows()} rows have no new key, or no new reference, yet: "
                f"{self._counts(table)}.",
                f"They are filled {self.options.batch} at a time, while the site is up. It may be "
                "broken off and run again.",
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
        last: Any = self.last
        table = self._table()
        source = last.source
        take = None if source else _bound(last.field, self.project.model).next_values
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
            batch=self.options.batch,
        )

    def _check_column(self, table: str, column: str) -> None:
        if column not in columns_of(self.project.connection, table):
            raise ConfigurationError(
                f"Table {table} has no column {column}, though the migration that adds it is "
                f"applied: another one has rewritten the table since, or the reference is newer. "
                f"Migrate back to before {self.written[-1].node[1]}, and forward again."
            )

    def _open_rows(self) -> int:
        return self._filling().open_rows()

    # --- switch ----------------------------------------------------------------------

    def _switch(self, last: AddNewKey) -> Plan:
        table = self._table()
        kept_field = self._kept_field()
        _free_name(table, self._kept, besides=last.source)
        back = {"source": last.source} if last.source else {}
        operation = SwitchKey(
            self.model_name, self.name, last.field, self._kept, kept_field, **back
        )
        return Plan(
            [
                "Everything is filled here. The new key takes the place of the old one, which "
                f"stays as {self._kept!r}, a unique column.",
                f"The tables are locked meanwhile, and their indexes made anew: "
                f"{self._counts(table)}. On MariaDB and MySQL they are written anew.",
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
        """The switch is written, and not applied here: rows may have to be filled first."""
        self.written = self.written[:-1]
        self._state = self.project.loader.project_state(self.written[-1].node)
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
        lines = super().status()
        if isinstance(self.last, AddNewKey) and self.written[-1].applied:
            lines.append(f"{self._open_rows()} rows are to be filled.")
        return lines

    # --- all ---------------------------------------------------------------------------

    @property
    def _kept(self) -> str:
        return self.options.keep_as or ("number" if self.options.back else "uuid")

    def _table(self) -> Keyed:
        return keyed(self._state.apps, self.project.app, self.project.model.__name__)

    def _counts(self, table: Keyed) -> str:
        connection = self.project.connection
        return ", ".join(f"{name} ({count_of(connection, name)} rows)" for name in table.tables)

    def _file(self, what: str, operation: Any, table: Keyed) -> MigrationFile:
        others = {link.model._meta.app_label for link in table.links} - {self.project.app}
        return self.file(what, operation, *others)

    def _half_way(self) -> ConfigurationError:
        node = self.written[-1].node
        return ConfigurationError(
            f"{self.project.name} is half-way to another key ({node[1]}). To give that up, migrate "
            f"back to before that migration, which drops the new columns, and delete its file; "
            f"to go on, run this command {'without' if self.options.back else 'with'} --back."
        )


def _free_name(table: Keyed, name: str, *, besides: str | None) -> None:
    taken = {field.name for field in table.model._meta.get_fields()} - {besides}
    if not name.isidentifier() or name.startswith("_") or "__" in name or name in taken:
        raise ConfigurationError(
            f"The old key can't be kept as {name!r}: it is taken, or no name for a field. Give "
            f"another one with --keep-as."
        )


def _bound(field: models.Field[Any, Any], model: type[models.Model]) -> Any:
    """A copy that knows its model, from whose name the tag is made."""
    copy: Any = field.clone()
    copy.model = model
    return copy


def _cleaned(field: Any) -> models.Field[Any, Any]:
    """A copy built from the field as it is now."""
    copy: models.Field[Any, Any] = field.clone()
    return copy


def _written_out(field: models.Field[Any, Any]) -> tuple[str, set[str]]:
    text, imports = MigrationWriter.serialize(field)
    module, _, name = text.partition("(")[0].rpartition(".")
    if module == "django_idgen.fields":
        return text.removeprefix(f"{module}."), {f"from django_idgen.fields import {name}"}
    return text, set(imports)
