"""Worker ids lent in the memory of one process: for tests and in-memory databases.

A forked child has a copy, and does not see what its parent lends later: the ids of
two processes can repeat. That is harmless only where they never meet, as with an
in-memory database.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from secrets import token_hex
from typing import Any, TypeVar

from ..core.book import PREVIOUS_LIMIT, Book, Record
from ..core.clock import SYSTEM_CLOCK, Clock, Reading
from ..core.inspection import InspectedMark
from ..core.lease import Mark, Namespace, is_free_in
from ..core.store import Store, read_clock
from .book_registry import BookRegistry

T = TypeVar("T")


class MemoryMarks:
    """The marks of any number of namespaces. Registries that share worker ids share one."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.identity = token_hex(16)
        self.books: dict[str, MemoryBook] = {}

    def book(self, namespace: str) -> MemoryBook:
        return self.books.setdefault(namespace, MemoryBook(self))


class MemoryLeases(BookRegistry):
    """A registry within this process. Thread-safe; never waits for I/O.

    Registries with the same ``marks`` lend the same worker ids; without
    it a registry has its own marks. ``read_now_us`` returns the registry's time
    in microseconds since 1970, by default the host's wall clock.
    """

    kind = ""

    def __init__(
        self,
        namespace: Namespace,
        *,
        marks: MemoryMarks | None = None,
        clock: Clock = SYSTEM_CLOCK,
        read_now_us: Callable[[], int] | None = None,
    ) -> None:
        self.marks = marks or MemoryMarks()
        store = MemoryStore(namespace.name, self.marks, clock, read_now_us)
        super().__init__(namespace, store)

    def clear(self) -> None:
        """Delete the mark of every worker id, as an operator might in a database."""
        with self.marks.lock:
            self.marks.book(self.namespace.name).by_worker.clear()


class MemoryStore(Store):
    """A book in this process; arguments as in :class:`MemoryLeases`."""

    ends_with_process = True

    def __init__(
        self,
        namespace: str,
        marks: MemoryMarks,
        clock: Clock,
        read_now_us: Callable[[], int] | None = None,
    ) -> None:
        self.place = f"memory {id(marks):x}"
        self._namespace = namespace
        self._marks = marks
        self._clock = clock
        self._read_now_us = read_now_us or (lambda: clock.wall_ns() // 1000)

    def run(self, job: Callable[[Book], T]) -> T:
        with self._marks.lock:
            book = self._marks.book(self._namespace)
            book.read_at = read_clock(self._clock, self.now_us)
            return job(book)

    def run_if_there(self, job: Callable[[Book], T]) -> T | None:
        return self.run(job)

    def now_us(self) -> int:
        return self._read_now_us()

    def abandon(self) -> None:
        # A thread of the parent may hold the lock. The child's copy continues as another
        # installation.
        self._marks.lock = threading.Lock()
        self._marks.identity = token_hex(16)


class MemoryBook(Book):
    """A book in this process. Its store holds the lock. A rule that raises changes nothing."""

    server = "memory"

    def __init__(self, marks: MemoryMarks) -> None:
        self.by_worker: dict[int, Mark] = {}
        """In the order of use."""
        self.seen_us: dict[int, int] = {}
        """By worker id: the last acquire or renewal, µs since 1970."""
        self.lent_us: dict[int, int] = {}
        """By worker id: when it was lent, µs since 1970."""
        self.read_at = Reading(0, 0, 0)
        self._marks = marks
        self._record: Record | None = None
        self._eras: Sequence[Mapping[str, Any]] = ()

    # --- the record -----------------------------------------------------------------

    @property
    def reading(self) -> Reading:
        return self.read_at

    @property
    def installation(self) -> str:
        return self._marks.identity

    def record(self) -> Record | None:
        # Only this installation can have written it.
        record = self._record
        return None if record is None else replace(record, installation=self.installation)

    def save_record(self, record: Record) -> None:
        self._record = record

    def was_opened(self) -> bool:
        return False

    def next_generation(self, after: int) -> int:
        return max(after, *(mark.generation for mark in self.by_worker.values()), 0) + 1

    def eras(self) -> object:
        return self._eras

    def save_eras(self, words: Sequence[Mapping[str, Any]]) -> None:
        self._eras = words

    # --- the marks: reading -----------------------------------------------------------

    def count(self) -> int:
        return len(self.by_worker)

    def highest_worker(self) -> int | None:
        return max(self.by_worker, default=None)

    def highest_until(self) -> int:
        return max((mark.until for mark in self.by_worker.values()), default=0)

    def marks(self, workers: Collection[int]) -> Mapping[int, Mark]:
        return {each: self.by_worker[each] for each in workers if each in self.by_worker}

    def inspected(
        self, workers: Collection[int] | None = None, *, generation: int | None = None
    ) -> Iterable[InspectedMark]:
        for worker, mark in self.by_worker.items():
            if workers is None or worker in workers:
                yield InspectedMark(
                    mark,
                    seen_us=self.seen_us.get(worker, 0),
                    acquired_us=self.lent_us.get(worker),
                    void=generation not in (None, mark.generation),
                )

    def had_by(self, who: str, free_at: tuple[int, int] | None = None) -> Sequence[InspectedMark]:
        found = [
            seen
            for seen in reversed(list(self.inspected()))
            if seen.mark.holder == who or seen.mark.holder.startswith(f"{who}:")
        ]
        if free_at is None:
            return found
        return [seen for seen in found if is_free_in(seen.mark, *free_at)][:PREVIOUS_LIMIT]

    def earliest_free(
        self, workers: range, avoid: int | None, now: int, generation: int
    ) -> Mark | None:
        free = (
            mark
            for mark in self.by_worker.values()
            if mark.worker in workers and mark.worker != avoid and is_free_in(mark, now, generation)
        )
        return min(free, key=lambda mark: (mark.until, mark.worker), default=None)

    def lowest_missing(self, workers: range, avoid: int | None) -> int | None:
        missing = (each for each in workers if each not in self.by_worker and each != avoid)
        return next(missing, None)

    # --- the marks: writing -----------------------------------------------------------

    def save_lent(self, mark: Mark, *, is_new: bool) -> None:  # noqa: ARG002
        self._save_seen(mark)
        self.lent_us[mark.worker] = self.read_at.registry_us

    def save_renewed(self, mark: Mark) -> None:
        self._save_seen(mark)

    def save_released(self, mark: Mark) -> None:
        self._save_seen(mark)

    def _save_seen(self, mark: Mark) -> None:
        # Last, so that the dictionary is in the order of use.
        self.by_worker.pop(mark.worker, None)
        self.by_worker[mark.worker] = mark
        self.seen_us[mark.worker] = self.read_at.registry_us

    def save_end(self, mark: Mark) -> None:
        self.by_worker[mark.worker] = mark  # keeps its place in the order

    def void(self, worker: int, token: str) -> bool:
        mark = self.by_worker.get(worker)
        if mark is None or not token or mark.token != token:
            return False
        self.save_end(replace(mark, token=""))
        return True

    def restart_marks(self, workers: range, fence: int) -> None:
        for mark in list(self.by_worker.values()):
            if mark.worker in workers:
                self.save_end(replace(mark, token="", start=fence, until=fence))
            else:
                del self.by_worker[mark.worker]

    def lower_marks(self, fence: int) -> None:
        for mark in list(self.by_worker.values()):
            start, until = min(mark.start, fence), min(mark.until, fence)
            self.save_end(replace(mark, token="", start=start, until=until))
