"""The root of a registry that can forget: the book of its namespace in the database (rule L6).

It is where :class:`DatabaseLeases` would store its marks, under the same rule about what the
database itself may have lost (L7): a ceiling or generation that it has forgotten lies below the
fence of the next generation.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..core import book as rules
from ..core.book import Book, SubLease, SubLeaseChange
from ..core.clock import Clock
from ..core.errors import ConfigurationError, RegistryUnavailable
from ..core.lease import Namespace, of_another_version
from ..core.options import check_seconds
from ..core.store import Store, StoredBook
from ..core.stored import Change, Stored, in_ticks, with_highest
from ..db.connection import Stores
from .database import store_in

AFTER_LOSS = ("ahead", "wait")

RETRY_SECONDS = 20.0
"""Pause after the database failed to raise a ceiling that was still high enough."""


class TakenOver(RegistryUnavailable):
    """Another server lends for the namespace now; this one may use up its sub-lease."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What a registry that can forget stores of a namespace."""

    fingerprint: Mapping[str, Any]
    ceiling: int


class SubLessee(ABC):
    """What the root asks of a registry that can forget.

    Each method raises :class:`RegistryUnavailable` if the server does not answer.
    """

    namespace: Namespace
    described: str
    """The server's name in messages, after "the": ``Redis of CACHES['idgen']``."""

    @abstractmethod
    def install(self, sub_lease: SubLease) -> object:
        """Store a sub-lease, unless it has a later one or another life."""

    @abstractmethod
    def restart(self, installation: str, incarnation: str) -> object:
        """Give up the life ``incarnation``, if it still is in it."""

    @abstractmethod
    def kept(self, installation: str) -> Kept | None:
        """What it stores; None for nothing."""

    @abstractmethod
    def enter(self, installation: str, generation: int) -> None:
        """Begin anew with these settings, unless it has ``generation`` or a later one."""

    # --- why it lends nothing -------------------------------------------------

    def unknown_form(self, protocol: object) -> ConfigurationError:
        """Another version of django_idgen wrote what it stores."""
        what = f"Namespace {self.namespace.name!r} in the {self.described}"
        return ConfigurationError(of_another_version(what, protocol))

    def waiting(self, ticks: int) -> RegistryUnavailable:
        """It lost something, and ``after_loss`` is ``"wait"``."""
        return RegistryUnavailable(
            f"The {self.described} lost what it had lent for namespace {self.namespace.name!r}. "
            f"With after_loss='wait' it lends again in {ticks * self.namespace.tick_us / 1e6:.1f} "
            f"s; 'ahead' would go on at once, with ids stamped ahead of the time."
        )

    def exhausted(self, failure: Exception | None) -> RegistryUnavailable:
        """It has lent all that it may, and ``failure`` is why the database gave no more."""
        if isinstance(failure, TakenOver):
            return failure
        return RegistryUnavailable(
            f"The {self.described} has lent all ticks that it may for namespace "
            f"{self.namespace.name!r}, and the database has not lent it more: {failure} (A longer "
            f"'stride' survives a longer outage of the database.)"
        )

    def lost_again(self) -> RegistryUnavailable:
        return RegistryUnavailable(
            f"The {self.described} lost its data of namespace {self.namespace.name!r} several "
            "times in a row. Find out what deletes it, or whether several servers answer at its "
            "address."
        )


class Root:
    """Gets sub-leases for ``lessee`` from the database ``database``. Thread-safe.

    It asks once for the installation of a database. ``stride`` (ticks) is how far ahead it
    raises a ceiling. The other options are those of :class:`RedisLeases`.
    """

    def __init__(
        self,
        lessee: SubLessee,
        database: str,
        *,
        stride: int,
        timeout: float,
        server_identity: bool,
        clock: Clock,
        read_now_us: Callable[[], int] | None = None,
    ) -> None:
        self.database = database
        self.stride = stride
        self._lessee = lessee
        self._clock = clock
        self._make = partial(
            store_in,
            database,
            namespace=lessee.namespace,
            memory="sub-leases",
            timeout=timeout,
            server_identity=server_identity,
            clock=clock,
            read_now_us=read_now_us,
        )
        self._stores: Stores[Store] = Stores(database, lambda place: self._make(place=place))
        self._start_over()

    def _start_over(self) -> None:
        self._installations: dict[Store, str] = {}
        self._not_before_ns = 0

    def abandon(self) -> None:
        """Drop what a forked child inherited."""
        self._start_over()
        self._stores.reset()
        for store in self._stores.all():
            store.abandon()

    def current(self) -> Store:
        """The store of the database that the alias now means."""
        return self._stores.current()

    def stored_book(self) -> StoredBook | None:
        """See :meth:`Registry.stored_book`."""
        store = self.current()
        return None if store.key is None else RootedBook(store, self._lessee, self.stride)

    def installation(self, store: Store | None = None) -> str:
        """The installation that lends from ``store``, which this may make.

        Without a store it makes nothing, which would make the settings final: it is empty where
        nothing is kept yet.
        """
        at = store or self.current()
        if at in self._installations:
            return self._installations[at]
        if store is None:
            return at.run_if_there(lambda book: book.installation) or ""
        # This also refuses a process with other settings before it reaches Redis (L8).
        return self._change(store, lambda sub_lease: sub_lease).installation

    def is_in_use(self) -> bool:
        """Whether anything was ever lent. Makes nothing."""
        store = self.current()
        return store in self._installations or bool(store.run_if_there(_has_lent))

    def _change(self, store: Store, change: SubLeaseChange) -> SubLease:
        """Replace the sub-lease by ``change(sub_lease)``, in one transaction, and return it.

        A new namespace begins with a sub-lease without ticks. Raises
        :class:`RegistryUnavailable` (it may be done) and :class:`NamespaceMismatch`.
        """
        after = store.run(
            lambda book: rules.change_sub_lease(
                book, self._lessee.namespace, change, stride=self.stride
            )
        )
        store.changed()
        self._installations[store] = after.installation
        return after

    # --- what may be lent -----------------------------------------------------

    def open(self, store: Store, incarnation: str, now: int) -> None:
        """Open a generation for a new life of the server, or adopt the one that is open."""
        change = partial(
            SubLease.opened, incarnation=incarnation, now=max(now, 0), stride=self.stride
        )
        self._lessee.install(self._change(store, change))

    def lift(self, store: Store, seen: SubLease, *, now: int, wanted: int) -> None:
        """Raise the ceiling past tick ``wanted``, if ``seen`` is of the current generation.

        Raises :class:`TakenOver` if it is not.
        """
        change = partial(
            SubLease.raised_for,
            seen=seen,
            now=now,
            wanted=min(max(now, wanted), self._lessee.namespace.max_ticks),
            stride=self.stride,
        )
        stored = self._change(store, change)
        if stored.incarnation == seen.incarnation:
            self._lessee.install(stored)
        elif now >= stored.ceiling:
            # The server that took over has lent all it may: this one may begin anew.
            self._lessee.restart(stored.installation, seen.incarnation)
        else:
            raise self._taken_over(seen, stored, stored.ceiling - now)

    def failure_to_lift(
        self, store: Store, seen: SubLease, *, now: int, wanted: int
    ) -> RegistryUnavailable | None:
        """As :meth:`lift`, but returns why it failed: what is left can still be lent."""
        try:
            self.lift(store, seen, now=now, wanted=wanted)
        except RegistryUnavailable as error:
            return error
        return None

    def lift_in_time(
        self, store: Store, seen: SubLease, *, now: int, start: int, until: int
    ) -> None:
        """Raise the ceiling well before it is needed; the first caller that can does it.

        The window ``[start, until)`` was just granted. After a failure it pauses.
        """
        latest = max(now, seen.fence, start, until - self._lessee.namespace.window_ticks)
        enough = latest + self.stride - self.stride // 6
        if seen.ceiling >= enough or self._clock.elapsed_ns() < self._not_before_ns:
            return
        if self.failure_to_lift(store, seen, now=now, wanted=latest) is not None:
            self._not_before_ns = self._clock.elapsed_ns() + int(RETRY_SECONDS * 1e9)

    def _taken_over(self, seen: SubLease, stored: SubLease, ticks: int) -> TakenOver:
        space = self._lessee.namespace
        return TakenOver(
            f"The {self._lessee.described} lends for generation {seen.generation} of namespace "
            f"{space.name!r}, but another server has taken over with generation "
            f"{stored.generation}. Check that all processes reach the same server. If no process "
            "uses the other server any more, this one may lend again in "
            f"{ticks * space.tick_us / 1e6:.0f} s."
        )


def _has_lent(book: Book) -> bool:
    record = book.record()
    return record is not None and record.ceiling > 0


class RootedBook(StoredBook):
    """The database's book in ``store``, from which ``lessee`` lends.

    The database's book counts: its ceiling bounds all that was lent. After a rewrite the server
    begins anew, so that it refuses processes with earlier settings at once.
    """

    def __init__(self, store: Store, lessee: SubLessee, stride: int) -> None:
        super().__init__(lessee.namespace, store)
        self.place = f"{self.place}, lent on by the {lessee.described}"
        self._lessee = lessee
        self._stride = stride
        """In ticks of the lessee's namespace."""

    def _reaching(self, namespace: Namespace) -> Namespace:
        # As each change of the sub-lease does: the call that mends a loss lays the fence.
        return rules.reaching(namespace, in_ticks(self._stride, self.namespace, namespace))

    def rewrite(self, change: Change) -> Stored:
        """See :meth:`StoredBook.rewrite`; reckons with what the server says."""
        try:
            found = self._kept()
        except RegistryUnavailable:
            found = None  # it has lent nothing past the database's ceiling

        def reckoned(stored: Stored, now_us: int) -> Any:
            # The server may know better, if the database was restored to an earlier state.
            if found is not None and found.fingerprint == stored.fingerprint:
                stored = with_highest(stored, found.ceiling)
            return change(stored, now_us)

        return super().rewrite(reckoned)

    def entered(self) -> bool:
        """See :meth:`StoredBook.entered`. Raises :class:`RegistryUnavailable`."""
        found = self._kept()
        return found is None or found.fingerprint == dict(self.namespace.fingerprint)

    def is_whole(self) -> bool:
        """See :meth:`StoredBook.is_whole`: whether the server has anything."""
        return self._kept() is not None

    def enter(self) -> None:
        """See :meth:`StoredBook.enter`. Raises what a refusal of the server means."""
        stored = self.read()
        if stored is not None:
            self._lessee.enter(self.installation(), stored.generation)

    def _kept(self) -> Kept | None:
        installation = self.installation()
        return self._lessee.kept(installation) if installation else None


def parsed_words(words: bytes | str) -> Mapping[str, Any]:
    """The JSON object in ``words``; empty if there is none."""
    try:
        found = json.loads(words)
    except ValueError:
        found = {}
    return found if isinstance(found, dict) else {}


# --- options ------------------------------------------------------------------------


def stride_ticks(namespace: Namespace, stride: float | None) -> int:
    """``stride`` (seconds; two windows unless given) in ticks, at least a window.

    Raises :class:`ConfigurationError`.
    """
    if stride is None:
        return 2 * namespace.window_ticks
    ticks = -(-int(check_seconds("stride", stride, most=1e6) * 1e6) // namespace.tick_us)
    if ticks < namespace.window_ticks:
        window = namespace.window_ticks * namespace.tick_us / 1e6
        raise ConfigurationError(
            f"stride must be at least a window of {window:g} s, not {stride!r}: a window can't be "
            "longer than the stride."
        )
    return ticks


def checked_after_loss(after_loss: object) -> str:
    """``after_loss`` if it is ``"ahead"`` or ``"wait"``. Raises :class:`ConfigurationError`."""
    if after_loss not in AFTER_LOSS:
        raise ConfigurationError(f"after_loss must be 'ahead' or 'wait', not {after_loss!r}.")
    return str(after_loss)
