"""Worker ids lent by the project's own database: the default registry.

Works on any Django database. On a server the marks are rows of ours, written on
a connection of our own; see :mod:`..db.stores` for SQLite and for tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..core.clock import SYSTEM_CLOCK, Clock, Reading
from ..core.errors import LeaseLost
from ..core.lease import Grant, Lease, LeaseRegistry, Namespace
from ..core.ledger import Ledger
from ..core.survey import Overseen
from ..db.connection import Place, place_of
from ..db.stores import Stores, caller_of, kept_in_process, marks_of, mirror_of
from .ledger_places import ledgers_in
from .memory import MemoryLeases, MemoryMarks
from .option_values import checked_flag, checked_seconds
from .server import ServerLeases
from .sqlite import SqliteLeases

__all__ = ["DatabaseLeases"]


class DatabaseLeases:
    """A registry in the database ``database`` (an alias of ``DATABASES``). Thread-safe.

    ``timeout`` (seconds) bounds each call to a server. With ``server_identity``
    the identity of the server is kept with the marks, and a server that took
    over from another (which may have missed its last writes) lends nothing that
    the other may have lent; turn it off behind a balancer over several writable
    nodes, whose identity changes with each connection.
    """

    kind = "database"

    def __init__(
        self,
        namespace: Namespace,
        *,
        database: str = "default",
        timeout: float = 10.0,
        server_identity: bool = True,
        history: bool = True,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.namespace = namespace
        self.database = database
        self._timeout = checked_seconds("timeout", timeout, most=3600)
        self._server_identity = checked_flag("server_identity", server_identity)
        self._history = checked_flag("history", history)
        self._lends_on = False
        self._clock = clock
        self._stores: Stores[LeaseRegistry] = Stores(database, self._make)
        self._lenders: dict[int, tuple[str, LeaseRegistry]] = {}
        """By worker id, of which there are only so many: the last token, and who lent it."""

    def acquire(self, *, holder: str, not_before: int = 0, avoid: int | None = None) -> Grant:
        """See :meth:`LeaseRegistry.acquire`."""
        store = self._stores.current()
        grant = store.acquire(holder=holder, not_before=not_before, avoid=avoid)
        self._lenders[grant.lease.worker] = grant.lease.token, store
        self._sync(store)
        return grant

    def renew(self, lease: Lease, *, last_tick: int) -> Grant:
        """See :meth:`LeaseRegistry.renew`."""
        store = self._lender_of(lease)
        if store is None or isinstance(store, MemoryLeases) or self._stores.is_current(store):
            return (store or self._stores.current()).renew(lease, last_tick=last_tick)
        if self._is_forbidden() and last_tick < lease.until:
            # A test that may not touch the lender: the window stays as it is.
            sent = self._clock.elapsed_ns()
            return Grant(lease, Reading(self._clock.wall_ns() // 1000, sent, sent))
        raise LeaseLost(
            f"Database {self.database!r} is not the one any more that lent worker id "
            f"{lease.worker} of namespace {self.namespace.name!r}."
        )

    def release(self, lease: Lease, *, last_tick: int | None) -> bool:
        """See :meth:`LeaseRegistry.release`."""
        store = self._lender_of(lease) or self._stores.current()
        if not self._may_touch(store):
            return False
        known = store.release(lease, last_tick=last_tick)
        self._sync(store)
        return known

    def held_by(self, holder: str) -> list[Lease]:
        """The leases that stand in ``holder``'s name, lapsed or not; the earliest first.

        For those who lend on, and know their borrowers by name alone. Raises
        :class:`RegistryUnavailable`.
        """
        store: Any = self._stores.current()
        found: list[Lease] = store.held_by(holder)
        return found

    def rename_holders(self, rename: Callable[[str], str | None]) -> int:
        """Give holders of what is held the label that ``rename`` says (None: leave it); how many.

        Raises :class:`RegistryUnavailable`.
        """
        store: Any = self._stores.current()
        count: int = store.rename_holders(rename)
        self._sync(store)
        return count

    def renew_seen(self, *, idle_after: float) -> int:
        """See :meth:`LeaseRegistry.renew_seen`."""
        return self._stores.current().renew_seen(idle_after=idle_after)

    def lend_on(self) -> None:
        """From now on whoever asks does so for another: this host's clock is not the holder's."""
        self._lends_on = True

    def oversight(self) -> Overseen:
        """For those who look into it, and after it."""
        store: Any = self._stores.current()
        if isinstance(store, SqliteLeases):
            return store.oversight(changed=lambda: self._sync(store), place=self.database)
        overseen: Overseen = store.oversight()
        return overseen

    def ledgers(self) -> list[Ledger]:
        """What is stored of the namespace, for those who change its settings."""
        return [
            *ledgers_in(
                self.namespace,
                self.database,
                timeout=self._timeout,
                server_identity=self._server_identity,
                clock=self._clock,
            )
        ]

    def probes(self) -> Mapping[str, Callable[[], None]]:
        """What raises unless the database answers, by its name."""
        return {f"database {self.database}": self._ping}

    def _ping(self) -> None:
        store = self._stores.current()
        if isinstance(store, (SqliteLeases, ServerLeases)):
            store.ping()

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

    def _lender_of(self, lease: Lease) -> LeaseRegistry | None:
        token, store = self._lenders.get(lease.worker, (None, None))
        return store if token == lease.token else None

    def _may_touch(self, store: LeaseRegistry) -> bool:
        # The alias may mean another database by now (a test's was dropped), or none
        # that this test may use.
        if isinstance(store, SqliteLeases):
            return mirror_of(store.marks).database.exists()
        return isinstance(store, MemoryLeases) or self._stores.is_current(store)

    def _is_forbidden(self) -> bool:
        return place_of(self.database) is Place.FORBIDDEN

    def _make(self, place: Place) -> LeaseRegistry:
        if place.in_process:
            # Other layouts were always free to begin anew there: nothing outlives a process.
            layout = str(self.namespace.fingerprint)
            marks_here = kept_in_process(self.database, place, layout, make=MemoryMarks)
            return MemoryLeases(
                self.namespace, marks=marks_here, history=self._history, clock=self._clock
            )
        if place is Place.FILE:
            marks = marks_of(self.database)
            return SqliteLeases(
                self.namespace, marks=marks, history=self._history, clock=self._clock
            )
        made = ServerLeases(
            self.namespace,
            alias=self.database,
            timeout=self._timeout,
            clock=self._clock,
            server_identity=self._server_identity,
            history=self._history,
        )
        if self._lends_on:
            made.lend_on()
        return made

    def _sync(self, store: LeaseRegistry) -> None:
        if isinstance(store, SqliteLeases):
            mirror = mirror_of(store.marks)
            mirror.leases_changed()
            mirror.catch_up(caller_of(self.database, mirror))
