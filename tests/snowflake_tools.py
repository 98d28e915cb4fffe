"""What the tests of snowflakes are made with, on the real clock."""

from __future__ import annotations

from django_idgen.core.layout import BitLayout, parse_layout
from django_idgen.core.lease import Namespace
from django_idgen.core.snowflake import SnowflakeGenerator
from django_idgen.leases.memory import MemoryLeases, MemoryMarks

STANDARD = parse_layout("standard")


def space_of(layout: BitLayout) -> Namespace:
    """A namespace of ``layout`` with windows of 180 s."""
    return Namespace(
        name="real",
        epoch_us=layout.epoch_us,
        tick_us=layout.tick_us,
        max_ticks=layout.max_ticks,
        workers=layout.workers,
        window_ticks=180_000_000 // layout.tick_us,
        skew_ticks=1000,
    )


def real(
    layout: BitLayout = STANDARD, *, marks: MemoryMarks | None = None, **options
) -> SnowflakeGenerator:
    """A generator on the real clock, whose worker ids are lent from memory."""
    return SnowflakeGenerator(layout, MemoryLeases(space_of(layout), marks=marks), **options)
