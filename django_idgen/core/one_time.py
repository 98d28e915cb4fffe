"""Snowflakes for which the clock is read once, as Bee's OneTimeSnowflakeId."""

from __future__ import annotations

import math
from collections.abc import Iterator

from .lease import Lease
from .snowflake import SnowflakeGenerator


class OneTimeGenerator(SnowflakeGenerator):
    """A snowflake generator whose ticks are counted on from the start of its lease.

    None is left out, however long it rests: an id tells when its lease began, not when it was
    made. ``max_ahead`` bounds the rate: ids come no faster than the layout has them since then,
    and that many seconds more. Options, errors and thread safety are those of
    :class:`SnowflakeGenerator`.
    """

    __slots__ = ()

    def _earliest(self, now: int, lease: Lease) -> int:  # noqa: ARG002
        return lease.start

    def _fresh_block(self, tick: int, read_at: float, now_us: int) -> Iterator[int]:
        block = super()._fresh_block(tick, read_at, now_us)
        if self._fresh > -math.inf:
            self._fresh = math.inf  # a tick that is over is still this lease's
        return block
