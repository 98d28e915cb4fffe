"""Readings as text for a terminal, and as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

from ...db.dialects import aware_moment
from ...sources.history import POOL
from . import Reading, RowFound
from .grants import SegmentReading, Standing
from .snowflakes import BitField, SnowflakeReading, layout_document, parts_document

STANDINGS = {
    Standing.POSSIBLE: "may have given it out: its next id is {max_id}; there is no history",
    Standing.AHEAD: "has not given it out: its next id is {max_id}",
    Standing.UNKNOWN: "there is no such tag",
}


# --- text ---------------------------------------------------------------------------------


def lines(reading: Reading, width: int, *, offline: bool) -> Iterator[str]:
    """Everything about a reading. Drawn bits are no wider than ``width``.

    Bits are drawn for plausible generators, or for the only one.
    """
    text = reading.spelling.text
    shown = repr(text) if len(text) <= 80 else f"{text[:77]!r}..."
    yield f"read from {shown}: {reading.spelling.why}"
    for row in reading.rows:
        yield f"{row.field}: {_row(row)}"
    for each in reading.snowflakes:
        yield ""
        yield from _snowflake(each, width, offline, is_only=len(reading.snowflakes) == 1)
    for note in reading.segments.notes:
        yield ""
        yield f"tags: {note}"
    for segment in reading.segments.tags:
        yield ""
        yield from _segment(segment)
    if reading.segments.more:
        yield f"and {reading.segments.more} more tags have given out higher ids"


def _row(found: RowFound) -> str:
    if found.problem:
        return found.problem
    name = found.field.model._meta.verbose_name
    return f"no {name} has it" if found.row is None else f"{name} “{found.row}”"


def _snowflake(
    reading: SnowflakeReading, width: int, offline: bool, *, is_only: bool
) -> Iterator[str]:
    name, parts = f"generator {reading.alias!r} ({reading.layout})", reading.parts
    if parts is None:
        yield f"{name}: {reading.doubts[0]}"
        return
    yield f"{name}:" if reading.is_plausible else f"{name}: probably not one of its ids"
    for doubt in reading.doubts:
        yield f"  ! {doubt}"
    if reading.is_plausible or is_only:
        yield from (f"  {line}" for line in drawn_bits(reading.fields, width - 2))
    named = ", ".join(f"{name} {value}" for name, value in parts.worker_parts.items())
    facts = {
        "time": f"{_clock(parts.created)} (tick {parts.tick})",
        "worker": f"{parts.worker} ({named})" if named else f"{parts.worker}",
        "sequence": f"{parts.sequence}",
    }
    if reading.layout.batches > 1:
        facts["batch"] = f"{parts.batch}"
    if reading.is_plausible:
        facts["held by"] = "not asked (--offline)" if offline else _holder(reading)
    for key, value in facts.items():
        yield f"  {key:<9} {value}"


def _holder(reading: SnowflakeReading) -> str:
    lease = reading.lease
    if lease is None:
        return f"unknown: {reading.holder_unknown}"
    since = "" if lease.acquired_at is None else f", since {_clock(lease.acquired_at)}"
    return f"{lease.mark.holder or 'a holder without a name'}{since}"


def _segment(reading: SegmentReading) -> Iterator[str]:
    fields = ", ".join(map(str, reading.fields))
    name = f"tag {reading.tag!r}" + (f" ({fields})" if fields else "")
    if not reading.grants:
        yield f"{name}: {STANDINGS[reading.standing].format(max_id=reading.max_id)}"
        return
    yield f"{name}:"
    for grant in reading.grants:
        every = f", every {grant.delta}th" if grant.delta > 1 else ""
        holder = "the pool" if grant.holder == POOL else grant.holder
        yield (
            f"  handed to {holder} at {_clock(grant.taken_at)}, in a segment of "
            f"{grant.start} to {grant.last}{every} (database {grant.database!r})"
        )


def drawn_bits(fields: Sequence[BitField], width: int) -> list[str]:
    """The bits of an id, to scale; nothing if they are wider than ``width`` columns.

    ::

         62                                        21         11         0
        |-----------------------------------------|----------|------------|
         00000110111011110111011011010111111011110 1000011100 000000000000
         time 41                                   worker 10  sequence 12
    """
    columns = [field.bits for field in fields]
    if sum(columns) + len(columns) + 1 > width:
        return []
    numbers = names = ""
    starts = accumulate((count + 1 for count in columns), initial=1)
    for field, start in zip(fields, starts, strict=False):
        if start == 1 or start > len(numbers):  # there is room for the number of its highest bit
            numbers = numbers.ljust(start) + str(field.offset + field.bits - 1)
        names = names.ljust(start) + f"{field.name} {field.bits}  "
    end = sum(columns) + len(columns) - 1
    return [
        numbers.ljust(end) + "0" if len(numbers) < end else numbers,
        "|" + "|".join("-" * count for count in columns) + "|",
        " " + " ".join(field.digits for field in fields),
        names.rstrip(),
    ]


def _utc(when: datetime) -> datetime:
    return aware_moment(when).astimezone(UTC)


def _clock(when: datetime) -> str:
    utc = _utc(when)
    return f"{utc:%Y-%m-%d %H:%M:%S}.{utc.microsecond // 1000:03d} UTC"


# --- JSON -----------------------------------------------------------------------------------


def to_json(reading: Reading) -> dict[str, Any]:
    """A reading for JSON. Ids are strings: JavaScript reads numbers past 2**53 wrong."""
    spelling = reading.spelling
    return {
        "id": str(reading.id),
        "text": spelling.text,
        "form": spelling.form,
        "prefix": spelling.prefix,
        "why": spelling.why,
        "fields": [str(field) for field in spelling.fields],
        "rows": [
            {
                "field": str(each.field),
                "exists": None if each.problem else each.row is not None,
                "problem": each.problem,
            }
            for each in reading.rows
        ],
        "generators": [_snowflake_json(each) for each in reading.snowflakes],
        "tags": [_segment_json(each) for each in reading.segments.tags],
        "more_tags": reading.segments.more,
        "notes": list(reading.segments.notes),
    }


def _snowflake_json(reading: SnowflakeReading) -> dict[str, Any]:
    parts, lease = reading.parts, reading.lease
    return {
        "generator": reading.alias,
        "namespace": reading.namespace,
        "plausible": reading.is_plausible,
        "doubts": list(reading.doubts),
        "parts": parts and {**parts_document(parts), "tick": parts.tick},
        "fields": [_bits_json(field) for field in reading.fields],
        "layout": layout_document(reading.layout),
        "held_by": lease and {"holder": lease.mark.holder, "acquired_at": _iso(lease.acquired_at)},
        "held_by_unknown": reading.holder_unknown,
    }


def _bits_json(field: BitField) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "name": field.name,
        "bits": field.bits,
        "offset": field.offset,
        "value": field.value,
    }
    if field.parts:
        shown["parts"] = [_bits_json(part) for part in field.parts]
    return shown


def _segment_json(reading: SegmentReading) -> dict[str, Any]:
    return {
        "tag": reading.tag,
        "standing": reading.standing.value,
        "max_id": str(reading.max_id),
        "fields": [str(field) for field in reading.fields],
        "grants": [
            {
                "database": grant.database,
                "holder": grant.holder,
                "start": str(grant.start),
                "stop": str(grant.stop),
                "delta": grant.delta,
                "taken_at": _iso(grant.taken_at),
            }
            for grant in reading.grants
        ],
    }


def _iso(when: datetime | None) -> str | None:
    return None if when is None else _utc(when).isoformat().replace("+00:00", "Z")
