"""Tags paused and resumed: nobody is given more ids of a paused one."""

from __future__ import annotations

from functools import partial

from django.db.models.functions import Now

from ..models import LeafAlloc
from .row_edits import edit_rows
from .rows import Tag, known_tag, source_of_tags

__all__ = ["pause_tag", "resume_tag"]


def pause_tag(tag: str) -> Tag:
    """Have nobody be given more ids of ``tag``; may be repeated.

    Raises :class:`.TagUnknown`, :class:`.TagsElsewhere` and
    :class:`~..core.errors.SegmentUnavailable`.
    """
    return _set(tag, paused=True)


def resume_tag(tag: str) -> Tag:
    """Have ids of ``tag`` be given out again; may be repeated. Raises as :func:`pause_tag`."""
    return _set(tag, paused=False)


def _set(tag: str, *, paused: bool) -> Tag:
    known = known_tag(tag)
    source_of_tags()
    for alias in known.rows:
        edit_rows(alias, partial(_update, alias, tag, paused))
    return known_tag(tag)


def _update(alias: str, tag: str, paused: bool) -> bool:
    rows = LeafAlloc.objects.using(alias).filter(pk=tag)
    return bool(rows.update(paused=paused, update_time=Now()))
