"""The next stage of an adoption: what the user asked for, what is done, what is left to do.

A stage leaves a migration file, and an edit of the model that the user makes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from django.apps import apps
from django.db import models
from django.db.migrations.operations import AlterField
from django.db.migrations.operations.base import Operation
from django.db.migrations.writer import MigrationWriter

from ...core.errors import ConfigurationError
from ...core.segment import MAX_ID, check_tag
from ...fields import SegmentIdField, SegmentSource, SnowflakeField
from ...fields.base import GeneratedOnSave
from ...fields.operations import MAX_BATCH, Report, count_rows
from ...ops.native import native_column
from ...process.maps import generator_settings
from .key_operations import (
    AdoptKey,
    DropCounter,
    FreeCounter,
    ReturnKey,
    check_above,
    counter_behind,
)
from .project import Project
from .swap_operations import AddNewKey, Filling, SwitchKey
from .tables import KeyTable, columns_of, key_table, refuse_unsupported

FIELDS: dict[str, type[models.Field[Any, Any]]] = {
    "segment": SegmentIdField,
    "snowflake": SnowflakeField,
}
INTEGERS = (models.AutoField, models.BigAutoField, models.SmallAutoField, GeneratedOnSave)


@dataclass(frozen=True, slots=True)
class Options:
    """The options of ``idgen_adopt``. Raises :class:`ConfigurationError` for wrong ones."""

    kind: str = ""
    """``segment`` or ``snowflake``; empty: the default for the table's key."""
    generator: str = ""
    tag: str = ""
    margin: int | None = None
    batch: int = 1000
    at_once: bool = False
    back: bool = False
    keep_as: str = ""

    def __post_init__(self) -> None:
        if self.generator and self.tag:
            raise ConfigurationError("Give --generator (snowflakes) or --tag (segments), not both.")
        if (self.generator and self.kind == "segment") or (self.tag and self.kind == "snowflake"):
            raise ConfigurationError(
                "--generator is for --field snowflake, and --tag for --field segment."
            )
        if self.generator:
            generator_settings(self.generator)
        if self.tag:
            check_tag(self.tag)
        if not 1 <= self.batch <= MAX_BATCH:
            raise ConfigurationError(f"--batch must be 1 to {MAX_BATCH}, not {self.batch}.")
        check_margin(self.margin)

    def new_key(self, default: str, **options: Any) -> models.Field[Any, Any]:
        """The new key of the table; ``default`` is the kind of field that suits the old one."""
        kind = self.kind or ("snowflake" if self.generator else "segment" if self.tag else default)
        if self.generator or self.tag:
            options |= {"generator": self.generator} if self.generator else {"tag": self.tag}
        # serialize=False: Django writes any primary key like this into migrations.
        return FIELDS[kind](primary_key=True, serialize=False, **options)

    def of_operation(self) -> dict[str, Any]:
        """The arguments of an operation that the user gave."""
        given = {"margin": self.margin, "at_once": self.at_once}
        return {name: value for name, value in given.items() if value}


def check_margin(margin: int | None) -> None:
    if margin is not None and not 1 <= margin <= MAX_ID // 4:
        raise ConfigurationError(f"--margin must be 1 to {MAX_ID // 4}, not {margin}.")


@dataclass(slots=True)
class Plan:
    """One stage: what it does, and what the user does after it."""

    does: list[str]
    """The state of the table, and what this stage changes."""
    migration: MigrationWriter | None = None
    edit: list[str] = field(default_factory=list)
    """The lines of the model that the user changes."""
    work: Callable[[Report], str] | None = None
    """Work that the command does in the database; returns its result as a sentence."""
    after: list[str] = field(default_factory=list)
    """The user's next steps."""


class Stages(ABC):
    """Finds the next stage for the key of ``project``'s model."""

    operations: ClassVar[tuple[type[Operation], ...]]
    """The operations in its migrations."""

    def __init__(self, project: Project, options: Options) -> None:
        self.project = project
        self.options = options
        self.name = project.key.name
        self.model_name = project.model.__name__.lower()
        self.migrate = f"'manage.py migrate {project.app}'"
        self.written = list(project.written(self.operations))

    @property
    def last(self) -> Any:
        """The last operation that was written."""
        return self.written[-1].operation if self.written else None

    @abstractmethod
    def plan(self) -> Plan:
        """The next stage. Raises :class:`ConfigurationError` if there is none."""

    def status(self) -> list[str]:
        """The progress of the table, a line a fact."""
        return [
            self.rows(),
            f"Key in the code: {type(self.project.key).__name__}; in the migrations: "
            f"{type(self.project.migrated_key).__name__}.",
            *(
                f"{'Applied' if each.applied else 'Not applied'}: {each.node[1]} "
                f"({each.operation.describe()})"
                for each in self.written
            ),
        ]

    def rows(self) -> str:
        count = self.project.count()
        rows = "1 row" if count == 1 else f"{count} rows"
        return f"{self.project.name}: {rows} in {self.project.alias!r}."

    def migration(self, what: str, operation: Operation, *apps: str) -> MigrationWriter:
        """A migration after the last one of the app, and after those of the other ``apps``."""
        name = f"{self.model_name}_{self.name}_{what}"
        return self.project.migration(name, operation, [*apps, "django_idgen"])

    def edit(
        self,
        removed: Sequence[str],
        key: models.Field[Any, Any],
        **kept: models.Field[Any, Any],
    ) -> list[str]:
        """The edit of the model: ``key`` replaces the fields ``removed``; ``kept`` are added."""
        # The model does not declare a key that default_auto_field gives it.
        undeclared = self.name if self.project.key.auto_created else ""
        lines, imports = [f"+    {self.name} = {_source_of(key)[0]}"], _source_of(key)[1]
        for name, new in kept.items():
            text, needed = _source_of(new)
            # Below the other fields, where it hides no module of the same name from them.
            lines += ["as the last field:", f"+    {name} = {text}"]
            imports |= needed
        return [
            f"Edit class {self.project.model.__name__} of {self.project.model.__module__}:",
            *(f"-    {name} = ..." for name in removed if name != undeclared),
            *lines,
            "with these imports:",
            *(f"    {line}" for line in sorted(imports)),
        ]


def _source_of(field: models.Field[Any, Any]) -> tuple[str, set[str]]:
    """A field as it is written in a model, and the imports that it needs."""
    plain: Any = field.clone()
    plain.serialize = True
    text, imports = MigrationWriter.serialize(plain)
    if isinstance(field, GeneratedOnSave):
        name = type(field).__name__
        return text.removeprefix("django_idgen.fields."), {
            f"from django_idgen.fields import {name}"
        }
    return text, set(imports)


def stages_of(project: Project, options: Options) -> Stages:
    """The stages for the key of ``project``'s model. Raises :class:`ConfigurationError`."""
    written = list(project.written((*IntegerKey.operations, *UuidKey.operations)))
    key = project.migrated_key
    was_uuid = bool(written) and isinstance(written[-1].operation, UuidKey.operations)
    if was_uuid or isinstance(key, models.UUIDField):
        return UuidKey(project, options)
    if isinstance(key, INTEGERS):
        return IntegerKey(project, options)
    raise ConfigurationError(
        f"The key of {project.name} is a {type(key).__name__}. AutoField, BigAutoField, "
        f"SmallAutoField and UUIDField can be adopted."
    )


# --- integer keys ----------------------------------------------------------------


class IntegerKey(Stages):
    """The stages of a table with an integer key."""

    operations = (AdoptKey, DropCounter, ReturnKey, FreeCounter)

    def plan(self) -> Plan:
        return self._back() if self.options.back else self._forward()

    def _forward(self) -> Plan:
        last, key = self.last, self.project.migrated_key
        if isinstance(last, AdoptKey) and not last.at_once:
            return self._drop()
        if isinstance(last, AdoptKey | DropCounter):
            return Plan([f"{self.project.name} is adopted: nothing is left to do."])
        if isinstance(key, GeneratedOnSave):
            raise ConfigurationError(
                f"The key of {self.project.name} is a {type(key).__name__} already. To let the "
                "database give the ids again, use --back."
            )
        if not isinstance(key, models.BigAutoField) and not self.options.at_once:
            return self._widen(key)
        return self._adopt()

    def _widen(self, key: Any) -> Plan:
        links = key_table(self.project.state.apps, self.project.app, self.model_name).links
        field = self._big_auto()
        return Plan(
            [
                f"{self.rows()} Its key ({type(key).__name__}) has 32 bits or fewer.",
                f"First the key and {len(links)} columns that refer to it are widened to 64 "
                f"bits. PostgreSQL, MariaDB and MySQL lock and rewrite such a table; choose a "
                f"quiet hour if that takes too long.",
            ],
            self.migration("widen", AlterField(self.model_name, self.name, field)),
            self.edit([self.name], field),
            after=[
                "Make this edit, and commit it with the migration.",
                f"Deploy, with {self.migrate}. 'manage.py check --database "
                f"{self.project.alias}' names columns that no migration widens, such as those of "
                f"a GenericForeignKey (W002, W003).",
                "When every process runs the new code, run this command again: a process with "
                "the old code would not find rows whose id is past 2**31.",
            ],
        )

    def _adopt(self) -> Plan:
        field = self.options.new_key("segment", db_column=self.project.migrated_key.db_column)
        given = self.options.of_operation()
        if not isinstance(field, SegmentIdField):
            counter = counter_behind(self.project.connection, self.project.migrated_key)
            check_above(field, counter.table, counter.reached())
        commit = "Make this edit, and commit it with the migration."
        if self.options.at_once:
            how = "The migration stops the database's counter."
            after = [self._at_once()]
        else:
            is_segment = isinstance(field, SegmentIdField)
            new = (
                "continue a margin above the old ones"
                if is_segment
                else "are snowflakes, far above the old ones"
            )
            how = (
                f"New ids {new}. The database's counter is limited to ids below them, for the "
                "processes that use it until you replace them. SQLite and MySQL can't limit a "
                f"counter: there the migration stops it{', and needs no margin' * is_segment}."
            )
            after = [
                f"Deploy, with {self.migrate} before the first process starts with the new "
                f"code. On PostgreSQL and MariaDB old and new processes may insert side by side; "
                f"on SQLite and MySQL stop the old ones first (their INSERT fails).",
                "When no old process is left, run this command again: it drops the counter.",
            ]
        return Plan(
            [self.rows(), f"All ids are kept. {how}"],
            self.migration(
                type(field).__name__.removesuffix("Field").lower(),
                AdoptKey(self.model_name, self.name, field, **given),
            ),
            self.edit([self.name], field),
            after=[commit, *after],
        )

    def _drop(self) -> Plan:
        self._check_code(GeneratedOnSave)
        return self._counter_stage(
            "The database's counter is dropped: no process may use it any more.",
            "drop_counter",
            DropCounter(self.model_name, self.name),
        )

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
        self._check_native()
        field, given = self._big_auto(), self.options.of_operation()
        does = (
            "The key becomes a BigAutoField. The database's counter continues above every id "
            "that is in the table or was handed out."
        )
        if self.options.at_once:
            after = [self._at_once()]
        else:
            does += " Processes with the old code get no id that the counter gives."
            after = [
                f"Deploy, with {self.migrate} before the first process starts with the new code "
                f"(on SQLite and MySQL stop the old ones first).",
                "When no process with the old code is left, run this command with --back again: "
                "it lifts the bounds of the counter. For snowflakes do so within 30 days.",
            ]
        return Plan(
            [self.rows(), does],
            self.migration("back", ReturnKey(self.model_name, self.name, field, **given)),
            self.edit([self.name], field),
            after=["Make this edit, and commit it with the migration.", *after],
        )

    def _at_once(self) -> str:
        return f"Stop all processes, run {self.migrate}, and start them again. That is all."

    def _check_native(self) -> None:
        key = self.project.key
        if not isinstance(key, SegmentSource):
            return
        native = native_column(self.project.connection, key)
        if native is not None and native.position() is not None:
            raise ConfigurationError(
                f"{native} has a sequence of idgen_native. Run 'manage.py idgen_native "
                f"{key.resolved_tag} --remove' first."
            )

    def _free(self) -> Plan:
        self._check_code(models.AutoField, but_not=GeneratedOnSave)
        before = self.project.loader.project_state(self.written[-1].node, at_end=False)
        key = before.apps.get_model(self.project.app, self.model_name)._meta.pk
        tag = {"tag": key.resolved_tag} if isinstance(key, SegmentSource) else {}
        return self._counter_stage(
            "The database's counter continues without bounds.",
            "free_counter",
            FreeCounter(self.model_name, self.name, **tag),
        )

    def _counter_stage(self, does: str, what: str, operation: Operation) -> Plan:
        return Plan(
            [self.rows(), does],
            self.migration(what, operation),
            after=[f"Commit the migration, and deploy with {self.migrate}."],
        )

    def status(self) -> list[str]:
        lines = super().status()
        counter = counter_behind(self.project.connection, self.project.migrated_key)
        if not counter.exists():
            return [*lines, "The database gives this column no ids."]
        limit = counter.limit()
        end = "has no bounds" if limit is None else f"ends at {limit}"
        return [*lines, f"The database's counter is at {counter.position()}, and {end}."]

    def _check_code(self, kind: Any, *, but_not: Any = ()) -> None:
        # SnowflakeAutoField and SegmentAutoField are AutoFields, too.
        if not isinstance(self.project.key, kind) or isinstance(self.project.key, but_not):
            raise ConfigurationError(
                f"The migrations say that the key of {self.project.name} is a "
                f"{type(self.project.migrated_key).__name__}, but the model has a "
                f"{type(self.project.key).__name__}. Make the edit that was shown when the last "
                f"migration was written, deploy it, and run this again."
            )

    def _big_auto(self) -> models.Field[Any, Any]:
        column = self.project.migrated_key.db_column
        return models.BigAutoField(primary_key=True, serialize=False, db_column=column)


# --- UUID keys -------------------------------------------------------------------


class UuidKey(Stages):
    """The stages of a table whose key is a UUID, and of the way back to the UUID."""

    operations = (AddNewKey, SwitchKey)

    def __init__(self, project: Project, options: Options) -> None:
        super().__init__(project, options)
        if options.at_once:
            raise ConfigurationError(
                f"{project.name} has a UUID as its key, or had one: such a table changes in "
                "stages. Leave --at-once out."
            )
        self._state = project.state
        self._kept = options.keep_as or ("number" if options.back else "uuid")

    def plan(self) -> Plan:
        last = self.last
        if last is None:
            return self._add(None)
        is_back = last.source is not None
        if isinstance(last, AddNewKey):
            if self.options.back != is_back:
                raise ConfigurationError(
                    f"The key of {self.project.name} is half-way to another type (migration "
                    f"{self.written[-1].node[1]}). To undo that, migrate back to before that "
                    "migration, which drops the new columns, and delete its file. To go on, run "
                    f"this command {'without' if self.options.back else 'with'} --back."
                )
            return self._fill() if self._empty_rows() else self._switch(last)
        if not self.written[-1].applied:
            return self._before_switch()
        if self.options.back == is_back:
            return Plan([f"{self.project.name} has its new key: nothing is left to do."])
        return self._add(last)

    def _add(self, last: Any) -> Plan:
        source = last.kept if self.options.back else None
        field = self._new_key(source)
        table = self._table()
        refuse_unsupported(self.project.connection, table, apps)
        self._check_kept(table, source)
        return Plan(
            [
                f"The key of {self.project.name} becomes a {type(field).__name__}, and so do the "
                f"columns that refer to it. Tables: {self._counts(table)}.",
                "First the tables get columns for the new key. These are empty, and the models "
                "do not know them. Adding them locks each table for a moment, and rewrites none.",
            ],
            self._migration(
                "add_new_key",
                AddNewKey(self.model_name, self.name, field, **_source(source)),
                table,
            ),
            after=[
                "Commit the migration; the models stay as they are.",
                f"Deploy it: {self.migrate}. Processes go on meanwhile.",
                "Run this command again, in each place that has a database: it fills the columns.",
            ],
        )

    def _new_key(self, source: str | None) -> models.Field[Any, Any]:
        column = self.project.key.db_column
        if source is None:
            return self.options.new_key("snowflake", db_column=column)
        kept: Any = self.project.model._meta.get_field(source)
        key = kept.clone()
        key.primary_key, key._unique, key.serialize, key.db_column = True, False, False, column
        copy: models.Field[Any, Any] = key.clone()  # built anew from these attributes
        return copy

    def _fill(self) -> Plan:
        return Plan(
            [
                f"{self._empty_rows()} rows have no new key, or no new reference, yet: "
                f"{self._counts(self._table())}.",
                f"They are filled {self.options.batch} at a time, while the site is up. You can "
                f"interrupt this and run it again.",
            ],
            work=self._run_filling,
            after=[
                "Where you develop, run this command again: it writes the migration that switches.",
            ],
        )

    def _run_filling(self, report: Report) -> str:
        filled = self._filling().run(report)
        return f"{filled} rows were filled; {self._empty_rows()} are empty now."

    def _filling(self) -> Filling:
        last, table = self.last, self._table()
        take, new = None, table.new_column
        if last.source is None:
            key = last.field.clone()
            key.model = self.project.model  # its label is the tag
            take = key.next_values
            self._check_column(table.name, new)
        else:
            new = str(table.model._meta.get_field(last.source).column)  # type: ignore[union-attr]
        for link in table.links:
            self._check_column(link.table, link.new_column)
        return Filling(
            self.project.connection,
            table,
            old=table.column,
            new=new,
            take=take,
            batch=self.options.batch,
        )

    def _check_column(self, table: str, column: str) -> None:
        if column not in columns_of(self.project.connection, table):
            raise ConfigurationError(
                f"Table {table} has no column {column}, though the migration that adds it is "
                f"applied: another migration has rewritten the table since, or the reference is "
                f"newer. Migrate back to before {self.written[-1].node[1]}, and forward again."
            )

    def _empty_rows(self) -> int:
        return self._filling().count_empty()

    def _switch(self, last: AddNewKey) -> Plan:
        table = self._table()
        kept_field = self._kept_field()
        self._check_kept(table, last.source)
        operation = SwitchKey(
            self.model_name, self.name, last.field, self._kept, kept_field, **_source(last.source)
        )
        removed = [self.name, *([last.source] if last.source else [])]
        return Plan(
            [
                "Every row of this database is filled. The new key takes the place of the old "
                f"one, which stays as {self._kept!r}, a unique column.",
                "Meanwhile the migration locks the tables and builds their indexes anew: "
                f"{self._counts(table)}. MariaDB and MySQL rewrite the tables.",
            ],
            self._migration("switch", operation, table),
            self.edit(removed, last.field, **{self._kept: kept_field}),
            after=[
                "Make this edit, adapt what uses the old keys (URLs, tasks, other systems), and "
                "commit it with the migration.",
                "Where the site runs, run this command until it says that everything is filled.",
                f"Stop all processes, run {self.migrate}, and start them with the new code: no "
                f"process can work with both kinds of key.",
            ],
        )

    def _kept_field(self) -> models.Field[Any, Any]:
        key: Any = self.project.key.clone()
        key.primary_key, key._unique, key.serialize, key.db_column = False, True, True, None
        if not isinstance(key, GeneratedOnSave):
            key.editable = False
        copy: models.Field[Any, Any] = key.clone()
        return copy

    def _before_switch(self) -> Plan:
        """The switch is written but not applied: rows may have to be filled first."""
        self.written = self.written[:-1]
        self._state = self.project.loader.project_state(self.written[-1].node)
        if self._empty_rows():
            return self._fill()
        return Plan(
            ["Everything is filled."],
            after=[
                f"Stop all processes, run {self.migrate}, and start them with the new code.",
            ],
        )

    def status(self) -> list[str]:
        lines = super().status()
        if isinstance(self.last, AddNewKey) and self.written[-1].applied:
            lines.append(f"{self._empty_rows()} rows are left to fill.")
        return lines

    def _table(self) -> KeyTable:
        return key_table(self._state.apps, self.project.app, self.model_name)

    def _counts(self, table: KeyTable) -> str:
        connection = self.project.connection
        return ", ".join(f"{name} ({count_rows(connection, name)} rows)" for name in table.tables)

    def _migration(self, what: str, operation: Operation, table: KeyTable) -> MigrationWriter:
        others = {link.model._meta.app_label for link in table.links} - {self.project.app}
        return self.migration(what, operation, *others)

    def _check_kept(self, table: KeyTable, source: str | None) -> None:
        name = self._kept
        taken = {field.name for field in table.model._meta.get_fields()} - {source}
        if not name.isidentifier() or name.startswith("_") or "__" in name or name in taken:
            raise ConfigurationError(
                f"The old key can't be kept as {name!r}: the name is taken, or is not a valid "
                "field name. Give another one with --keep-as."
            )


def _source(name: str | None) -> dict[str, str]:
    """``source`` as an argument of an operation, which a migration shows only if it is given."""
    return {} if name is None else {"source": name}
