"""Examination ``tags``: tags that stand below ids which their tables have already."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from ...core.errors import SegmentUnavailable
from ...core.segment import MAX_ID, Shard
from ...models import Installation
from ...process.tags import find_tag, next_free_id, source_behind_pool, source_of_tags
from ..tags.edits import raise_tag
from ..tags.supply import let_go
from .findings import Finding, Fix, Severity, Unexamined
from .id_columns import IdColumn, segment_columns
from .project import Project, attempt

__all__ = ["NAME", "columns_by_tag", "examine", "highest_behind", "usual_skip"]

NAME = "tags"
ATTEMPTS = 5
"""How often a tag is raised, while rows are being inserted above it."""
SAFETY = 2
"""The rate that is known may have been exceeded: so many times of it is skipped."""


def examine(project: Project) -> Iterator[Finding | Unexamined]:
    """A finding for each tag whose next ids are in a table already, or lie below one that is."""
    if not source_behind_pool().keeps_rows:
        return  # they come from a service
    for tag, columns in columns_by_tag(project).items():
        yield from attempt(NAME, f"tag {tag!r}", _of_tag(project, tag, columns))


def columns_by_tag(project: Project, *, everywhere: bool = False) -> dict[str, list[IdColumn]]:
    """The columns that each tag fills, in the databases examined or ``everywhere``."""
    found: dict[str, list[IdColumn]] = defaultdict(list)
    for column in segment_columns(project, project.everywhere() if everywhere else project.up()):
        found[column.field.resolved_tag].append(column)
    return found


def highest_behind(
    project: Project, tag: str, columns: Sequence[IdColumn]
) -> tuple[int, IdColumn] | None:
    """The highest id that the tag would come to again, and where it is; None if there is none."""
    tops = [
        (top, column)
        for shard, mark in _marks(project, tag)
        for column in columns
        if (top := _top(project, column, shard, mark)) is not None
    ]
    return max(tops, key=lambda each: each[0], default=None)


def usual_skip(tag: str, hours_ago: float = 0.0) -> int:
    """As far as a failover would skip, and past what was used in so many hours."""
    known = find_tag(tag)
    rows = [] if known is None else list(known.rows.values())
    longest = max((max(row.largest_step, row.step * row.delta) for row in rows), default=1)
    pace = sum(row.rate * max(row.delta, 1) for row in rows)
    used = math.ceil(SAFETY * pace * hours_ago * 3600)
    return used + int(source_of_tags().failover_skip) * longest


def _top(project: Project, column: IdColumn, shard: Shard, mark: int) -> int | None:
    with project.reading(column.alias):
        return column.highest_of(shard, mark)


def _marks(project: Project, tag: str) -> Iterator[tuple[Shard, int]]:
    """What each database of the tag gives out next, and which ids it does."""
    source: Any = source_behind_pool()
    route = [alias for alias in source.route(tag) if project.why_away(alias) is None]
    if any(project.lacks(alias, "LeafAlloc") for alias in route):
        return  # half-migrated: another examination says so
    there = [alias for alias in route if project.has(alias, "LeafAlloc")]
    known = find_tag(tag) if there == list(source.route(tag)) else None
    mark: int = source.marks(tag).max_id(tag)
    for alias in route:
        row = known.rows.get(alias) if known is not None else None
        if row is not None:
            yield Shard(max(row.delta, 1), row.remainder), max(row.max_id, mark)
        else:
            yield _of_new_tag(project, alias, mark)


def _of_new_tag(project: Project, alias: str, mark: int) -> tuple[Shard, int]:
    if not project.has(alias, "Installation"):
        return Shard(), mark
    row = Installation.objects.using(alias).filter(pk=1).first()
    return (
        (Shard(), mark)
        if row is None
        else (Shard(max(row.delta, 1), row.remainder), max(mark, row.first_id))
    )


def _of_tag(project: Project, tag: str, columns: Sequence[IdColumn]) -> Iterator[Finding]:
    found = highest_behind(project, tag, columns)
    if found is None:
        return
    top, column = found
    fix = None
    todo = "Its ids are used up: no higher one can be had. See where that row comes from."
    if top < MAX_ID:
        todo = (
            "Run it with --fix, and restart the processes that use the tag: they may hold ids of "
            "such rows. See who writes ids of their own into that table, or whether the tag was "
            "put back to an earlier state."
        )
        does = f"Raises tag {tag!r} to {_past(tag, top)}, and empties its pool."
        fix = Fix(does, partial(_raise, project, tag, columns))
    yield Finding(
        NAME,
        Severity.ERROR,
        f"tag {tag!r}",
        f"It stands at {next_free_id(tag)}, but {column.words} has id {top}.",
        "The next ids of the tag are, or come to, those of rows that are there.",
        todo,
        fix,
    )


def _past(tag: str, top: int) -> int:
    """Where the tag is to go on.

    One that was in use may have been put back to an earlier state: then ids past those of
    the rows are in queues, logs and transactions by now.
    """
    distance = usual_skip(tag) if next_free_id(tag) > 1 else 0
    return min(top + 1 + distance, MAX_ID)


def _raise(project: Project, tag: str, columns: Sequence[IdColumn]) -> str:
    for _ in range(ATTEMPTS):
        top = highest_behind(project, tag, columns)
        if top is None:
            break
        raise_tag(tag, _past(tag, top[0]))
    else:
        raise SegmentUnavailable(
            f"Tag {tag!r} was raised {ATTEMPTS} times, and its table has higher ids each time. "
            f"See who writes ids of their own into it, and run it again."
        )
    cleared = let_go(tag)
    pool = {None: "", True: "; its pool was emptied", False: "; its pool could NOT be emptied"}
    return f"it stands at {next_free_id(tag)}{pool[cleared.pool]}"
