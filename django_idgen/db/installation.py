"""What tells the id spaces of two databases apart."""

from __future__ import annotations

import math
from hashlib import sha256

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from ..core.clock import SYSTEM_CLOCK, Clock
from ..core.errors import ConfigurationError, SegmentUnavailable
from ..core.lease import PROTOCOL_VERSION, of_another_version
from ..models import Installation
from .connection import own_connection, place_of
from .rows import read_first, rows_of
from .sqlite import database_of
from .transactions import Transactions

NO_OWNER = ""
"""The owner of ids that only this process has: no other process may get them."""
TIMEOUT = 5.0
RETRY_AFTER = 30.0
"""Seconds until a database that did not answer is asked again."""


def check_form(installation: Installation | None, alias: str) -> None:
    """Raise :class:`ConfigurationError` if another version of django_idgen wrote the tables."""
    if installation is not None and installation.protocol != PROTOCOL_VERSION:
        what = f"The installation in database {alias!r}"
        raise ConfigurationError(of_another_version(what, installation.protocol))


class DatabaseOwner:
    """The owner of the ids in the database ``alias``, a short text. Thread-safe.

    A hash of the installation's identity, which no other database has, and the database's
    name, since a copy of a database (a test runner's, or staging's) has the same identity.
    """

    def __init__(self, alias: str, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.alias = alias
        self._clock = clock
        self._known: tuple[object, str, float] = None, NO_OWNER, -math.inf
        """The place and name of the database that was asked, its owner, and when."""

    def current(self, *, max_age: float = math.inf) -> str:
        """The owner, at most ``max_age`` seconds old. Never raises.

        :data:`NO_OWNER` if the marks are in this process, or the database does not answer.
        """
        place = place_of(self.alias)
        if place.in_process:
            return NO_OWNER
        name = str(database_of(self.alias) or connections.settings[self.alias]["NAME"])
        now = self._clock.stopwatch()
        where, owner, asked_at = self._known
        if where != (place, name):
            owner = NO_OWNER
        elif now - asked_at <= (max_age if owner else RETRY_AFTER):
            return owner
        identity = self._identity()
        if not identity and owner:
            return owner  # the best answer that there is
        owner = sha256(f"{identity}/{name}".encode()).hexdigest()[:16] if identity else NO_OWNER
        self._known = (place, name), owner, now
        return owner

    def _identity(self) -> str:
        def body(_connection: BaseDatabaseWrapper) -> str | None:
            found = read_first(rows_of(Installation, self.alias).filter(pk=1))
            return None if found is None else found.identity

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
