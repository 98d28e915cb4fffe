"""The charter of a registry that can forget, in the tables of a database server."""

from __future__ import annotations

from collections.abc import Callable

from django.db.backends.base.base import BaseDatabaseWrapper

from ..core.charter import Change, Charter, reaching
from ..core.clock import Clock
from ..core.errors import RegistryUnavailable
from ..core.lease import Namespace
from ..db import dialects
from ..db.connection import SOCKET_TIMEOUT, OwnConnection, own_connection
from ..db.tables import missing_tables
from ..db.transactions import Rerun, Transactions
from ..models import Installation, NamespaceRecord
from .namespace_record import NamespaceOpening

__all__ = ["ServerLender"]

MODELS = ("Installation", "NamespaceRecord", "WorkerLease")
NOTHING = Charter("", 0, 0, 0)


class ServerLender:
    """The charter in the namespace's row of database ``alias``. Thread-safe.

    ``stride`` (ticks) is how far ahead a ceiling is raised; the rest is as in
    :class:`ServerLeases`. A :class:`Lender`.
    """

    def __init__(
        self,
        namespace: Namespace,
        *,
        alias: str,
        stride: int,
        timeout: float,
        server_identity: bool,
        clock: Clock,
        own: OwnConnection | None = None,
        read_now: Callable[[BaseDatabaseWrapper], int] | None = None,
    ) -> None:
        self.namespace = namespace
        self.alias = alias
        self._stride = stride
        self._server_identity = server_identity
        self._clock = clock
        self._read_now = read_now or dialects.now_us
        self._own = own or own_connection(alias)
        self._transactions = Transactions(
            self._own,
            timeout=timeout,
            models=MODELS,
            unavailable=RegistryUnavailable,
            # All of a fleet that starts at once stand in line for the namespace's row.
            lock_timeout=max(1, min(int(timeout), SOCKET_TIMEOUT - 2)),
        )

    def change(self, change: Change) -> Charter:
        """See :meth:`Lender.change`."""
        thorough, space = False, self._space(NOTHING, 0)

        def body(connection: BaseDatabaseWrapper) -> Charter:
            nonlocal thorough, space
            try:
                opened = self._opening(space).open(connection, thorough=thorough)
                before = _charter_of(opened.record)
                after = change(before)
                if after != before:
                    space = self._space(after, opened.now)
                    self._save(opened.record, after, space.reach_ticks)
            except Rerun:
                thorough = True
                raise
            return after

        return self._transactions.run(body)

    def installation(self) -> str | None:
        """See :meth:`Lender.installation`."""
        return self._transactions.run(self._identity)

    def _identity(self, connection: BaseDatabaseWrapper) -> str | None:
        if missing_tables(connection, MODELS):  # they would be made by asking
            return None
        rows = Installation.objects.using(self.alias).filter(pk=1)
        return rows.values_list("identity", flat=True).first()

    def abandon(self) -> None:
        """See :meth:`Lender.abandon`."""
        self._own.reset()

    def _opening(self, namespace: Namespace) -> NamespaceOpening:
        return NamespaceOpening(
            namespace,
            self.alias,
            clock=self._clock,
            read_now=self._read_now,
            server_identity=self._server_identity,
        )

    def _space(self, charter: Charter, now: int) -> Namespace:
        return reaching(self.namespace, charter, now=now, stride=self._stride)

    def _save(self, record: NamespaceRecord, charter: Charter, reach: int) -> None:
        if record.largest_window < reach:
            raise Rerun  # it has to be in the installation's memory, too, before it is used
        NamespaceRecord.objects.using(self.alias).filter(pk=record.pk).update(
            generation=charter.generation,
            fence=charter.fence,
            ceiling=charter.ceiling,
            incarnation=charter.incarnation,
            # Lower again, once the ceiling has come back in line with the time.
            largest_window=reach,
            highest_until=charter.ceiling,
        )


def _charter_of(record: NamespaceRecord) -> Charter:
    return Charter(
        record.installation, record.generation, record.fence, record.ceiling, record.incarnation
    )
