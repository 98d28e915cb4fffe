"""The ledger of a namespace in the tables of a database server."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from django.db import Error as AnyDatabaseError
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import F, Max, QuerySet
from django.db.models.functions import Least

from ..core.clock import SYSTEM_CLOCK, Clock
from ..core.errors import LayoutError, RegistryUnavailable
from ..core.lease import Namespace
from ..core.ledger import Change, Stored, Successor, era_words, eras_from
from ..core.succession import namespace_of
from ..db import dialects
from ..db.connection import SOCKET_TIMEOUT, OwnConnection, own_connection
from ..db.row_writes import update_row
from ..db.tables import missing_tables
from ..db.transactions import Transactions
from ..models import Installation, LeaseHistory, NamespaceRecord, WorkerLease
from .namespace_record import NamespaceOpening, Opened, fingerprint_text

__all__ = ["ServerLedger"]

T = TypeVar("T")

MODELS = ("Installation", "NamespaceRecord", "WorkerLease")
ERAS = "eras"


class ServerLedger:
    """The row of a namespace in database ``alias``. A :class:`Ledger`.

    The options are those of :class:`ServerLeases`.
    """

    def __init__(
        self,
        namespace: Namespace,
        *,
        alias: str,
        timeout: float = 10.0,
        server_identity: bool = True,
        clock: Clock = SYSTEM_CLOCK,
        read_now: Callable[[BaseDatabaseWrapper], int] | None = None,
        own: OwnConnection | None = None,
    ) -> None:
        self.namespace = namespace
        self.alias = alias
        self.place = f"database {alias!r}"
        self.key: tuple[str, ...] = ("server", alias, namespace.name)
        self._timeout = timeout
        self._server_identity = server_identity
        self._clock = clock
        self._read_now = read_now or dialects.now_us
        self._own = own or own_connection(alias)
        self._transactions = Transactions(
            self._own,
            timeout=timeout,
            models=MODELS,
            unavailable=RegistryUnavailable,
            # A fleet at work stands in line for the namespace's row.
            lock_timeout=max(1, min(int(timeout), SOCKET_TIMEOUT - 2)),
        )

    def read(self) -> Stored | None:
        """See :meth:`Ledger.read`."""
        return self._ask(self._read)

    def rewrite(self, change: Change) -> Stored:
        """See :meth:`Ledger.rewrite`."""
        stored = self._ask(self._record)
        space = self.namespace
        if stored is not None:
            space = namespace_of(space, _parsed(stored.fingerprint))
        opening = NamespaceOpening(
            space,
            self.alias,
            clock=self._clock,
            read_now=self._read_now,
            server_identity=self._server_identity,
        )
        return self._transactions.run(partial(self._rewrite, opening, change))

    def entered(self) -> bool:
        """True: the row is what lends."""
        return True

    def is_whole(self) -> bool:
        """True: nobody else has any of it."""
        return True

    def enter(self) -> None:
        """Nothing to do."""

    def installation(self) -> str:
        """Whose ledger it is; empty if nobody used it yet."""

        def job(connection: BaseDatabaseWrapper) -> str:
            found = None if missing_tables(connection, MODELS) else self._installation()
            return "" if found is None else found.identity

        return self._ask(job)

    # --- reading --------------------------------------------------------------

    def _ask(self, job: Callable[[BaseDatabaseWrapper], T]) -> T:
        # Not by a transaction of ours, which would make tables that are missing.
        try:
            return self._own.run(job, timeout=self._timeout)
        except (AnyDatabaseError, TimeoutError) as error:
            raise RegistryUnavailable(
                f"Database {self.alias!r} can't be asked: {' '.join(str(error).split())}"
            ) from error

    def _record(self, connection: BaseDatabaseWrapper) -> NamespaceRecord | None:
        if missing_tables(connection, MODELS):
            return None  # nothing was ever lent
        rows = NamespaceRecord.objects.using(self.alias)
        return rows.filter(pk=self.namespace.name).first()

    def _rows(self) -> QuerySet[WorkerLease]:
        return WorkerLease.objects.using(self.alias).filter(namespace=self.namespace.name)

    def _read(self, connection: BaseDatabaseWrapper) -> Stored | None:
        record = self._record(connection)
        return None if record is None else self._stored(record)

    def _stored(self, record: NamespaceRecord) -> Stored:
        until = self._rows().aggregate(until=Max("until", default=0))["until"]
        return Stored(
            _parsed(record.fingerprint),
            record.generation,
            record.fence,
            max(record.highest_until, record.fence, record.ceiling, until),
            record.largest_window,
            eras_from(self._remembered(self._installation()).get(ERAS)),
        )

    def _installation(self) -> Installation | None:
        return Installation.objects.using(self.alias).filter(pk=1).first()

    def _remembered(self, installation: Installation | None) -> dict[str, Any]:
        known = {} if installation is None else json.loads(installation.namespaces)
        return dict(known.get(self.namespace.name, {}))

    # --- writing, in the transaction ------------------------------------------

    def _rewrite(
        self, opening: NamespaceOpening, change: Change, connection: BaseDatabaseWrapper
    ) -> Stored:
        opened = opening.open(connection, thorough=True)
        stored = replace(self._stored(opened.record), lead=opening.longest_lead(self._rows()))
        successor = change(stored, opened.reading.registry_us)
        self._reset_rows(opened, successor)
        record = self._succeed(opened.record, successor)
        self._remember(record, successor)
        return self._stored(record)

    def _reset_rows(self, opened: Opened, successor: Successor) -> None:
        if not successor.resets:
            return  # their tokens are void by the generation, and their marks below the fence
        rows, span, fence = self._rows(), successor.workers, successor.fence
        if successor.moved:
            rows.exclude(worker__gte=span.start, worker__lt=span.stop).delete()
            rows.update(token="", start=fence, until=fence)
            self._forget_terms()
        else:
            rows.update(token="", start=Least(F("start"), fence), until=Least(F("until"), fence))
        opened.record.workers_made = rows.count()

    def _forget_terms(self) -> None:
        # Who was lent what is told by ticks, which mean nothing any more.
        if not missing_tables(connections[self.alias], ["LeaseHistory"]):
            terms = LeaseHistory.objects.using(self.alias)
            terms.filter(namespace=self.namespace.name).delete()

    def _succeed(self, record: NamespaceRecord, successor: Successor) -> NamespaceRecord:
        record.fingerprint = fingerprint_text(successor.fingerprint)
        record.generation += 1
        record.fence = successor.fence
        record.highest_until = successor.fence
        record.largest_window = successor.longest
        # A registry outside of the database gets ticks of the new generation when it asks.
        record.ceiling, record.incarnation = 0, ""
        update_row(record, self.alias)
        return record

    def _remember(self, record: NamespaceRecord, successor: Successor) -> None:
        installation = Installation.objects.using(self.alias).get(pk=1)  # locked by the opening
        memory = json.loads(installation.namespaces)
        memory[record.name] = {
            "generation": record.generation,
            "fence": record.fence,
            "largest_window": record.largest_window,
            ERAS: [era_words(era) for era in successor.eras],
        }
        installation.namespaces = json.dumps(memory, sort_keys=True)
        update_row(installation, self.alias, "namespaces")


def _parsed(text: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise LayoutError(f"What is stored of the settings can't be read: {text[:80]!r}.")
    return found
