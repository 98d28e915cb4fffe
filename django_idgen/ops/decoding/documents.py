"""Readings as JSON-able documents, for programs that read what a command prints."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.utils.timezone import get_default_timezone, is_aware, make_aware

from . import Reading, RowFound, label
from .grants import Grant, SegmentReading
from .snowflakes import BitField, SnowflakeReading, layout_document, parts_document

__all__ = ["reading_document"]


def reading_document(reading: Reading) -> dict[str, Any]:
    """A reading for JSON. Ids are strings: JavaScript reads numbers past 2**53 wrong."""
    spelling = reading.spelling
    return {
        "id": str(reading.id),
        "text": spelling.text,
        "form": spelling.form,
        "prefix": spelling.prefix,
        "why": spelling.why,
        "fields": [label(field) for field in spelling.fields],
        "rows": [_row(row) for row in reading.rows],
        "generators": [_snowflake(each) for each in reading.snowflakes],
        "tags": [_segment(each) for each in reading.segments.tags],
        "more_tags": reading.segments.more,
        "notes": list(reading.segments.notes),
    }


def _row(found: RowFound) -> dict[str, Any]:
    exists = None if found.problem else found.row is not None
    return {"field": label(found.field), "exists": exists, "problem": found.problem}


def _snowflake(reading: SnowflakeReading) -> dict[str, Any]:
    parts, past_lease = reading.parts, reading.past_lease
    return {
        "generator": reading.alias,
        "namespace": reading.namespace,
        "plausible": reading.is_plausible,
        "doubts": list(reading.doubts),
        "parts": None if parts is None else {**parts_document(parts), "tick": parts.tick},
        "fields": [_bits(field) for field in reading.fields],
        "layout": layout_document(reading.layout),
        "held_by": None
        if past_lease is None
        else {"holder": past_lease.holder, "acquired_at": _moment(past_lease.acquired_at)},
        "held_by_unknown": reading.past_lease_unknown,
    }


def _bits(field: BitField) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "name": field.name,
        "bits": field.bits,
        "offset": field.offset,
        "value": field.value,
    }
    if field.parts:
        shown["parts"] = [_bits(part) for part in field.parts]
    return shown


def _segment(reading: SegmentReading) -> dict[str, Any]:
    return {
        "tag": reading.tag,
        "standing": reading.standing.value,
        "max_id": str(reading.max_id),
        "fields": [label(field) for field in reading.fields],
        "grants": [_grant(grant) for grant in reading.grants],
    }


def _grant(grant: Grant) -> dict[str, Any]:
    return {
        "database": grant.database,
        "holder": grant.holder,
        "start": str(grant.start),
        "stop": str(grant.stop),
        "delta": grant.delta,
        "taken_at": _moment(grant.taken_at),
    }


def _moment(when: datetime | None) -> str | None:
    """In UTC, also where the project's datetimes are local ones, or naive."""
    if when is None:
        return None
    aware = when if is_aware(when) else make_aware(when, get_default_timezone())
    return aware.astimezone(UTC).isoformat().replace("+00:00", "Z")
