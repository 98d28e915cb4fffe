"""Examination ``marks``: marks so far ahead that something must have raised them by mistake.

A clock that was years ahead for a moment leaves such a mark, and ids are stamped from it on for
years. A mark never goes down on its own, since ids above it may have been used. It can be
lowered only while no process holds a lease or segment, down to what the tables show as used.
Logs, queues and other services can't be checked, so the operator has to assert both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from django.core.checks import CheckMessage

from ...core.errors import SegmentUnavailable
from ...core.store import StoredBook
from ...core.stored import Stored, Successor
from ...db.connection import Place, place_of
from ...db.rows import rows_of
from ...models import LeafAlloc
from ...process.tags import find_tag, next_free_id, source_behind_pool
from ...settings.config import GeneratorSettings
from ..tags.edits import clear_pool, clear_tag, edit_rows
from .findings import OTHERS_STOPPED, TRUST_TABLES, Finding, Fix, Severity
from .move import Found, difference, ids_in_tables, moment_of
from .project import IdColumn, Project, attempt
from .tags import columns_by_tag

BOTH = frozenset({OTHERS_STOPPED, TRUST_TABLES})
AHEAD_S = 3600.0
"""Seconds past the usual lead from which a mark is reported."""
GRAVE_S = 30 * 86_400.0
FAR = 10**12
"""Ids between a tag's mark and its tables' highest id: no step or skip goes so far."""
LOST_FETCHES = 50
"""A lowered mark stays so many of the largest steps above the highest id."""


def examine(project: Project) -> Iterator[Finding | CheckMessage]:
    """A finding for each namespace and tag whose mark lies absurdly far ahead."""
    for entry in project.generators:
        yield from attempt(f"generator {entry.alias!r}", _of_generator(project, entry))
    if source_behind_pool().keeps_rows:
        for tag, columns in columns_by_tag(project, project.all_reachable()).items():
            yield from attempt(f"tag {tag!r}", _of_tag(project, tag, columns))


def _why_not(project: Project) -> str:
    unreachable = ", ".join(map(repr, project.all_unreachable()))
    return unreachable and f"It can't be lowered while {unreachable} can't be queried for its ids."


# --- namespaces -----------------------------------------------------------------------


def _of_generator(project: Project, entry: GeneratorSettings) -> Iterator[Finding]:
    book = project.book(entry)
    stored = book.read() if book else None
    # Where the settings differ, the examination "settings" reports it.
    if book and stored and not difference(book, stored):
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
    target = _target(ids_in_tables(project, entry.alias), entry, book, stored, now_us)
    if target is None:
        fix = None
        todo = _why_not(project) or (
            "It can't be lowered: ids lent up to there may be in use, and the tables don't prove "
            "that they are not. Ids continue from there. Their times are wrong until then."
        )
    else:
        todo = (
            "It can be lowered if no process of the namespace runs anywhere, and no id above "
            "those in its tables exists elsewhere (logs, queues, other services: this command "
            "can't check them)."
        )
        does = f"Lowers its marks to tick {target} ({moment_of(space, target)})."
        fix = Fix(does, partial(_lower, project, entry, book), BOTH)
    days = ahead / 86_400
    span = f"{days / 365.25:.1f} years" if days > 730 else f"{days:.1f} days"
    yield Finding(
        Severity.ERROR if ahead > GRAVE_S else Severity.WARNING,
        f"namespace {space.name!r} in {book.place}",
        f"Its highest mark is {moment_of(space, stored.highest)}, {span} ahead of time.",
        "The next holder of that worker id, or any holder after a loss, stamps ids that far "
        "ahead, and the time bits run out that much earlier. A clock was wrong, or a skip went "
        "too far.",
        todo,
        fix,
    )


def _target(
    found: Found, entry: GeneratorSettings, book: StoredBook, stored: Stored, now_us: int
) -> int | None:
    """The tick to which the marks can be lowered; None if that isn't lower, or proves nothing."""
    if not entry.layout.time_is_top or book.key[0] == "static" or found.unreachable:
        return None
    space = book.namespace
    used = 0 if found.highest is None else (found.highest >> entry.layout.time_shift) + 1
    target = max(used, space.tick_at(now_us) + space.skew_ticks + stored.longest)
    return target if target < stored.highest else None


def _lower(project: Project, entry: GeneratorSettings, book: StoredBook) -> str:
    # Before the change, which runs in the book's own thread and locks the record.
    found = ids_in_tables(project, entry.alias)

    def change(stored: Stored, now_us: int) -> Successor:
        target = _target(found, entry, book, stored, now_us)
        if target is None:
            raise SegmentUnavailable("The tables have later ids by now.")
        workers = book.namespace.workers
        return Successor(
            stored.fingerprint, target, stored.longest, workers, stored.eras, lowered=True
        )

    stored = book.rewrite(change)
    book.enter()
    return f"generation {stored.generation}, from tick {stored.fence} on"


# --- tags -----------------------------------------------------------------------------


def _of_tag(project: Project, tag: str, columns: Sequence[IdColumn]) -> Iterator[Finding]:
    route = source_behind_pool().route(tag)
    if not all(alias in project.reachable() and project.has(alias, "LeafAlloc") for alias in route):
        return
    mark = next_free_id(tag)
    if mark <= FAR or find_tag(tag) is None:
        return
    top = _top(columns)
    target = _tag_target(tag, top)
    if mark - max(target, 1) <= FAR:
        return
    why_not = _why_not(project)
    if not all(place_of(alias) is Place.SERVER for alias in route):
        why_not = why_not or "On SQLite it can only be lowered by hand."
    does = f"Lowers tag {tag!r} to {target} in all of its databases, and empties its pool."
    yield Finding(
        Severity.WARNING,
        f"tag {tag!r}",
        f"Its next id is {mark}, {mark - top} past the highest id of its tables, {top}.",
        "Those ids are lost; and JavaScript reads ids past 2**53 wrong if JSON has them as "
        "numbers.",
        why_not
        or (
            "It can be lowered if it was raised by mistake, no process that takes its ids runs, "
            "and no id above the tables' highest exists elsewhere (logs, queues, other services: "
            "this command can't check them)."
        ),
        None if why_not else Fix(does, partial(_lower_tag, tag, columns), BOTH),
    )


def _top(columns: Sequence[IdColumn]) -> int:
    return max((column.highest() or 0 for column in columns), default=0)


def _tag_target(tag: str, top: int) -> int:
    known = find_tag(tag)
    longest = max((row.largest_step for row in known.rows.values()), default=0) if known else 0
    return top + 1 + LOST_FETCHES * longest


def _lower_tag(tag: str, columns: Sequence[IdColumn]) -> str:
    clear_tag(tag)
    target = _tag_target(tag, _top(columns))
    for alias in source_behind_pool().route(tag):
        rows = rows_of(LeafAlloc, alias).filter(pk=tag, max_id__gt=target)
        edit_rows(alias, partial(rows.update, max_id=target, measured_at=None))
    clear_pool(tag)  # what it takes begins there now
    return f"its next id is {next_free_id(tag)}"
