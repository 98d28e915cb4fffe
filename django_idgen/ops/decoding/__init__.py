"""Decoding: what a number, or its text, can be an id of.

>>> for reading in readings("ord_0ISQUWhLyEa"):
...     print(reading.id, reading.spelling.why)

A reading is one number that the text may mean. It has the parts that each generator reads in
that number (:class:`SnowflakeReading`), and the tags that may have given it out
(:class:`SegmentReading`). The rows with that number are looked up in the models whose ids come
from these. A prefix of one of the project's fields names the model: then only the generators and
tags of such fields are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice

from django.apps import apps
from django.db import DatabaseError, OperationalError, models, router, transaction
from django.utils.translation import gettext as _

from ...core.errors import IdgenError, one_line
from ...core.segment import check_tag
from ...fields import SegmentSource, SnowflakeSource
from ...fields.base import GeneratedOnSave
from .grants import Grant, SegmentReading, Standing, TagDatabases, TagReadings, tag_readings
from .snowflakes import (
    BitField,
    Registries,
    SnowflakeReading,
    bit_fields,
    layout_document,
    parts_document,
    snowflake_readings,
)
from .spellings import FORMS, Spelling, spellings

__all__ = [
    "FORMS",
    "BitField",
    "Grant",
    "Reading",
    "RowFound",
    "SegmentReading",
    "SnowflakeReading",
    "Spelling",
    "Standing",
    "TagReadings",
    "bit_fields",
    "layout_document",
    "parts_document",
    "readings",
    "spellings",
]


MOST_TABLES = 20
"""Tables that are asked for a number without a prefix, which may be the id of any of them."""


@dataclass(frozen=True, slots=True)
class RowFound:
    """The row of a model with the id; or None, if a prefix names the model."""

    field: GeneratedOnSave
    row: models.Model | None
    problem: str = ""
    """Why the look-up failed."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One number that the text may mean, and what it can be an id of."""

    spelling: Spelling
    snowflakes: tuple[SnowflakeReading, ...]
    segments: TagReadings
    rows: tuple[RowFound, ...] = ()
    """One for each model whose prefix it has; without a prefix, the rows that there are."""

    @property
    def id(self) -> int:
        return self.spelling.id


def readings(
    given: object,
    *,
    generator: str | None = None,
    tag: str | None = None,
    form: str | None = None,
    now: datetime | None = None,
    offline: bool = False,
) -> list[Reading]:
    """All readings of ``given``; the likeliest first.

    ``generator`` and ``tag``: only these. ``form`` (one of :data:`FORMS`): only this way to read
    the text. ``now`` decides whether an id lies in the future. ``offline`` asks no database,
    Redis or service, and reads everything by today's layouts. Otherwise an id made before a
    change of layout is read by its own layout, and a reading names what does not answer.

    Raises :class:`InvalidId` for what is not an id, :class:`SettingsError` for an unknown
    generator, and :class:`InvalidTag`.
    """
    moment = datetime.now(UTC) if now is None else now
    if tag is not None:
        check_tag(tag)
    # They remember what does not answer, for all spellings.
    registries = None if offline else Registries()
    databases = TagDatabases()
    found = []
    for spelling in spellings(given, form=form):
        aliases, tags = _candidates(spelling, generator, tag)
        segments = TagReadings()
        rows: tuple[RowFound, ...] = ()
        if not offline and tags != []:
            segments = tag_readings(spelling.id, tags, databases=databases)
        snowflakes = snowflake_readings(spelling.id, aliases, now=moment, registries=registries)
        if not offline and spelling.is_named:
            rows = tuple(_rows(spelling.id, spelling.fields))
        elif not offline:
            fields = islice(_likely_fields(snowflakes, segments), MOST_TABLES)
            rows = tuple(each for each in _rows(spelling.id, fields) if each.row or each.problem)
        found.append(Reading(spelling, snowflakes, segments, rows))
    return found


def _candidates(
    spelling: Spelling, generator: str | None, tag: str | None
) -> tuple[list[str] | None, list[str] | None]:
    """The aliases and tags that the id may come from; None for all."""
    if generator is not None or tag is not None:
        return [generator] if generator else [], [tag] if tag else []
    if not spelling.is_named:
        return None, None
    aliases = (field.generator for field in spelling.fields if isinstance(field, SnowflakeSource))
    tags = (field.resolved_tag for field in spelling.fields if isinstance(field, SegmentSource))
    return list(dict.fromkeys(aliases)), list(dict.fromkeys(tags))


def _likely_fields(
    snowflakes: Iterable[SnowflakeReading], segments: TagReadings
) -> Iterator[GeneratedOnSave]:
    """The fields whose generator or tag may have made the id; only those with a unique index."""
    aliases = {each.alias for each in snowflakes if each.is_plausible}
    tags = {each.tag for each in segments.tags}
    for model in apps.get_models():
        for field in model._meta.local_concrete_fields:
            if not field.unique:
                continue
            if (isinstance(field, SnowflakeSource) and field.generator in aliases) or (
                isinstance(field, SegmentSource) and field.resolved_tag in tags
            ):
                yield field


def _rows(number: int, fields: Iterable[GeneratedOnSave]) -> Iterator[RowFound]:
    away: set[str] = set()  # databases that don't answer are asked once
    for field in fields:
        alias = router.db_for_read(field.model)
        if alias in away:
            continue
        rows = field.model._base_manager.using(alias)
        try:
            # A savepoint, so that an error does not break the caller's transaction.
            with transaction.atomic(using=alias):
                row = rows.filter(**{field.attname: number}).first()
            yield RowFound(field, row)
        except (DatabaseError, IdgenError) as error:
            if isinstance(error, OperationalError):
                away.add(alias)
            words = {"table": field.model._meta.db_table, "error": one_line(error)}
            yield RowFound(field, None, _("“%(table)s” can't be queried: %(error)s") % words)
