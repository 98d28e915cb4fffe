"""Where the ids of a tag or a generator stand, and where they are to begin."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from ...core.clock import MAX_UNIX_US, moment, unix_us
from ...core.errors import ConfigurationError
from ...core.layout import BitLayout
from ...core.segment import MAX_ID, Demand, Segment
from ...core.stored import Stored, layout_of
from ...fields import SegmentSource, SnowflakeSource
from ...fields.base import GeneratedOnSave
from ...ops.tags.edits import TagExists, clear_tag, make_tag, skip_tag
from ...process import handlers
from ...process.factory import registry_of
from ...process.tags import TagsElsewhere, find_tag, source_behind_pool
from ...settings.config import GeneratorSettings

__all__ = ["GRACE", "first_id_of", "grant_of", "lift", "next_after", "raise_tag"]

GRACE = timedelta(days=30)
"""How long processes may take snowflakes once the way back was begun."""
BEHIND = timedelta(days=1)
"""How far a registry's clock may be behind this one."""
MICROSECOND = timedelta(microseconds=1)


def lift(field: GeneratedOnSave, first: int) -> None:
    """From now on no process gets ids below ``first`` of the tag of ``field``.

    Does nothing for a snowflake. Raises :class:`IdgenError`.
    """
    if not isinstance(field, SegmentSource) or first <= 1:
        return
    tag = field.resolved_tag
    try:
        raise_tag(tag, first)
    except TagsElsewhere as error:
        if _elsewhere(tag) < first:
            raise ConfigurationError(
                f"{error} There, have tag {tag!r} skip to {first}, and further by as many ids as "
                f"rows are inserted meanwhile; then run this again."
            ) from error


def raise_tag(tag: str, first: int, *, step: int = 0, description: str = "") -> None:
    """As :func:`lift`. A new tag gets ``step`` and ``description``."""
    found = find_tag(tag)
    if found is None:
        step = step or handlers.current_settings().segments.default_step
        with suppress(TagExists):  # by another process
            make_tag(tag, step=step, max_id=first, description=description)
        found = find_tag(tag)
    if found is None:
        raise ConfigurationError(
            f"Tag {tag!r} can't be made: its database takes it for another tag, whose name has "
            f"other capitals perhaps. Use a different one."
        )
    if min(row.max_id for row in found.rows.values()) < first:
        skip_tag(tag, most=MAX_ID, to=max(first, found.max_id))
        if clear_tag(tag).pool is False:
            raise ConfigurationError(
                f"Tag {tag!r} now begins at {first}, but lower ids lie in its pool in Redis, which "
                f"can't be asked just now. Run this again when it answers."
            )


def _elsewhere(tag: str) -> int:
    """The first id that a service gives now; the segment it sends becomes a gap."""
    source: Any = source_behind_pool()
    segment: Segment = source.fetch(tag)
    return segment.start


def first_id_of(field: SnowflakeSource) -> int:
    """No snowflake of the field's generator, from now on, is below this.

    Raises :class:`ConfigurationError` where that can't be said of its layout.
    """
    return _ordered(field).min_id_at(datetime.now(UTC) - BEHIND)


def next_after(field: GeneratedOnSave) -> int:
    """The first id that no process has of ``field``, or gets within :data:`GRACE`.

    Raises :class:`RegistryUnavailable` where the registry can't say how far ahead of the
    time its windows reach.
    """
    if isinstance(field, SegmentSource):
        found = find_tag(field.resolved_tag)
        return 1 if found is None else found.max_id
    layout = _ordered(cast("SnowflakeSource", field))
    entry = handlers.generator_settings(cast("SnowflakeSource", field).generator)
    latest_us = max(unix_us(datetime.now(UTC)), _lent_until_us(entry)) + GRACE // MICROSECOND
    return layout.max_id_at(moment(min(latest_us, MAX_UNIX_US))) + 1


def _lent_until_us(entry: GeneratorSettings) -> int:
    """The end of the last window of its worker ids: after a skip it may be far ahead."""
    books = registry_of(entry).books()
    found = [stored for book in books if (stored := book.read()) is not None]
    return max((_end_us(stored, entry.layout) for stored in found), default=0)


def _end_us(stored: Stored, usual: BitLayout) -> int:
    layout = layout_of(stored.fingerprint) if stored.fingerprint else usual
    return layout.epoch_us + stored.highest * layout.tick_us


def grant_of(field: SegmentSource, length: int, *, above: int) -> Segment:
    """``length`` ids of the tag of ``field``, all above ``above``, for the caller alone."""
    source: Any = source_behind_pool()
    demand = Demand(at_least=length)
    segment: Segment = source.fetch(field.resolved_tag, floor=above + 1, demand=demand)
    if segment.delta != 1:
        raise ConfigurationError(
            f"Tag {segment.tag!r} is shared by {segment.delta} databases, whose counters would "
            f"have to be told apart. Stop all processes, and use --at-once."
        )
    return segment


def _ordered(field: SnowflakeSource) -> BitLayout:
    layout = handlers.generator_settings(field.generator).layout
    if not layout.time_is_top:
        raise ConfigurationError(
            f"Ids of generator {field.generator!r} do not rise with time (layout {layout}), so "
            f"that they can't be told apart from a table's earlier ids. Use a generator whose "
            f"layout has the time on top."
        )
    return layout
