"""Tags made and changed by people, so that no id comes again.

``max_id`` only goes up, in one statement that knows nothing of what somebody saw
before; a tag is made by an INSERT, never an UPDATE, since a process may make it in the
same moment by using it; nothing deletes one (it would start at 1 again).

Where a tag's rows are, the segment source says: in one database, in several that share
it, or where a router leads. On a server an edit is a transaction of our own, outside of
the caller's. On SQLite the row is a mirror: the mark itself, which stands in a file
beside the database or in this process, is raised first.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from django.db.models import F
from django.db.models.functions import Greatest, Now

from ...core.errors import IdgenError
from ...core.segment import MAX_ID, check_step, check_tag
from ...db.connection import Place, place_of
from ...models import LeafAlloc
from ...process import handlers
from .pausing import PoolStillOpen, pause_tag, resume_tag
from .row_edits import TagExists, Unstorable, edit_rows, insert_tag_row
from .rows import (
    Tag,
    TagsElsewhere,
    TagUnknown,
    find_tag,
    known_tag,
    source_of_tags,
    table_is_missing,
    tag_databases,
)

__all__ = [
    "PoolStillOpen",
    "SkipRefused",
    "Tag",
    "TagExists",
    "TagUnknown",
    "TagsElsewhere",
    "Unstorable",
    "change_row",
    "change_tag",
    "find_tag",
    "insert_tag_row",
    "make_tag",
    "pause_tag",
    "raise_tag",
    "resume_tag",
    "skip_tag",
    "table_is_missing",
    "tag_databases",
]


class SkipRefused(IdgenError):
    """A tag was to skip ahead to where it is already, or too far at once."""

    def __init__(self, tag: str, *, max_id: int, wanted: int, most: int) -> None:
        self.tag = tag
        self.max_id = max_id
        self.wanted = wanted
        self.most = most
        """How far a skip may go at once."""
        super().__init__(self._words())

    @property
    def is_too_far(self) -> bool:
        return self.wanted > self.max_id

    def _words(self) -> str:
        if not self.is_too_far:
            return (
                f"Tag {self.tag!r} stands at {self.max_id} already, and never goes back: it "
                f"can't skip to {self.wanted}."
            )
        end = min(self.max_id + self.most, MAX_ID)
        return (
            f"Tag {self.tag!r} stands at {self.max_id}, and skips {self.most} ids at once at "
            f"most: to {end}, not to {self.wanted}."
        )


# --- making -------------------------------------------------------------------------


def make_tag(tag: str, *, step: int, description: str = "", max_id: int = 1) -> Tag:
    """Make a tag whose first id is ``max_id`` or above, in all of its databases.

    Raises :class:`TagExists`, also where a process makes it in this moment by using it;
    :class:`InvalidTag`, :class:`ConfigurationError` for a step
    out of range, :class:`Unstorable`, :class:`TagsElsewhere` and
    :class:`SegmentUnavailable`.
    """
    check_tag(tag)
    check_step(step)
    source = source_of_tags()
    if find_tag(tag) is not None:
        raise TagExists(tag)
    source.agree(tag)
    if not source.marks(tag).open_tag(tag, step=step, max_id=max_id):
        raise TagExists(tag)
    for alias in source.route(tag):
        row = LeafAlloc(biz_tag=tag, max_id=max_id, step=step, description=description)
        try:
            edit_rows(alias, partial(insert_tag_row, row, alias))
        except TagExists:
            if place_of(alias) is Place.SERVER:
                raise
            # It was our mark that somebody has written a row of.
            change_row(alias, tag, step=step, description=description, max_id=max_id)
    return known_tag(tag)


# --- changing -----------------------------------------------------------------------


def change_tag(tag: str, *, step: int | None = None, description: str | None = None) -> Tag:
    """Change what is given, in all databases of the tag; a step counts from the next fetch on.

    Raises :class:`TagUnknown`, else as :func:`make_tag`.
    """
    if step is not None:
        check_step(step)
    known = known_tag(tag)
    source_of_tags()
    for alias, row in known.rows.items():
        _change_or_insert(alias, row, step=step, description=description)
    return known_tag(tag)


def skip_tag(tag: str, *, most: int, to: int | None = None, by: int | None = None) -> Tag:
    """Have the tag go on at ``to``, or ``by`` ids further: no fetch gets ids below, from now on.

    What processes, and a pool, hold already is not touched. ``most``: how far it may go.
    A skip, or the making of a tag, that failed after one of several databases is completed
    by a skip to where the tag stands by then.
    Raises :class:`SkipRefused`, :class:`TagUnknown` and :class:`SegmentUnavailable`.
    """
    known = known_tag(tag)
    source = source_of_tags()
    stands = max(known.max_id, source.marks(tag).max_id(tag))
    target = stands + (by or 0) if to is None else to
    lowest = stands - _is_half_done(source.route(tag), known)
    if not lowest < target <= min(stands + most, MAX_ID):
        raise SkipRefused(tag, max_id=stands, wanted=target, most=most)
    # On SQLite the mark stands outside of the row, and goes first.
    source.marks(tag).raise_mark(tag, target)
    for alias in source.route(tag):
        row = known.rows.get(alias)
        if row is None:  # this database gave out none of its ids yet
            first = known.first
            row = LeafAlloc(biz_tag=tag, step=first.step, description=first.description)
        _change_or_insert(alias, row, max_id=target)
    return known_tag(tag)


def raise_tag(tag: str, to: int) -> None:
    """Have the tag go on at ``to`` or above, in all of its databases; it is made if it isn't there.

    It asks nothing on the caller's connection to a server. What processes, and a pool, hold
    already is not touched. Raises :class:`TagsElsewhere`, :class:`SegmentUnavailable` and
    :class:`ConfigurationError`.
    """
    source = source_of_tags()
    source.agree(tag)
    source.marks(tag).raise_mark(tag, to)
    step = handlers.current_settings().segments.default_step
    for alias in source.route(tag):
        if place_of(alias) is not Place.FORBIDDEN:
            _change_or_insert(alias, LeafAlloc(biz_tag=tag, step=step, description=""), max_id=to)


def _is_half_done(route: Sequence[str], known: Tag) -> bool:
    """Whether one of several databases would go on below the others."""
    rows = [known.rows.get(alias) for alias in route]
    return len(rows) > 1 and any(row is None or row.max_id < known.max_id for row in rows)


def change_row(
    alias: str,
    tag: str,
    *,
    step: int | None = None,
    description: str | None = None,
    max_id: int | None = None,
) -> bool:
    """Change the tag's row in ``alias``, in the caller's transaction; False if there is none.

    ``max_id`` is raised, whatever it is by now, and never lowered.
    """
    changes: dict[str, Any] = {}
    if step is not None:
        changes["step"] = step
    if description is not None:
        changes["description"] = description
    if max_id is not None:
        changes["max_id"] = Greatest(F("max_id"), max_id)
        changes["measured_at"] = None  # what is skipped was not used
    rows = LeafAlloc.objects.using(alias).filter(pk=tag)
    return bool(rows.update(**changes, update_time=Now())) if changes else rows.exists()


def _change_or_insert(alias: str, row: LeafAlloc, **changes: Any) -> None:
    """Change the row of a known tag; where it is not written yet, write it."""

    change = partial(change_row, alias, row.pk, **changes)
    if edit_rows(alias, change):
        return
    for name, value in changes.items():
        if value is not None:
            setattr(row, name, value)
    try:
        edit_rows(alias, partial(insert_tag_row, row, alias))
    except TagExists:  # a process was quicker
        edit_rows(alias, change)
