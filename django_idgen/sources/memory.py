"""Segments out of this process' memory: for tests, and for ids that need not last."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from ..core.errors import SegmentExhausted, TagPaused
from ..core.segment import MAX_ID, STEP, Demand, Segment, check_step, check_tag
from ..core.source import Source

__all__ = ["MemorySource"]


class MemorySource(Source):
    """A segment source that forgets all at the end of the process. Thread-safe.

    Ids begin at 1; a tag is made when it is first asked for. Like Leaf's table it
    keeps a ``max_id`` for each tag: the end, exclusive, of what was granted. A
    forked child goes on from a copy of its own, so that it grants what its parent
    grants: use it in one process only.

    Steps are numbers of ids, 1 to 1,000,000,000; another one raises
    :class:`~django_idgen.core.errors.ConfigurationError`. ``end`` is past the last id.
    """

    wired = ("default_step",)

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
            start = max(self._max_ids.get(tag, 1), floor)
            if start >= self.end:
                raise SegmentExhausted(
                    f"Segment tag {tag!r} has come to 2**63-1: there are no higher ids. "
                    f"Use another tag, with a table of its own."
                )
            step = self._steps.get(tag, self.default_step)
            self._max_ids[tag] = stop = min(start + demand.length(step), self.end)
            return Segment(tag, start, stop, step)

    def set_step(self, tag: str, step: int) -> None:
        """Change the number of ids in a segment of ``tag``, from the next fetch on."""
        with self._lock:
            self._steps[check_tag(tag)] = check_step(step)

    def open_tag(self, tag: str, *, step: int, max_id: int) -> bool:
        """Make ``tag``, whose first id is to be ``max_id``; False if it is there already."""
        with self._lock:
            if check_tag(tag) in self._max_ids:
                return False
            self._steps[tag], self._max_ids[tag] = check_step(step), max_id
            return True

    def raise_mark(self, tag: str, to: int) -> None:
        """No id of ``tag`` below ``to`` is given out from now on; never lowers its mark."""
        with self._lock:
            self._max_ids[tag] = max(self._max_ids.get(check_tag(tag), 1), to)

    def set_paused(self, tag: str, *, paused: bool) -> None:
        """Whether ids of ``tag`` are refused, with ``TagPaused``, from now on."""
        with self._lock:
            (self._paused.add if paused else self._paused.discard)(check_tag(tag))

    def is_paused(self, tag: str) -> bool:
        """Whether ids of ``tag`` are refused."""
        with self._lock:
            return tag in self._paused

    def is_new(self, tag: str) -> bool:
        """Whether nothing was granted of ``tag``."""
        return self.max_id(tag) == 1

    def max_id(self, tag: str) -> int:
        """The end, exclusive, of what was granted of ``tag``; 1 if nothing was."""
        with self._lock:
            return self._max_ids.get(tag, 1)

    def flush(self) -> None:
        """Forget what was granted, as a store that is flushed would. Steps and pauses stay."""
        with self._lock:
            self._max_ids.clear()

    def abandon(self) -> None:
        """Replace the lock, which a thread may have held at the fork."""
        self._lock = threading.Lock()
