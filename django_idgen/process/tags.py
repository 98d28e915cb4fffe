"""Tags as their databases store them, and the tables whose ids they are.

A tag's row is in one database, in each of several that share it, or where a router leads. A new
tag whose table has rows was renamed or moved with its model, or given to a field that had
another one. It begins above the ids of these rows: see :mod:`.watch`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from django.db import DatabaseError, OperationalError, ProgrammingError
from django.utils import timezone

from ..core.errors import IdgenError, SegmentUnavailable
from ..core.segment import check_tag
from ..db.connection import Place, home_connection, place_of
from ..db.rows import read_first, read_values, rows_of
from ..db.tables import is_missing, missing_columns
from ..models import LeafAlloc
from . import maps

if TYPE_CHECKING:
    from ..core.source import Source


logger = logging.getLogger("django_idgen")

MAKE_IT = (
    " Make it in the admin (Segment tags, Add) before its ids are taken, or set "
    "IDGEN['SEGMENTS']['OPTIONS']['make_tags'] to True."
)


class TagUnknown(IdgenError):
    """A tag does not exist, and this call does not make it."""

    def __init__(self, tag: str, *, hint: str = "") -> None:
        self.tag = tag
        super().__init__(f"There is no tag {tag!r}.{hint}")


class TagsElsewhere(IdgenError):
    """The segment source keeps no tags in this project's databases."""

    def __init__(self, source: object) -> None:
        super().__init__(
            f"This project's segments come from {type(source).__name__}, which keeps the tags "
            "elsewhere. Change them there."
        )


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag as its databases store it. Frozen."""

    name: str
    rows: Mapping[str, LeafAlloc]
    """By the alias of the database. One that has given out none of its ids may be missing."""

    @property
    def first(self) -> LeafAlloc:
        """The row that shows what all rows should have in common."""
        return next(iter(self.rows.values()))

    @property
    def max_id(self) -> int:
        """The first id that none of its databases has given out."""
        return max(row.max_id for row in self.rows.values())

    @property
    def paused(self) -> bool:
        """Whether at least one of its databases gives out no more ids."""
        return any(row.paused for row in self.rows.values())


# --- where they are --------------------------------------------------------------------------


def tag_databases() -> Sequence[str]:
    """The aliases of all databases that have a table of tags; none if tags are kept elsewhere.

    With a router, skips a database that does not answer: it may have no tags. Otherwise raises
    :class:`SegmentUnavailable`.
    """
    source = source_behind_pool()
    if not source.keeps_rows:
        return ()
    found = []
    for alias in source.databases():
        try:
            if not is_missing("LeafAlloc", alias):
                found.append(alias)
        except DatabaseError as error:
            if not source.is_routed:
                raise _away(alias, error) from error
            logger.warning("Database %r can't be queried for tags: %s", alias, error)
    return found


def is_row_of(tag: str, alias: str) -> bool:
    """Whether the row of ``tag`` in ``alias`` is in use. A replica has rows, too."""
    source = source_behind_pool()
    return not source.is_routed or alias in source.route(tag)


def is_fetched_from(tag: str, alias: str) -> bool:
    """Whether ids of ``tag`` come from ``alias``, alone or among others.

    Raises :class:`ConfigurationError` (a router).
    """
    source = source_behind_pool()
    return alias in source.route(tag)


def _away(alias: str, error: Exception) -> SegmentUnavailable:
    return half_migrated(alias, error) or SegmentUnavailable(
        f"Database {alias!r} can't be queried for tags: {error}"
    )


def half_migrated(alias: str, error: Exception) -> SegmentUnavailable | None:
    """The error to raise if ``error`` comes from missing columns of the table of tags."""
    if not isinstance(error, (ProgrammingError, OperationalError)):
        return None
    try:
        columns = missing_columns(home_connection(alias), ["LeafAlloc"])
    except DatabaseError:
        return None  # no answer, or the caller's transaction is broken
    if not columns:
        return None
    return SegmentUnavailable(
        f"Database {alias!r} is half-migrated, or the table is Leaf's own: it lacks "
        f"{', '.join(columns)}. Run 'manage.py migrate django_idgen --database {alias}'."
    )


def source_in_use() -> Source:
    """The segment source, or the pool in front of it."""
    return maps.segments.allocator().source


def source_behind_pool() -> Any:
    """The segment source, without the pool in front of it."""
    return maps.segments.allocator().source.behind


def source_of_tags() -> Any:
    """Like :func:`source_behind_pool`, but raises :class:`TagsElsewhere`."""
    source = source_behind_pool()
    if not source.keeps_rows:
        raise TagsElsewhere(source)
    return source


# --- reading ------------------------------------------------------------------------


def find_tag(tag: str) -> Tag | None:
    """The tag as stored, or None if it does not exist.

    Raises :class:`InvalidTag`, :class:`SegmentUnavailable` if one of its
    databases does not answer, and :class:`ConfigurationError` (a router).
    """
    check_tag(tag)
    source = source_behind_pool()
    if not source.keeps_rows:
        return None
    rows = {alias: row for alias in source.route(tag) if (row := _row(alias, tag)) is not None}
    if not rows and (mark := source.marks(tag).max_id(tag)) > 1:
        # An in-memory database whose row was rolled back.
        rows = {source.route(tag)[0]: _unwritten(tag, mark)}
    return Tag(tag, rows) if rows else None


def _row(alias: str, tag: str) -> LeafAlloc | None:
    try:
        row = read_first(rows_of(LeafAlloc, alias).filter(pk=tag))
    except DatabaseError as error:
        if table_is_missing(alias):
            return None
        raise _away(alias, error) from error
    # MariaDB finds "Orders" when asked for "orders".
    return row if row is None or row.pk == tag else None


def _unwritten(tag: str, max_id: int) -> LeafAlloc:
    step = maps.current_settings().segments.default_step
    return LeafAlloc(
        biz_tag=tag, max_id=max_id, step=step, description="", update_time=timezone.now()
    )


def table_is_missing(alias: str, model: str = "LeafAlloc") -> bool:
    """Whether the database ``alias`` has no table of ``model``; False if it does not answer."""
    try:
        return is_missing(model, alias)
    except DatabaseError:
        return False


def known_tag(tag: str) -> Tag:
    """Like :func:`find_tag`, but raises :class:`TagUnknown` or :class:`TagsElsewhere`."""
    found = find_tag(tag)
    if found is None:
        source_of_tags()  # raises, if a service has the tags
        raise TagUnknown(tag)
    return found


def next_free_id(tag: str) -> int:
    """The first id of ``tag`` that none of its databases has given out; 1 for a new tag."""
    known = find_tag(tag)
    mark: int = source_of_tags().marks(tag).max_id(tag)
    return max(mark, 1 if known is None else known.max_id)


def check_made(tag: str) -> None:
    """Raise :class:`TagUnknown` if ``tag`` does not exist, in a database or in memory.

    A service that keeps the tags refuses unknown ones. Also raises what :func:`find_tag` does.
    """
    source = source_behind_pool()
    if source.keeps_rows:
        if all(place_of(alias) is Place.FORBIDDEN for alias in source.route(tag)):
            return  # a test that forbids the database
        from .watch import outside_event_loop  # which has to import the generators

        outside_event_loop(lambda: _check_in_databases(tag))
    elif source.is_new(tag):
        raise TagUnknown(tag, hint=MAKE_IT)


def _check_in_databases(tag: str) -> None:
    if find_tag(tag) is None:
        known = set(maps.segments.fields)
        for alias in tag_databases():
            known.update(tag for (tag,) in read_values(rows_of(LeafAlloc, alias), "pk"))
        like = " or ".join(map(repr, get_close_matches(tag, known)))
        raise TagUnknown(tag, hint=f" Is it {like}?{MAKE_IT}" if like else MAKE_IT)
