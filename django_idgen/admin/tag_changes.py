"""What people do to tags in the admin: each change with its message, and a note of who did it.

A page that changes a row runs in a transaction. What it changes on other connections stays,
even if that transaction is rolled back. So the notes are written after its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from ..core.clock import SYSTEM_CLOCK
from ..core.errors import IdgenError
from ..core.segment import MAX_ID
from ..models import LeafAlloc
from ..ops.tags.change_log import Change, describe, record
from ..ops.tags.edits import (
    PoolStillOpen,
    change_row,
    change_tag,
    clear_tag,
    fill_pool,
    held_here,
    pause_tag,
    preload_here,
    replace_step,
    resume_tag,
    skip_tag,
)
from ..process.tags import is_fetched_from, known_tag, source_of_tags
from .base import database_of
from .tag_page import outlooks_of
from .text import count_text, error_text, pool_text

Rows = Sequence[LeafAlloc]

PRELOADING = 10.0
"""Seconds after which no further tag is preloaded: the user waits for the page."""
NOTES = "idgen_notes"


def _each(request: HttpRequest, rows: Rows, change: Callable[[LeafAlloc], None]) -> None:
    """``change`` each of ``rows``. An error becomes a message, and the others go on."""
    for row in rows:
        try:
            change(row)
        except IdgenError as error:
            text = error_text(error)
            if getattr(error, "tag", None) != row.pk:
                text = _("%(tag)s: %(reason)s") % {"tag": row.pk, "reason": text}
            messages.error(request, text)


# --- preload ----------------------------------------------------------------------------


def preload(request: HttpRequest, rows: Rows) -> None:
    """Load ids of each of ``rows`` into this process, and into the pool."""
    until = SYSTEM_CLOCK.stopwatch() + PRELOADING

    def change(row: LeafAlloc) -> None:
        if SYSTEM_CLOCK.stopwatch() > until:
            text = _("“%(tag)s” was not preloaded: there was no time left. Try again.")
            messages.warning(request, text % {"tag": row.pk})
        elif not is_fetched_from(row.pk, database_of(LeafAlloc)):
            text = _("“%(tag)s” was not preloaded: this project does not use its row.")
            messages.warning(request, text % {"tag": row.pk})
        else:
            _preload(request, row)
            note(request, row.pk, "preloaded")

    _each(request, rows, change)


def _preload(request: HttpRequest, row: LeafAlloc) -> None:
    ready = preload_here(row.pk)
    pooled = fill_pool(row)
    values = {"tag": row.pk, "held": count_text(held_here(row.pk))}
    if not ready:
        text = _("“%(tag)s”: the next segment did not arrive in time. This process has %(held)s.")
        messages.warning(request, text % values)
    elif pooled is None:
        text = _("“%(tag)s” was preloaded. This process has %(held)s. There is no pool.")
        messages.success(request, text % values)
    else:
        text = _("“%(tag)s” was preloaded. This process has %(held)s; the pool got %(put)s.")
        messages.success(request, text % {**values, "put": count_text(pooled)})


# --- pause and resume -------------------------------------------------------------------


def pause(request: HttpRequest, rows: Rows, *, paused: bool) -> None:
    """Pause or resume each of ``rows``, also if it is already: one of its databases may not be."""

    def change(row: LeafAlloc) -> None:
        try:
            _pause(row.pk, paused)
        except PoolStillOpen as error:
            messages.warning(request, error_text(error))
        else:
            text = _("“%(tag)s” is paused.") if paused else _("“%(tag)s” gives out ids again.")
            messages.success(request, text % {"tag": row.pk})
        if row.paused != paused:
            note(request, row.pk, "paused" if paused else "resumed")

    _each(request, rows, change)


def _pause(tag: str, paused: bool) -> None:
    shown = database_of(LeafAlloc)
    if not is_fetched_from(tag, shown):
        LeafAlloc.objects.using(shown).filter(pk=tag).update(paused=paused)
    elif paused:
        pause_tag(tag)
    else:
        resume_tag(tag)


# --- skip -------------------------------------------------------------------------------


def skip(request: HttpRequest, rows: Rows) -> None:
    """Move each of ``rows`` to the id that the user confirmed."""
    targets = _targets(request.POST)

    def change(row: LeafAlloc) -> None:
        target = targets.get(row.pk)
        if target is None:
            messages.error(request, _("“%(tag)s” was not changed.") % {"tag": row.pk})
            return
        _skip(request, row, target)
        text = _("The next id of “%(tag)s” is %(target)d.")
        messages.success(request, text % {"tag": row.pk, "target": target})

    _each(request, rows, change)


def _targets(posted: QueryDict) -> Mapping[str, int]:
    pairs = zip(posted.getlist("tag"), posted.getlist("to"), strict=False)
    return {tag: int(to) for tag, to in pairs if to.isdecimal() and len(to) < 20}


def _skip(request: HttpRequest, row: LeafAlloc, target: int) -> None:
    """Skip in all databases of the tag, and drop lower ids of this process and the pool."""
    shown = database_of(LeafAlloc)
    if not is_fetched_from(row.pk, shown):
        # Such as a tag of another site that shares this admin.
        change_row(shown, row.pk, max_id=target)
        note(request, row.pk, "skipped", max_id=(row.max_id, target))
        return
    before = known_tag(row.pk).max_id
    skip_tag(row.pk, to=target, most=MAX_ID)
    note(request, row.pk, "skipped", max_id=(before, target))
    if clear_tag(row.pk).pool is False:
        text = _("The pool of “%(tag)s” can't be emptied. It may still give out lower ids.")
        messages.warning(request, text % {"tag": row.pk})


CHANGES: Mapping[str, Callable[[HttpRequest, Rows], None]] = {
    "preload": preload,
    "skip": skip,
    "pause": partial(pause, paused=True),
    "resume": partial(pause, paused=False),
}
"""By the name in the address of its page."""


# --- what a skip loses ------------------------------------------------------------------


class SkipForm(forms.Form):
    """How far tags skip ahead: by a number of ids, or to an id."""

    BY, TO = "by", "to"

    how = forms.ChoiceField(
        label=gettext_lazy("Skip"),
        choices=(
            (BY, gettext_lazy("this many ids")),
            (TO, gettext_lazy("to this id, which is given out next")),
        ),
        widget=forms.RadioSelect,
        initial=BY,
    )
    number = forms.IntegerField(
        label=gettext_lazy("Number"),
        widget=forms.TextInput(
            attrs={
                "inputmode": "numeric",
                "autocomplete": "off",
                "class": "idgen-input idgen-short",
            }
        ),
        error_messages={
            "required": gettext_lazy("Enter how far to skip."),
            "invalid": gettext_lazy("Enter a whole number, in digits only."),
        },
    )

    def clean_number(self) -> int:
        number: int = self.cleaned_data["number"]
        if number < 1:
            text = _("Enter a number of 1 or more. A tag never goes back.")
            raise ValidationError(text, code="not_ahead")
        if number > MAX_ID:
            text = _("The highest id is %(end)d (2⁶³ − 1).")
            raise ValidationError(text, code="past_the_end", params={"end": MAX_ID})
        return number

    def target(self, max_id: int) -> int:
        """Where a tag whose next free id is ``max_id`` would continue; it may be impossible."""
        number: int = self.cleaned_data["number"]
        return number if self.cleaned_data["how"] == self.TO else max_id + number


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a tag is in each database that its ids come from. Processes move it on meanwhile."""

    tag: str
    rows: Mapping[str, LeafAlloc]
    mark: int = 0
    """The mark of a database in memory, which is outside of the row and may be ahead of it."""

    @property
    def max_id(self) -> int:
        """The first id that none of its databases gave out yet."""
        return max(self.mark, *(row.max_id for row in self.rows.values()))

    @property
    def is_shared(self) -> bool:
        """Whether several databases give out its ids."""
        return len(self.rows) > 1

    def can_go_on_at(self, target: int) -> bool:
        """Whether ``target`` is ahead, or brings a database up that was left behind."""
        lagging = any(row.max_id < self.max_id for row in self.rows.values()) and self.is_shared
        return self.max_id - lagging < target <= MAX_ID

    def lost(self, target: int) -> list[tuple[str, range]]:
        """By database, the ids that are never given out if the tag continues at ``target``."""
        floor = 0 if self.is_shared else self.mark
        losses = []
        for alias, row in self.rows.items():
            start = max(row.max_id, floor)
            start += (row.remainder - start) % row.delta
            if ids := range(start, target, row.delta):
                losses.append((alias, ids))
        return losses


def standing(row: LeafAlloc) -> Standing:
    """Where the tag of ``row`` is. Raises :class:`IdgenError` if a database does not answer."""
    shown = database_of(LeafAlloc)
    if not is_fetched_from(row.pk, shown):
        return Standing(row.pk, {shown: row})
    source = source_of_tags()
    rows = known_tag(row.pk).rows
    return Standing(
        row.pk,
        {alias: rows.get(alias) or LeafAlloc(max_id=1) for alias in source.route(row.pk)},
        source.marks(row.pk).max_id(row.pk),
    )


@dataclass(frozen=True, slots=True)
class SkipPlan:
    """What a skip means for one tag of the page."""

    tag: str
    pooled: int | None
    standing: Standing | None = None
    to: int | None = None
    """Where the tag continues; None before the form says."""
    refusal: str = ""

    @property
    def is_possible(self) -> bool:
        return self.to is not None and not self.refusal

    @property
    def losses(self) -> list[str]:
        """The ids that are never given out, as text."""
        if self.standing is None or self.to is None:
            return []
        return [
            f"{alias}: {_loss_text(ids)}" if self.standing.is_shared else _loss_text(ids)
            for alias, ids in self.standing.lost(self.to)
        ]

    @property
    def pool(self) -> str:
        return pool_text(self.pooled)


def _loss_text(ids: range) -> str:
    if ids[0] == ids[-1]:
        return str(ids[0])
    # len() ends at 2**63 - 1.
    count = (ids[-1] - ids[0]) // ids.step + 1
    return _("%(first)d to %(last)d (%(ids)s)") % {
        "first": ids[0],
        "last": ids[-1],
        "ids": count_text(count),
    }


def plans_of(rows: Rows, form: SkipForm) -> list[SkipPlan]:
    """What the skip of ``form`` means for each of ``rows``."""
    found = outlooks_of(rows)
    return [_plan(row, form, found[row.pk].pooled if row.pk in found else None) for row in rows]


def _plan(row: LeafAlloc, form: SkipForm, pooled: int | None) -> SkipPlan:
    try:
        stand = standing(row)
    except IdgenError as error:
        return SkipPlan(row.pk, pooled, refusal=error_text(error))
    if not form.is_bound or not form.is_valid():
        return SkipPlan(row.pk, pooled, stand)
    target = form.target(stand.max_id)
    refusal = "" if stand.can_go_on_at(target) else _refusal(stand, target)
    return SkipPlan(row.pk, pooled, stand, target, refusal)


def _refusal(stand: Standing, target: int) -> str:
    if target > stand.max_id:
        return _("The highest id is %(end)d (2⁶³ − 1).") % {"end": MAX_ID}
    return _(
        "The next free id is already %(max_id)d. The tag can't go back to %(target)d: ids that "
        "were given out would repeat."
    ) % {"max_id": stand.max_id, "target": target}


# --- steps and descriptions -------------------------------------------------------------


def change_step(request: HttpRequest, tag: str, *, seen: int, to: int) -> None:
    """Change a step that the page showed as ``seen``.

    Raises :class:`IdgenError`, also if somebody else changed it meanwhile.
    """
    replace_step(tag, database_of(LeafAlloc), seen=seen, to=to)
    note(request, tag, "changed", step=(seen, to))


def change_description(request: HttpRequest, tag: str, *, seen: str, to: str) -> None:
    """Change the description of a tag. Raises :class:`IdgenError`."""
    shown = database_of(LeafAlloc)
    if is_fetched_from(tag, shown):
        change_tag(tag, description=to)
    else:
        change_row(shown, tag, description=to)
    note(request, tag, "changed", description=(seen, to))


def save_steps(request: HttpRequest, formset: Any) -> None:
    """Change the steps that were edited in ``formset``, which is valid."""
    changed = 0
    for form in formset.forms:
        if not form.has_changed():
            continue
        tag, wanted = form.instance.pk, form.cleaned_data["step"]
        try:
            change_step(request, tag, seen=form.before.step, to=wanted)
        except IdgenError as error:
            text = _("The step of “%(tag)s” was not changed to %(wanted)d. %(reason)s")
            values = {"tag": tag, "wanted": wanted, "reason": error_text(error)}
            messages.error(request, text % values)
        else:
            changed += 1
    if changed:
        text = ngettext(
            "The step of %(count)d tag was changed. It applies from the next fetch on.",
            "The steps of %(count)d tags were changed. They apply from the next fetch on.",
            changed,
        )
        messages.success(request, text % {"count": changed})


# --- notes ------------------------------------------------------------------------------


def note(request: HttpRequest, tag: str, action: str, **changes: Change) -> None:
    """Record that the request's user did ``action`` to ``tag``: see :func:`record`."""
    waiting = request.__dict__.get(NOTES)
    if waiting is None:
        record(request.user, tag, action, **changes)
    else:
        waiting.append(partial(record, request.user, tag, action, **changes))


@contextmanager
def notes_kept(request: HttpRequest) -> Iterator[None]:
    """Around a transaction of the page: write its notes after it, also if it fails."""
    waiting: list[Callable[[], object]] = []
    request.__dict__[NOTES] = waiting
    try:
        yield
    finally:
        del request.__dict__[NOTES]
        for write in waiting:
            write()


def translate_notes(entries: Iterable[Any]) -> None:
    """Show those rows of the admin's log that are notes in the active language."""
    for entry in entries:
        if describe(entry.change_message) is not None:
            entry.get_change_message = partial(describe, entry.change_message)
