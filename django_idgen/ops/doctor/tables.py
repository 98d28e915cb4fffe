"""Checks of our tables, of the columns that hold ids, and of their sequences."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Error, Warning  # noqa: A004
from django.db import connections, router, transaction

from ...checks import NARROW, generic_keys
from ...db.tables import MODELS, how_to_make_tables, table_of, unfit_columns
from ...fields import SegmentSource
from ...fields.base import GeneratedOnSave, id_held_by
from ...models import LeafAlloc
from ...process.factory import lease_databases
from ...process.tags import find_tag, source_behind_pool
from ..native import native_column
from .project import IdColumn, Project, attempt

YEAR = 365.25 * 86_400


def examine_tables(project: Project) -> Iterator[CheckMessage]:
    """E021, E022: tables that are missing, incomplete, or another program's and don't fit."""
    source = source_behind_pool()
    used = {*lease_databases(), *(() if source.is_routed else source.databases())}
    for alias in project.reachable():
        existing = {name for name in MODELS if table_of(name) in project.tables(alias)}
        # The file beside a SQLite database is made on first use.
        is_awaited = alias in used and (existing or connections[alias].vendor != "sqlite")
        # A database with Leaf's table alone belongs to another project.
        if is_awaited or existing - {"LeafAlloc"}:
            absent = [table_of(name) for name in MODELS if name not in existing]
            if lacking := [*project.missing(alias), *absent]:
                yield Error(
                    f"It lacks {', '.join(lacking)}: ids can't be taken from it, or features that "
                    f"need them fail.",
                    hint=f"{how_to_make_tables(alias)}.",
                    obj=f"database {alias!r}",
                    id="django_idgen.E021",
                )
            yield from attempt(f"database {alias!r}", _unfit(alias))


def _unfit(alias: str) -> Iterator[CheckMessage]:
    with transaction.atomic(using=alias):
        wrong = unfit_columns(connections[alias])
    if wrong:
        yield Error(
            f"Its columns don't fit, so ids can't be taken from it, or would repeat: "
            f"{'; '.join(wrong)}.",
            hint="Stop the programs that write to it, and change the columns.",
            obj=f"table {table_of('LeafAlloc')!r} in database {alias!r}",
            id="django_idgen.E022",
        )


# --- columns --------------------------------------------------------------------------


def examine_columns(project: Project) -> Iterator[CheckMessage]:
    """W003, E023: columns of 32 bits or fewer for our ids, whatever their models say."""
    for alias in project.reachable():
        if connections[alias].vendor != "sqlite":  # whose integers have 64 bits
            for model in apps.get_models(include_auto_created=True):
                subject = f"table {model._meta.db_table!r} in database {alias!r}"
                yield from attempt(subject, _narrow(project, alias, model))


def _narrow(project: Project, alias: str, model: Any) -> Iterator[CheckMessage]:
    generic = [field for _, field in generic_keys(model)] if _has_our_keys() else []
    fields = model._meta.local_concrete_fields
    wanted = {field.column: field for field in fields if id_held_by(field) or field in generic}
    if not wanted or not project.has_rows_of(alias, model):
        return
    introspection, table = connections[alias].introspection, model._meta.db_table
    # The server of a foreign table may be down; the caller's transaction must survive that.
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        columns = introspection.get_table_description(cursor, table)
    for column in columns:
        with suppress(KeyError):  # a type that Django doesn't know, such as an array or money
            kind = introspection.get_field_type(column.type_code, column)
            if kind in NARROW and column.name in wanted:
                subject = f"column {column.name!r} of table {table!r} in database {alias!r}"
                yield _too_narrow(subject, str(kind), id_held_by(wanted[column.name]))


def _has_our_keys() -> bool:
    return any(isinstance(model._meta.pk, GeneratedOnSave) for model in apps.get_models())


def _too_narrow(subject: str, kind: str, source: Any) -> CheckMessage:
    highest = 2**15 - 1 if "Small" in kind else 2**31 - 1
    years = 0.0 if source else math.inf  # what a generic key has to hold is not known
    if isinstance(source, SegmentSource) and (known := find_tag(source.resolved_tag)):
        years = min(years_left(row, highest) for row in known.rows.values())
    elif isinstance(source, SegmentSource):
        years = math.inf
    what = f"ids will outgrow it{in_years(years)}" if years else "ids don't fit into it"
    return (Error if years < 1 else Warning)(
        f"It is of type {kind}, which holds ids up to {highest} only: {what}. Then a row can't be "
        f"written, or gets a wrong id (MySQL and MariaDB outside of strict mode).",
        hint="Run the migration that widens it, if there is one. Otherwise change the column to "
        "bigint.",
        obj=subject,
        id=f"django_idgen.{'E023' if years < 1 else 'W003'}",
    )


def years_left(row: LeafAlloc, highest: int) -> float:
    """How long the ids of a tag's row last up to ``highest``; infinite if its rate is unknown."""
    if row.max_id > highest:
        return 0.0
    a_year = row.rate * max(row.delta, 1) * YEAR
    return (highest - row.max_id) / a_year if a_year else math.inf


def in_years(years: float) -> str:
    """``years`` as a part of a sentence; empty if they are infinite."""
    if years == math.inf:
        return ""
    return f" in {years:.1f} years" if years >= 1 else f" in {years * 365.25:.0f} days"


# --- sequences ------------------------------------------------------------------------


def examine_sequences(project: Project) -> Iterator[CheckMessage]:
    """W030, E030: sequences of ``idgen_native`` that run out, or would give ids that are taken."""
    for column in project.segment_columns(project.reachable()):
        # Not on a replica, whose sequence belongs to the primary.
        if column.alias == router.db_for_write(column.field.model):
            yield from attempt(str(column), _sequence(column))


def _sequence(column: IdColumn) -> Iterator[CheckMessage]:
    with transaction.atomic(using=column.alias):
        native = native_column(connections[column.alias], column.field)
        position = None if native is None else native.position()
        if native is None or position is None:
            return
        problem = native.problem(position)
    if problem or position.runs_low:
        is_error = problem or not position.left
        yield (Error if is_error else Warning)(
            f"Its sequence {position.name} gives {position}"
            + (f", but {problem}: ids would repeat." if problem else ". Then it gives no more."),
            hint="Run 'manage.py idgen_native --extend' now. Make sure that Celery beat runs "
            "'extend_native' (django_idgen.tasks.BEAT_SCHEDULE), or cron 'manage.py idgen_upkeep'.",
            obj=str(native),
            id=f"django_idgen.{'E030' if is_error else 'W030'}",
        )
