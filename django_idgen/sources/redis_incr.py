"""Redis INCR, fenced by the database: Redis counts within blocks that the database grants.

A Redis that counts alone starts over when it loses its data, or goes back when a replica takes
over. Here a loss is a gap.
"""

from __future__ import annotations

from contextlib import suppress

from ..core.errors import ConfigurationError, SegmentUnavailable
from ..core.segment import LONGEST_STEP, Demand, Segment, check_step
from ..core.source import Source
from ..core.tag_generator import TagGenerator
from .pool.scripts import Popped
from .pool.source import MAX_IDS, TIMEOUT, PoolSource


class RedisIncrSource(PoolSource):
    """A pool that takes ``block`` ids of a tag when it has none left. Thread-safe.

    The other options are those of :class:`PoolSource`. While Redis is down, ids come from the
    database.
    """

    def __init__(
        self,
        *,
        alias: str,
        source: Source,
        block: int = LONGEST_STEP,
        timeout: float = TIMEOUT,
        max_ids: int = MAX_IDS,
    ) -> None:
        super().__init__(alias=alias, source=source, timeout=timeout, max_ids=max_ids)
        if check_step(block) > self.max_ids:
            raise ConfigurationError(
                f"'block' is {block}, more than 'max_ids' ({self.max_ids}), the most ids that "
                "Redis may hold. Lower 'block' or raise 'max_ids'."
            )
        self._block = block

    def _behind(self, tag: str, floor: int, demand: Demand, popped: Popped) -> tuple[Segment, str]:
        with suppress(SegmentUnavailable):
            self._refill(tag, max(self._block, demand.at_least), floor, demand)
            again = self._pop(self.source.owner(tag), tag, floor, demand)
            if again.segment is not None:
                return again.segment, again.life
        return super()._behind(tag, floor, demand, popped)


class RedisIncrGenerator(TagGenerator):
    """Ids of a tag as Redis' ``INCRBY`` gives them, fenced by a mark in the database."""

    __slots__ = ()
    default_source = f"{__name__}.RedisIncrSource"
