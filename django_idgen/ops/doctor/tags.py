"""Examination ``tags``: tags whose next ids are in their tables, or were given out elsewhere."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from django.core.checks import CheckMessage

from ...core.errors import SegmentUnavailable
from ...core.segment import MAX_ID, Shard
from ...db.rows import read_first, read_values, rows_of
from ...models import Installation, LeafAlloc
from ...process.tags import find_tag, next_free_id, source_behind_pool, source_of_tags
from ..tags.edits import clear_tag, raise_tag
from .findings import OTHERS_STOPPED, Finding, Fix, Severity
from .project import IdColumn, Project, attempt

ATTEMPTS = 5
"""How often the fix raises a tag while rows are being inserted above it."""
SAFETY = 2
"""A factor on the measured rate, which the real one may have exceeded."""


def examine(project: Project) -> Iterator[Finding | CheckMessage]:
    """A finding for each tag that would give out ids of its tables, or of an earlier database."""
    source = source_behind_pool()
    if not source.keeps_rows:
        return
    for tag, columns in columns_by_tag(project, project.reachable()).items():
        yield from attempt(f"tag {tag!r}", _of_tag(project, tag, columns))
    in_use = source.databases()
    if any(project.missing(alias, "LeafAlloc") for alias in in_use):
        return  # the examination "tables" reports it
    for alias in project.all_reachable():
        if alias not in in_use and project.has(alias, "LeafAlloc"):
            yield from attempt(f"database {alias!r}", _given_out_in(project, alias))


def columns_by_tag(project: Project, aliases: Iterable[str]) -> dict[str, list[IdColumn]]:
    """The columns in ``aliases`` that each tag fills."""
    found: dict[str, list[IdColumn]] = defaultdict(list)
    for column in project.segment_columns(aliases):
        found[column.field.resolved_tag].append(column)
    return found


def highest_taken(
    project: Project, tag: str, columns: Sequence[IdColumn]
) -> tuple[int, IdColumn] | None:
    """The highest id in ``columns`` that the tag would still give out; None if there is none."""
    found = [
        (top, column)
        for shard, mark in _marks(project, tag)
        for column in columns
        if (top := column.highest_of(shard, mark)) is not None
    ]
    return max(found, key=lambda each: each[0], default=None)


def failover_skip(tag: str, hours_ago: float = 0.0) -> int:
    """How many ids a failover skips, plus what the tag uses in ``hours_ago`` hours."""
    known = find_tag(tag)
    rows = [] if known is None else list(known.rows.values())
    longest = max((max(row.largest_step, row.step * row.delta) for row in rows), default=1)
    rate = sum(row.rate * max(row.delta, 1) for row in rows)
    used = math.ceil(SAFETY * rate * hours_ago * 3600)
    return used + int(source_of_tags().failover_skip) * longest


def _marks(project: Project, tag: str) -> Iterator[tuple[Shard, int]]:
    """The shard of each database of the tag, and the first id that it has not given out."""
    source: Any = source_behind_pool()
    route = [alias for alias in source.route(tag) if not project.connection_error(alias)]
    if any(project.missing(alias, "LeafAlloc") for alias in route):
        return  # the examination "tables" reports it
    existing = [alias for alias in route if project.has(alias, "LeafAlloc")]
    known = find_tag(tag) if existing == list(source.route(tag)) else None
    mark: int = source.marks(tag).max_id(tag)
    for alias in route:
        row = known.rows.get(alias) if known is not None else None
        if row is not None:
            yield Shard(max(row.delta, 1), row.remainder), max(row.max_id, mark)
            continue
        installation = None
        if project.has(alias, "Installation"):
            installation = read_first(rows_of(Installation, alias).filter(pk=1))
        if installation is None:
            yield Shard(), mark
        else:
            shard = Shard(max(installation.delta, 1), installation.remainder)
            yield shard, max(mark, installation.first_id)


def _of_tag(project: Project, tag: str, columns: Sequence[IdColumn]) -> Iterator[Finding]:
    found = highest_taken(project, tag, columns)
    if found is None:
        return
    top, column = found
    fix = None
    todo = "Its ids are used up: there is no higher one. Find out where that row comes from."
    if top < MAX_ID:
        todo = (
            "Run it with --fix, and restart the processes that use the tag: they may hold ids of "
            "such rows. Find out who writes ids into that table, or whether the tag was restored "
            "to an earlier state."
        )
        does = f"Raises tag {tag!r} to {_target(tag, top)}, and empties its pool."
        fix = Fix(does, partial(_raise, project, tag, columns))
    yield Finding(
        Severity.ERROR,
        f"tag {tag!r}",
        f"Its next id is {next_free_id(tag)}, but {column} has id {top}.",
        "The tag will give out ids that rows have already.",
        todo,
        fix,
    )


def _given_out_in(project: Project, alias: str) -> Iterator[Finding]:
    """A finding for each tag that went further in ``alias``, which today's settings don't use."""
    moved = alias in project.moved_from
    # Read first: through an alias of the database in use, they are not further than its own.
    for tag, first in read_values(rows_of(LeafAlloc, alias).order_by("pk"), "pk", "max_id"):
        next_id = next_free_id(tag)
        # Tags of that name may be another project's, unless the operator says otherwise.
        if first <= next_id or not (moved or find_tag(tag)):
            continue
        todo = (
            f"Stop all processes that use the tag, run it with --fix {OTHERS_STOPPED} "
            f"--moved-from {alias}, and start them."
        )
        if not moved:
            todo += " If it did not move, all is well as long as the ids of the two never meet."
        does = f"Raises tag {tag!r} to {first}, and empties its pool."
        yield Finding(
            Severity.ERROR if moved else Severity.WARNING,
            f"tag {tag!r}",
            f"Its next id is {next_id}, but in database {alias!r} it is {first}.",
            "If the tag moved from there, it will give out ids that were given out before.",
            todo,
            Fix(does, partial(_raise_to, tag, first), frozenset({OTHERS_STOPPED}))
            if moved
            else None,
        )


def _target(tag: str, top: int) -> int:
    """The tag's next id after the fix.

    A tag that was in use may have been restored to an earlier state. Then ids past those of the
    rows may be in queues, logs and transactions.
    """
    distance = failover_skip(tag) if next_free_id(tag) > 1 else 0
    return min(top + 1 + distance, MAX_ID)


def _raise(project: Project, tag: str, columns: Sequence[IdColumn]) -> str:
    for _ in range(ATTEMPTS):
        top = highest_taken(project, tag, columns)
        if top is None:
            break
        raise_tag(tag, _target(tag, top[0]))
    else:
        raise SegmentUnavailable(
            f"Tag {tag!r} was raised {ATTEMPTS} times, and its table has higher ids each time. "
            f"Find out who writes ids into it, and run it again."
        )
    return _outcome(tag)


def _raise_to(tag: str, first: int) -> str:
    raise_tag(tag, first)
    return _outcome(tag)


def _outcome(tag: str) -> str:
    return f"its next id is {next_free_id(tag)}{clear_tag(tag).pool_note}"
