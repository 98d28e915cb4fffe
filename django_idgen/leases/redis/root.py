"""The root of what Redis lends: the book of its namespace in the database (rule L6).

It is kept where :class:`DatabaseLeases` would keep its marks, under the same rules about what
the database itself may have lost (L7): a ceiling that was raised, or a generation that was
opened, and that the database no longer knows of, lies below the fence of the next one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...core.clock import Clock
from ...core.errors import RegistryUnavailable
from ...core.stored import Change, Stored, StoredBook, with_highest
from ...core.sub_lease import Change as SubLeaseChange
from ...core.sub_lease import SubLease
from ...db.connection import Place, place_of
from ...db.stores import Stores
from ..book_registry import BookRegistry
from ..database import book_in
from .scripts import LAST_TICK, LeaseScripts, Reply, key_of, refusal

__all__ = ["RedisBook", "Root", "TakenOver"]

RETRY_SECONDS = 20.0
"""Pause after the database could not raise a ceiling that was still high enough."""


class TakenOver(RegistryUnavailable):
    """Another Redis lends for the namespace now; this one may use up what it has."""


class _Unused(Exception):
    """The database never lent anything to a Redis; raised to have it roll back."""


class Root:
    """Answers what the scripts ask of the database ``database``. Thread-safe.

    Which installation a database belongs to is asked once; ``stride`` (ticks) is how far
    ahead a ceiling is raised. The other options are those of :class:`RedisLeases`.
    """

    def __init__(
        self,
        scripts: LeaseScripts,
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
        self._scripts = scripts
        self._clock = clock
        self._make = partial(
            book_in,
            database,
            namespace=scripts.namespace,
            memory="sub-leases",
            timeout=timeout,
            server_identity=server_identity,
            clock=clock,
            read_now_us=read_now_us,
        )
        self._stores: Stores[BookRegistry] = Stores(database, lambda place: self._make(place=place))
        self._start_over()

    def _start_over(self) -> None:
        self._installations: dict[BookRegistry, str] = {}
        self._not_before_ns = 0

    def abandon(self) -> None:
        """Drop what a forked child inherited."""
        self._start_over()
        self._stores.reset()
        for book in self._stores.all():
            book.abandon()

    def current(self) -> BookRegistry:
        """The book at present.

        Raises :class:`RegistryUnavailable` in a test that forbids the database.
        """
        if self.is_forbidden():
            raise RegistryUnavailable(
                f"This test does not allow the use of database {self.database!r}, which has to "
                f"raise what Redis may lend."
            )
        return self._stores.current()

    def is_forbidden(self) -> bool:
        """Whether the running test forbids the database."""
        return place_of(self.database) is Place.FORBIDDEN

    # --- whose it is ----------------------------------------------------------

    def is_in_use(self) -> bool:
        """Whether anything was ever lent; opens nothing, else its settings would be final."""
        book = self.current()
        if book in self._installations:
            return True
        with suppress(_Unused):
            self._change(book, _used)
        return book in self._installations

    def known_installation(self) -> str | None:
        """The installation, without asking for it; the last one where the database is forbidden."""
        if self.is_forbidden():
            known = list(self._installations.values())
            return known[-1] if known else None
        return self._installations.get(self.current())

    def installation_to_look(self) -> str | None:
        """The installation, asked for without opening anything; ``None`` if nothing was lent."""
        return self.known_installation() or self.current().kept_by()

    def installation_to_release(self) -> str | None:
        """As :meth:`known_installation`; asked for where this process knows of none at all.

        One that lends on may be given back what another worker of its service has lent.
        """
        if not self._installations and not self.is_forbidden():
            self.is_in_use()
        return self.known_installation()

    def installation_of(self, book: BookRegistry) -> str:
        """The installation that ``book`` belongs to."""
        known = self._installations.get(book)
        # Also sees to it that a process of other settings never reaches Redis (L8).
        return known or self._change(book, lambda sub_lease: sub_lease).installation

    def _change(self, book: BookRegistry, change: SubLeaseChange) -> SubLease:
        sub_lease = book.change_sub_lease(change, stride=self.stride)
        self._installations[book] = sub_lease.installation
        return sub_lease

    # --- what may be lent -----------------------------------------------------

    def open(self, book: BookRegistry, incarnation: str, now: int) -> None:
        """Have a generation opened for a new life of the hash, or adopt the one that was."""
        change = partial(
            SubLease.opened, incarnation=incarnation, now=max(now, 0), stride=self.stride
        )
        self._scripts.install(self._change(book, change))

    def lift(self, book: BookRegistry, reply: Reply, *, wanted: int) -> None:
        """Have the ceiling of the hash raised, if its generation is the database's.

        Raises :class:`TakenOver` if it is not.
        """
        seen = reply.sub_lease(self.installation_of(book))
        change = partial(
            SubLease.raised_for,
            seen=seen,
            now=reply.now,
            wanted=min(max(reply.now, wanted), LAST_TICK),
            stride=self.stride,
        )
        stored = self._change(book, change)
        if stored.incarnation == seen.incarnation:
            self._scripts.install(stored)
        elif reply.now >= stored.ceiling:
            # Whatever took over lends no more: this Redis may begin anew.
            self._scripts.restart(stored.installation, seen.incarnation)
        else:
            raise self._taken_over(seen, stored, stored.ceiling - reply.now)

    def lift_in_time(self, book: BookRegistry, reply: Reply) -> None:
        """Have the ceiling raised well before it is needed, by the first caller that can.

        A database that can't just now is asked again after a while.
        """
        seen = reply.sub_lease("")
        _, start, until = reply.window
        window = self._scripts.namespace.window_ticks
        latest = max(reply.now, seen.fence, start, until - window)
        enough = latest + self.stride - self.stride // 6
        if seen.ceiling >= enough or self._clock.elapsed_ns() < self._not_before_ns:
            return
        try:
            self.lift(book, reply, wanted=latest)
        except RegistryUnavailable:
            self._not_before_ns = self._clock.elapsed_ns() + int(RETRY_SECONDS * 1e9)

    def _taken_over(self, seen: SubLease, stored: SubLease, ticks: int) -> TakenOver:
        space = self._scripts.namespace
        return TakenOver(
            f"The Redis of CACHES[{self._scripts.own.alias!r}] lends for generation "
            f"{seen.generation} of namespace {space.name!r}, but another Redis has taken over "
            f"with generation {stored.generation}. See that all processes reach the same "
            f"server; this one may go on in {ticks * space.tick_us / 1e6:.0f} s, if the other is "
            f"not used any more."
        )


def _used(sub_lease: SubLease) -> SubLease:
    if not sub_lease.ceiling:
        raise _Unused
    return sub_lease


@dataclass(frozen=True, slots=True)
class _Hash:
    """What stands in Redis."""

    fingerprint: Mapping[str, Any]
    ceiling: int


class RedisBook(StoredBook):
    """``root``, the database's, of which the Redis of ``scripts`` lends.

    What counts is the database's: Redis lends nothing at or past the ceiling there. The hash
    is begun anew after it, so that processes with earlier settings are refused at once.
    """

    def __init__(self, root: StoredBook, scripts: LeaseScripts) -> None:
        self.namespace = root.namespace
        self.place = f"{root.place}, lent on by the Redis of CACHES[{scripts.own.alias!r}]"
        self.key = root.key
        self._root = root
        self._scripts = scripts

    def read(self) -> Stored | None:
        """See :meth:`StoredBook.read`."""
        return self._root.read()

    def rewrite(self, change: Change) -> Stored:
        """See :meth:`StoredBook.rewrite`; reckons with what Redis says."""
        try:
            found = self._hash()
        except RegistryUnavailable:
            found = None  # it lends nothing past the database's ceiling

        def reckoned(stored: Stored, now_us: int) -> Any:
            # Where the database was put back to an earlier state, Redis may know better.
            if found is not None and found.fingerprint == stored.fingerprint:
                stored = with_highest(stored, found.ceiling)
            return change(stored, now_us)

        return self._root.rewrite(reckoned)

    def installation(self) -> str:
        """See :meth:`StoredBook.installation`."""
        return self._root.installation()

    def entered(self) -> bool:
        """See :meth:`StoredBook.entered`. Raises :class:`RegistryUnavailable`."""
        found = self._hash()
        return found is None or found.fingerprint == dict(self.namespace.fingerprint)

    def is_whole(self) -> bool:
        """See :meth:`StoredBook.is_whole`: whether the hash is there."""
        return self._hash() is not None

    def enter(self) -> None:
        """See :meth:`StoredBook.enter`. Raises what a refusal of the script means."""
        stored = self._root.read()
        if stored is None:
            return
        reply = self._scripts.enter(self._root.installation(), stored.generation)
        if reply.status != "ok":
            raise refusal(reply, self.namespace, self._scripts.own)

    def _hash(self) -> _Hash | None:
        installation = self._root.installation()
        if not installation:
            return None
        key = key_of(installation, self.namespace.name)
        words = self._scripts.own.ask(
            lambda client: client.hmget(key, "fingerprint", "ceiling"),
            unavailable=RegistryUnavailable,
        )
        if words[0] is None:
            return None
        return _Hash(_parsed(words[0]), int(words[1] or 0))


def _parsed(words: bytes | str) -> Mapping[str, Any]:
    try:
        found = json.loads(words)
    except ValueError:
        found = {}
    return found if isinstance(found, dict) else {}
