"""Which of several databases answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from ..core.clock import SYSTEM_CLOCK, Clock
from ..core.errors import SegmentUnavailable

__all__ = ["RETRY_AFTER", "STUCK_AFTER", "Health"]

RETRY_AFTER = 30.0
"""Seconds until a database that failed is asked again."""
STUCK_AFTER = 1.0
"""Seconds that a fetch may take before no other one joins it."""


class Health:
    """What is known of the database ``alias``, as its fetches went. Thread-safe.

    ``probe`` asks it for something, in its own thread, and returns the future.
    """

    def __init__(
        self, alias: str, probe: Callable[[], Future[None]], *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.alias = alias
        self._probe = probe
        self._clock = clock
        self._under_way: dict[object, float] = {}
        self._retry_at: float | None = None
        """When a database that is down is asked again; None while it is up."""

    def is_up(self) -> bool:
        """Whether to ask it for ids. One that is down is probed apart, now and then."""
        if self._retry_at is None:
            return True
        now = self._clock.stopwatch()
        if now >= self._retry_at:
            self._retry_at = now + RETRY_AFTER
            self._probe().add_done_callback(self._probed)
        return False

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """For the time of a fetch.

        Raises :class:`SegmentUnavailable` if another one has waited for too long, so
        that a dead database holds up a few threads and not all.
        """
        now = self._clock.stopwatch()
        waited = now - min(list(self._under_way.values()), default=now)
        if waited > STUCK_AFTER:
            raise SegmentUnavailable(
                f"Database {self.alias!r} has not answered for {waited:.1f} s. See what holds "
                f"it up; it is asked again when the call under way has ended."
            )
        mine = object()
        self._under_way[mine] = now
        try:
            yield
        finally:
            del self._under_way[mine]

    def succeeded(self) -> None:
        self._retry_at = None

    def failed(self) -> None:
        self._retry_at = self._clock.stopwatch() + RETRY_AFTER

    def _probed(self, future: Future[None]) -> None:
        if not future.cancelled() and future.exception() is None:
            self.succeeded()
