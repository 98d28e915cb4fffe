"""How fast a tag's ids are used, as its row keeps it for forecasts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime

__all__ = ["INTERVAL", "SMOOTHING", "Rate"]

INTERVAL = 60.0
"""Seconds between two measurements of a tag."""
SMOOTHING = 600.0
"""Seconds after which an old rate counts for 1/e. Processes fetch in lumps of minutes."""


@dataclass(frozen=True, slots=True)
class Rate:
    """What is known of a tag's consumption. Frozen."""

    a_second: float = 0.0
    """Ids; 0 as long as it was not measured twice."""
    at: datetime | None = None
    """When it was measured last."""
    used: int = 0
    """``max_id`` at that time, less what lay in a pool."""

    def is_due(self, now: datetime) -> bool:
        # One in the future was written under another clock.
        return self.at is None or not 0 <= (now - self.at).total_seconds() < INTERVAL

    def measured(self, used: int, now: datetime, *, delta: int = 1) -> Rate:
        """The rate after one more measurement; ``used`` may have gone back (into the pool)."""
        seconds = (now - self.at).total_seconds() if self.at is not None else 0.0
        if seconds <= 0:
            return Rate(self.a_second, now, used)
        sample = max(0, used - self.used) / delta / seconds
        weight = 1 - math.exp(-seconds / SMOOTHING) if self.a_second else 1.0
        return Rate(self.a_second + (sample - self.a_second) * weight, now, used)
