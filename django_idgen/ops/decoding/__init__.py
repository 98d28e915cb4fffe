"""Ids taken apart: what a number, or the text of one, can be an id of.

>>> for reading in readings("ord_0ISQUWhLyEa"):
...     print(reading.id, reading.spelling.why)

A reading is one number that the text may mean. It says what each generator takes that
number for (:class:`SnowflakeReading`), and which tags may have given it out
(:class:`SegmentReading`). A prefix of one of the project's fields names the model: then
only the generators and tags of such fields are asked, and whether its row is there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from django.db import DatabaseError, models, router, transaction
from django.utils.translation import gettext as _

from ...core.errors import IdgenError
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
    """Whether a model has a row with the id. Frozen."""

    field: GeneratedOnSave
    row: models.Model | None
    problem: str = ""
    """Why the look-up failed."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One number that the text may mean, and what it is an id of. Frozen."""

    spelling: Spelling
    snowflakes: tuple[SnowflakeReading, ...]
    segments: TagReadings
    rows: tuple[RowFound, ...] = ()
    """Of the models whose prefix it has."""

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
    """Everything that ``given`` can be; the likeliest first.

    ``generator`` and ``tag`` leave out all others, ``form`` (one of :data:`FORMS`) all other
    ways to read the text. ``now`` is for doubts about ids of the future. ``offline`` asks no
    database, Redis or service, and reads all by today's layouts; else the reading names one
    that can't be reached, and an id made before a change of layout is read by its own.

    Raises :class:`InvalidId` for what is no id, :class:`SettingsError`
    for a generator that there is not, and :class:`InvalidTag`.
    """
    moment = datetime.now(UTC) if now is None else now
    if tag is not None:
        check_tag(tag)
    reader = _Reader(generator, tag, moment, offline)
    return [reader.read(spelling) for spelling in spellings(given, form=form)]


class _Reader:
    """Reads one spelling after the other; asks what can't be reached only once."""

    def __init__(
        self, generator: str | None, tag: str | None, now: datetime, offline: bool
    ) -> None:
        self._generator = generator
        self._tag = tag
        self._now = now
        self._offline = offline
        self._registries = None if offline else Registries()
        self._databases = TagDatabases()

    def read(self, spelling: Spelling) -> Reading:
        aliases, tags = _asked(spelling, self._generator, self._tag)
        online = not self._offline
        return Reading(
            spelling,
            snowflake_readings(spelling.id, aliases, now=self._now, registries=self._registries),
            tag_readings(spelling.id, tags, databases=self._databases)
            if online and tags != []
            else TagReadings(),
            tuple(_rows(spelling)) if online else (),
        )


def _asked(
    spelling: Spelling, generator: str | None, tag: str | None
) -> tuple[list[str] | None, list[str] | None]:
    """The aliases and tags that it may be of; None for all."""
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
            # A savepoint, where the caller is in a transaction that an error would end.
            with transaction.atomic(using=alias):
                row = rows.filter(**{field.attname: spelling.id}).first()
            yield RowFound(field, row)
        except (DatabaseError, IdgenError) as error:
            words = {"table": field.model._meta.db_table, "error": " ".join(str(error).split())}
            yield RowFound(field, None, _("“%(table)s” can't be asked: %(error)s") % words)
