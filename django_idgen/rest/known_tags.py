"""Which tags there are: a request for another one is refused, instead of making it.

A tag that this process uses is known without a question, and one that was found lately
is believed; so the hot path asks nobody. That there is no such tag is never remembered:
one that was made a moment ago, by whatever process, works at once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from django.db import DatabaseError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from rest_framework.exceptions import NotFound

from ..core.clock import SYSTEM_CLOCK, Clock
from ..core.errors import SegmentUnavailable
from ..core.segment import check_tag
from ..db.connection import Place, own_connection, place_of
from ..db.tables import missing_tables
from ..db.transactions import Transactions
from ..models import LeafAlloc
from ..process.handlers import current_settings, segments

__all__ = ["KNOWN_TAGS", "KnownTags", "UnknownTag", "check_known"]

BELIEVED = 60.0
"""Seconds that a tag, once found, is believed to be there. Nothing of ours removes one."""
MOST = 10_000
"""Tags remembered; the oldest go first."""
TIMEOUT = 2.0
"""Seconds for the question to a database server."""


class UnknownTag(NotFound):
    """404: there is no such tag, and the settings don't let a request make it."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        super().__init__(
            f"There is no tag {tag!r}. It has to be made first, by somebody who may change tags."
        )


class KnownTags:
    """Remembers the tags that were found. Thread-safe.

    ``exists`` is what asks the databases, and raises
    :class:`SegmentUnavailable` where none of them can tell.
    """

    def __init__(self, exists: Callable[[str], bool], clock: Clock = SYSTEM_CLOCK) -> None:
        self._exists = exists
        self._now = clock.stopwatch
        self._found_at: dict[str, float] = {}
        self._allocator: object = None

    def has_lately(self, tag: str) -> bool:
        """Whether ``tag`` is known to be there without a question to anybody."""
        used = segments.get(tag)
        # One without a floor was named in this process, but no id of it was ever taken.
        if used is not None and getattr(used, "floor", True):
            return True
        found_at = self._found_at.get(tag)
        return found_at is not None and self._now() < found_at + BELIEVED and self._is_ours()

    def has(self, tag: str) -> bool:
        """Whether there is a tag ``tag``.

        While the databases can't be asked, those that were ever found here are believed.
        Raises :class:`InvalidTag`,
        :class:`SegmentUnavailable` and
        :class:`ConfigurationError` (a router that fails).
        """
        if self.has_lately(check_tag(tag)):
            return True
        try:
            found = self._exists(tag)
        except SegmentUnavailable:
            if tag in self._found_at and self._is_ours():
                return True
            raise
        if found:
            self._remember(tag)
        return found

    def clear(self) -> None:
        """Forget what was found."""
        self._found_at = {}

    def _is_ours(self) -> bool:
        """Whether what is remembered was found with the settings of now."""
        return self._allocator is segments.allocator()

    def _remember(self, tag: str) -> None:
        if not self._is_ours():
            self._found_at, self._allocator = {}, segments.allocator()
        known = self._found_at
        known.pop(tag, None)
        while len(known) >= MOST:
            with suppress(KeyError, StopIteration, RuntimeError):  # another thread is at it
                del known[next(iter(known))]
        known[tag] = self._now()


def check_known(tag: str) -> None:
    """Raise :class:`UnknownTag` unless there is a tag ``tag``, or any may be made.

    Raises what :meth:`KnownTags.has` does besides.
    """
    if current_settings().rest.make_tags:
        check_tag(tag)
    elif not KNOWN_TAGS.has(tag):
        raise UnknownTag(tag)


# --- asking --------------------------------------------------------------------------


def _exists(tag: str) -> bool:
    source: Any = segments.allocator().source.behind
    if source.keeps_rows:
        return _is_in_one_of(source.route(tag), tag) or _is_marked(source, tag)
    # A service has tags of its own, and refuses others itself.
    return not source.is_new(tag)


def _is_in_one_of(aliases: tuple[str, ...], tag: str) -> bool:
    failure: SegmentUnavailable | None = None
    for alias in aliases:
        try:
            if _is_in(alias, tag):
                return True
        except SegmentUnavailable as error:
            failure = error
    if failure is not None:
        raise failure
    return False


def _is_in(alias: str, tag: str) -> bool:
    place = place_of(alias)
    if place is Place.SERVER:
        return _is_on_server(alias, tag)
    if place is Place.FORBIDDEN:
        return False  # a test of these allows no row to be there
    return _is_in_sqlite(alias, tag)


def _is_on_server(alias: str, tag: str) -> bool:
    def body(_connection: BaseDatabaseWrapper) -> bool:
        return _is_row(alias, tag)

    transactions = Transactions(
        own_connection(alias),
        timeout=TIMEOUT,
        models=("LeafAlloc",),
        unavailable=SegmentUnavailable,
    )
    return transactions.run(body)


def _is_in_sqlite(alias: str, tag: str) -> bool:
    try:
        return _is_row(alias, tag)
    except DatabaseError as error:
        with suppress(DatabaseError):
            if missing_tables(connections[alias], ["LeafAlloc"]):
                return False
        raise SegmentUnavailable(f"Database {alias!r} can't be asked for tags: {error}") from error


def _is_marked(source: Any, tag: str) -> bool:
    """Whether the file beside a SQLite database knows it: the row may come later."""
    if place_of(source.route(tag)[0]) is not Place.FILE:
        return False
    return bool(source.marks(tag).max_id(tag) > 1)


def _is_row(alias: str, tag: str) -> bool:
    rows = LeafAlloc.objects.using(alias).filter(pk=tag)
    # MariaDB takes "Orders" for "orders".
    return tag in rows.values_list("pk", flat=True)


KNOWN_TAGS = KnownTags(_exists)
"""Those of this process."""
