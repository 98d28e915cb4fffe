"""Redis as the pool uses it: left alone for a minute after each failure."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from ...core.clock import Clock
from ...core.errors import ConfigurationError, SegmentUnavailable
from ...core.generator import Emit

__all__ = ["RETRY_AFTER", "PoolLink"]

T = TypeVar("T")

RETRY_AFTER = 60.0
"""Seconds without a word to a Redis that did not answer."""


class PoolLink:
    """Lets one call at a time through, and none for :data:`RETRY_AFTER` after a failure.

    So an unreachable Redis costs a process one timeout a minute. Thread-safe.
    ``emit`` hears ``pool_unavailable`` and ``pool_available``.
    """

    def __init__(self, alias: str, *, clock: Clock, emit: Emit) -> None:
        self.alias = alias
        self._clock = clock
        self._emit = emit
        self._answered = False
        self._failure: Exception | None = None
        self.reset()

    def reset(self) -> None:
        """After a fork: the lock is the parent's."""
        self._lock = threading.Lock()
        self._retry_at = 0.0

    def ask(self, call: Callable[[], T]) -> T | None:
        """What ``call()`` returns; ``None`` if Redis can't be asked, now or for a while.

        Raises :class:`ConfigurationError` for a server that refused from the first: once it
        was of use, ids go on without it.
        """
        with self._lock:
            if self._failure is not None and self._clock.stopwatch() < self._retry_at:
                return None
            before = self._failure
            answer = self._tried(call)
            after = self._failure
        if after is not None:
            self._emit("pool_unavailable", alias=self.alias, error=after)
        elif before is not None:
            self._emit("pool_available", alias=self.alias)
        return answer

    def _tried(self, call: Callable[[], T]) -> T | None:
        self._failure = None
        try:
            answer = call()
        except (SegmentUnavailable, ConfigurationError) as error:
            if isinstance(error, ConfigurationError) and not self._answered:
                raise
            self._failure = error
            self._retry_at = self._clock.stopwatch() + RETRY_AFTER
            return None
        self._answered = True
        return answer

    def demand(self, call: Callable[[], T]) -> T:
        """As :meth:`ask`, for those who can't go on without: raises :class:`SegmentUnavailable`."""
        answer = self.ask(call)
        if answer is None:
            failure = self._failure
            raise SegmentUnavailable(
                f"The pool in the Redis of CACHES[{self.alias!r}] can't be asked at the moment; "
                f"it is tried again {RETRY_AFTER:g} s after a failure."
            ) from failure
        return answer
