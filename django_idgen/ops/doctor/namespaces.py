"""Examination ``settings``: what each namespace was opened with, against today's settings."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ...core.errors import IdgenError
from ...core.stored import StoredBook
from ...settings.config import GeneratorSettings
from .findings import Finding, Fix, Severity, Unexamined
from .move import Difference, Leftover, Move, MoveRefused, moment_of
from .project import Project, unexamined

__all__ = ["NAME", "examine"]

NAME = "settings"
RECENT_US = 24 * 3_600_000_000
_WHY = (
    "Processes with today's settings are refused, and have to be: ids of either would be those "
    "of the other."
)
_LIVE = (
    "run it with --fix while the old processes run or after they have ended, and start those with "
    "today's settings then."
)
_STOP = (
    "stop all processes that take ids of the namespace, run it with --fix --others-stopped, and "
    "start them with today's settings. It takes several transactions, between which a process "
    "that runs could be lent what another one is lent, too."
)


def examine(project: Project) -> Iterator[Finding | Unexamined]:
    """A finding for each namespace that has to be moved to today's settings."""
    seen: set[object] = set()
    for entry in project.generators():
        subject = _subject(entry)
        try:
            move = Move(project, entry)
            keys = tuple(book.key for book in move.books)
            if keys and keys in seen:
                continue  # another alias of the same namespace
            seen.add(keys)
            yield from _of_namespace(move, subject)
        except IdgenError as error:
            yield unexamined(NAME, subject, error)


def _subject(entry: GeneratorSettings) -> str:
    return f"generator {entry.alias!r}, namespace {entry.namespace!r}"


def _of_namespace(move: Move, subject: str) -> Iterator[Finding]:
    differences, leftovers = move.differences(), move.leftovers()
    for other in move.others():
        yield from _elsewhere(move, subject, other)
    if (differences or leftovers) and move.books:
        what = " ".join([*map(_words, differences), *map(_leftover_words, leftovers)])
        yield _finding(move, subject, what)
    elif unentered := move.unentered():
        yield Finding(
            NAME,
            Severity.ERROR,
            subject,
            f"{unentered[0].place} has the settings of before.",
            _WHY,
            "Run it with --fix.",
            Fix("Begins anew there, with what the database has lent.", partial(_run, move)),
        )


def _finding(move: Move, subject: str, what: str) -> Finding:
    try:
        fences = move.preview()
    except MoveRefused as refused:
        fix = None
        if refused.needs:
            does = "Has the new ids begin below the old ones."
            fix = Fix(does, partial(_run, move), frozenset({refused.needs}))
        return Finding(NAME, Severity.ERROR, subject, what, _WHY, f"{refused}", fix)
    stop = move.needs_a_stop
    return Finding(
        NAME,
        Severity.ERROR,
        subject,
        what,
        _WHY,
        f"Restore the old setting. Or, if the change is wanted, {_STOP if stop else _LIVE}"
        f"{_unseen_words(move)}",
        Fix(
            _does(move, fences),
            partial(_run, move),
            frozenset({"--others-stopped"} if stop else ()),
        ),
    )


def _does(move: Move, fences: dict[str, int]) -> str:
    begins = [
        f"{book.place}: from tick {fences[book.place]} on "
        f"({moment_of(book.namespace, fences[book.place])})"
        for book in move.books
    ]
    return (
        f"Opens a new generation past all that was ever lent. {'; '.join(begins)}, or later, if "
        f"more is lent until then. Processes with the old settings are refused when they next "
        f"renew, and use up their windows, which end before that."
    )


def _unseen_words(move: Move) -> str:
    unseen = ", ".join(map(repr, move.project.unseen()))
    return unseen and (
        f" {unseen} can't be asked just now: if worker ids of the namespace were lent from there, "
        f"too (by a fallback), not before it can."
    )


def _elsewhere(move: Move, subject: str, leftover: Leftover) -> Iterator[Finding]:
    """A record in another database in which somebody has lent of late."""
    layout = leftover.stored.era.layout
    until_us = layout.epoch_us + leftover.stored.highest * layout.tick_us
    if until_us < move.project.now_us() - RECENT_US:
        return  # its last windows are over
    begun = any(book.read() is not None for book in move.books)
    yield Finding(
        NAME,
        Severity.INFO if begun else Severity.WARNING,
        subject,
        f"{leftover.book.place} has lent worker ids of a namespace of that name of late, too.",
        "If it moved from there, ids repeat while the last windows of then last, and as long as a "
        "process has the old settings. If it is another project's, all is well, as long as the "
        "ids of the two never meet.",
        f"If it moved from there, and before any process has today's settings: run it with --fix "
        f"--moved-from {leftover.alias}."
        if move.books
        else "See that no process has the old settings, and run 'manage.py idgen_skip "
        "--generators' where the worker ids come from, once the last of them has ended.",
    )


def _words(difference: Difference) -> str:
    return (
        f"In {difference.book.place} it was opened with "
        f"{difference.setting}={difference.stored!r}; "
        f"the settings of today say {difference.setting}={difference.configured!r}."
    )


def _leftover_words(book: StoredBook) -> str:
    name = book.namespace.name
    return f"In {book.place} there is a record of {name!r}, which today's settings don't use."


def _run(move: Move) -> str:
    return "; ".join(move.run()) or "nothing was left to do"
