"""Opening a namespace: lock its record, read the time, see whether anything was lost.

What was lost opens a new *generation*: all older tokens are void, and nothing
below the new fence is lent (rule L7). It is lost when

* another server has taken over the database, since a replica may have missed
  the last windows;
* worker rows were deleted, so that a held worker id looks as if never lent;
* the namespace's record is gone although the installation knows its name, or
  worker rows of it are still there;
* the installation's own row is gone: then nobody knows what else is.

Locks are taken in one order: the installation's row, then the namespace's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from secrets import token_hex
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Max, QuerySet
from django.utils.timezone import is_aware, make_aware

from ..core.clock import Clock, Reading
from ..core.errors import ConfigurationError, NamespaceMismatch
from ..core.lease import PROTOCOL_VERSION, Namespace, loss_fence
from ..core.moments import unix_us
from ..db import dialects
from ..db.row_writes import insert_row, update_row, why_alike
from ..db.transactions import Rerun
from ..models import Installation, NamespaceRecord, WorkerLease

__all__ = ["NamespaceOpening", "Opened", "check_fingerprint", "fingerprint_text"]

ANY = ""
"""Stands for every namespace in an installation's row that was made anew."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A namespace whose record this transaction has locked."""

    record: NamespaceRecord
    reading: Reading
    now: int
    """The tick that the database's clock stands at."""
    thorough: bool


class NamespaceOpening:
    """Opens ``namespace`` on ``alias`` in the transaction of the calling thread.

    Holds no state of its own, so that threads may share it.
    """

    def __init__(
        self,
        namespace: Namespace,
        alias: str,
        *,
        clock: Clock,
        read_now: Callable[[BaseDatabaseWrapper], int],
        server_identity: bool,
    ) -> None:
        self.namespace = namespace
        self.alias = alias
        self._clock = clock
        self._read_now = read_now
        self._server_identity = server_identity
        self._fingerprint = fingerprint_text(namespace.fingerprint)

    def open(self, connection: BaseDatabaseWrapper, *, thorough: bool) -> Opened:
        """Lock the record and read the clock.

        Raises :class:`Rerun` if there is something to make or mend: only a
        ``thorough`` opening locks the installation's row, which makes it safe.
        Raises :class:`NamespaceMismatch` or :class:`ConfigurationError`.
        """
        installation = self._installation(lock=thorough)
        record = self._records().select_for_update().filter(pk=self.namespace.name).first()
        reading = self.read(connection)
        now = self.namespace.tick_at(reading.registry_us)
        server = self._server(connection)
        if record is not None:
            _check_protocol(self.namespace.name, record.protocol)
            check_fingerprint(self.namespace.name, record.fingerprint, self._fingerprint)
        if thorough:
            record = self._mend(installation or self._remade(), record, server, now)
        elif record is None or self._is_suspicious(record, installation, server):
            raise Rerun
        return Opened(record, reading, now, thorough)

    def workers(self) -> QuerySet[WorkerLease]:
        """The worker rows of this namespace."""
        return WorkerLease.objects.using(self.alias).filter(namespace=self.namespace.name)

    def records(self, generation: int) -> QuerySet[NamespaceRecord]:
        """The record, if that is its generation."""
        return self._records().filter(pk=self.namespace.name, generation=generation)

    def _records(self) -> QuerySet[NamespaceRecord]:
        return NamespaceRecord.objects.using(self.alias)

    def _installation(self, *, lock: bool) -> Installation | None:
        rows = Installation.objects.using(self.alias).filter(pk=1)
        return (rows.select_for_update() if lock else rows.only("identity")).first()

    def _remade(self) -> Installation:
        made = Installation(
            key=1,
            identity=token_hex(16),
            protocol=PROTOCOL_VERSION,
            namespaces=json.dumps({ANY: {}}),
        )
        insert_row(made, self.alias)
        return made

    def read(self, connection: BaseDatabaseWrapper) -> Reading:
        """The database's clock."""
        sent = self._clock.elapsed_ns()
        registry_us = self._read_now(connection)
        return Reading(registry_us, sent, self._clock.elapsed_ns())

    def _server(self, connection: BaseDatabaseWrapper) -> str:
        return dialects.server_identity(connection) if self._server_identity else ""

    def _is_suspicious(
        self, record: NamespaceRecord, installation: Installation | None, server: str
    ) -> bool:
        return (
            installation is None
            or record.installation != installation.identity
            or bool(server and record.server != server)
            or record.largest_window < self.namespace.reach_ticks
        )

    def _mend(
        self, installation: Installation, record: NamespaceRecord | None, server: str, now: int
    ) -> NamespaceRecord:
        """Make the record if there is none, and open a new generation if anything was lost."""
        name, rows = self.namespace.name, self.workers()
        memory: dict[str, dict[str, Any]] = json.loads(installation.namespaces)
        count = rows.count()
        if record is None:
            lost = count > 0 or name in memory or ANY in memory
            record = self._recalled(memory.get(name, {}))
            if why := why_alike(record, self.alias):
                raise ConfigurationError(f"Namespace {name!r} can't be used: {why}.")
        else:
            lost = (
                record.installation != installation.identity
                or count < record.workers_made
                or bool(server and record.server and record.server != server)
            )
        if lost:
            whole = self._is_whole(record, installation, server)
            self._open_generation(record, rows, now, whole=whole)
        record.workers_made = max(count, 0 if lost else record.workers_made)
        record.largest_window = max(record.largest_window, self.namespace.reach_ticks)
        record.server = server or record.server
        record.installation = installation.identity
        (insert_row if record._state.adding else update_row)(record, self.alias)
        self._remember(installation, memory, record)
        return record

    def _is_whole(self, record: NamespaceRecord, installation: Installation, server: str) -> bool:
        """Whether ``record`` is the very one that was written last: then only rows are missing."""
        known = server if record.installation == installation.identity else ""
        return bool(known) and record.server == known

    def _recalled(self, memory: Mapping[str, Any]) -> NamespaceRecord:
        return NamespaceRecord(
            name=self.namespace.name,
            fingerprint=self._fingerprint,
            generation=memory.get("generation", 1),
            fence=memory.get("fence", 0),
            largest_window=memory.get("largest_window", self.namespace.reach_ticks),
            protocol=PROTOCOL_VERSION,
        )

    def _open_generation(
        self, record: NamespaceRecord, rows: QuerySet[WorkerLease], now: int, *, whole: bool
    ) -> None:
        left = rows.aggregate(
            generation=Max("generation", default=0), until=Max("until", default=0)
        )
        fence = max(record.fence, record.highest_until, left["until"])
        if whole:
            # The record knows the end of every window that was granted.
            record.fence = fence
        else:
            ahead = max(0, self.longest_lead(rows) - record.largest_window)
            record.fence = loss_fence(
                self.namespace, now=now + ahead, fence=fence, largest_window=record.largest_window
            )
        record.generation = max(record.generation, left["generation"]) + 1

    def longest_lead(self, rows: QuerySet[WorkerLease]) -> int:
        """How far, in ticks, any window ended past the time when its holder was last seen.

        Who ran ahead then, after an earlier loss, may have been promised as much since.
        """
        seen = rows.values_list("until", "seen_at").iterator(chunk_size=2000)
        return max((until - self.namespace.tick_at(_unix_us(at)) for until, at in seen), default=0)

    def _remember(
        self, installation: Installation, memory: dict[str, Any], record: NamespaceRecord
    ) -> None:
        memory[record.name] = {
            **memory.get(record.name, {}),
            "generation": record.generation,
            "fence": record.fence,
            "largest_window": record.largest_window,
        }
        installation.namespaces = json.dumps(memory, sort_keys=True)
        update_row(installation, self.alias, "namespaces")


def _unix_us(at: datetime) -> int:
    return unix_us(at if is_aware(at) else make_aware(at))


def fingerprint_text(fingerprint: Mapping[str, object]) -> str:
    """Canonical JSON: equal fingerprints give equal texts."""
    return json.dumps(dict(fingerprint), sort_keys=True, separators=(",", ":"))


def check_fingerprint(namespace: str, stored: str, configured: str) -> None:
    """Raise :class:`NamespaceMismatch` naming the first setting that differs."""
    if stored == configured:
        return
    theirs, ours = json.loads(stored), json.loads(configured)
    for key in sorted(theirs.keys() | ours.keys()):
        if theirs.get(key) != ours.get(key):
            raise NamespaceMismatch(namespace, key, theirs.get(key), ours.get(key))


def _check_protocol(namespace: str, stored: int) -> None:
    if stored > PROTOCOL_VERSION:
        raise ConfigurationError(
            f"Namespace {namespace!r} was written with protocol {stored}, but this version of "
            f"django_idgen knows {PROTOCOL_VERSION}. Upgrade django_idgen in this process."
        )
