"""The next stage of an adoption: what the user asked for, what is done, what is left to do.

A stage leaves a migration file, and an edit of the model that the user makes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from django.apps import apps
from django.db import models
from django.db.migrations.operations.base import Operation
from django.db.migrations.writer import MigrationWriter

from ...core.errors import ConfigurationError
from ...core.segment import MAX_ID, check_tag
from ...fields import SegmentIdField, SegmentSource, SnowflakeField
from ...fields.base import GeneratedOnSave
from ...fields.operations import MAX_BATCH, Report, count_rows
from ...ops.native import native_column
from ...process.maps import generator_settings
from .counters import counter_of
from .filling import Filling
from .key_operations import AdoptKey, DropCounter, FreeCounter, ReturnKey, WidenKey, check_above
from .project import Project
from .swap_operations import AddNewKey, SwitchKey
from .tables import columns_of, key_table, refuse_unsupported

FIELDS: dict[str, type[models.Field[Any, Any]]] = {
    "segment": SegmentIdField,
    "snowflake": SnowflakeField,
}
_REST = "The switch fills the rest."
_TOO_FAST = (
    "Rows come as fast as this fills them. Run it again at a quieter hour, or with a larger "
    "--batch."
)
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
    created_from: str = ""
    """The field whose time goes into the new keys, made with ``workers`` (without the end)."""
    workers: tuple[int, int] | None = None

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
        if bool(self.created_from) != bool(self.workers):
            raise ConfigurationError(
                "Give --created-from FIELD together with --workers FIRST END: worker ids that "
                "nothing lends or ever lent, and that were no degraded_worker, such as 1023 1024 "
                "where 'workers' in the options of LEASES was [0, 1023] from the start. The new "
                "keys are made with these."
            )
        if self.created_from and (self.back or self.tag or self.kind == "segment"):
            raise ConfigurationError(
                "Only snowflakes have a creation time: --created-from goes with --field snowflake "
                "and --generator."
            )

    def new_key(self, default: str, **options: Any) -> models.Field[Any, Any]:
        """The new key of the table; ``default`` is the kind of field that suits the old one."""
        kind = self.kind or ("snowflake" if self.generator else "segment" if self.tag else default)
        if self.generator or self.tag:
            options |= {"generator": self.generator} if self.generator else {"tag": self.tag}
        # serialize=False: Django writes any primary key like this into migrations.
        return FIELDS[kind](primary_key=True, serialize=False, **options)


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
    """The stages of ``project``'s key, on the way that the user asked for."""

    operations: ClassVar[tuple[type[Operation], ...]]
    """The operations in its migrations."""

    def __init__(self, project: Project, options: Options) -> None:
        self.project = project
        self.options = options
        self.name = project.key.name
        self.model_name = project.model.__name__.lower()
        self.migrate = f"'manage.py migrate {project.app}'"
        self.written = list(project.written(self.operations))
        self.last: Any = self.written[-1].operation if self.written else None
        """The last operation that was written."""

    def plan(self) -> Plan:
        """The next stage. Raises :class:`ConfigurationError` if there is none."""
        return next(self.stages())

    @abstractmethod
    def stages(self) -> Iterator[Plan]:
        """The stages that are not done, in their order, and then that nothing is left to do."""

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
        module = self.project.model.__module__
        text, imports = _source_of(key, module)
        lines = [f"+    {self.name} = {text}"]
        for name, new in kept.items():
            text, needed = _source_of(new, module)
            # Below the other fields, where it hides no module of the same name from them.
            lines += ["as the last field:", f"+    {name} = {text}"]
            imports |= needed
        return [
            f"Edit class {self.project.model.__name__} of {module}:",
            *(f"-    {name} = ..." for name in removed if name != undeclared),
            *lines,
            "with these imports:",
            *(f"    {line}" for line in sorted(imports)),
        ]


def _source_of(field: models.Field[Any, Any], module: str) -> tuple[str, set[str]]:
    """A field as it is written in a model of ``module``, and the imports that it needs."""
    plain: Any = field.clone()
    plain.serialize = True
    text, imports = MigrationWriter.serialize(plain)
    if isinstance(field, GeneratedOnSave):
        name = type(field).__name__
        return text.removeprefix("django_idgen.fields."), {
            f"from django_idgen.fields import {name}"
        }
    # A default may be a function of the module itself.
    return text.replace(f"={module}.", "="), set(imports) - {f"import {module}"}


def _given(**options: Any) -> dict[str, Any]:
    """Those options that were given: a migration shows no others."""
    return {name: value for name, value in options.items() if value}


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

    operations = (WidenKey, AdoptKey, DropCounter, ReturnKey, FreeCounter)

    def stages(self) -> Iterator[Plan]:
        return self._back() if self.options.back else self._there()

    def _there(self) -> Iterator[Plan]:
        last, key, name = self.last, self.project.migrated_key, self.project.name
        if self.options.created_from:
            raise ConfigurationError(
                f"--created-from is for UUID keys: {name} keeps its integer keys."
            )
        if not isinstance(last, AdoptKey | DropCounter):
            if isinstance(key, GeneratedOnSave):
                raise ConfigurationError(
                    f"The key of {name} is a {type(key).__name__} already. To let the database "
                    "give the ids again, use --back."
                )
            if not isinstance(key, models.BigAutoField) and not self.options.at_once:
                yield self._widen()
            yield self._adopt()
        if isinstance(last, AdoptKey) and not last.at_once:
            self._check_code(GeneratedOnSave)
            yield self._counter_stage(
                "The database's counter is dropped: no process may use it any more.",
                "drop_counter",
                DropCounter(self.model_name, self.name),
            )
        yield Plan([f"{name} is adopted: nothing is left to do."])

    def _back(self) -> Iterator[Plan]:
        last, key, name = self.last, self.project.migrated_key, self.project.name
        if not isinstance(last, ReturnKey | FreeCounter):
            if not isinstance(key, GeneratedOnSave):
                raise ConfigurationError(
                    f"The key of {name} is a {type(key).__name__}: its ids come from the database "
                    f"already."
                )
            self._check_native()
            yield self._return()
        if isinstance(last, ReturnKey) and not last.at_once:
            self._check_code(models.AutoField, but_not=GeneratedOnSave)
            before = self.project.state_before(self.written[-1])
            field = before.apps.get_model(self.project.app, self.model_name)._meta.pk
            tag = {"tag": field.resolved_tag} if isinstance(field, SegmentSource) else {}
            yield self._counter_stage(
                "The database's counter continues without bounds.",
                "free_counter",
                FreeCounter(self.model_name, self.name, **tag),
            )
        yield Plan([f"The ids of {name} come from the database again."])

    def _widen(self) -> Plan:
        links = key_table(self.project.state.apps, self.project.app, self.model_name).links
        field, does_rollback = self._big_auto(), self.project.connection.features.can_rollback_ddl
        traffic = (
            "On this database foreign keys are missing while it runs, and transactions of a busy "
            "site can stop it (error 1205). Then run 'migrate' again: it does what is left. The "
            "error names the foreign keys that are missing until then."
        )
        return Plan(
            [
                f"{self.rows()} Its key ({type(self.project.migrated_key).__name__}) has 32 bits "
                f"or fewer.",
                f"First the key and {len(links)} columns that refer to it are widened to 64 "
                f"bits. PostgreSQL, MariaDB and MySQL lock and rewrite such a table; choose a "
                f"quiet hour if that takes too long.",
                *([] if does_rollback else [traffic]),
            ],
            self.migration("widen", WidenKey(self.model_name, self.name, field)),
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
        is_segment = isinstance(field, SegmentIdField)
        if not is_segment:
            counter = counter_of(self.project.connection, self.project.migrated_key)
            check_above(field, counter.table, counter.reached())
        how = "The migration stops the database's counter."
        after = [self._at_once()]
        if not self.options.at_once:
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
        return self._key_stage(
            f"All ids are kept. {how}", type(field).__name__, AdoptKey, field, after
        )

    def _return(self) -> Plan:
        does = (
            "The key becomes a BigAutoField. The database's counter continues above every id "
            "that is in the table or was handed out."
        )
        after = [self._at_once()]
        if not self.options.at_once:
            does += " Processes with the old code get no id that the counter gives."
            after = [
                f"Deploy, with {self.migrate} before the first process starts with the new code "
                f"(on SQLite and MySQL stop the old ones first).",
                "When no process with the old code is left, run this command with --back again: "
                "it lifts the bounds of the counter. For snowflakes do so within 30 days.",
            ]
        return self._key_stage(does, "back", ReturnKey, self._big_auto(), after)

    def _key_stage(
        self, does: str, what: str, kind: Any, field: models.Field[Any, Any], after: list[str]
    ) -> Plan:
        given = _given(margin=self.options.margin, at_once=self.options.at_once)
        operation = kind(self.model_name, self.name, field, **given)
        return Plan(
            [self.rows(), does],
            self.migration(what.removesuffix("Field").lower(), operation),
            self.edit([self.name], field),
            after=["Make this edit, and commit it with the migration.", *after],
        )

    def _counter_stage(self, does: str, what: str, operation: Operation) -> Plan:
        return Plan(
            [self.rows(), does],
            self.migration(what, operation),
            after=[f"Commit the migration, and deploy with {self.migrate}."],
        )

    def _at_once(self) -> str:
        return f"Stop all processes, run {self.migrate}, and start them again. That is all."

    def _check_native(self) -> None:
        key = self.project.key
        if isinstance(key, SegmentSource):
            native = native_column(self.project.connection, key)
            if native is not None and native.position() is not None:
                raise ConfigurationError(
                    f"{native} has a sequence of idgen_native. Run 'manage.py idgen_native "
                    f"{key.resolved_tag} --remove' first."
                )

    def status(self) -> list[str]:
        lines = super().status()
        counter = counter_of(self.project.connection, self.project.migrated_key)
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
        self._kept = options.keep_as or ("number" if options.back else "uuid")
        has_switch = isinstance(self.last, SwitchKey)
        self._way = self.written[-2:] if has_switch else self.written[-1:]
        """The operations of the way that was begun last."""
        self._files = ", ".join(each.node[1] for each in self._way)
        self._is_switched = has_switch and self._way[-1].applied
        is_written_ahead = has_switch and not self._is_switched
        state = project.state_before(self._way[-1]) if is_written_ahead else project.state
        self._table = key_table(state.apps, project.app, self.model_name)
        """As it is in the database."""

    def stages(self) -> Iterator[Plan]:
        # There and back are alike.
        is_begun = self.last is not None and self.options.back == (self.last.source is not None)
        if not is_begun:
            self._refuse_way()
            yield self._add()
        if not self._is_switched:
            self._check_options()
            filling = self._filling()
            filling.check()
            empty = filling.count_empty()
            if empty > filling.enough:
                yield self._fill(filling, empty)
            if isinstance(self.last, AddNewKey):
                yield self._switch(empty)
            yield Plan(
                [f"{empty} rows are empty. {_REST}"],
                after=[
                    f"Stop all processes, run {self.migrate}, and start them with the new code."
                ],
            )
        yield Plan([f"{self.project.name} has its new key: nothing is left to do."])

    def _refuse_way(self) -> None:
        if self.last is None and self.options.back:
            raise ConfigurationError(
                f"The key of {self.project.name} is a UUID already: there is no way back."
            )
        if self._way and not self._is_switched:
            raise ConfigurationError(
                f"The key of {self.project.name} is half-way to another type (migration "
                f"{self._files}). To undo that, migrate back to before that migration, which "
                f"drops the new columns, and delete its file. To go on, run this command "
                f"{'without' if self.options.back else 'with'} --back."
            )

    def _check_options(self) -> None:
        made = self._way[0].operation
        said: list[Any] = [written.operation for written in self._way]
        if self.options.created_from:
            said.append(self.options)
        if len({(each.created_from, *(each.workers or ())) for each in said}) > 1:
            raise ConfigurationError(
                f"What the migrations say counts, and it has to be the same in each. "
                f"{self._way[0].node[1]} says created_from={made.created_from!r}, "
                f"workers={made.workers!r}. To change that, edit {self._files}. Then leave "
                f"--created-from and --workers out."
            )

    def _add(self) -> Plan:
        source, table = self.last.kept if self.options.back else None, self._table
        field = self._new_key(source)
        given = _given(
            source=source, created_from=self.options.created_from, workers=self.options.workers
        )
        operation = AddNewKey(self.model_name, self.name, field, **given)
        refuse_unsupported(self.project.connection, table, apps)
        self._check_kept(source)
        return Plan(
            [
                f"The key of {self.project.name} becomes a {type(field).__name__}, and so do the "
                f"columns that refer to it. Tables: {self._counts()}.",
                *self._about_age(operation),
                "First the tables get columns for the new key. These are empty, and the models "
                "do not know them. Adding them locks each table for a moment, and rewrites none.",
            ],
            self._migration("add_new_key", operation),
            after=[
                "Commit the migration; the models stay as they are.",
                f"Deploy it: {self.migrate}. Processes go on meanwhile.",
                "Run this command again, in each place that has a database: it fills the columns.",
            ],
        )

    def _about_age(self, operation: AddNewKey) -> list[str]:
        if operation.created_from is None:
            return []
        operation.past_ids()  # checked also where the table has no rows
        operation.filling(self.project.connection, self._table, None).check()
        first, end = self.options.workers or (0, 0)
        return [
            f"The times of {operation.created_from!r} go into the keys of the rows that exist, "
            f"with worker ids {first} to {end - 1}. Make sure that nothing lends or ever lent "
            "these, and that none was a degraded_worker: in no other project, under no other name "
            "of the generator, and in no database or registry that the namespace had before.",
        ]

    def _new_key(self, source: str | None) -> models.Field[Any, Any]:
        column = self.project.key.db_column
        if source is None:
            return self.options.new_key("snowflake", db_column=column)
        kept = self.project.model._meta.get_field(source)
        return _changed(kept, primary_key=True, _unique=False, serialize=False, db_column=column)

    def _fill(self, filling: Filling, empty: int) -> Plan:
        def work(report: Report) -> str:
            filled, left = filling.run(report)
            rest = _REST if left <= filling.enough else _TOO_FAST
            return f"{filled} rows were filled, and {left} are empty now. {rest}"

        return Plan(
            [
                f"{empty} rows have no new key, or no new reference, yet: {self._counts()}.",
                f"They are filled {self.options.batch} at a time, while the site is up, until at "
                f"most {filling.enough} are empty. You can interrupt this and run it again.",
            ],
            work=work,
            after=[
                "Where you develop, run this command again: it writes the migration that switches.",
            ],
        )

    def _filling(self) -> Filling:
        added, connection = self._way[0].operation, self.project.connection
        for each in added.columns(self._table):
            if each.new not in columns_of(connection, each.table):
                raise ConfigurationError(
                    f"Table {each.table} has no column {each.new}, though the migration that adds "
                    f"it is applied: another migration has rewritten the table since, or the "
                    f"reference is newer. Migrate back to before {self._way[0].node[1]}, and "
                    f"forward again."
                )
        key = added.field.clone()
        key.model = self.project.model  # its label is the tag
        filling: Filling = added.filling(connection, self._table, key, batch=self.options.batch)
        return filling

    def _switch(self, empty: int) -> Plan:
        added, key = self.last, self.project.key
        self._check_kept(added.source)
        editable = {} if isinstance(key, GeneratedOnSave) else {"editable": False}
        kept = _changed(
            key, primary_key=False, _unique=True, serialize=True, db_column=None, **editable
        )
        given = _given(source=added.source, created_from=added.created_from, workers=added.workers)
        operation = SwitchKey(self.model_name, self.name, added.field, self._kept, kept, **given)
        removed = [self.name, *([added.source] if added.source else [])]
        return Plan(
            [
                f"{empty} rows of this database are empty. {_REST}",
                "The new key takes the place of the old one, which stays as "
                f"{self._kept!r}, a unique column.",
                "Meanwhile the migration locks the tables and builds their indexes anew: "
                f"{self._counts()}. MariaDB and MySQL rewrite the tables.",
            ],
            self._migration("switch", operation),
            self.edit(removed, added.field, **{self._kept: kept}),
            after=[
                "Make this edit, adapt what uses the old keys (URLs, tasks, other systems), and "
                "commit it with the migration.",
                "Where the site runs, run this command until it says that the switch fills the "
                "rest.",
                f"Stop all processes, run {self.migrate}, and start them with the new code: no "
                f"process can work with both kinds of key.",
            ],
        )

    def status(self) -> list[str]:
        lines = super().status()
        if self._way and self._way[0].applied and not self._is_switched:
            lines.append(f"{self._filling().count_empty()} rows are left to fill.")
        return lines

    def _counts(self) -> str:
        connection, names = self.project.connection, self._table.tables
        return ", ".join(f"{name} ({count_rows(connection, name)} rows)" for name in names)

    def _migration(self, what: str, operation: Operation) -> MigrationWriter:
        others = {link.model._meta.app_label for link in self._table.links} - {self.project.app}
        return self.migration(what, operation, *others)

    def _check_kept(self, source: str | None) -> None:
        name = self._kept
        taken = {field.name for field in self._table.key.model._meta.get_fields()} - {source}
        if not name.isidentifier() or name.startswith("_") or "__" in name or name in taken:
            raise ConfigurationError(
                f"The old key can't be kept as {name!r}: the name is taken, or is not a valid "
                "field name. Give another one with --keep-as."
            )


def _changed(field: Any, **attributes: Any) -> models.Field[Any, Any]:
    """A copy of ``field`` with other attributes."""
    changed = field.clone()
    for name, value in attributes.items():
        setattr(changed, name, value)
    copy: models.Field[Any, Any] = changed.clone()  # built anew from these attributes
    return copy
