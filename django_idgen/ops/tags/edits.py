"""Tags made, changed, paused and resumed by people, so that no id comes again.

``max_id`` only goes up, in one statement that does not depend on what somebody saw before.
A tag is made by an INSERT, never an UPDATE: a process may make it in the same moment by
using it. Nothing deletes a tag, which would start at 1 again.

The segment source says where a tag's rows are: in one database, in several that share it,
or where a router leads. Each edit is a transaction on a connection of its own. A database in
memory has the caller's connection alone, and marks outside of the rows, which are raised first.

A fetch sees in the row that a tag is paused. Its ranges in the pool are thrown away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from django.db import DatabaseError, DataError, IntegrityError, transaction
from django.db.models import F
from django.db.models.functions import Greatest

from ...core.errors import ConfigurationError, IdgenError, InvalidTag, SegmentUnavailable
from ...core.segment import MAX_ID, check_step, check_tag
from ...db.connection import Place, home_connection, home_of, own_connection, place_of
from ...db.dialects import Now
from ...db.tables import insert_row, make_missing_tables, missing_tables, why_alike
from ...db.transactions import Transactions
from ...models import Installation, LeafAlloc
from ...process import handlers
from ...process.tags import (
    Tag,
    find_tag,
    half_migrated,
    is_fetched_from,
    known_tag,
    source_in_use,
    source_of_tags,
)

__all__ = [
    "PoolStillOpen",
    "SkipRefused",
    "StepOvertaken",
    "TagExists",
    "Unstorable",
    "change_row",
    "change_tag",
    "edit_rows",
    "insert_tag_row",
    "make_tag",
    "pause_tag",
    "raise_tag",
    "replace_step",
    "resume_tag",
    "skip_tag",
]

T = TypeVar("T")
MODELS = ("LeafAlloc", "Installation")
TIMEOUT = 5.0
"""Seconds for one edit on a database server."""


class TagExists(IdgenError):
    """A tag that was to be made is there already."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        super().__init__(f"There is a tag {tag!r} already.")


class Unstorable(IdgenError):
    """The database has no place for a value, such as an emoji in a column of 3-byte UTF-8."""


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


class StepOvertaken(IdgenError):
    """Somebody else changed a step in between; it was left so."""

    def __init__(self, tag: str, *, seen: int, stored: int | None) -> None:
        self.tag = tag
        self.seen = seen
        self.stored = stored
        """The step as it is by now; None if the tag is not there any more."""
        stands = "is gone" if stored is None else f"has a step of {stored} by now, not of {seen}"
        super().__init__(f"Tag {tag!r} {stands}: it was not changed.")


class PoolStillOpen(SegmentUnavailable):
    """A tag is paused in its databases, but ids of it may come out of its pool yet."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        super().__init__(tag)

    def __str__(self) -> str:
        return (
            f"Tag {self.tag!r} is paused, but its pool in Redis can't be asked just now: what "
            f"lies there may still be handed out, until the next preloading clears it. Pause "
            f"the tag again when Redis answers."
        )


# --- making --------------------------------------------------------------------------------


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
            # The row of the mark just made was written first by another process.
            change_row(alias, tag, step=step, description=description, max_id=max_id)
    return known_tag(tag)


# --- changing ------------------------------------------------------------------------------


def change_tag(tag: str, *, step: int | None = None, description: str | None = None) -> Tag:
    """Change what is given, in all databases of the tag; a step counts from the next fetch.

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
    """Let the tag go on at ``to``, or ``by`` ids further: no later fetch gets ids below.

    What processes and a pool hold already is not touched. ``most``: how many ids it may skip.
    A skip to where the tag stands completes one that failed after one of several databases.
    Raises :class:`SkipRefused`, :class:`TagUnknown` and :class:`SegmentUnavailable`.
    """
    known = known_tag(tag)
    source = source_of_tags()
    stands = max(known.max_id, source.marks(tag).max_id(tag))
    target = stands + (by or 0) if to is None else to
    lowest = stands - _is_half_done(source.route(tag), known)
    if not lowest < target <= min(stands + most, MAX_ID):
        raise SkipRefused(tag, max_id=stands, wanted=target, most=most)
    # Of a database in memory the mark stands outside of the row, and goes first.
    source.marks(tag).raise_mark(tag, target)
    for alias in source.route(tag):
        _change_or_insert(alias, known.rows.get(alias) or _unused_row(known), max_id=target)
    return known_tag(tag)


def raise_tag(tag: str, to: int) -> None:
    """Let the tag go on at ``to`` or above, in all of its databases; make it if there is none.

    Uses no connection of the caller's to a server. What processes and a pool hold already is
    not touched. Raises :class:`TagsElsewhere`, :class:`SegmentUnavailable` and
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
    paused: bool | None = None,
) -> bool:
    """Change the tag's row in ``alias``, in the caller's transaction; False if there is none.

    ``max_id`` is raised, whatever it is by now, and never lowered.
    """
    given = {"step": step, "description": description, "paused": paused}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
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


def replace_step(tag: str, database: str, *, seen: int, to: int) -> None:
    """Change the step of ``tag`` from ``seen``, which ``database`` had, in all its databases.

    Where its ids don't come from ``database``, as of another site's rows, in that row alone
    and in the caller's transaction. Raises :class:`StepOvertaken` and what
    :func:`change_tag` does.
    """
    check_step(to)
    swap = partial(_swap, tag, database, seen, to)
    if not is_fetched_from(tag, database):
        swap()
        return
    others = [alias for alias in known_tag(tag).rows if alias != database]
    edit_rows(database, swap)
    for alias in others:
        edit_rows(alias, partial(change_row, alias, tag, step=to))


def _swap(tag: str, alias: str, seen: int, to: int) -> None:
    rows = LeafAlloc.objects.using(alias).filter(pk=tag)
    if rows.filter(step=seen).update(step=to, update_time=Now()):
        return
    stored = rows.values_list("step", flat=True).first()
    if stored != to:
        raise StepOvertaken(tag, seen=seen, stored=stored)


# --- pausing -------------------------------------------------------------------------------


def pause_tag(tag: str) -> Tag:
    """Stop giving out ids of ``tag``; may be repeated.

    Processes use up what they hold. What lies in the pool is thrown away: a gap.

    Raises :class:`.TagUnknown`, :class:`.TagsElsewhere`,
    :class:`SegmentUnavailable` if one of the tag's databases can't be
    asked (then it may be paused in some), and :class:`PoolStillOpen`.
    """
    known = known_tag(tag)
    source = source_of_tags()
    for alias in source.route(tag):
        # A database that has given out none of its ids makes its row at the first fetch.
        row = known.rows.get(alias) or _unused_row(known)
        _change_or_insert(alias, row, paused=True)
        _tell_marks(alias, tag, paused=True)
    # After that: what a process fetched before is not let into a pool that was cleared since.
    try:
        source_in_use().clear([tag], keep_highest=True)
    except (SegmentUnavailable, ConfigurationError) as error:
        raise PoolStillOpen(tag) from error
    return known_tag(tag)


def resume_tag(tag: str) -> Tag:
    """Give out ids of ``tag`` again; may be repeated.

    The next call of each process gets some. Raises as :func:`pause_tag`, but for
    :class:`PoolStillOpen`.
    """
    known = known_tag(tag)
    source_of_tags()
    for alias, row in known.rows.items():
        _change_or_insert(alias, row, paused=False)
        _tell_marks(alias, tag, paused=False)
    return known_tag(tag)


def _unused_row(known: Tag) -> LeafAlloc:
    """Of a database that gave out none of the tag's ids yet."""
    first = known.first
    return LeafAlloc(
        biz_tag=known.name, max_id=known.max_id, step=first.step, description=first.description
    )


def _tell_marks(alias: str, tag: str, *, paused: bool) -> None:
    """In memory, once the row's change is committed: what is rolled back was not paused."""
    if place_of(alias) is Place.SERVER:
        return
    marks: Any = source_of_tags().marks(tag)
    transaction.on_commit(partial(marks.set_paused, tag, paused=paused), using=alias)


# --- rows, each in one transaction of its database -----------------------------------------


def edit_rows(alias: str, body: Callable[[], T]) -> T:
    """``body`` as one transaction of the database ``alias``.

    Raises what it raises, :class:`Unstorable` and :class:`SegmentUnavailable`.
    """
    try:
        return _on_server(alias, body) if place_of(alias) is Place.SERVER else _here(alias, body)
    except SegmentUnavailable as error:
        if isinstance(error.__cause__, DataError):
            raise _unstorable(alias, error.__cause__) from error
        raise
    except DataError as error:
        raise _unstorable(alias, error) from error
    except DatabaseError as error:
        raise half_migrated(alias, error) or SegmentUnavailable(
            f"Database {alias!r} failed: {error}"
        ) from error


def _on_server(alias: str, body: Callable[[], T]) -> T:
    transactions = Transactions(
        own_connection(alias), timeout=TIMEOUT, models=MODELS, unavailable=SegmentUnavailable
    )
    return transactions.run(lambda _connection: body())


def _here(alias: str, body: Callable[[], T]) -> T:
    if missing_tables(home_connection(alias), MODELS):
        make_missing_tables(home_connection(alias), only=MODELS)
    with transaction.atomic(using=alias):
        return body()


def _unstorable(alias: str, error: Exception) -> Unstorable:
    words = " ".join(str(error).split())
    return Unstorable(f"Database {alias!r} can't store this: {words}")


def insert_tag_row(row: LeafAlloc, alias: str) -> None:
    """INSERT ``row``, a tag's first one in ``alias``, with that database's part of the ids.

    In the caller's transaction. Raises :class:`TagExists`, and
    :class:`InvalidTag` where the database takes it for another tag.
    """
    # Locked as a fetch does it, before the tag: the ids must not be divided anew meanwhile.
    rows = Installation.objects.using(alias).filter(pk=1)
    installation = rows.select_for_update().first()
    if installation is not None:
        row.delta, row.remainder = installation.delta, installation.remainder
    if why := why_alike(row, alias):
        raise InvalidTag(row.pk, why)
    try:
        with transaction.atomic(using=home_of(alias)):
            insert_row(row, alias)
    except IntegrityError as error:
        raise TagExists(row.pk) from error
