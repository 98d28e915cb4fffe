"""Tags paused and resumed: nobody is given more ids of a paused one.

On a server the row says it, and the very UPDATE of a fetch looks at it. On SQLite, where
the marks stand outside of the row, they say it, too, from the commit on: the row can't be
read while somebody else has the database locked. In front of a pool the tag's ranges in
Redis are closed as well; what lies there is kept for when the tag is resumed.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models.functions import Now

from ...core.errors import ConfigurationError, SegmentUnavailable
from ...db.connection import Place, place_of
from ...models import LeafAlloc
from ...process import handlers
from .row_edits import TagExists, edit_rows, insert_tag_row
from .rows import Tag, known_tag, source_of_tags

__all__ = ["PoolStillOpen", "pause_tag", "resume_tag"]


class PoolStillOpen(SegmentUnavailable):
    """A tag is paused in its databases, but ids of it may come out of its pool yet."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        super().__init__(tag)

    def __str__(self) -> str:
        return (
            f"Tag {self.tag!r} is paused, but its pool in Redis can't be asked just now: what "
            f"lies there may still be handed out, until the next preloading closes it. Pause "
            f"the tag again when Redis answers."
        )


def pause_tag(tag: str) -> Tag:
    """Have nobody be given more ids of ``tag``, from now on; may be repeated.

    Processes use up what they hold. Where the calling thread is in a transaction on a
    SQLite database, it counts from that one's commit on.

    Raises :class:`.TagUnknown`, :class:`.TagsElsewhere`,
    :class:`SegmentUnavailable` if one of the tag's databases can't be
    asked (then it may be paused in some), and :class:`PoolStillOpen`.
    """
    known = known_tag(tag)
    source = source_of_tags()
    for alias in source.route(tag):
        # A database that gave out none of its ids yet would make its row at a fetch.
        row = known.rows.get(alias) or _unused(known)
        _set(alias, row, paused=True)
        _tell_marks(alias, tag, paused=True)
    if not _shut_pool(tag):
        raise PoolStillOpen(tag)
    return known_tag(tag)


def resume_tag(tag: str) -> Tag:
    """Have ids of ``tag`` be given out again; may be repeated.

    The next call of each process gets some. A pool that can't be asked is opened by the
    next process that takes ids. Raises as :func:`pause_tag`, but for :class:`PoolStillOpen`.
    """
    known = known_tag(tag)
    source_of_tags()
    # Asked for before: who pauses the tag anew meanwhile shuts the pool with another one.
    word = _word_of_pool(tag)
    for alias, row in known.rows.items():
        _set(alias, row, paused=False)
        _tell_marks(alias, tag, paused=False)
    _open_pool(tag, word)
    return known_tag(tag)


def _unused(known: Tag) -> LeafAlloc:
    first = known.first
    return LeafAlloc(
        biz_tag=known.name, max_id=known.max_id, step=first.step, description=first.description
    )


def _set(alias: str, row: LeafAlloc, *, paused: bool) -> None:
    """In the row of a known tag; where it is not written yet, write it."""
    update = partial(_update, alias, row.pk, paused=paused)
    if edit_rows(alias, update):
        return
    row.paused = paused
    try:
        edit_rows(alias, partial(insert_tag_row, row, alias))
    except TagExists:  # a process was quicker
        edit_rows(alias, update)


def _update(alias: str, tag: str, *, paused: bool) -> bool:
    rows = LeafAlloc.objects.using(alias).filter(pk=tag)
    return bool(rows.update(paused=paused, update_time=Now()))


def _tell_marks(alias: str, tag: str, *, paused: bool) -> None:
    """On SQLite, once the row's change is committed: what is rolled back was not paused."""
    if place_of(alias) is Place.SERVER:
        return
    marks: Any = source_of_tags().marks(tag)
    transaction.on_commit(partial(marks.set_paused, tag, paused=paused), using=alias)


def _shut_pool(tag: str) -> bool:
    """Whether nothing comes out of it any more; True where there is none."""
    pool = _pool()
    if pool is None:
        return True
    try:
        pool.shut([tag])
    except (SegmentUnavailable, ConfigurationError):
        return False
    return True


def _word_of_pool(tag: str) -> str:
    """What the pool of ``tag`` is shut with; "" if it is open, or can't be asked."""
    pool = _pool()
    try:
        return "" if pool is None else str(pool.stocks([tag])[tag].shut)
    except (SegmentUnavailable, ConfigurationError):
        return ""


def _open_pool(tag: str, word: str) -> None:
    if word:
        # The next fetch sees to it otherwise.
        with suppress(SegmentUnavailable, ConfigurationError):
            _pool().open({tag: word})


def _pool() -> Any:
    pool: Any = handlers.segments.allocator().source
    return pool if pool.is_pool else None
