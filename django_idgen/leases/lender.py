"""The root of a registry that can forget: who keeps its charters (rule L6).

They are kept where :class:`DatabaseLeases` would keep its marks, under the
same rules about what the database itself may have lost (L7): a ceiling that was raised,
or a generation that was opened, and that the database no longer knows of, lies below
the fence of the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ..core.charter import Change, Charter
from ..core.clock import Clock
from ..core.errors import RegistryUnavailable
from ..core.lease import Namespace
from ..db.connection import Place, place_of
from ..db.stores import Stores, marks_of
from .local_lender import MemoryLender, SqliteLender, memory_of
from .server_lender import ServerLender

__all__ = ["Lender", "Lenders"]


class Lender(Protocol):
    """Keeps the charter of one namespace. Thread-safe."""

    def change(self, change: Change) -> Charter:
        """Replace the charter by ``change(charter)``, in one transaction, and return it.

        A new namespace begins with one without ticks. Raises
        :class:`RegistryUnavailable` where the database can't be asked (it may have
        done it), and :class:`NamespaceMismatch`.
        """
        ...

    def installation(self) -> str | None:
        """Whose database it is; ``None`` if nothing was ever lent of it. Changes nothing.

        Raises :class:`RegistryUnavailable`.
        """
        ...

    def abandon(self) -> None:
        """Drop what a forked child inherited."""
        ...


class Lenders:
    """The lenders of whatever databases the alias ``database`` means in turn. Thread-safe.

    ``stride`` (ticks) is how far ahead a ceiling is raised. ``read_now_us`` gives the
    time (µs since 1970) instead of the database's clock, or the host's for SQLite.
    """

    def __init__(
        self,
        namespace: Namespace,
        database: str,
        *,
        stride: int,
        timeout: float,
        server_identity: bool,
        clock: Clock,
        read_now_us: Callable[[], int] | None = None,
    ) -> None:
        self.namespace = namespace
        self.database = database
        self._stride = stride
        self._timeout = timeout
        self._server_identity = server_identity
        self._clock = clock
        self._read_now_us = read_now_us
        self._stores: Stores[Lender] = Stores(database, self._make)

    def current(self) -> Lender:
        """The lender at present.

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

    def abandon(self) -> None:
        """Drop what a forked child inherited."""
        self._stores.reset()
        for lender in self._stores.all():
            lender.abandon()

    def _make(self, place: Place) -> Lender:
        if place is Place.SERVER:
            return self._server()
        read_now_us = self._read_now_us or (lambda: self._clock.wall_ns() // 1000)
        if place is Place.FILE:
            marks = marks_of(self.database)
            return SqliteLender(
                self.namespace, marks, self.database, stride=self._stride, read_now_us=read_now_us
            )
        return MemoryLender(
            self.namespace, memory_of(self.database), stride=self._stride, read_now_us=read_now_us
        )

    def _server(self) -> Lender:
        read_now_us = self._read_now_us
        return ServerLender(
            self.namespace,
            alias=self.database,
            stride=self._stride,
            timeout=self._timeout,
            server_identity=self._server_identity,
            clock=self._clock,
            read_now=None if read_now_us is None else lambda _connection: read_now_us(),
        )
