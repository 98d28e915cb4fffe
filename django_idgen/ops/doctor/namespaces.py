"""Examination ``settings``: whether they can work, and what each namespace was opened with."""

from __future__ import annotations

from collections.abc import Iterator

from django.core.checks import CheckMessage, run_checks

from ...core.clock import moment
from ...core.store import StoredBook
from ...settings.config import GeneratorSettings
from .findings import OTHERS_STOPPED, Finding, Fix, Severity
from .move import RECENT_US, Leftover, Move, MoveRefused, elsewhere, moment_of
from .project import Project, attempt

_WHY = "Processes with today's settings are refused: their ids could repeat the old ones."
_WHY_UNNOTICED = (
    "Start no process before the move. A registry of today's settings does not know what the old "
    "one has lent: it refuses nobody, and ids could repeat."
)


def examine(project: Project) -> Iterator[Finding | CheckMessage]:
    """A finding for a setting that can't work, and for each namespace that has to move."""
    yield from run_checks(tags=["django_idgen"])
    seen: set[object] = set()
    for entry in project.generators:
        subject = f"generator {entry.alias!r}, namespace {entry.namespace!r}"
        yield from attempt(subject, _of_namespace(project, entry, subject, seen))


def _of_namespace(
    project: Project, entry: GeneratorSettings, subject: str, seen: set[object]
) -> Iterator[Finding]:
    book = project.book(entry)
    if book and book.key in seen:
        return  # another alias of the same namespace
    for other in elsewhere(project, entry):
        yield from _elsewhere(project, book, subject, other)
    if book:
        seen.add(book.key)
        move = Move(project, entry, book)
        if what := " ".join(_differences(move)):
            yield _finding(move, subject, what, _WHY if move.difference else _WHY_UNNOTICED)
        elif move.stored and not book.entered():
            yield Finding(
                Severity.ERROR,
                subject,
                f"{book.place} still has the old settings.",
                _WHY,
                "Run it with --fix.",
                _fix(move, "Starts anew there, past what the database has lent."),
            )


def _differences(move: Move) -> Iterator[str]:
    if move.difference:
        yield f"In {move.book.place} it was opened with {move.difference}."
    for each in move.leftovers:
        yield (
            f"In {each.book.place} there is a record of {each.book.namespace.name!r}, which "
            f"today's settings don't use."
        )
    for each in move.unknown:
        until = f"{moment(each.until_us):%Y-%m-%d %H:%M:%S} UTC"
        yield (
            f"{each.book.place} has lent worker ids up to {until}, which the record of today's "
            f"settings does not know."
        )


def _fix(move: Move, does: str, *needs: str) -> Fix:
    def apply() -> str:
        now = Move(move.project, move.entry, move.book)
        return "; ".join(now.run()) or "nothing was left to do"

    return Fix(does, apply, frozenset(needs))


def _finding(move: Move, subject: str, what: str, why: str) -> Finding:
    try:
        fence = move.preview()
    except MoveRefused as refused:
        does = "Starts the new ids below the old ones."
        fix = _fix(move, does, refused.needs) if refused.needs else None
        return Finding(Severity.ERROR, subject, what, why, str(refused), fix)
    book = move.book
    does = (
        f"Opens a new generation past everything that was ever lent. {book.place}: from tick "
        f"{fence} on ({moment_of(book.namespace, fence)}), or later, if more is lent until then. "
        f"Processes with the old settings are refused at their next renewal, and use up their "
        f"windows, which end before that."
    )
    todo = "Restore the old settings. Or, if the change is intended, "
    if move.needs_a_stop:
        todo += (
            f"stop all processes that take ids of the namespace, run it with --fix "
            f"{OTHERS_STOPPED}, and start them with today's settings. The move takes several "
            f"transactions: between them, a running process could get what another one has."
        )
        fix = _fix(move, does, OTHERS_STOPPED)
    else:
        todo += (
            "run it with --fix, while the old processes run or after they have ended. Then start "
            "processes with today's settings."
        )
        fix = _fix(move, does)
    if unreachable := ", ".join(map(repr, move.project.all_unreachable())):
        todo += (
            f" {unreachable} can't be asked now. If worker ids of the namespace were lent from "
            f"there, too, wait until it can."
        )
    return Finding(Severity.ERROR, subject, what, why, todo, fix)


def _elsewhere(
    project: Project, book: StoredBook | None, subject: str, leftover: Leftover
) -> Iterator[Finding]:
    """A record in another database that has lent worker ids recently."""
    until_us = leftover.until_us
    if until_us < project.now_us() - RECENT_US:
        return  # its last windows are over
    begun = book is not None and book.read() is not None
    yield Finding(
        Severity.INFO if begun else Severity.WARNING,
        subject,
        f"{leftover.book.place} has recently lent worker ids of a namespace of that name, too.",
        "If the namespace moved from there, ids repeat until the last of those windows ends, and "
        "as long as a process has the old settings. If it belongs to another project, all is well "
        "as long as the ids of the two never meet.",
        f"If it moved from there, and no process has today's settings yet: run it with --fix "
        f"--moved-from {leftover.alias}."
        if book
        else f"Make sure that no process has the old settings. When the last one has ended, run "
        f"the doctor again. Then run 'manage.py idgen_skip --generators --until {_iso(until_us)}' "
        "where the worker ids come from.",
    )


def _iso(us: int) -> str:
    """The first whole second after a moment, as ``idgen_skip --until`` takes it."""
    return f"{moment(us + 1_000_000):%Y-%m-%dT%H:%M:%SZ}"
