"""Worker ids for tests that forbid the database, as Django and pytest-django let them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ..core.book import lost
from ..core.clock import SYSTEM_CLOCK, Reading
from ..core.inspection import Inspection
from ..core.lease import Grant, Lease
from ..core.registry import Registry
from ..core.store import StoredBook
from ..db.connection import Place, kept_in_process, place_of
from .memory import MemoryLeases, MemoryMarks


class UnlessForbidden(Registry):
    """``registry``; while a test forbids its database, one in memory. Thread-safe.

    Meanwhile a lease of ``registry`` is not renewed and not given back: it can be used to its end.
    """

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.namespace = registry.namespace
        self.database: str = str(registry.database)
        self.lent = registry.lent
        self.knows_holders = registry.knows_holders
        # Two generators of one namespace must not both lend worker id 0.
        which = str(registry.namespace.fingerprint)
        marks = kept_in_process(self.database, Place.FORBIDDEN, which, make=MemoryMarks)
        self._memory = MemoryLeases(registry.namespace, marks=marks)
        self._in_memory: set[str] = set()

    def acquire(self, *, holder: str, not_before: int = 0, avoid: int | None = None) -> Grant:
        if not self._is_forbidden():
            return self.registry.acquire(holder=holder, not_before=not_before, avoid=avoid)
        grant = self._memory.acquire(holder=holder, not_before=not_before, avoid=avoid)
        self._in_memory.add(grant.lease.token)
        return grant

    def renew(self, lease: Lease, *, last_tick: int) -> Grant:
        if lease.token in self._in_memory:
            return self._memory.renew(lease, last_tick=last_tick)
        if not self._is_forbidden():
            return self.registry.renew(lease, last_tick=last_tick)
        if last_tick >= lease.until:
            raise lost(lease)
        sent = SYSTEM_CLOCK.elapsed_ns()
        return Grant(lease, Reading(SYSTEM_CLOCK.wall_ns() // 1000, sent, sent))

    def release(self, lease: Lease, *, last_tick: int | None) -> bool:
        if lease.token in self._in_memory:
            self._in_memory.discard(lease.token)
            return self._memory.release(lease, last_tick=last_tick)
        return not self._is_forbidden() and self.registry.release(lease, last_tick=last_tick)

    def _is_forbidden(self) -> bool:
        return place_of(self.database) is Place.FORBIDDEN

    # --- the rest -----------------------------------------------------------------

    @property
    def _asked(self) -> Registry:
        return self._memory if self._is_forbidden() else self.registry

    def renew_seen(self, *, idle_after: float) -> int:
        return self._asked.renew_seen(idle_after=idle_after)

    def inspect(self, workers: Collection[int] | None = None) -> Inspection:
        return self._asked.inspect(workers)

    def free(self, worker: int, lease: str | None = None) -> bool:
        return self._asked.free(worker, lease)

    def held_by(self, holder: str) -> list[Lease]:
        return self._asked.held_by(holder)

    def stored_book(self) -> StoredBook | None:
        return self._asked.stored_book()

    def end_of(self, lease: Lease) -> int:
        return self.registry.end_of(lease)

    def lend_on(self) -> None:
        self.registry.lend_on()

    def installation(self) -> str | None:
        return self.registry.installation()

    def check_access(self) -> None:
        self.registry.check_access()

    def probes(self) -> Mapping[str, Callable[[], None]]:
        return self.registry.probes()

    def abandon(self) -> None:
        self._in_memory = set()
        self._memory.abandon()
        self.registry.abandon()

    def close(self) -> None:
        self.registry.close()
