"""Changes of tags as the admin makes them: each reported, and each left in the tag's history.

A page that changes a row runs in a transaction; what it changes on other connections stays,
even where that transaction is rolled back. So the notes of it are written after its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from django.contrib import messages
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ...core.clock import SYSTEM_CLOCK
from ...core.errors import IdgenError
from ...core.segment import MAX_ID
from ...models import LeafAlloc
from ...ops.tags import edits
from ...ops.tags.change_log import Change, describe, record
from ...ops.tags.edits import (
    PoolStillOpen,
    change_row,
    change_tag,
    pause_tag,
    replace_step,
    resume_tag,
    skip_tag,
)
from ...process.tags import is_fetched_from, known_tag
from ..base import database_of
from ..words import count_words, error_words
from .forms import StepForm, StepFormSet
from .skips import read_targets

__all__ = [
    "Outcomes",
    "change_description",
    "change_step",
    "note",
    "notes_kept",
    "pause",
    "preload",
    "save_steps",
    "skip",
    "translate_notes",
]

MOST_LINES = 10
"""Messages of one kind; the rest is counted."""
PRELOADING = 10.0
"""Seconds after which no further tag is preloaded: the user waits for the page."""
WAITING = "idgen_notes"


@dataclass(slots=True)
class Outcomes:
    """Gathers a line for each tag, and tells them. For one request."""

    _lines: dict[int, list[str]] = field(default_factory=dict)

    def good(self, line: str) -> None:
        self._add(messages.SUCCESS, line)

    def warn(self, line: str) -> None:
        self._add(messages.WARNING, line)

    def bad(self, line: str) -> None:
        self._add(messages.ERROR, line)

    def tell(self, request: HttpRequest) -> None:
        """As messages of the next page: what went wrong first."""
        for level in sorted(self._lines, reverse=True):
            lines = self._lines[level]
            for line in lines[:MOST_LINES]:
                messages.add_message(request, level, line)
            if (rest := len(lines) - MOST_LINES) > 0:
                text = ngettext("… and %(count)d tag more.", "… and %(count)d tags more.", rest)
                messages.add_message(request, level, text % {"count": rest})

    def _add(self, level: int, line: str) -> None:
        self._lines.setdefault(level, []).append(line)


def _each(rows: Sequence[LeafAlloc], change: Callable[[LeafAlloc, Outcomes], None]) -> Outcomes:
    """``change`` each of ``rows``; what it raises is an outcome, too."""
    outcomes = Outcomes()
    for row in rows:
        try:
            change(row, outcomes)
        except IdgenError as error:
            outcomes.bad(_failed(row.pk, error))
    return outcomes


# --- preloading -------------------------------------------------------------------------


def preload(request: HttpRequest, rows: Sequence[LeafAlloc]) -> Outcomes:
    """Load each of ``rows`` ahead: what this process uses, and into the pool."""
    until = SYSTEM_CLOCK.stopwatch() + PRELOADING

    def change(row: LeafAlloc, outcomes: Outcomes) -> None:
        if SYSTEM_CLOCK.stopwatch() > until:
            text = _("“%(tag)s” was not preloaded: the others took too long. Try it again.")
            outcomes.warn(text % {"tag": row.pk})
        else:
            _preload(row, outcomes)
            note(request, row.pk, "preloaded")

    return _each(rows, change)


def _preload(row: LeafAlloc, outcomes: Outcomes) -> None:
    if not is_fetched_from(row.pk, database_of(LeafAlloc)):
        text = _("“%(tag)s” was not preloaded: this project takes no ids from its row.")
        outcomes.warn(text % {"tag": row.pk})
        return
    ready = edits.preload_here(row.pk)
    pooled = edits.fill_pool(row)
    values = {"tag": row.pk, "held": count_words(edits.held_here(row.pk))}
    if not ready:
        text = _("“%(tag)s”: its next segment has not come in time; this process has %(held)s.")
        outcomes.warn(text % values)
    elif pooled is None:
        text = _("“%(tag)s” was preloaded: %(held)s are ready in this process. There is no pool.")
        outcomes.good(text % values)
    else:
        text = _(
            "“%(tag)s” was preloaded: %(held)s are ready in this process, and %(put)s were put "
            "into the pool."
        )
        outcomes.good(text % {**values, "put": count_words(pooled)})


# --- skipping ---------------------------------------------------------------------------


def skip(request: HttpRequest, rows: Sequence[LeafAlloc]) -> Outcomes:
    """Let each of ``rows`` go on where the page said that was confirmed."""
    targets = read_targets(request.POST)

    def change(row: LeafAlloc, outcomes: Outcomes) -> None:
        target = targets.get(row.pk)
        if target is None:
            outcomes.bad(_("“%(tag)s” was left as it is.") % {"tag": row.pk})
        else:
            _skip(request, row, target, outcomes)
            text = _("“%(tag)s” goes on at %(target)d.")
            outcomes.good(text % {"tag": row.pk, "target": target})

    return _each(rows, change)


def _skip(request: HttpRequest, row: LeafAlloc, target: int, outcomes: Outcomes) -> None:
    """In all databases of the tag; nothing below is left here, or in the pool.

    Raises :class:`IdgenError`.
    """
    shown = database_of(LeafAlloc)
    if not is_fetched_from(row.pk, shown):
        # The tag of another site that shares this admin, say.
        change_row(shown, row.pk, max_id=target)
        note(request, row.pk, "skipped", max_id=(row.max_id, target))
        return
    before = known_tag(row.pk).max_id
    skip_tag(row.pk, to=target, most=MAX_ID)
    note(request, row.pk, "skipped", max_id=(before, target))
    if edits.clear_tag(row.pk).pool is False:
        text = _("The pool of “%(tag)s” can't be emptied: lower ids may come out of it yet.")
        outcomes.warn(text % {"tag": row.pk})


# --- pausing ----------------------------------------------------------------------------


def pause(request: HttpRequest, rows: Sequence[LeafAlloc], *, paused: bool) -> Outcomes:
    """Pause, or resume, each of ``rows``; also those that are, since some part may not be."""

    def change(row: LeafAlloc, outcomes: Outcomes) -> None:
        try:
            _pause(row.pk, paused)
        except PoolStillOpen as error:
            outcomes.warn(error_words(error))
        else:
            text = _("“%(tag)s” is paused.") if paused else _("“%(tag)s” gives out ids again.")
            outcomes.good(text % {"tag": row.pk})
        if row.paused != paused:
            note(request, row.pk, "paused" if paused else "resumed")

    return _each(rows, change)


def _pause(tag: str, paused: bool) -> None:
    shown = database_of(LeafAlloc)
    if not is_fetched_from(tag, shown):
        LeafAlloc.objects.using(shown).filter(pk=tag).update(paused=paused)
    elif paused:
        pause_tag(tag)
    else:
        resume_tag(tag)


# --- steps and descriptions -------------------------------------------------------------


def change_step(request: HttpRequest, tag: str, *, seen: int, to: int) -> None:
    """Change a step that the page showed as ``seen``.

    Raises :class:`IdgenError`, also if somebody else changed it meanwhile.
    """
    replace_step(tag, database_of(LeafAlloc), seen=seen, to=to)
    note(request, tag, "changed", step=(seen, to))


def change_description(request: HttpRequest, tag: str, *, seen: str, to: str) -> None:
    """Change what a tag is for. Raises :class:`IdgenError`."""
    shown = database_of(LeafAlloc)
    if is_fetched_from(tag, shown):
        change_tag(tag, description=to)
    else:
        change_row(shown, tag, description=to)
    note(request, tag, "changed", description=(seen, to))


def save_steps(request: HttpRequest, formset: StepFormSet) -> Outcomes:
    """Change the steps that were edited in ``formset``, which is valid."""
    outcomes = Outcomes()
    changed = sum(_save(request, form, outcomes) for form in formset.forms if form.has_changed())
    if changed:
        text = ngettext(
            "The step of %(count)d tag was changed. It counts from the next fetch on.",
            "The steps of %(count)d tags were changed. They count from the next fetch on.",
            changed,
        )
        outcomes.good(text % {"count": changed})
    return outcomes


def _save(request: HttpRequest, form: StepForm, outcomes: Outcomes) -> bool:
    tag, wanted = form.instance.pk, form.cleaned_data["step"]
    try:
        change_step(request, tag, seen=form.before.step, to=wanted)
    except IdgenError as error:
        text = _("The step of “%(tag)s” was not changed to %(wanted)d. %(reason)s")
        outcomes.bad(text % {"tag": tag, "wanted": wanted, "reason": error_words(error)})
        return False
    return True


def _failed(tag: str, error: IdgenError) -> str:
    with suppress(AttributeError):
        # It names the tag itself.
        if error.tag == tag:  # type: ignore[attr-defined]
            return error_words(error)
    return _("%(tag)s: %(reason)s") % {"tag": tag, "reason": error_words(error)}


# --- notes ------------------------------------------------------------------------------


def note(request: HttpRequest, tag: str, action: str, **changes: Change) -> None:
    """Write that the request's user did ``action`` to ``tag``: see :func:`record`."""
    waiting = request.__dict__.get(WAITING)
    if waiting is None:
        record(request.user, tag, action, **changes)
    else:
        waiting.append((tag, action, changes))


@contextmanager
def notes_kept(request: HttpRequest) -> Iterator[None]:
    """Around a transaction of the page: notes are written after it, also if it fails."""
    waiting: list[tuple[str, str, dict[str, Change]]] = []
    request.__dict__[WAITING] = waiting
    try:
        yield
    finally:
        del request.__dict__[WAITING]
        for tag, action, changes in waiting:
            record(request.user, tag, action, **changes)


def translate_notes(entries: Iterable[Any]) -> None:
    """Have rows of the admin's log, where they are notes, say it in the active language."""
    for entry in entries:
        if describe(entry.change_message) is not None:
            entry.get_change_message = partial(describe, entry.change_message)
