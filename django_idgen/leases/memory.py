"""Worker ids lent in the memory of one process: for tests and in-memory databases.

A forked child has a copy, and knows nothing of what its parent lends later: ids
made in two processes can repeat, which is harmless only where, as with an
in-memory database, they never meet.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from ..core.clock import SYSTEM_CLOCK, Clock, Reading
from ..core.holder import identity_of
from ..core.lease import Grant, Lease, Mark, Namespace, is_free
from ..core.lending import Record, extend, extend_seen, held_by, lend, rename_holders, take_back
from .book_oversight import BookOversight, OverseenBook, Term

__all__ = ["MemoryBook", "MemoryLeases", "MemoryMarks"]

T = TypeVar("T")

MOST_TERMS = 100
"""Of those who held a worker id so many are remembered."""


class MemoryMarks:
    """The marks of any number of namespaces. Pass one to all that share worker ids."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.books: dict[str, MemoryBook] = {}

    def book(self, namespace: str) -> MemoryBook:
        return self.books.setdefault(namespace, MemoryBook())


class MemoryLeases:
    """A registry within this process. Thread-safe; never waits for I/O.

    Registries with the same ``marks`` lend from one pool of worker ids; without
    it a registry has marks of its own. ``read_now_us`` gives the registry's time
    in microseconds since 1970; it is the host's wall clock unless told. With ``history``
    it is remembered who was lent which worker id.
    """

    def __init__(
        self,
        namespace: Namespace,
        *,
        marks: MemoryMarks | None = None,
        history: bool = True,
        clock: Clock = SYSTEM_CLOCK,
        read_now_us: Callable[[], int] | None = None,
    ) -> None:
        self.namespace = namespace
        self._marks = marks or MemoryMarks()
        self._history = history
        self._clock = clock
        self._read_now_us = read_now_us or (lambda: clock.wall_ns() // 1000)

    def acquire(self, *, holder: str, not_before: int = 0, avoid: int | None = None) -> Grant:
        """See :meth:`LeaseRegistry.acquire`."""
        with self._marks.lock:
            reading = self._read()
            lease = lend(
                self._book(reading),
                self.namespace,
                now=self.namespace.tick_at(reading.registry_us),
                holder=holder,
                not_before=not_before,
                avoid=avoid,
            )
        return Grant(lease, reading)

    def renew(self, lease: Lease, *, last_tick: int) -> Grant:
        """See :meth:`LeaseRegistry.renew`."""
        with self._marks.lock:
            reading = self._read()
            lease = extend(
                self._book(reading),
                self.namespace,
                lease,
                now=self.namespace.tick_at(reading.registry_us),
                last_tick=last_tick,
            )
        return Grant(lease, reading)

    def release(self, lease: Lease, *, last_tick: int | None) -> bool:
        """See :meth:`LeaseRegistry.release`."""
        with self._marks.lock:
            book = self._book(self._read())
            return take_back(book, self.namespace, lease, last_tick=last_tick)

    def held_by(self, holder: str) -> list[Lease]:
        """The leases that stand in ``holder``'s name, lapsed or not; the earliest first."""
        with self._marks.lock:
            return held_by(self._book(self._read()), self.namespace, holder)

    def rename_holders(self, rename: Callable[[str], str | None]) -> int:
        """See :meth:`DatabaseLeases.rename_holders`."""
        with self._marks.lock:
            reading = self._read()
            now = self.namespace.tick_at(reading.registry_us)
            return rename_holders(self._book(reading), self.namespace, now=now, rename=rename)

    def renew_seen(self, *, idle_after: float) -> int:
        """See :meth:`LeaseRegistry.renew_seen`."""
        with self._marks.lock:
            reading = self._read()
            return extend_seen(
                self._book(reading),
                self.namespace,
                now=self.namespace.tick_at(reading.registry_us),
                since_us=reading.registry_us - int(idle_after * 1e6),
            )

    def oversight(self) -> BookOversight:
        """For those who look into it, and after it."""
        return _MemoryOversight(self)

    def clear(self) -> None:
        """Delete the row of every worker id, as somebody might in a database."""
        with self._marks.lock:
            self._marks.book(self.namespace.name).marks.clear()

    def abandon(self) -> None:
        """In a forked child: another thread of the parent may have held the lock."""
        self._marks.lock = threading.Lock()

    def close(self) -> None:
        """Nothing to free."""

    def _book(self, reading: Reading) -> MemoryBook:
        book = self._marks.book(self.namespace.name)
        book.now_us = reading.registry_us
        book.history = self._history
        return book

    def _read(self) -> Reading:
        sent = self._clock.elapsed_ns()
        now = self._read_now_us()
        return Reading(now, sent, self._clock.elapsed_ns())


class _MemoryOversight(BookOversight):
    def __init__(self, leases: MemoryLeases) -> None:
        place = f"memory {id(leases._marks):x}"
        super().__init__(leases.namespace, leases._read_now_us, place=place)
        self._leases = leases

    def _run(self, job: Callable[[OverseenBook], T]) -> T | None:
        leases = self._leases
        with leases._marks.lock:
            return job(leases._book(leases._read()))


class MemoryBook:
    """A :class:`LeaseBook`; its owner holds the lock."""

    def __init__(self) -> None:
        self.marks: dict[int, Mark] = {}
        self.now_us = 0
        """When the holder of a mark that is saved now was seen, µs since 1970."""
        self.history = False
        self._seen: dict[int, int] = {}
        self._lent: dict[int, int] = {}
        self._terms: dict[int, deque[Term]] = {}
        self._record: Record | None = None
        self._generation = 0

    def record(self) -> Record | None:
        return self._record

    def save_record(self, record: Record) -> None:
        self._record = record

    def was_opened(self) -> bool:
        return bool(self.marks)

    def next_generation(self) -> int:
        self._generation += 1
        return self._generation

    def count(self) -> int:
        return len(self.marks)

    def highest_until(self) -> int:
        return max((mark.until for mark in self.marks.values()), default=0)

    def mark(self, worker: int) -> Mark | None:
        return self.marks.get(worker)

    def save_mark(self, mark: Mark) -> None:
        # Put last, so that the order of the dictionary is the order of use.
        self.marks.pop(mark.worker, None)
        self.marks[mark.worker] = mark
        self._seen[mark.worker] = self.now_us

    def save_end(self, mark: Mark) -> None:
        self.marks[mark.worker] = mark  # keeps its place in the order

    def seen(self, since_us: int) -> Sequence[Mark]:
        return [mark for mark in self.marks.values() if self._seen[mark.worker] >= since_us]

    def held(self, now: int, generation: int, by: int) -> Collection[int]:
        return {
            mark.worker
            for mark in self.marks.values()
            if (mark.generation == generation and not is_free(mark, now)) or mark.until > by
        }

    def previous(self, holder: str) -> Sequence[int]:
        who = identity_of(holder)
        marks = reversed(self.marks.values())
        return [mark.worker for mark in marks if identity_of(mark.holder) == who]

    def note_lent(self, mark: Mark) -> None:
        self._lent[mark.worker] = self.now_us
        if self.history:
            terms = self._terms.setdefault(mark.worker, deque(maxlen=MOST_TERMS))
            terms.append((mark.start, mark.holder, self.now_us))

    def sightings(self) -> Iterable[tuple[Mark, int, int | None]]:
        for mark in self.marks.values():
            yield mark, self._seen.get(mark.worker, 0), self._lent.get(mark.worker)

    def void(self, worker: int) -> bool:
        mark = self.marks.get(worker)
        if mark is None or not mark.token:
            return False
        self.marks[worker] = replace(mark, token="")  # keeps its place in the order
        return True

    def term(self, worker: int, tick: int) -> Term | None:
        terms = reversed(self._terms.get(worker, ()))
        return next((term for term in terms if term[0] <= tick), None)
