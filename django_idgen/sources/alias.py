"""Segments from one database alias, wherever its marks are: see :mod:`..db.stores`."""

from __future__ import annotations

from collections.abc import Callable

from ..core.errors import SegmentUnavailable, TagPaused
from ..core.segment import MAX_ID, MAX_STEP, STEP, Demand, Segment
from ..core.source import Source
from ..db import memory_rows
from ..db.connection import Place, place_of
from ..db.memory_rows import FetchedRow, Row, now
from ..db.stores import Stores, kept_in_process
from .history import holder
from .memory import MemorySource
from .server import ServerSource

__all__ = ["AliasSource"]


class AliasSource(Source):
    """Segments of ``LeafAlloc`` in ``database`` (an alias of ``DATABASES``). Thread-safe.

    ``make_server`` makes the source that is used unless the alias is kept in this process,
    as an in-memory database is.
    """

    def __init__(
        self,
        database: str,
        *,
        default_step: int,
        make_server: Callable[[], ServerSource],
    ) -> None:
        self.database = database
        self._default_step = default_step
        self._make_server = make_server
        self._unshared: dict[str, int] = {}
        """By tag: the end of what was granted here while a test forbade the database."""
        self._stores: Stores[Source] = Stores(database, self._make)

    @property
    def server(self) -> ServerSource | None:
        """The source on a server, if that is what the alias is."""
        store = self._stores.current()
        return store if isinstance(store, ServerSource) else None

    def fetch(self, tag: str, *, floor: int = 0, demand: Demand = STEP) -> Segment:
        """See :meth:`Source.fetch`."""
        store = self._stores.current()
        if isinstance(store, MemorySource) and place_of(self.database) is Place.MEMORY:
            return self._fetch_in_memory(store, tag, floor, demand)
        if isinstance(store, ServerSource):
            # Its table did not lose what it never knew of.
            expected = self._unshared.get(tag, 0)
            return store.fetch_within(None, tag, floor=floor, demand=demand, expected=expected)
        segment = store.fetch(tag, floor=floor, demand=demand)
        self._unshared[tag] = segment.stop
        return segment

    def _fetch_in_memory(
        self, store: MemorySource, tag: str, floor: int, demand: Demand
    ) -> Segment:
        row = memory_rows.row_of(self.database, tag)
        if row is not None:
            _refuse_if_paused(tag, row)
            floor = max(floor, row.max_id)
            store.set_step(tag, self._checked(tag, row.step))
        segment = store.fetch(tag, floor=floor, demand=demand)
        row_now = FetchedRow(tag, segment.stop, segment.step, holder(), now(), len(segment.ids()))
        memory_rows.changed(self.database, row_now)
        return segment

    # --- for editing tags: on a server the row is all there is ------------------

    def open_tag(self, tag: str, *, step: int, max_id: int) -> bool:
        """Make ``tag`` where its marks stand outside of its row; False if it is there already."""
        marks = self._marks()
        return marks is None or marks.open_tag(tag, step=step, max_id=max_id)

    def raise_mark(self, tag: str, to: int) -> None:
        """Raise the mark that stands outside of the row, if there is one."""
        marks = self._marks()
        if marks is not None:
            marks.raise_mark(tag, to)

    def set_paused(self, tag: str, *, paused: bool) -> None:
        """Tell the marks that stand outside of the row, if there are some."""
        marks = self._marks()
        if marks is not None:
            marks.set_paused(tag, paused=paused)

    def is_paused(self, tag: str) -> bool:
        """Whether fetches of ``tag`` are refused by now.

        Raises :class:`SegmentUnavailable` if that can't be told.
        """
        store = self.server or self._marks()
        return store is not None and store.is_paused(tag)

    def max_id(self, tag: str) -> int:
        """The mark that stands outside of the row; 1 if there is none, or no fetch yet."""
        marks = self._marks()
        return 1 if marks is None else marks.max_id(tag)

    def is_new(self, tag: str) -> bool:
        """Whether no id of ``tag`` was handed out here, as far as that is known."""
        server = self.server
        return self.max_id(tag) == 1 if server is None else server.is_new(tag)

    def ping(self) -> None:
        """Raise :class:`SegmentUnavailable` unless it answers. Changes nothing."""
        if self.server is not None:
            self.server.ping()

    def _marks(self) -> MemorySource | None:
        store = self._stores.current()
        return store if isinstance(store, MemorySource) else None

    def abandon(self) -> None:
        """Drop what a forked child inherited."""
        self._stores.reset()
        for store in self._stores.all():
            store.abandon()

    def close(self) -> None:
        """Free local resources. May be called twice."""
        for store in self._stores.all():
            store.close()

    def _checked(self, tag: str, step: int) -> int:
        if not 1 <= step <= MAX_STEP:
            raise SegmentUnavailable(
                f"Tag {tag!r} has step {step} in leaf_alloc of database {self.database!r}; it "
                f"must be 1 to {MAX_STEP}. Correct the row, in the admin for example."
            )
        return step

    def _make(self, place: Place) -> Source:
        if place is Place.FORBIDDEN:
            # One id at a time: what is left of a longer segment would be used on the
            # database, once it is allowed again, where somebody else may have those ids.
            return MemorySource(default_step=1, end=MAX_ID)
        if place is Place.MEMORY:
            # The first free id must itself be storable: its row is to hold it.
            made = kept_in_process(self.database, place, make=lambda: MemorySource(end=MAX_ID))
            made.default_step = self._default_step
            return made
        return self._make_server()


def _refuse_if_paused(tag: str, row: Row) -> None:
    """The marks say it, too; but not yet if the row was changed by hand."""
    if row.paused:
        raise TagPaused(tag)
