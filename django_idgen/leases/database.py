"""Worker ids lent by the project's own database: the default registry.

Works on any Django database. The marks are rows of our tables, written on our own connection.
For an in-memory database, and in a test that forbids the database, they are in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ..core.clock import SYSTEM_CLOCK, Clock
from ..core.errors import LeaseLost
from ..core.lease import Grant, Lease, Namespace
from ..core.options import check_flag, check_seconds, numbered_worker
from ..core.store import Store, acquire_in, release_in, renew_in
from ..db.connection import Place, Stores, kept_in_process, own_connection
from ..db.sqlite import database_of
from .book_registry import BookRegistry
from .memory import MemoryMarks, MemoryStore
from .server import ServerStore


class DatabaseLeases(BookRegistry):
    """A registry in the database ``database`` (an alias of ``DATABASES``). Thread-safe.

    ``timeout`` (seconds) bounds each call to a server. With ``server_identity``
    the marks record the server's identity. A server that takes
    over may have missed the last writes; it lends nothing that
    its predecessor may have lent. Turn it off behind a balancer over several writable
    nodes, whose identity changes with each connection. ``prefer``: the worker id that a
    process gets if it is free, see :func:`.options.numbered_worker`.
    """

    uses_database = True
    database: str

    def __init__(
        self,
        namespace: Namespace,
        *,
        database: str = "default",
        timeout: float = 10.0,
        server_identity: bool = True,
        prefer: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if prefer is not None:
            worker = numbered_worker("prefer", prefer, namespace.workers)
            namespace = replace(namespace, preferred=worker)
        self.namespace = namespace
        self.database = database
        self._timeout = check_seconds("timeout", timeout, most=3600)
        self._server_identity = check_flag("server_identity", server_identity)
        self._lends_on = False
        self._clock = clock
        self._stores: Stores[Store] = Stores(database, self._make)
        self._lenders: dict[int, tuple[str, Store]] = {}
        """By worker id: the last token, and the store that lent it."""

    @property
    def store(self) -> Store:  # type: ignore[override]
        """The store of the database that the alias now means to the calling thread."""
        return self._stores.current()

    def acquire(self, *, holder: str, not_before: int = 0, avoid: int | None = None) -> Grant:
        store = self.store
        grant = acquire_in(store, self.namespace, holder=holder, not_before=not_before, avoid=avoid)
        self._lenders[grant.lease.worker] = grant.lease.token, store
        return grant

    def renew(self, lease: Lease, *, last_tick: int) -> Grant:
        store = self._lender_of(lease) or self.store
        if store.ends_with_process or self._stores.is_current(store):
            return renew_in(store, self.namespace, lease, last_tick=last_tick)
        raise LeaseLost(
            f"Database {self.database!r} is no longer the server that lent worker id "
            f"{lease.worker} of namespace {self.namespace.name!r}."
        )

    def release(self, lease: Lease, *, last_tick: int | None) -> bool:
        store = self._lender_of(lease) or self.store
        if not self._may_touch(store):
            return False
        return release_in(store, self.namespace, lease, last_tick=last_tick)

    def lend_on(self) -> None:
        self._lends_on = True

    def probes(self) -> Mapping[str, Callable[[], None]]:
        return {f"database {self.database}": self.ping}

    def abandon(self) -> None:
        """Drop what a forked child inherited."""
        self._lenders = {}
        self._stores.reset()
        for store in self._stores.all():
            store.abandon()

    def _lender_of(self, lease: Lease) -> Store | None:
        token, store = self._lenders.get(lease.worker, (None, None))
        return store if token == lease.token else None

    def _may_touch(self, store: Store) -> bool:
        # The alias may mean another database now: a test's was dropped.
        if store.ends_with_process:
            return True
        database = database_of(self.database)
        return self._stores.is_current(store) and (database is None or database.exists())

    def _make(self, place: Place) -> Store:
        store = store_in(
            self.database,
            place,
            self.namespace,
            # Another layout may start over there: nothing outlives the process.
            memory=str(self.namespace.fingerprint),
            timeout=self._timeout,
            server_identity=self._server_identity,
            clock=self._clock,
        )
        if self._lends_on:
            store.lend_on()
        return store


def store_in(
    database: str,
    place: Place,
    namespace: Namespace,
    *,
    memory: str,
    timeout: float,
    server_identity: bool,
    clock: Clock,
    read_now_us: Callable[[], int] | None = None,
) -> Store:
    """The store of the book of ``namespace`` in ``database``, which is in ``place``.

    ``memory`` names marks that are in this process. For the other options see
    :class:`DatabaseLeases`. ``read_now_us`` replaces the store's clock (µs since 1970).
    """
    if place.in_process:
        marks = kept_in_process(database, place, memory, make=MemoryMarks)
        return MemoryStore(namespace.name, marks, clock, read_now_us)
    return ServerStore(
        namespace.name,
        own_connection(database),
        timeout=timeout,
        server_identity=server_identity,
        clock=clock,
        read_now=None if read_now_us is None else lambda _connection: read_now_us(),
    )
