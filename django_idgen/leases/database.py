"""Worker ids lent by the project's own database: the default registry.

Works on any Django database. The marks are rows of our tables, written on a connection of
our own; see :mod:`..db.stores` for in-memory databases and for tests.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from ..core.clock import SYSTEM_CLOCK, Clock, Reading
from ..core.errors import LeaseLost
from ..core.inspection import Inspection, PastLease
from ..core.lease import Grant, Lease, Namespace
from ..core.options import checked_flag, checked_seconds, numbered_worker
from ..core.registry import Registry
from ..core.stored import StoredBook
from ..db.connection import Place, place_of
from ..db.sqlite import database_of
from ..db.stores import Stores, kept_in_process
from .book_registry import BookRegistry
from .memory import MemoryLeases, MemoryMarks
from .server import ServerLeases

__all__ = ["DatabaseLeases", "book_in"]


class DatabaseLeases(Registry):
    """A registry in the database ``database`` (an alias of ``DATABASES``). Thread-safe.

    ``timeout`` (seconds) bounds each call to a server. With ``server_identity``
    the identity of the server is kept with the marks, and a server that took
    over from another (which may have missed its last writes) lends nothing that
    the other may have lent; turn it off behind a balancer over several writable
    nodes, whose identity changes with each connection. ``prefer`` says which worker id a
    process is to have if it is free: see :func:`.options.numbered_worker`.
    """

    kind = "database"
    uses_database = True
    knows_holders = True
    database: str

    def __init__(
        self,
        namespace: Namespace,
        *,
        database: str = "default",
        timeout: float = 10.0,
        server_identity: bool = True,
        history: bool = True,
        prefer: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if prefer is not None:
            worker = numbered_worker("prefer", prefer, namespace.workers)
            namespace = replace(namespace, preferred=worker)
        self.namespace = namespace
        self.database = database
        self._timeout = checked_seconds("timeout", timeout, most=3600)
        self._server_identity = checked_flag("server_identity", server_identity)
        self._history = checked_flag("history", history)
        self._lends_on = False
        self._clock = clock
        self._stores: Stores[BookRegistry] = Stores(database, self._make)
        self._lenders: dict[int, tuple[str, BookRegistry]] = {}
        """By worker id, of which there are only so many: the last token, and who lent it."""

    def acquire(self, *, holder: str, not_before: int = 0, avoid: int | None = None) -> Grant:
        """See :meth:`Registry.acquire`."""
        store = self._stores.current()
        grant = store.acquire(holder=holder, not_before=not_before, avoid=avoid)
        self._lenders[grant.lease.worker] = grant.lease.token, store
        return grant

    def renew(self, lease: Lease, *, last_tick: int) -> Grant:
        """See :meth:`Registry.renew`."""
        store = self._lender_of(lease)
        if store is None or isinstance(store, MemoryLeases) or self._stores.is_current(store):
            return (store or self._stores.current()).renew(lease, last_tick=last_tick)
        if self._is_forbidden() and last_tick < lease.until:
            # A test that may not touch the database: the window stays as it is.
            sent = self._clock.elapsed_ns()
            return Grant(lease, Reading(self._clock.wall_ns() // 1000, sent, sent))
        raise LeaseLost(
            f"Database {self.database!r} is not the one any more that lent worker id "
            f"{lease.worker} of namespace {self.namespace.name!r}."
        )

    def release(self, lease: Lease, *, last_tick: int | None) -> bool:
        """See :meth:`Registry.release`."""
        store = self._lender_of(lease) or self._stores.current()
        if not self._may_touch(store):
            return False
        return store.release(lease, last_tick=last_tick)

    def held_by(self, holder: str) -> list[Lease]:
        """The leases that stand in ``holder``'s name, expired or not; the earliest first.

        For a service that lends on, and knows its holders by name alone. Raises
        :class:`RegistryUnavailable`.
        """
        return self._stores.current().held_by(holder)

    def rename_holders(self, rename: Callable[[str], str | None]) -> int:
        """Give holders of what is held the label that ``rename`` says (None: leave it); how many.

        Raises :class:`RegistryUnavailable`.
        """
        return self._stores.current().rename_holders(rename)

    def renew_seen(self, *, idle_after: float) -> int:
        """See :meth:`Registry.renew_seen`."""
        return self._stores.current().renew_seen(idle_after=idle_after)

    def lend_on(self) -> None:
        """From now on callers ask for other processes: this host's clock is not the holder's."""
        self._lends_on = True

    def inspect(self, workers: Collection[int] | None = None) -> Sequence[Inspection]:
        """See :meth:`Registry.inspect`."""
        return self._stores.current().inspect(workers)

    def free(self, worker: int, lease: str | None = None) -> bool:
        """See :meth:`Registry.free`."""
        return self._stores.current().free(worker, lease)

    def past_lease(self, worker: int, tick: int) -> PastLease | None:
        """See :meth:`Registry.past_lease`."""
        return self._stores.current().past_lease(worker, tick)

    def books(self) -> Sequence[StoredBook]:
        """See :meth:`Registry.books`."""
        return self._stores.current().books()

    def probes(self) -> Mapping[str, Callable[[], None]]:
        """What raises unless the database answers, by its name."""
        return {f"database {self.database}": self._ping}

    def _ping(self) -> None:
        self._stores.current().ping()

    def abandon(self) -> None:
        """Drop what a forked child inherited."""
        self._lenders = {}
        self._stores.reset()
        for store in self._stores.all():
            store.abandon()

    def close(self) -> None:
        """Free local resources. May be called twice."""
        for store in self._stores.all():
            store.close()

    def _lender_of(self, lease: Lease) -> BookRegistry | None:
        token, store = self._lenders.get(lease.worker, (None, None))
        return store if token == lease.token else None

    def _may_touch(self, store: BookRegistry) -> bool:
        # The alias may mean another database by now (a test's was dropped), or none
        # that this test may use.
        if isinstance(store, MemoryLeases):
            return True
        database = database_of(self.database)
        return self._stores.is_current(store) and (database is None or database.exists())

    def _is_forbidden(self) -> bool:
        return place_of(self.database) is Place.FORBIDDEN

    def _make(self, place: Place) -> BookRegistry:
        made = book_in(
            self.database,
            place,
            self.namespace,
            # Other layouts were always free to begin anew there: nothing outlives a process.
            memory=str(self.namespace.fingerprint),
            timeout=self._timeout,
            server_identity=self._server_identity,
            history=self._history,
            clock=self._clock,
        )
        if self._lends_on:
            made.lend_on()
        return made


def book_in(
    database: str,
    place: Place,
    namespace: Namespace,
    *,
    memory: str,
    timeout: float,
    server_identity: bool,
    clock: Clock,
    history: bool = False,
    read_now_us: Callable[[], int] | None = None,
) -> BookRegistry:
    """The registry over the book of ``namespace`` in ``database``, which is in ``place``.

    ``memory`` names the marks where they stand in this process. The other options are those
    of :class:`DatabaseLeases`; ``read_now_us`` gives the time in µs since 1970 instead of
    the store's clock.
    """
    if place.in_process:
        marks = kept_in_process(database, place, memory, make=MemoryMarks)
        return MemoryLeases(
            namespace, marks=marks, history=history, clock=clock, read_now_us=read_now_us
        )
    return ServerLeases(
        namespace,
        alias=database,
        timeout=timeout,
        clock=clock,
        server_identity=server_identity,
        history=history,
        read_now=None if read_now_us is None else lambda _connection: read_now_us(),
    )
