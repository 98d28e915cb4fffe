"""Who was lent which worker id by a registry that can forget: kept where its root is.

Best effort, unlike the history of worker ids that the database itself lends: it is written
after the lease was granted, and lost with the process or while the database is away. No id
waits for it: it has a thread and a connection of its own, since a table that somebody has
locked would else hold up whoever loads segments, or has a ceiling raised.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial

from django.conf import settings
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.timezone import make_naive

from ...core.errors import RegistryUnavailable
from ...core.lease import Mark
from ...core.moments import moment
from ...core.prefork import is_prefork
from ...core.survey import Tenure
from ...db.connection import Place, own_connection, place_of
from ...db.sqlite import marks_terms
from ...db.sqlite.marks import MarksError
from ...db.stores import marks_of
from ...db.tables import missing_tables
from ...db.transactions import Transactions
from ...models import WorkerLease
from ...process import lifecycle
from .. import history as lease_history
from ..book_oversight import Term, tenure_of
from ..local_lender import memory_of
from ..memory import MemoryBook
from ..server_oversight import tenure_in

__all__ = ["BorrowedHistory"]

PATIENCE = 1.0
"""Seconds that the end of the process waits for what is not written yet."""
MOST_WAITING = 100
"""Rows that may wait to be written: a database that hangs must not fill the memory."""
PURPOSE = "history"

logger = logging.getLogger("django_idgen")
_pending: set[Future[None]] = set()


def _write_out() -> None:
    wait(_pending.copy(), PATIENCE)


# Of a child the pending ones are its parent's: nobody would ever complete them.
lifecycle.register(close=_write_out, forget=_pending.clear)


class BorrowedHistory:
    """The history of ``namespace`` in the database ``database``. Thread-safe.

    ``timeout`` (seconds) bounds a look into it.
    """

    def __init__(self, namespace: str, database: str, *, timeout: float) -> None:
        self._namespace = namespace
        self._database = database
        self._timeout = timeout

    def note(self, mark: Mark, at_us: int) -> None:
        """Have it written that ``mark`` was lent at ``at_us`` (µs since 1970). Never raises."""
        if is_prefork():
            return  # there is no other thread, and the caller must not wait
        place = place_of(self._database)
        if place is Place.MEMORY:
            self._book().note_lent(mark)
        elif place is not Place.FORBIDDEN:
            write = self._in_file if place is Place.FILE else self._on_server
            if len(_pending) < MOST_WAITING:
                self._submit(partial(self._quietly, write, mark, at_us))
            else:
                self._warn(mark, f"{MOST_WAITING} others wait for that")

    def _submit(self, job: Callable[[], None]) -> None:
        future = own_connection(self._database, PURPOSE).loader.submit(job)
        _pending.add(future)
        future.add_done_callback(_pending.discard)

    def tenure(self, worker: int, tick: int) -> Tenure | None:
        """Who was lent ``worker`` last, at ``tick`` or before.

        Raises :class:`RegistryUnavailable`.
        """
        place = place_of(self._database)
        if place is Place.SERVER:
            return self._transactions().run(partial(self._tenure_on_server, worker, tick))
        in_file = place is Place.FILE
        term = self._term_in_file(worker, tick) if in_file else self._book().term(worker, tick)
        return None if term is None else tenure_of(term)

    def _quietly(self, write: Callable[[Mark, int], None], mark: Mark, at_us: int) -> None:
        try:
            write(mark, at_us)
        except Exception as error:  # noqa: BLE001 - the id is given out already
            self._warn(mark, error)

    def _warn(self, mark: Mark, why: object) -> None:
        words = (mark.worker, self._namespace, why)
        logger.warning("Who was lent worker id %d of namespace %r was not written: %s", *words)

    # --- on a server ----------------------------------------------------------

    def _on_server(self, mark: Mark, at_us: int) -> None:
        at = moment(at_us)
        lease = WorkerLease(
            namespace=self._namespace,
            worker=mark.worker,
            start=mark.start,
            holder=mark.holder,
            acquired_at=at if settings.USE_TZ else make_naive(at),
        )
        self._transactions().run(
            lambda _connection: lease_history.note(lease, self._database, is_new=False)
        )

    def _tenure_on_server(
        self, worker: int, tick: int, connection: BaseDatabaseWrapper
    ) -> Tenure | None:
        if missing_tables(connection, ["LeaseHistory"]):
            return None
        return tenure_in(self._database, self._namespace, worker, tick)

    def _transactions(self) -> Transactions:
        return Transactions(
            own_connection(self._database, PURPOSE),
            timeout=self._timeout,
            models=("LeaseHistory",),
            unavailable=RegistryUnavailable,
        )

    # --- in a file, and in memory ---------------------------------------------

    def _in_file(self, mark: Mark, at_us: int) -> None:
        def job(db: sqlite3.Connection) -> None:
            marks_terms.note(db, self._namespace, mark.worker, mark.start, mark.holder, at_us)

        marks_of(self._database).run(job)

    def _term_in_file(self, worker: int, tick: int) -> Term | None:
        marks = marks_of(self._database)
        if not marks.path.exists():
            return None
        try:
            return marks.run(lambda db: marks_terms.last_before(db, self._namespace, worker, tick))
        except MarksError as error:
            raise RegistryUnavailable(str(error)) from error

    def _book(self) -> MemoryBook:
        book = memory_of(self._database).books.setdefault(self._namespace, MemoryBook())
        book.history = True
        return book
