"""Examination ``future``: snowflakes in the tables that no lease can have covered."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ...core.errors import InvalidId
from ...core.stored import Stored, StoredBook, Successor
from ...settings.config import GeneratorSettings
from .findings import Finding, Fix, Severity, Unexamined
from .id_columns import IdColumn, snowflake_columns
from .move import Move, differing, moment_of
from .project import Project, attempt

__all__ = ["NAME", "examine"]

NAME = "future"
PLAUSIBLE_US = 24 * 3_600_000_000
"""As far ahead of the time ids may begin to mend it; what lies further is one row's fault."""


def examine(project: Project) -> Iterator[Finding | Unexamined]:
    """A finding for each column whose highest id lies past the time, or past all marks."""
    for column in snowflake_columns(project, project.up()):
        entry = project.settings.generators.get(column.field.generator)
        if entry is None or not entry.layout.time_is_top:
            continue
        yield from attempt(NAME, column.words, _of_column(project, entry, column))


def _of_column(project: Project, entry: GeneratorSettings, column: IdColumn) -> Iterator[Finding]:
    with project.reading(column.alias):
        top = column.highest()  # before the marks: what it was lent under is there, then
    if top is None:
        return
    try:
        parts = entry.layout.unpack(top)
    except InvalidId as error:
        yield _foreign(entry, column, top, str(error))
        return
    books = Move(project, entry).books
    book = next((each for each in books if parts.worker in each.namespace.workers), None)
    stored = None if book is None or book.key[0] == "static" else book.read()
    if book is not None and stored is not None:
        if differing(stored.fingerprint, book.namespace.fingerprint):
            return  # another examination says so
        if parts.tick >= stored.highest:
            yield _past_marks(project, entry, column, top, parts.tick, book)
            return
    yield from _ahead(project, entry, column, parts.tick, is_marked=stored is not None)


def _foreign(entry: GeneratorSettings, column: IdColumn, top: int, why: str) -> Finding:
    return Finding(
        NAME,
        Severity.ERROR,
        column.words,
        f"Its highest id is {top}: {why}",
        f"It is no id of generator {entry.alias!r} ({entry.layout}). Somebody else writes ids "
        f"there, or it was made under other settings: one day those of today may come to it.",
        "See where that row comes from, and give it an id of the generator.",
    )


def _past_marks(
    project: Project,
    entry: GeneratorSettings,
    column: IdColumn,
    top: int,
    tick: int,
    book: StoredBook,
) -> Finding:
    space = book.namespace
    ahead_us = space.epoch_us + tick * space.tick_us - project.now_us()
    fix = None
    todo = (
        "See where that row comes from: it lies too far ahead of the time to go past it. Give it "
        "an id of the generator."
    )
    if ahead_us < PLAUSIBLE_US:
        todo = (
            "See whether somebody else stamps ids of this layout (other code, another database's "
            "fleet), or whether the database was put back to an earlier state. Then run it with "
            "--fix, or 'manage.py idgen_skip --generators'."
        )
        does = f"Opens a new generation past it: from {moment_of(space, tick + 1)} on."
        fix = Fix(does, partial(_go_past, project, entry, column))
    return Finding(
        NAME,
        Severity.ERROR,
        column.words,
        f"Its highest id, {top}, was made at {moment_of(space, tick)}, past everything that "
        f"{book.place} has ever lent of namespace {space.name!r}.",
        "Ids come from somewhere else, or the marks were lost: they would repeat.",
        todo,
        fix,
    )


def _ahead(
    project: Project, entry: GeneratorSettings, column: IdColumn, tick: int, *, is_marked: bool
) -> Iterator[Finding]:
    layout = entry.layout
    ahead = (layout.epoch_us + tick * layout.tick_us - project.now_us()) / 1e6
    reach = entry.backend.load().reach(layout, entry.backend.options)
    usual = entry.window + entry.skew_limit + reach
    if ahead <= usual:
        return
    yield Finding(
        NAME,
        Severity.INFO if is_marked else Severity.WARNING,
        column.words,
        f"Its latest ids are stamped {ahead:.0f} s ahead of the time.",
        "After a loss of marks, or a skip, that is as it should be, and passes."
        if is_marked
        else "What was lent can't be seen from here.",
        "" if is_marked else "See whether a clock is wrong, or somebody else makes ids there.",
    )


def _go_past(project: Project, entry: GeneratorSettings, column: IdColumn) -> str:
    with project.reading(column.alias):
        top = column.highest()
    if top is None:
        return "the row is gone"
    parts = entry.layout.unpack(top)
    done = []
    for book in Move(project, entry).books:
        if parts.worker in book.namespace.workers:
            stored = book.rewrite(partial(_past, book, parts.tick + 1))
            book.enter()
            done.append(f"{book.place}: generation {stored.generation}, from tick {stored.fence}")
    return "; ".join(done)


def _past(book: StoredBook, tick: int, stored: Stored, _now_us: int) -> Successor:
    return Successor.after(stored, max(tick, stored.highest), book.namespace.workers)
