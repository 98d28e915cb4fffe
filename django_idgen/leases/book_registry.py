"""The registry over a book in any store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

from ..core import book as rules
from ..core.book import Book, Record
from ..core.clock import Clock, Reading
from ..core.inspection import InspectedMark, Inspection
from ..core.lease import LONGEST_HOLDER, Grant, Lease, Namespace
from ..core.registry import Registry
from ..core.stored import Change, Stored, StoredBook, namespace_of

T = TypeVar("T")


class Store(ABC):
    """Where the book of one namespace is kept. Thread-safe.

    Every method raises :class:`RegistryUnavailable` where the store does not answer.
    """

    place: str
    """Its name in an inspection, such as the alias of its database."""
    key: tuple[str, str] | None = None
    """Its kind and place, equal for equal stores. None if it ends with the process."""
    ends_with_process: bool = False
    described: str = ""
    """Where it is, in messages: ``database 'default'``."""

    @abstractmethod
    def run(self, job: Callable[[Book], T]) -> T:
        """Run ``job`` in one transaction and return its result. An exception undoes it."""

    @abstractmethod
    def run_if_there(self, job: Callable[[Book], T]) -> T | None:
        """Like :meth:`run`, but makes no tables or files: None where nothing is kept yet."""

    def read(self, job: Callable[[Book], T]) -> T | None:
        """Run a ``job`` that only reads; None where nothing is kept yet."""
        return self.run_if_there(job)

    def rewrite(self, job: Callable[[Book], T]) -> T:
        """Run a ``job`` that replaces the settings of all worker ids."""
        return self.run(job)

    @abstractmethod
    def now_us(self) -> int:
        """The store's clock, µs since 1970."""

    def changed(self) -> None:
        """Called after a change of a mark by this process."""

    def lend_on(self) -> None:
        """From now on holders are other hosts, with other clocks."""

    def ping(self) -> None:
        """Check the connection. Raises :class:`RegistryUnavailable`."""

    def abandon(self) -> None:
        """Drop what a forked child inherited."""


def acquire_in(
    store: Store,
    namespace: Namespace,
    *,
    holder: str,
    not_before: int = 0,
    avoid: int | None = None,
) -> Grant:
    """See :meth:`Registry.acquire`."""

    def job(book: Book) -> Grant:
        label = holder[:LONGEST_HOLDER]
        lease = rules.lend(book, namespace, holder=label, not_before=not_before, avoid=avoid)
        return Grant(lease, book.reading)

    grant = store.run(job)
    store.changed()
    return grant


def renew_in(store: Store, namespace: Namespace, lease: Lease, *, last_tick: int) -> Grant:
    """See :meth:`Registry.renew`."""

    def job(book: Book) -> tuple[Lease | None, Reading]:
        return rules.extend(book, namespace, lease, last_tick=last_tick), book.reading

    extended, reading = store.run(job)
    if extended is None:
        raise rules.lost(lease)
    return Grant(extended, reading)


def release_in(store: Store, namespace: Namespace, lease: Lease, *, last_tick: int | None) -> bool:
    """See :meth:`Registry.release`."""
    # Without the namespace's lock: a fleet that ends at once would queue for it. The next
    # acquire notices a loss.
    known = store.run(lambda book: rules.take_back(book, namespace, lease, last_tick=last_tick))
    store.changed()
    return known


class BookRegistry(Registry):
    """Lends the worker ids of ``namespace`` by the book that ``store`` keeps. Thread-safe."""

    kind = "database"
    knows_holders = True

    def __init__(self, namespace: Namespace, store: Store) -> None:
        self.namespace = namespace
        self.store = store

    def acquire(self, *, holder: str, not_before: int = 0, avoid: int | None = None) -> Grant:
        asked: dict[str, Any] = {"holder": holder, "not_before": not_before, "avoid": avoid}
        return acquire_in(self.store, self.namespace, **asked)

    def renew(self, lease: Lease, *, last_tick: int) -> Grant:
        return renew_in(self.store, self.namespace, lease, last_tick=last_tick)

    def release(self, lease: Lease, *, last_tick: int | None) -> bool:
        return release_in(self.store, self.namespace, lease, last_tick=last_tick)

    def renew_seen(self, *, idle_after: float) -> int:
        return self.store.run(
            lambda book: rules.extend_seen(book, self.namespace, idle_after=idle_after)
        )

    def lend_on(self) -> None:
        self.store.lend_on()

    # --- inspection -----------------------------------------------------------------

    def inspect(self, workers: Collection[int] | None = None) -> Inspection:
        def job(book: Book) -> tuple[int, Sequence[InspectedMark]]:
            return book.reading.registry_us, rules.inspect(book, workers)

        found = self.store.run_if_there(job)
        now_us, marks = (self.store.now_us(), ()) if found is None else found
        place, kind = self.store.place, self.kind or "database"
        return Inspection(kind, self.namespace, now_us, marks, self.lent, place=place)

    def free(self, worker: int, lease: str | None = None) -> bool:
        """See :meth:`Registry.free`.

        Without the namespace's lock: a renewal under way may still raise the mark. Its holder
        stays below the window of the next holder, too.
        """
        freed = self.store.run_if_there(lambda book: rules.free_by_hand(book, worker, lease))
        if freed:
            self.store.changed()
        return bool(freed)

    def held_by(self, holder: str) -> list[Lease]:
        label = holder[:LONGEST_HOLDER]
        return self.store.run(lambda book: rules.held_by(book, self.namespace, label))

    def stored_book(self) -> StoredBook | None:
        return None if self.store.key is None else BookInStore(self.namespace, self.store)

    # --- its life -------------------------------------------------------------------

    def ping(self) -> None:
        """Check the connection. Raises :class:`RegistryUnavailable`."""
        self.store.ping()

    def abandon(self) -> None:
        self.store.abandon()


class BookInStore(StoredBook):
    """The book of ``namespace`` in ``store``."""

    def __init__(self, namespace: Namespace, store: Store) -> None:
        self.namespace = namespace
        self.place = store.described
        self.key = (*(store.key or ()), namespace.name)
        self._store = store

    def read(self, *, lead: bool = False) -> Stored | None:
        def job(book: Book) -> Stored | None:
            record = book.record()
            if record is None:
                return None
            stored = rules.stored_of(book, record)
            return rules.with_lead(stored, book, self._as_stored(record)) if lead else stored

        return self._store.read(job)

    def _as_stored(self, record: Record | None) -> Namespace:
        """The namespace with the settings that are stored."""
        if record is None or not record.fingerprint:
            return self.namespace
        return namespace_of(self.namespace, rules.parsed_fingerprint(record.fingerprint))

    def rewrite(self, change: Change) -> Stored:
        space = self._as_stored(self._store.read(lambda book: book.record()))
        stored = self._store.rewrite(lambda book: rules.rewrite(book, space, change))
        self._store.changed()
        return stored

    def installation(self) -> str:
        return self._store.read(lambda book: book.installation) or ""


def read_clock(clock: Clock, read_now_us: Callable[[], int]) -> Reading:
    """The time from ``read_now_us``, with the times of ``clock`` before and after."""
    sent = clock.elapsed_ns()
    now = read_now_us()
    return Reading(now, sent, clock.elapsed_ns())
