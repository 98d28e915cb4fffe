"""Tokens seen lately: what lets a hot endpoint answer without asking the database."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from django.db import Error as AnyDatabaseError
from django.utils import timezone

from ..core.clock import SYSTEM_CLOCK, Clock
from ..process.handlers import current_settings
from .tokens import KnownToken, digest_of, find_token

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
    asking: bool = False
    """Whether a thread asks the database about it just now."""


class TokenCache:
    """Secrets to tokens, by digest: the secrets themselves are not kept. Thread-safe.

    A token is asked for again after ``IDGEN["REST"]["token_max_age"]``, by one thread at a
    time; while the database can't be asked, or says nothing, it is believed for
    ``token_outage`` more. An unknown secret is not remembered: a token that was made a
    moment ago works at once.
    """

    def __init__(
        self, find: Callable[[str], KnownToken | None] = find_token, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._find = find
        self._now = clock.stopwatch
        self._entries: dict[str, _Entry] = {}

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
        if entry is None:
            return self._asked(secret, digest, None)
        if entry.asking and self._now() < _believed_until(entry):
            # A database that is silent shall hold up one thread, not all of them.
            return _living(entry.token)
        entry.asking = True
        try:
            return self._asked(secret, digest, entry)
        finally:
            entry.asking = False

    def clear(self) -> None:
        """Forget all of them, so that the database is asked."""
        self._entries = {}

    def _asked(self, secret: str, digest: str, entry: _Entry | None) -> KnownToken | None:
        asked_at = self._now()
        try:
            found = self._find(secret)
        except AnyDatabaseError as error:
            if entry is None or self._now() >= _believed_until(entry):
                raise
            return self._believed(entry, error)
        if found is None:
            self._entries.pop(digest, None)
            return None
        self._keep(digest, found, asked_at)
        return _living(found)

    def _believed(self, entry: _Entry, error: AnyDatabaseError) -> KnownToken | None:
        now = self._now()
        entry.fresh_until = min(now + RETRY_AFTER, _believed_until(entry))
        logger.warning(
            "The database can't be asked about access token %r; it is believed as it was %.0f s "
            "ago: %s",
            entry.token.name,
            now - entry.asked_at,
            error,
        )
        return _living(entry.token)

    def _keep(self, digest: str, token: KnownToken, asked_at: float) -> None:
        # Counted from the question: the answer may have been long on its way.
        entry = _Entry(token, asked_at, asked_at + current_settings().rest.token_max_age)
        entries = self._entries
        entries.pop(digest, None)
        while len(entries) >= MOST:
            # Without a lock, which a fork would leave held: another thread may be at it.
            with suppress(KeyError, StopIteration, RuntimeError):
                del entries[next(iter(entries))]
        entries[digest] = entry


def _believed_until(entry: _Entry) -> float:
    rest = current_settings().rest
    return entry.asked_at + rest.token_max_age + rest.token_outage


def _living(token: KnownToken) -> KnownToken | None:
    if token.expires_at is None:
        return token
    return token if token.is_valid_at(timezone.now()) else None


TOKENS = TokenCache()
"""The cache of this process."""

if hasattr(os, "register_at_fork"):
    # Of the parent's questions the child gets no answer.
    os.register_at_fork(after_in_child=TOKENS.clear)
