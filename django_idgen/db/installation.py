"""What tells the id spaces of two databases apart."""

from __future__ import annotations

import math
from dataclasses import dataclass
from hashlib import sha256

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from ..core.clock import SYSTEM_CLOCK, Clock
from ..core.errors import SegmentUnavailable
from ..models import Installation
from .connection import Place, own_connection, place_of
from .sqlite import database_of
from .transactions import Transactions

__all__ = ["NO_OWNER", "DatabaseOwner"]

NO_OWNER = ""
"""The owner of ids that only this process has: no other process may get them."""
TIMEOUT = 5.0
RETRY_AFTER = 30.0
"""Seconds until a database that did not answer is asked again."""


@dataclass(frozen=True, slots=True)
class _Known:
    where: tuple[Place, str]
    owner: str
    at: float


class DatabaseOwner:
    """The owner of the ids in the database ``alias``, a short text. Thread-safe.

    A hash of the installation's identity, which no other database has, and the database's
    name, since a copy of a database (a test runner's, or staging's) has the same identity.
    """

    def __init__(self, alias: str, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.alias = alias
        self._clock = clock
        self._known: _Known | None = None

    def current(self, *, max_age: float = math.inf) -> str:
        """The owner, at most ``max_age`` seconds old. Never raises.

        :data:`NO_OWNER` if the marks are in this process, or the database does not answer.
        """
        place = place_of(self.alias)
        if place.in_process:
            return NO_OWNER
        where = (place, self._name())
        now = self._clock.stopwatch()
        known = self._known
        if known is None or known.where != where:
            known = None
        elif now - known.at <= (max_age if known.owner else RETRY_AFTER):
            return known.owner
        identity = self._identity()
        if not identity and known is not None and known.owner:
            return known.owner  # the best answer that there is
        owner = sha256(f"{identity}/{where[1]}".encode()).hexdigest()[:16] if identity else NO_OWNER
        self._known = _Known(where, owner, now)
        return owner

    def _name(self) -> str:
        database = database_of(self.alias)
        return str(database or connections.settings[self.alias]["NAME"])

    def _identity(self) -> str:
        def body(_connection: BaseDatabaseWrapper) -> str | None:
            rows = Installation.objects.using(self.alias).filter(pk=1)
            return rows.values_list("identity", flat=True).first()

        transactions = Transactions(
            own_connection(self.alias),
            timeout=TIMEOUT,
            models=("LeafAlloc", "Installation"),
            unavailable=SegmentUnavailable,
        )
        try:
            return transactions.run(body) or ""
        except SegmentUnavailable:
            return ""
