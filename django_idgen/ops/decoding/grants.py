"""The segment that an id came from, by the history, or by the ids given out so far."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from django.db import DatabaseError, transaction
from django.utils.functional import cached_property
from django.utils.translation import gettext as _

from ...core.errors import IdgenError, one_line
from ...core.segment import check_tag
from ...db.connection import home_of
from ...db.tables import is_missing
from ...fields import SegmentSource
from ...models import LeafAlloc, SegmentHistory
from ...process import maps
from ...process.tags import is_row_of, tag_databases

MOST_TAGS = 50
"""Tags shown for an id; with thousands of tags, a small id may belong to most of them."""


class Standing(Enum):
    """Whether an id was given out under a tag."""

    GRANTED = "granted"
    """The history has its range."""
    POSSIBLE = "possible"
    """The tag has given out higher ids; the history does not have its range."""
    AHEAD = "ahead"
    """The tag has not reached it yet."""
    UNKNOWN = "unknown"
    """There is no such tag."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A range of ids that was handed out and contains the id."""

    database: str
    holder: str
    start: int
    stop: int
    """Exclusive."""
    delta: int
    taken_at: datetime
    row: int
    """The primary key of the history row."""

    @property
    def last(self) -> int:
        return range(self.start, self.stop, self.delta)[-1]


@dataclass(frozen=True, slots=True)
class SegmentReading:
    """An id, read as one of ``tag``."""

    tag: str
    standing: Standing
    max_id: int
    """The first id that none of its databases has given out; 1 without such a tag."""
    grants: tuple[Grant, ...] = ()
    """Latest first. More than one is a repeat: see ``history.who_issued``."""
    fields: tuple[SegmentSource, ...] = ()
    """The fields of installed models that take their ids from it."""


@dataclass(frozen=True, slots=True)
class TagReadings:
    """An id, read as one of each tag."""

    tags: tuple[SegmentReading, ...] = ()
    """Those of the history first, then those of installed models."""
    more: int = 0
    """How many further tags may have given it out."""
    notes: tuple[str, ...] = field(default=())
    """What could not be read, and why."""


class TagDatabases:
    """The databases that have tags. One that does not answer is only tried once."""

    def __init__(self) -> None:
        self.errors: dict[str, str] = {}

    @cached_property
    def found(self) -> tuple[Sequence[str], Sequence[str]]:
        """Their aliases; or none, and notes that say why."""
        try:
            found = tag_databases()
        except (DatabaseError, IdgenError) as error:
            return (), [one_line(error)]
        if found:
            return found, []
        return (), [_("No database of this project has tags (yet); a service may keep them.")]


def tag_readings(
    number: int, tags: Iterable[str] | None = None, *, databases: TagDatabases | None = None
) -> TagReadings:
    """The tags (among ``tags``, if given) that gave out ``number``, or may have.

    A database that does not answer becomes a note; with the same ``databases`` it is not tried
    again. Raises :class:`InvalidTag`.
    """
    asked = databases or TagDatabases()
    aliases, notes_found = asked.found
    wanted = None if tags is None else [check_tag(tag) for tag in tags]
    notes = [*notes_found, *asked.errors.values()]
    rows: dict[str, dict[str, LeafAlloc]] = {}
    grants: dict[str, list[Grant]] = {}
    more = 0
    for alias in [alias for alias in aliases if alias not in asked.errors]:
        try:
            # A savepoint, so that an error does not break the caller's transaction.
            with transaction.atomic(using=home_of(alias)):
                found, further = _rows(alias, number, wanted)
                granted = _grants(alias, number, wanted or [row.pk for row in found])
            more = max(more, further)
            for row in found:
                rows.setdefault(row.pk, {})[alias] = row
            for tag, grant in granted:
                grants.setdefault(tag, []).append(grant)
        except (DatabaseError, IdgenError) as error:
            asked.errors[alias] = _error_note(alias, error)
            notes.append(asked.errors[alias])
    names = dict.fromkeys([*rows, *grants, *(wanted or ())])
    readings = [_reading(tag, number, rows.get(tag, {}), grants.get(tag, [])) for tag in names]
    if wanted is None:
        readings = [each for each in readings if each.standing is not Standing.AHEAD]
    return TagReadings(tuple(sorted(readings, key=_rank)), more, tuple(notes))


def _error_note(alias: str, error: Exception) -> str:
    words = one_line(error)
    return _("Database “%(database)s” can't be queried: %(error)s") % {
        "database": alias,
        "error": words,
    }


def _rows(alias: str, number: int, wanted: list[str] | None) -> tuple[list[LeafAlloc], int]:
    """The rows of the tags, first those that fields name, and how many more there are."""
    rows = LeafAlloc.objects.using(alias).only("pk", "max_id", "delta", "remainder")
    if wanted is not None:
        return [row for row in rows.filter(pk__in=wanted) if is_row_of(row.pk, alias)], 0
    past = rows.filter(max_id__gt=number)
    own = list(past.filter(pk__in=list(maps.segments.fields))[:MOST_TAGS])
    others = past.exclude(pk__in=[row.pk for row in own])
    room = MOST_TAGS - len(own)
    found = own + list(others.order_by("max_id", "pk")[:room])
    total = past.count()
    return [row for row in found if is_row_of(row.pk, alias)], max(0, total - len(found))


def _grants(alias: str, number: int, tags: Sequence[str]) -> list[tuple[str, Grant]]:
    if is_missing("SegmentHistory", alias):
        return []
    rows = SegmentHistory.objects.using(alias).filter(
        tag__in=tags, start__lte=number, stop__gt=number
    )
    return [
        (row.tag, Grant(alias, row.holder, row.start, row.stop, row.delta, row.taken_at, row.pk))
        for row in rows
        if (number - row.start) % row.delta == 0
    ]


def _reading(
    tag: str, number: int, rows: dict[str, LeafAlloc], grants: list[Grant]
) -> SegmentReading:
    fields = tuple(maps.segments.fields.get(tag, ()))
    max_id = max((row.max_id for row in rows.values()), default=1)
    latest = tuple(sorted(grants, key=lambda grant: grant.taken_at, reverse=True))
    return SegmentReading(tag, _standing(number, rows, grants), max_id, latest, fields)


def _standing(number: int, rows: dict[str, LeafAlloc], grants: list[Grant]) -> Standing:
    if grants:
        return Standing.GRANTED
    if not rows:
        return Standing.UNKNOWN
    given = any(
        number < row.max_id and number % row.delta == row.remainder % row.delta
        for row in rows.values()
    )
    return Standing.POSSIBLE if given else Standing.AHEAD


def _rank(reading: SegmentReading) -> tuple[bool, bool, int, str]:
    granted = reading.standing is Standing.GRANTED
    return (not granted, not reading.fields, reading.max_id, reading.tag)
