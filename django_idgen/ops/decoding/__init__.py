"""Decoding: what a number, or its text, can be an id of.

>>> for reading in readings("ord_0ISQUWhLyEa"):
...     print(reading.id, reading.spelling.why)

A reading is one number that the text may mean. It has the parts that each generator reads in
that number (:class:`SnowflakeReading`), and the tags that may have given it out
(:class:`SegmentReading`). A prefix of one of the project's fields names the model: then only the
generators and tags of such fields are read, and the model's row is looked up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from django.db import DatabaseError, models, router, transaction
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
from .spellings import FORMS, Spelling, label, spellings

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
    "label",
    "layout_document",
    "parts_document",
    "readings",
    "spellings",
]


@dataclass(frozen=True, slots=True)
class RowFound:
    """The row of a model with the id, if there is one."""

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
    """One for each model whose prefix it has."""

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
        if not offline:
            rows = tuple(_rows(spelling))
            if tags != []:
                segments = tag_readings(spelling.id, tags, databases=databases)
        snowflakes = snowflake_readings(spelling.id, aliases, now=moment, registries=registries)
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


def _rows(spelling: Spelling) -> Iterable[RowFound]:
    for field in spelling.fields if spelling.is_named else ():
        alias = router.db_for_read(field.model)
        rows = field.model._base_manager.using(alias)
        try:
            # A savepoint, so that an error does not break the caller's transaction.
            with transaction.atomic(using=alias):
                row = rows.filter(**{field.attname: spelling.id}).first()
            yield RowFound(field, row)
        except (DatabaseError, IdgenError) as error:
            words = {"table": field.model._meta.db_table, "error": one_line(error)}
            yield RowFound(field, None, _("“%(table)s” can't be asked: %(error)s") % words)
