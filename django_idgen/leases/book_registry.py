"""The registry over a book in any store. Registries of other projects import it from here."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ..core import book as rules
from ..core.book import Book
from ..core.inspection import InspectedMark, Inspection
from ..core.lease import LONGEST_HOLDER, Grant, Lease, Namespace
from ..core.registry import Registry
from ..core.store import Store, StoredBook, acquire_in, read_clock, release_in, renew_in

__all__ = ["BookRegistry", "Store", "read_clock"]


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
        return None if self.store.key is None else StoredBook(self.namespace, self.store)

    # --- its life -------------------------------------------------------------------

    def ping(self) -> None:
        """Check the connection. Raises :class:`RegistryUnavailable`."""
        self.store.ping()

    def abandon(self) -> None:
        self.store.abandon()
