"""The generators that are measured, over registries and sources in memory."""

from __future__ import annotations

from django_idgen.core.layout import BitLayout, parse_layout
from django_idgen.core.lease import Namespace
from django_idgen.core.loader import Loader
from django_idgen.core.segment_generator import SegmentAllocator, SegmentGenerator
from django_idgen.core.snowflake import SnowflakeGenerator
from django_idgen.leases.memory import MemoryLeases
from django_idgen.sources.memory import MemorySource

__all__ = ["STEP", "allocator", "segment", "snowflake"]

STEP = 1_000_000
"""What the adaptive step grows to under such a load."""


def snowflake(max_ahead: float) -> SnowflakeGenerator:
    layout = parse_layout("standard")
    return SnowflakeGenerator(layout, MemoryLeases(_namespace(layout)), max_ahead=max_ahead)


def allocator(step: int = STEP, loader: Loader | None = None) -> SegmentAllocator:
    return SegmentAllocator(MemorySource(step), loader or Loader("bench"))


def segment() -> SegmentGenerator:
    return allocator().generator("bench")


def _namespace(layout: BitLayout) -> Namespace:
    second = 1_000_000 // layout.tick_us
    return Namespace(
        name="bench",
        epoch_us=layout.epoch_us,
        tick_us=layout.tick_us,
        max_ticks=layout.max_ticks,
        workers=layout.workers,
        window_ticks=180 * second,
        skew_ticks=10 * second,
    )
