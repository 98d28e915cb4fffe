"""Where a book is kept, and what a registry does with one: each call is one transaction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

from . import book as rules
from .book import Book, Record
from .clock import Clock, Reading
from .lease import LONGEST_HOLDER, Grant, Lease, Namespace
from .stored import Change, Claim, Era, Stored, namespace_of

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


def read_clock(clock: Clock, read_now_us: Callable[[], int]) -> Reading:
    """The time from ``read_now_us``, with the times of ``clock`` before and after."""
    sent = clock.elapsed_ns()
    now = read_now_us()
    return Reading(now, sent, clock.elapsed_ns())


class StoredBook:
    """What ``store`` has of ``namespace``, for the doctor and its commands. Thread-safe."""

    def __init__(self, namespace: Namespace, store: Store) -> None:
        self.namespace = namespace
        """As it is configured."""
        self.place = store.described
        """Where it is, for messages: ``database 'default'``."""
        self.key: tuple[str, ...] = (*(store.key or ()), namespace.name)
        """Its kind, place and name; two objects of one book have the same."""
        self._store = store

    def read(self, *, lead: bool = False) -> Stored | None:
        """The content, or None; makes and mends nothing. With its lead, if asked for: slow.

        Raises :class:`RegistryUnavailable`.
        """

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
        """Replace the content in one transaction, and return the new one.

        Mends a loss first, as an acquire would. Raises what ``change`` raises,
        :class:`RegistryUnavailable` (it may be done), and :class:`NamespaceMismatch` if another
        process changed it first.
        """
        space = self._reaching(self._as_stored(self._store.read(lambda book: book.record())))
        stored = self._store.rewrite(lambda book: rules.rewrite(book, space, change))
        self._store.changed()
        return stored

    def claim(self, take: Claim) -> Era:
        """Take ticks of the past in one transaction: see :func:`.book.claim`.

        Raises what ``take`` raises, :class:`RegistryUnavailable` (it may be done), and
        :class:`NamespaceMismatch`.
        """
        space = self._reaching(self.namespace)
        return self._store.run(lambda book: rules.claim(book, space, take))

    def _reaching(self, namespace: Namespace) -> Namespace:
        """``namespace`` with the largest window to reckon with where a call mends a loss."""
        return namespace

    def installation(self) -> str:
        """The installation's identity, the same in all replicas; empty if it has none."""
        return self._store.read(lambda book: book.installation) or ""

    def entered(self) -> bool:
        """Whether the registry outside of the database has these settings: see :meth:`enter`."""
        return True

    def is_whole(self) -> bool:
        """Whether the registry outside of the database still has its sub-lease.

        Raises :class:`RegistryUnavailable`.
        """
        return True

    def enter(self) -> None:
        """Make the registry outside of the database begin anew with the stored settings."""
