"""Changes of tags as the admin makes them: each told, and each left in the tag's history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from django.http import HttpRequest
from django.utils.translation import gettext as _

from ..core.clock import SYSTEM_CLOCK
from ..core.errors import IdgenError
from ..core.segment import MAX_ID
from ..models import LeafAlloc
from ..ops.tags import edits as tag_edits
from ..ops.tags import rows as tag_rows
from ..ops.tags import supply as tag_supply
from ..ops.tags.pausing import PoolStillOpen
from ..ops.tags.steps import replace_step
from .base import database_of
from .error_words import error_words
from .tag_outcomes import Outcomes
from .tag_trail import note
from .tag_words import count_words

__all__ = ["change_description", "change_step", "pause", "preload", "skip"]

PRELOADING = 10.0
"""Seconds after which no further tag is preloaded: somebody waits for the page."""


# --- preloading -------------------------------------------------------------------------


def preload(request: HttpRequest, rows: Sequence[LeafAlloc]) -> Outcomes:
    """Load each of ``rows`` ahead: what this process uses, and into the pool."""
    outcomes = Outcomes()
    until = SYSTEM_CLOCK.stopwatch() + PRELOADING
    for row in rows:
        if SYSTEM_CLOCK.stopwatch() > until:
            text = _("“%(tag)s” was not preloaded: the others took too long. Try it again.")
            outcomes.warn(text % {"tag": row.pk})
            continue
        try:
            _preload(row, outcomes)
        except IdgenError as error:
            outcomes.bad(_failed(row.pk, error))
        else:
            note(request, row.pk, "preloaded")
    return outcomes


def _preload(row: LeafAlloc, outcomes: Outcomes) -> None:
    if not tag_rows.is_fetched_from(row.pk, database_of(LeafAlloc)):
        text = _("“%(tag)s” was not preloaded: this project takes no ids from its row.")
        outcomes.warn(text % {"tag": row.pk})
        return
    ready = tag_supply.load_ahead(row.pk)
    pooled = tag_supply.fill_pool(row)
    values = {"tag": row.pk, "held": count_words(tag_supply.held_here(row.pk))}
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


def skip(request: HttpRequest, rows: Sequence[LeafAlloc], targets: Mapping[str, int]) -> Outcomes:
    """Have each of ``rows`` that ``targets`` names go on there."""
    outcomes = Outcomes()
    for row in rows:
        target = targets.get(row.pk)
        if target is None:
            outcomes.bad(_("“%(tag)s” was left as it is.") % {"tag": row.pk})
            continue
        try:
            _skip(request, row, target, outcomes)
        except IdgenError as error:
            outcomes.bad(_failed(row.pk, error))
        else:
            text = _("“%(tag)s” goes on at %(target)d.")
            outcomes.good(text % {"tag": row.pk, "target": target})
    return outcomes


def _skip(request: HttpRequest, row: LeafAlloc, target: int, outcomes: Outcomes) -> None:
    """In all databases of the tag; nothing below is left here, or in the pool.

    Raises :class:`IdgenError`.
    """
    shown = database_of(LeafAlloc)
    if not tag_rows.is_fetched_from(row.pk, shown):
        # Somebody else's, such as another site's that shares this admin.
        tag_edits.change_row(shown, row.pk, max_id=target)
        note(request, row.pk, "skipped", max_id=(row.max_id, target))
        return
    before = tag_rows.known_tag(row.pk).max_id
    tag_edits.skip_tag(row.pk, to=target, most=MAX_ID)
    note(request, row.pk, "skipped", max_id=(before, target))
    if tag_supply.let_go(row.pk).pool is False:
        text = _("The pool of “%(tag)s” can't be emptied: lower ids may come out of it yet.")
        outcomes.warn(text % {"tag": row.pk})


# --- pausing, and steps -----------------------------------------------------------------


def pause(request: HttpRequest, rows: Sequence[LeafAlloc], *, paused: bool) -> Outcomes:
    """Pause, or resume, each of ``rows``; also those that are, since some part may not be."""
    outcomes = Outcomes()
    for row in rows:
        try:
            _pause(row.pk, paused)
        except PoolStillOpen as error:
            outcomes.warn(error_words(error))
        except IdgenError as error:
            outcomes.bad(_failed(row.pk, error))
            continue
        else:
            text = _("“%(tag)s” is paused.") if paused else _("“%(tag)s” gives out ids again.")
            outcomes.good(text % {"tag": row.pk})
        if row.paused != paused:
            note(request, row.pk, "paused" if paused else "resumed")
    return outcomes


def _pause(tag: str, paused: bool) -> None:
    shown = database_of(LeafAlloc)
    if not tag_rows.is_fetched_from(tag, shown):
        LeafAlloc.objects.using(shown).filter(pk=tag).update(paused=paused)
    elif paused:
        tag_edits.pause_tag(tag)
    else:
        tag_edits.resume_tag(tag)


def change_step(request: HttpRequest, tag: str, *, seen: int, to: int) -> None:
    """Change a step that the page showed as ``seen``.

    Raises :class:`IdgenError`, also if somebody else changed it meanwhile.
    """
    replace_step(tag, database_of(LeafAlloc), seen=seen, to=to)
    note(request, tag, "changed", step=(seen, to))


def change_description(request: HttpRequest, tag: str, *, seen: str, to: str) -> None:
    """Change what a tag is for. Raises :class:`IdgenError`."""
    shown = database_of(LeafAlloc)
    if tag_rows.is_fetched_from(tag, shown):
        tag_edits.change_tag(tag, description=to)
    else:
        tag_edits.change_row(shown, tag, description=to)
    note(request, tag, "changed", description=(seen, to))


def _failed(tag: str, error: IdgenError) -> str:
    with suppress(AttributeError):
        # It names the tag itself.
        if error.tag == tag:  # type: ignore[attr-defined]
            return error_words(error)
    return _("%(tag)s: %(reason)s") % {"tag": tag, "reason": error_words(error)}
