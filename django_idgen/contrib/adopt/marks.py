"""The next id of a tag or a generator, and how to raise it."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from ...core.clock import MAX_UNIX_US, moment, unix_us
from ...core.errors import ConfigurationError
from ...core.layout import BitLayout
from ...core.segment import MAX_ID, Demand, Segment
from ...core.stored import layout_of
from ...fields import SegmentSource, SnowflakeSource
from ...fields.base import GeneratedOnSave
from ...fields.operations import Rows, Take
from ...ops.tags.edits import TagExists, clear_tag, lowest_free_id, make_tag, skip_tag
from ...process import maps
from ...process.maps import registries
from ...process.tags import TagsElsewhere, find_tag, next_free_id, source_behind_pool
from ...settings.config import GeneratorSettings

GRACE = timedelta(days=30)
"""How long processes may take snowflakes after the way back has begun."""
MAX_CLOCK_LAG = timedelta(days=1)
"""How far a registry's clock may be behind this one."""
MICROSECOND = timedelta(microseconds=1)


def raise_tag_of(field: SegmentSource, first: int) -> None:
    """Let no process get ids of the field's tag below ``first``. Raises :class:`IdgenError`."""
    if first <= 1:
        return
    tag = field.resolved_tag
    try:
        raise_tag(tag, first)
    except TagsElsewhere as error:
        # Another service has the tag. Fetching a segment shows its next id, and leaves a gap.
        _empty_pool(tag, first)
        segment = _fetch(tag)
        if segment.delta != 1:
            raise ConfigurationError(
                f"{error} {segment.delta} databases share tag {tag!r} there, and one segment "
                "shows how far one of them is. Run this in a project whose SEGMENTS name them."
            ) from error
        if segment.start < first:
            raise ConfigurationError(
                f"{error} In that service, skip tag {tag!r} to {first} plus the number of rows "
                "inserted since, or by 1 if it is past that: its pool has lower ids, which a skip "
                "throws away. Then run this again."
            ) from error


def raise_tag(tag: str, first: int, *, step: int = 0, description: str = "") -> None:
    """Let ``tag`` continue at ``first``; make it, with ``step`` and ``description``, if it is new.

    Never lowers a tag. Raises :class:`IdgenError`.
    """
    found = find_tag(tag)
    if found is None:
        step = step or maps.current_settings().segments.default_step
        with suppress(TagExists):  # another process has made it
            make_tag(tag, step=step, max_id=first, description=description)
        found = find_tag(tag)
    if found is None:
        raise ConfigurationError(
            f"Tag {tag!r} can't be made: the database confuses it with another tag, whose name "
            f"may differ in capitals only. Use a different name."
        )
    # Also before the skip: a row that is raised looks finished to the next run.
    _empty_pool(tag, first)
    if lowest_free_id(tag) < first:
        skip_tag(tag, most=MAX_ID, to=max(first, next_free_id(tag)))
        _empty_pool(tag, first)


def _empty_pool(tag: str, first: int) -> None:
    if clear_tag(tag, least=first).pool is False:
        raise ConfigurationError(
            f"Tag {tag!r} has to begin at {first}, but its pool in Redis may have lower ids, and "
            f"Redis does not answer. Run this again when it does."
        )


def first_id_of(field: SnowflakeSource) -> int:
    """The generator of ``field`` makes no snowflake below this from now on.

    Raises :class:`ConfigurationError` if the layout does not rise with time.
    """
    return layout_by_time(field.generator).min_id_at(datetime.now(UTC) - MAX_CLOCK_LAG)


def next_after(field: GeneratedOnSave) -> int:
    """The first id of ``field`` that no process has, nor gets within :data:`GRACE`.

    Raises :class:`RegistryUnavailable` if the registry can't show the end of its windows, and as
    :func:`next_of`.
    """
    if isinstance(field, SegmentSource):
        return next_of(field.resolved_tag)
    snowflakes = cast(SnowflakeSource, field)
    layout = layout_by_time(snowflakes.generator)
    entry = maps.generator_settings(snowflakes.generator)
    latest_us = max(unix_us(datetime.now(UTC)), _lent_until_us(entry)) + GRACE // MICROSECOND
    return layout.max_id_at(moment(min(latest_us, MAX_UNIX_US))) + 1


def next_of(tag: str) -> int:
    """The first id of ``tag`` that no process has, wherever the tag is.

    Raises :class:`SegmentUnavailable` and :class:`ConfigurationError`.
    """
    source = source_behind_pool()
    return next_free_id(tag) if source.keeps_rows else int(source.next_free_id(tag))


def _lent_until_us(entry: GeneratorSettings) -> int:
    """The end of the last window of the generator's worker ids, which a skip moves far ahead."""
    book = registries[entry.alias].stored_book()
    stored = book.read() if book else None
    if stored is None:
        return 0
    layout = layout_of(stored.fingerprint) if stored.fingerprint else entry.layout
    return layout.epoch_us + stored.highest * layout.tick_us


def grant_of(field: SegmentSource, length: int, *, above: int) -> Segment:
    """Fetch ``length`` ids of the tag of ``field`` above ``above``, for the caller alone."""
    demand = Demand(at_least=length)
    segment = _fetch(field.resolved_tag, floor=above + 1, demand=demand)
    if segment.delta != 1:
        raise ConfigurationError(
            f"Tag {segment.tag!r} is shared by {segment.delta} databases, but one counter of a "
            "database can't give the ids of all. Stop all processes, and use --at-once."
        )
    return segment


def ids_of_tag(field: SegmentSource) -> Take:
    """Takes ids of the tag of ``field`` from its source, whatever tables have it.

    A generator would look for the highest id in the key's column, which still has the old keys.
    """
    floor = 0

    def take(rows: Rows) -> list[int]:
        nonlocal floor
        ids: list[int] = []
        while len(ids) < len(rows):
            demand = Demand(times=0, at_least=len(rows) - len(ids))
            ids += _fetch(field.resolved_tag, floor=floor, demand=demand).ids()
            floor = ids[-1] + 1
        return ids

    return take


def _fetch(tag: str, **options: Any) -> Segment:
    source: Any = source_behind_pool()
    segment: Segment = source.fetch(tag, **options)
    return segment


def layout_by_time(generator: str) -> BitLayout:
    """The layout of ``generator``. Raises :class:`ConfigurationError` if time is not on top."""
    layout = maps.generator_settings(generator).layout
    if not layout.time_is_top:
        raise ConfigurationError(
            f"Ids of generator {generator!r} do not rise with time (layout {layout}), so "
            f"they can't be told apart from the ids in the table. Use a generator whose layout "
            f"has the time on top."
        )
    return layout
