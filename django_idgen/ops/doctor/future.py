"""Examination ``future``: snowflakes in the tables that no lease can have covered."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from django.core.checks import CheckMessage

from ...core.errors import InvalidId
from ...core.store import StoredBook
from ...core.stored import Stored, Successor
from ...settings.config import GeneratorSettings
from .findings import Finding, Fix, Severity
from .move import difference, moment_of
from .project import IdColumn, Project, attempt

PLAUSIBLE_US = 24 * 3_600_000_000
"""The fix opens a generation at most so far ahead. A row further ahead is a separate fault."""


def examine(project: Project) -> Iterator[Finding | CheckMessage]:
    """A finding for each column whose highest id lies past the time, or past all marks."""
    for column in project.snowflake_columns(project.reachable()):
        entry = project.settings.generators.get(column.field.generator)
        if entry is not None and entry.layout.time_is_top:
            yield from attempt(str(column), _of_column(project, entry, column))


def _of_column(project: Project, entry: GeneratorSettings, column: IdColumn) -> Iterator[Finding]:
    top = column.highest()  # before the marks, which then cover it
    if top is None:
        return
    try:
        parts = entry.layout.unpack(top)
    except InvalidId as error:
        yield Finding(
            Severity.ERROR,
            str(column),
            f"Its highest id is {top}: {error}",
            f"It is not an id of generator {entry.alias!r} ({entry.layout}). Another program "
            f"writes ids there, or it was made under other settings. Today's ids may reach it "
            f"one day.",
            "Find out where that row comes from, and give it an id of the generator.",
        )
        return
    book = _book_of(project, entry, parts.worker)
    stored = book.read() if book and book.key[0] != "static" else None
    if not (book and stored):
        yield from _ahead_of_time(project, entry, column, parts.tick)
    # Where the settings differ, the examination "settings" reports it.
    elif parts.tick >= stored.highest and not difference(book, stored):
        yield _past_marks(project, entry, column, top, parts.tick, book)


def _book_of(project: Project, entry: GeneratorSettings, worker: int) -> StoredBook | None:
    """The book that lends ``worker``; None if this project does not store it."""
    book = project.book(entry)
    return book if book and worker in book.namespace.workers else None


def _past_marks(
    project: Project,
    entry: GeneratorSettings,
    column: IdColumn,
    top: int,
    tick: int,
    book: StoredBook,
) -> Finding:
    space = book.namespace
    fix = None
    todo = (
        "Find out where that row comes from. It lies too far ahead of the time to continue past "
        "it. Give it an id of the generator."
    )
    if space.epoch_us + tick * space.tick_us - project.now_us() < PLAUSIBLE_US:
        todo = (
            "Find out whether another program makes ids of this layout (other code, another "
            "database's fleet), or the database was restored to an earlier state. Then run it "
            "with --fix, or 'manage.py idgen_skip --generators'."
        )
        does = f"Opens a new generation past it: from {moment_of(space, tick + 1)} on."
        fix = Fix(does, partial(_go_past, project, entry, column))
    return Finding(
        Severity.ERROR,
        str(column),
        f"Its highest id, {top}, was made at {moment_of(space, tick)}, past everything that "
        f"{book.place} has ever lent of namespace {space.name!r}.",
        "Ids come from somewhere else, or the marks were lost: ids would repeat.",
        todo,
        fix,
    )


def _ahead_of_time(
    project: Project, entry: GeneratorSettings, column: IdColumn, tick: int
) -> Iterator[Finding]:
    layout = entry.layout
    ahead = (layout.epoch_us + tick * layout.tick_us - project.now_us()) / 1e6
    reach = entry.backend.load().reach(layout, entry.backend.options)
    if ahead > entry.window + entry.skew_limit + reach:
        yield Finding(
            Severity.WARNING,
            str(column),
            f"Its latest ids are stamped {ahead:.0f} s ahead of the time.",
            "This project can't see what was lent.",
            "Find out whether a clock is wrong, or another program makes ids there.",
        )


def _go_past(project: Project, entry: GeneratorSettings, column: IdColumn) -> str:
    top = column.highest()
    if top is None:
        return "the row is gone"
    parts = entry.layout.unpack(top)
    book = _book_of(project, entry, parts.worker)
    if book is None:
        return "the worker id of the highest row is not lent from here"
    stored = book.rewrite(partial(_past, book, parts.tick + 1))
    book.enter()
    return f"{book.place}: generation {stored.generation}, from tick {stored.fence}"


def _past(book: StoredBook, tick: int, stored: Stored, _now_us: int) -> Successor:
    return Successor.after(stored, max(tick, stored.highest), book.namespace.workers)
