"""Segments out of this process's memory: for tests, and for ids that need not last."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from ..core.errors import SegmentExhausted, TagPaused
from ..core.segment import MAX_ID, STEP, Demand, Segment, check_step, check_tag
from ..core.source import Source, TablesUnseen


class MemorySource(Source):
    """A segment source that forgets everything at the end of the process. Thread-safe.

    Ids begin at 1. The first fetch makes a tag. Like Leaf's table it keeps a ``max_id`` for each
    tag, the exclusive end of what was granted. A forked child continues with a copy, and so
    grants the same ids as its parent: use it in one process only.

    Steps are 1 to 1,000,000,000 ids; others raise
    :class:`~django_idgen.core.errors.ConfigurationError`. ``end`` is past the last id.
    """

    wired = ("default_step",)
    knows_tables = True

    def __init__(
        self,
        default_step: int = 1000,
        steps: Mapping[str, int] | None = None,
        *,
        end: int = MAX_ID + 1,
    ) -> None:
        self.default_step = check_step(default_step)
        self.end = end
        self._steps = {check_tag(tag): check_step(step) for tag, step in (steps or {}).items()}
        self._max_ids: dict[str, int] = {}
        self._paused: set[str] = set()
        self._tables: dict[str, frozenset[str]] = {}
        self._lock = threading.Lock()

    def fetch(self, tag: str, *, floor: int = 0, demand: Demand = STEP) -> Segment:
        """The next segment of ``tag``, at or above ``floor``; the very last one may be short.

        Raises :class:`~django_idgen.core.errors.InvalidTag`,
        :class:`~django_idgen.core.errors.TagPaused` or
        :class:`~django_idgen.core.errors.SegmentExhausted`.
        """
        check_tag(tag)
        with self._lock:
            if tag in self._paused:
                raise TagPaused(tag)
            if demand.tables:
                seen = self._tables.get(tag, frozenset())
                if unseen := demand.unseen - seen:
                    raise TablesUnseen(tag, unseen)
                self._tables[tag] = seen | demand.tables
            start = max(self._max_ids.get(tag, 1), floor)
            if start >= self.end:
                raise SegmentExhausted(
                    f"Segment tag {tag!r} has reached 2**63-1: there are no higher ids. Use "
                    "another tag, with a table of its own."
                )
            step = self._steps.get(tag, self.default_step)
            self._max_ids[tag] = stop = min(start + demand.length(step), self.end)
            return Segment(tag, start, stop, step)

    def set_step(self, tag: str, step: int) -> None:
        """Change the number of ids in a segment of ``tag``, from the next fetch on."""
        with self._lock:
            self._steps[check_tag(tag)] = check_step(step)

    def open_tag(self, tag: str, *, step: int, max_id: int) -> bool:
        """Make ``tag`` with the first id ``max_id``; False if it exists."""
        with self._lock:
            if check_tag(tag) in self._max_ids:
                return False
            self._steps[tag], self._max_ids[tag] = check_step(step), max_id
            return True

    def raise_mark(self, tag: str, to: int) -> None:
        """Give out no id of ``tag`` below ``to`` from now on. Never lowers the mark."""
        with self._lock:
            self._max_ids[tag] = max(self._max_ids.get(check_tag(tag), 1), to)

    def set_paused(self, tag: str, *, paused: bool) -> None:
        """Refuse ids of ``tag`` with ``TagPaused``, or give them out again."""
        with self._lock:
            (self._paused.add if paused else self._paused.discard)(check_tag(tag))

    def is_paused(self, tag: str) -> bool:
        """Whether ``tag`` is paused."""
        with self._lock:
            return tag in self._paused

    def is_new(self, tag: str) -> bool:
        """Whether nothing of ``tag`` was granted."""
        return self.max_id(tag) == 1

    def max_id(self, tag: str) -> int:
        """The exclusive end of what was granted of ``tag``; 1 if nothing was."""
        with self._lock:
            return self._max_ids.get(tag, 1)

    def flush(self) -> None:
        """Forget what was granted, like a flushed store. Steps and pauses stay."""
        with self._lock:
            self._max_ids.clear()
            self._tables.clear()

    def abandon(self) -> None:
        """Replace the lock, which a thread of the parent may hold."""
        self._lock = threading.Lock()
