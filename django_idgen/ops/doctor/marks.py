"""Examination ``marks``: marks so far ahead that something must have raised them wrongly.

A clock that was years ahead for a moment leaves a mark of then: from it on ids would be
stamped, for years. A mark never goes down on its own, since an id above may have been used.
It can be lowered only where no lease or segment is held, and the tables show what was used:
what logs, queues and other services have can't be seen from here, so the caller vouches for
both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from ...core.errors import SegmentUnavailable
from ...core.stored import Stored, StoredBook, Successor
from ...db.connection import Place, place_of
from ...models import LeafAlloc
from ...process.tags import find_tag, next_free_id, source_behind_pool
from ...settings.config import GeneratorSettings
from ..tags.edits import edit_rows
from ..tags.supply import let_go
from .findings import Finding, Fix, Severity, Unexamined
from .id_columns import IdColumn
from .move import Found, Move, differing, found_of, moment_of
from .project import Project, attempt
from .tags import columns_by_tag

__all__ = ["NAME", "examine"]

NAME = "marks"
BOTH = frozenset({"--others-stopped", "--trust-tables"})
AHEAD_S = 3600.0
"""Seconds past the usual lead from which a mark is reported."""
GRAVE_S = 30 * 86_400.0
FAR = 10**12
"""Ids between a tag's mark and its tables' highest id: no step or skip goes so far."""
LOST_FETCHES = 50
"""Of the longest kind: what is left between the highest id and a mark that is lowered."""


def examine(project: Project) -> Iterator[Finding | Unexamined]:
    """A finding for each namespace and tag whose mark lies absurdly far ahead."""
    for entry in project.generators():
        yield from attempt(NAME, f"generator {entry.alias!r}", _of_generator(project, entry))
    yield from _tags(project)


# --- namespaces -----------------------------------------------------------------------


def _of_generator(project: Project, entry: GeneratorSettings) -> Iterator[Finding]:
    for book in Move(project, entry).books:
        stored = book.read()
        # Another examination says so where the settings differ.
        if stored is not None and not differing(stored.fingerprint, book.namespace.fingerprint):
            yield from _of_book(project, entry, book, stored)


def _of_book(
    project: Project, entry: GeneratorSettings, book: StoredBook, stored: Stored
) -> Iterator[Finding]:
    space, now_us = book.namespace, project.now_us()
    second = 1_000_000 / space.tick_us
    ahead = (stored.highest - space.tick_at(now_us)) / second
    usual = (stored.longest + space.skew_ticks + space.reach_ticks) / second
    if ahead <= usual + AHEAD_S:
        return
    target = _lowest(found_of(project, entry.alias), entry, book, stored, now_us)
    fix, todo = None, _why_not(project)
    if target is not None:
        todo = (
            "If no process of the namespace runs anywhere, and no id past its tables is "
            "anywhere else (logs, queues, other services, which can't be seen from here), it can "
            "be lowered."
        )
        does = f"Lowers its marks to tick {target} ({moment_of(space, target)})."
        fix = Fix(does, partial(_lower, project, entry, book), BOTH)
    yield Finding(
        NAME,
        Severity.ERROR if ahead > GRAVE_S else Severity.WARNING,
        f"namespace {space.name!r} in {book.place}",
        f"Its highest mark is {moment_of(space, stored.highest)}, {_span(ahead)} ahead of time.",
        "The next holder of that worker id, or of any after a loss, stamps ids that far ahead; the "
        "time bits run out so much earlier. A clock was wrong, or a skip went too far.",
        todo,
        fix,
    )


def _why_not(project: Project) -> str:
    if unseen := project.unseen():
        return (
            f"It can't be lowered while {', '.join(map(repr, unseen))} can't be asked what ids "
            f"are there."
        )
    return (
        "It can't be lowered: what was lent there may be in use, and the tables show no less. "
        "Ids go on from there, and the times in them are wrong until then."
    )


def _lowest(
    found: Found, entry: GeneratorSettings, book: StoredBook, stored: Stored, now_us: int
) -> int | None:
    """The tick to which the marks can be lowered; None if that wouldn't be lower."""
    if not entry.layout.time_is_top or book.key[0] == "static" or found.unseen:
        return None
    space = book.namespace
    used = 0 if found.highest is None else (found.highest >> entry.layout.time_shift) + 1
    target = max(used, space.tick_at(now_us) + space.skew_ticks + stored.longest)
    return target if target < stored.highest else None


def _lower(project: Project, entry: GeneratorSettings, book: StoredBook) -> str:
    # Not in the change, which runs in a thread of the book's and holds the record.
    found = found_of(project, entry.alias)

    def change(stored: Stored, now_us: int) -> Successor:
        target = _lowest(found, entry, book, stored, now_us)
        if target is None:
            raise SegmentUnavailable("The tables have later ids by now.")
        space = book.namespace
        return Successor(
            stored.fingerprint, target, stored.longest, space.workers, stored.eras, lowered=True
        )

    stored = book.rewrite(change)
    book.enter()
    return f"generation {stored.generation}, from tick {stored.fence} on"


def _span(seconds: float) -> str:
    days = seconds / 86_400
    return f"{days / 365.25:.1f} years" if days > 730 else f"{days:.1f} days"


# --- tags -----------------------------------------------------------------------------


def _tags(project: Project) -> Iterator[Finding | Unexamined]:
    if not source_behind_pool().keeps_rows:
        return
    for tag, columns in columns_by_tag(project, everywhere=True).items():
        yield from attempt(NAME, f"tag {tag!r}", _of_tag(project, tag, columns))


def _of_tag(project: Project, tag: str, columns: Sequence[IdColumn]) -> Iterator[Finding]:
    route = source_behind_pool().route(tag)
    if not all(alias in project.up() and project.has(alias, "LeafAlloc") for alias in route):
        return
    mark = next_free_id(tag)
    if mark <= FAR or find_tag(tag) is None:
        return
    top = _top(project, columns)
    target = _target(tag, top)
    if mark - max(target, 1) <= FAR:
        return
    servers = all(place_of(alias) is Place.SERVER for alias in route)
    fix = None
    if servers and not project.unseen():
        does = f"Lowers tag {tag!r} to {target} in all of its databases, and empties its pool."
        fix = Fix(does, partial(_lower_tag, project, tag, columns), BOTH)
    yield Finding(
        NAME,
        Severity.WARNING,
        f"tag {tag!r}",
        f"It stands at {mark}, {mark - top} past the highest id of its tables, {top}.",
        "Those ids are lost; and past 2**53 JavaScript reads ids wrong that are numbers in JSON.",
        "If it was raised by mistake, no process runs that takes its ids, and none above the "
        "tables' highest is anywhere else (logs, queues, other services, which can't be seen from "
        "here), it can be lowered." + _unless(project, servers=servers),
        fix,
    )


def _unless(project: Project, *, servers: bool) -> str:
    if unseen := project.unseen():
        return f" Not while {', '.join(map(repr, unseen))} can't be asked."
    return "" if servers else " On SQLite: only by hand."


def _top(project: Project, columns: Sequence[IdColumn]) -> int:
    tops = []
    for column in columns:
        with project.reading(column.alias):
            tops.append(column.highest() or 0)
    return max(tops, default=0)


def _target(tag: str, top: int) -> int:
    known = find_tag(tag)
    longest = max((row.largest_step for row in known.rows.values()), default=0) if known else 0
    return top + 1 + LOST_FETCHES * longest


def _lower_tag(project: Project, tag: str, columns: Sequence[IdColumn]) -> str:
    let_go(tag)
    target = _target(tag, _top(project, columns))
    for alias in source_behind_pool().route(tag):
        rows = LeafAlloc.objects.using(alias).filter(pk=tag, max_id__gt=target)
        edit_rows(alias, partial(rows.update, max_id=target, measured_at=None))
    return f"it stands at {next_free_id(tag)}"
