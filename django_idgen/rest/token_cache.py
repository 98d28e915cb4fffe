"""Tokens seen lately: what lets a hot endpoint answer without asking the database."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from django.db import Error as AnyDatabaseError

from ..core.clock import SYSTEM_CLOCK, Clock
from ..handlers import current_settings
from ..tokens import KnownToken, digest_of, find_token

__all__ = ["TOKENS", "TokenCache"]

MOST = 10_000
"""Tokens kept; the oldest go first."""
RETRY_AFTER = 5.0
"""Seconds until a database that couldn't be asked is asked again for one token."""

logger = logging.getLogger("django_idgen")


@dataclass(slots=True)
class _Entry:
    token: KnownToken
    asked_at: float
    """Stopwatch seconds of the last answer of the database."""
    fresh_until: float


class TokenCache:
    """Secrets to tokens, by digest: the secrets themselves are not kept. Thread-safe.

    A token is asked for again after ``IDGEN["REST"]["token_max_age"]``; while the
    database can't be asked, it is believed for ``token_outage`` more. An unknown secret
    is not remembered: a token that was made a moment ago works at once.
    """

    def __init__(
        self, find: Callable[[str], KnownToken | None] = find_token, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._find = find
        self._now = clock.stopwatch
        self._entries: dict[str, _Entry] = {}
        self._lock = threading.Lock()

    def lately(self, secret: str) -> KnownToken | None:
        """The token of ``secret`` if it needs no question to the database."""
        entry = self._entries.get(digest_of(secret))
        if entry is None or self._now() >= entry.fresh_until:
            return None
        return _living(entry.token)

    def has_seen(self, secret: str) -> bool:
        """Whether there was such a token, when the database was last asked."""
        return digest_of(secret) in self._entries

    def get(self, secret: str) -> KnownToken | None:
        """The token of ``secret``, or None if there is none.

        Raises :class:`django.db.Error` where only the database could tell.
        """
        digest = digest_of(secret)
        entry = self._entries.get(digest)
        if entry is not None and self._now() < entry.fresh_until:
            return _living(entry.token)
        asked_at = self._now()
        try:
            found = self._find(secret)
        except AnyDatabaseError as error:
            return self._believed(entry, error)
        if found is None:
            self._entries.pop(digest, None)
            return None
        self._keep(digest, found, asked_at)
        return _living(found)

    def clear(self) -> None:
        """Forget all of them, so that the database is asked."""
        self._entries.clear()

    def _believed(self, entry: _Entry | None, error: AnyDatabaseError) -> KnownToken | None:
        now = self._now()
        rest = current_settings().rest
        if entry is None or now >= entry.asked_at + rest.token_max_age + rest.token_outage:
            raise error
        entry.fresh_until = now + RETRY_AFTER
        logger.warning(
            "The database can't be asked about access token %r; it is believed as it was %.0f s "
            "ago.",
            entry.token.name,
            now - entry.asked_at,
        )
        return _living(entry.token)

    def _keep(self, digest: str, token: KnownToken, asked_at: float) -> None:
        # Counted from the question: the answer may have been long on its way.
        entry = _Entry(token, asked_at, asked_at + current_settings().rest.token_max_age)
        with self._lock:
            self._entries.pop(digest, None)
            while len(self._entries) >= MOST:
                del self._entries[next(iter(self._entries))]
            self._entries[digest] = entry


def _living(token: KnownToken) -> KnownToken | None:
    if token.expires_at is None:
        return token
    return token if token.is_valid_at(datetime.now(UTC)) else None


TOKENS = TokenCache()
"""The cache of this process."""
