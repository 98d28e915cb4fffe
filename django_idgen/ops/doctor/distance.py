"""How far a tag skips where nobody knows what was given out above its mark."""

from __future__ import annotations

import math

from ...process.tags import find_tag, source_of_tags

__all__ = ["usual_skip"]

SAFETY = 2
"""The rate that is known may have been exceeded: so many times of it is skipped."""


def usual_skip(tag: str, hours_ago: float = 0.0) -> int:
    """As far as a failover would skip, and past what was used in so many hours."""
    known = find_tag(tag)
    rows = [] if known is None else list(known.rows.values())
    longest = max((max(row.largest_step, row.step * row.delta) for row in rows), default=1)
    pace = sum(row.rate * max(row.delta, 1) for row in rows)
    used = math.ceil(SAFETY * pace * hours_ago * 3600)
    return used + int(source_of_tags().failover_skip) * longest
