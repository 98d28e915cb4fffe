"""The next stage of an adoption: what the user asked for, what is done, and what is left to do.

A stage leaves a migration file, and an edit of the models that the user makes.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from django.db import models
from django.db.migrations import Migration
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.operations.base import Operation
from django.db.migrations.writer import MigrationWriter

from ...core.errors import ConfigurationError, InvalidTag
from ...core.segment import MAX_ID, check_tag
from ...fields import SegmentIdField, SnowflakeField
from ...fields.filling import MOST_IN_BATCH, Report
from ...process.handlers import generator_settings
from .project import Node, Project

__all__ = ["MigrationFile", "Options", "Plan", "Stages", "edit_of_model"]

FIELDS: dict[str, type[models.Field[Any, Any]]] = {
    "segment": SegmentIdField,
    "snowflake": SnowflakeField,
}


@dataclass(frozen=True, slots=True)
class Options:
    """The options of ``idgen_adopt``; raises :class:`ConfigurationError` when made."""

    kind: str = ""
    """``segment`` or ``snowflake``; empty: by the table's key."""
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
            try:
                check_tag(self.tag)
            except InvalidTag as error:
                raise ConfigurationError(str(error)) from error
        if not 1 <= self.batch <= MOST_IN_BATCH:
            raise ConfigurationError(f"--batch must be 1 to {MOST_IN_BATCH}, not {self.batch}.")
        if self.margin is not None and not 1 <= self.margin <= MAX_ID // 4:
            raise ConfigurationError(f"--margin must be 1 to {MAX_ID // 4}, not {self.margin}.")

    def resolved(self, default: str) -> str:
        """The kind of field, where ``default`` suits the table's key."""
        if self.kind:
            return self.kind
        return "snowflake" if self.generator else "segment" if self.tag else default

    def for_field(self) -> dict[str, Any]:
        return self._given("generator", "tag")

    def for_operation(self) -> dict[str, Any]:
        return self._given("margin", "at_once")

    def _given(self, *names: str) -> dict[str, Any]:
        return {name: value for name in names if (value := getattr(self, name))}

    def field(self, default: str = "segment", **options: Any) -> models.Field[Any, Any]:
        """The key that the table is to have."""
        kind = FIELDS[self.resolved(default)]
        # As Django writes down any primary key.
        return kind(primary_key=True, serialize=False, **self.for_field(), **options)

    def field_text(self, more: str = "", default: str = "segment") -> str:
        """The same, as it is written in a model."""
        options = "".join(f", {name}={value!r}" for name, value in self.for_field().items())
        return f"{FIELDS[self.resolved(default)].__name__}(primary_key=True{options}{more})"


class MigrationFile:
    """A migration that follows ``after``; ``what`` is the end of its name."""

    def __init__(
        self, after: Node, what: str, operations: Sequence[Operation], needs: Sequence[Node]
    ) -> None:
        app, last = after
        number = (MigrationAutodetector.parse_number(last) or 0) + 1
        kind = type(
            "Migration",
            (Migration,),
            {"operations": list(operations), "dependencies": sorted({after, *needs})},
        )
        self._writer = MigrationWriter(kind(f"{number:04d}_{what}", app))

    @property
    def name(self) -> str:
        return str(self._writer.migration.name)

    @property
    def path(self) -> Path:
        return Path(self._writer.path)

    def write(self) -> Path:
        """Write it, whole or not at all; raises :class:`ConfigurationError`."""
        interim = self.path.with_suffix(".tmp")
        try:
            interim.write_text(self._writer.as_string(), encoding="utf-8")
            os.replace(interim, self.path)
        except OSError as error:
            interim.unlink(missing_ok=True)
            raise ConfigurationError(f"The migration can't be written: {error}") from error
        return self.path


@dataclass(slots=True)
class Plan:
    """One stage: what it does, and what the user does after it."""

    does: list[str]
    """What there is, and what this stage changes, in words."""
    migration: MigrationFile | None = None
    edit: str = ""
    """A diff of the models, for the user to make."""
    work: Callable[[Report], str] | None = None
    """What is done in the database at once; returns what came of it."""
    after: list[str] = field(default_factory=list)
    """What to do next, step by step."""

    @property
    def is_empty(self) -> bool:
        return self.migration is None and self.work is None


class Stages(ABC):
    """What is to be done next with the key of ``project``'s model."""

    operations: ClassVar[tuple[type[Operation], ...]]
    """What its migrations are made of."""

    def __init__(self, project: Project, options: Options) -> None:
        self.project = project
        self.options = options
        self.name = project.key.name
        self.model_name = project.model.__name__.lower()
        self.written = list(project.written(self.operations))

    @property
    def last(self) -> Any:
        """The last operation that was written."""
        return self.written[-1].operation if self.written else None

    @abstractmethod
    def plan(self) -> Plan:
        """Raises :class:`ConfigurationError` where there is no way on."""

    def status(self) -> list[str]:
        """How far the table is, in words."""
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
        return f"{self.project.name}: {self.project.rows()} rows in {self.project.alias!r}."

    def file(self, what: str, operation: Operation, *apps: str) -> MigrationFile:
        """A migration after the last one, and after those of the other ``apps``."""
        needs = [self.project.leaf_of(app) for app in sorted({*apps, "django_idgen"})]
        name = f"{self.model_name}_{self.name}_{what}"
        return MigrationFile(self.project.leaf, name, [operation], [n for n in needs if n])


# --- the edit of a model -----------------------------------------------------------


def edit_of_model(
    model: type[models.Model], lines: Sequence[str], removed: Sequence[str], imports: Sequence[str]
) -> str:
    """The edit of the model's source as a diff: ``lines`` in the place of the fields ``removed``.

    The first line stands where the first of them stood, or on top of the class; the others
    at the end of the fields, where they shadow no module for those. Nothing is written.
    """
    try:
        path = Path(inspect.getsourcefile(model) or "")
        before = path.read_text(encoding="utf-8").splitlines()
        after = list(_edited(before, model.__name__, lines, removed, imports))
    except (OSError, TypeError, SyntaxError, StopIteration):
        return "\n".join(["(the source of the model was not found)", *imports, *lines])
    try:
        shown = path.relative_to(Path.cwd())
    except ValueError:
        shown = path
    return "\n".join(difflib.unified_diff(before, after, str(shown), str(shown), lineterm="", n=2))


def _edited(
    source: Sequence[str],
    name: str,
    lines: Sequence[str],
    removed: Sequence[str],
    imports: Sequence[str],
) -> Iterator[str]:
    tree = ast.parse("\n".join(source))
    body = next(
        node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == name
    ).body
    assigned = [node for node in body if isinstance(node, ast.Assign | ast.AnnAssign)]
    gone = {
        number
        for node in assigned
        if _target(node) in removed
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    docstring = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    top = min(gone, default=(body[0].end_lineno or 0) + 1 if docstring else body[0].lineno)
    end = max((node.end_lineno or node.lineno for node in assigned), default=top)
    indent = " " * body[0].col_offset
    first, rest = lines[:1], lines[1:]
    below = max(
        (
            node.end_lineno or 0
            for node in tree.body
            if isinstance(node, ast.Import | ast.ImportFrom)
        ),
        default=0,
    )
    missing = [line for line in imports if line not in source]
    for number, line in enumerate(source, start=1):
        if number == top:
            yield from (f"{indent}{each}" for each in first)
        if number not in gone:
            yield line
        if number == below:
            yield from missing
        if number == end:
            yield from (f"{indent}{each}" for each in rest)
    if top > len(source):
        yield from (f"{indent}{each}" for each in first)


def _target(node: ast.Assign | ast.AnnAssign) -> str:
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    return target.id if isinstance(target, ast.Name) else ""
