"""What a snowflake generator did so far."""

from __future__ import annotations

from dataclasses import dataclass

from .lease import Lease

__all__ = ["Counts", "SnowflakeStats"]


@dataclass(frozen=True, slots=True)
class SnowflakeStats:
    """What a generator did so far. Exact when no other thread is inside a call."""

    issued: int
    """Ids handed out."""
    ticks: int
    """Ticks whose ids were loaded."""
    waits: int
    """Times that a caller slept for the next tick."""
    waited: float
    """Seconds that callers were to sleep for it, in all."""
    borrowed: int
    """Ticks that were loaded before their time."""
    backwards: int
    """Times that the clock was found behind the last tick."""
    worker_changes: int
    """Times that another worker id was taken since the clock stayed behind."""
    renewals: int
    renewal_failures: int
    lease: Lease | None
    """The lease that holds now."""


class Counts:
    """The running counts, written under the generator's lock."""

    __slots__ = (
        "backwards", "borrowed", "discarded", "loaded",
        "ticks", "waited", "waits", "worker_changes",
    )  # fmt: skip

    def __init__(self) -> None:
        self.loaded = self.discarded = 0
        """Ids of the ticks that were loaded, and those of them that nobody took."""
        self.ticks = self.waits = self.worker_changes = 0
        self.borrowed = self.backwards = 0
        self.waited = 0.0
