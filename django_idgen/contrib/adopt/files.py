"""What a stage leaves for the user to commit: a migration file, and an edit of the models."""

from __future__ import annotations

import ast
import difflib
import inspect
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from django.db import models
from django.db.migrations import Migration
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.operations.base import Operation
from django.db.migrations.writer import MigrationWriter

from ...core.errors import ConfigurationError
from .project import Node

__all__ = ["MigrationFile", "edit_of_model"]


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
