"""Calls to a registry, one at a time, where a failure answers for those who stand in line."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from .clock import Clock
from .errors import ClockSkewed, IdgenError, LeaseError, LeaseExpired

__all__ = ["RegistryCalls"]

IO_PATIENCE = 10.0
"""Seconds that a caller waits for another thread's call to the registry to end."""


class RegistryCalls:
    """The calls of one process to the registry of ``namespace``. Thread-safe."""

    __slots__ = ("_clock", "_namespace", "_refusal", "_troubled_ns", "lock", "refusals", "trouble")

    def __init__(self, namespace: str, clock: Clock) -> None:
        self._namespace = namespace
        self._clock = clock
        self.lock = threading.Lock()
        """Held during a call."""
        self.refusals = 0
        """How many times no lease was to be had."""
        self._refusal: LeaseError | ClockSkewed | None = None
        self.trouble: IdgenError | None = None
        """Why the last call for a lease got none; ``None`` since one was had, or renewed."""
        self._troubled_ns = 0

    @property
    def seconds_since_trouble(self) -> float:
        """How long ago a lease was last asked for in vain; only with :attr:`trouble`."""
        return (self._clock.elapsed_ns() - self._troubled_ns) / 1e9

    @contextmanager
    def one_at_a_time(self) -> Iterator[None]:
        """Wait for another thread's call, but not for ever.

        Raises :class:`LeaseExpired` if that does not end.
        """
        if not self.lock.acquire(timeout=IO_PATIENCE):
            raise LeaseExpired(
                f"The registry of namespace {self._namespace!r} did not answer another "
                f"thread's call for {IO_PATIENCE:g} s. Check that it can be reached, and that "
                f"its timeouts are shorter; the next call tries again."
            )
        try:
            yield
        finally:
            self.lock.release()

    @contextmanager
    def answering_for_all(self, refusals: int | None) -> Iterator[None]:
        """Let one failure answer for those who stood in line behind it.

        ``refusals`` is what :attr:`refusals` was before the caller stood in line. A
        registry that times out after seconds would else be asked by each caller in
        turn, and the last one wait for all of them.
        """
        if self._refusal is not None and refusals not in (None, self.refusals):
            raise self._refusal.with_traceback(None)
        try:
            yield
        except IdgenError as error:
            self.trouble, self._troubled_ns = error, self._clock.elapsed_ns()
            if isinstance(error, (LeaseError, ClockSkewed)):
                self._refusal = error
                self.refusals += 1
            raise
