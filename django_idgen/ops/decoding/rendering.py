"""A reading as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import accumulate
from typing import Any

from ...core.source import POOL

Document = dict[str, Any]
STANDINGS = {
    "possible": "may have given it out: its next id is {max_id}",
    "ahead": "has not given it out: its next id is {max_id}",
    "unknown": "there is no such tag",
}


def lines(reading: Document, width: int, *, offline: bool) -> Iterator[str]:
    """Everything about a reading. Drawn bits are no wider than ``width``.

    Bits are drawn for plausible generators, or for the only one.
    """
    text = reading["text"]
    shown = repr(text) if len(text) <= 80 else f"{text[:77]!r}..."
    yield f"read from {shown}: {reading['why']}"
    for row in reading["rows"]:
        found = f"“{row['row']}”" if row["exists"] else "no row has it"
        yield f"{row['field']}: {row['problem'] or found}"
    for each in reading["generators"]:
        yield ""
        yield from _snowflake(each, width, offline, is_only=len(reading["generators"]) == 1)
    for note in reading["notes"]:
        yield ""
        yield f"tags: {note}"
    for tag in reading["tags"]:
        yield ""
        yield from _tag(tag)
    if reading["more_tags"]:
        yield f"and {reading['more_tags']} more tags have given out higher ids"


def _snowflake(reading: Document, width: int, offline: bool, *, is_only: bool) -> Iterator[str]:
    parts, layout = reading["parts"], reading["layout"]
    name = f"generator {reading['generator']!r} ({layout['text']})"
    if parts is None:
        yield f"{name}: {reading['doubts'][0]}"
        return
    yield f"{name}:" if reading["plausible"] else f"{name}: probably not one of its ids"
    for doubt in reading["doubts"]:
        yield f"  ! {doubt}"
    if reading["plausible"] or is_only:
        yield from (f"  {line}" for line in drawn_bits(reading["fields"], width - 2))
    named = ", ".join(f"{name} {value}" for name, value in parts["worker_parts"].items())
    facts = {
        "time": f"{_clock(parts['time'])} (tick {parts['tick']})",
        "worker": f"{parts['worker']} ({named})" if named else parts["worker"],
        "sequence": parts["sequence"],
    }
    if layout["bits"].get("batch"):
        facts["batch"] = parts["batch"]
    if reading["plausible"]:
        facts["held by"] = "not asked (--offline)" if offline else _holder(reading)
    for key, value in facts.items():
        yield f"  {key:<9} {value}"


def _holder(reading: Document) -> str:
    held = reading["held_by"]
    if held is None:
        return f"unknown: {reading['held_by_unknown']}"
    since = "" if held["acquired_at"] is None else f", since {_clock(held['acquired_at'])}"
    return f"{held['holder'] or 'a holder without a name'}{since}"


def _tag(reading: Document) -> Iterator[str]:
    fields = ", ".join(reading["fields"])
    name = f"tag {reading['tag']!r}" + (f" ({fields})" if fields else "")
    if reading["grants"]:
        yield f"{name}:"
    else:
        yield f"{name}: {STANDINGS[reading['standing']].format(**reading)}"
    for grant in reading["grants"]:
        every = f", one in {grant['delta']}" if grant["delta"] > 1 else ""
        holder = "the pool" if grant["holder"] == POOL else grant["holder"]
        yield (
            f"  handed to {holder} at {_clock(grant['taken_at'])}, in a segment of "
            f"{grant['start']} to {grant['last']}{every} (database {grant['database']!r})"
        )
    if reading["not_recorded"]:
        yield f"  {reading['not_recorded']}"


def drawn_bits(fields: Sequence[Document], width: int) -> list[str]:
    """The bits of an id, to scale; nothing if they are wider than ``width`` columns.

    ::

         62                                        21         11         0
        |-----------------------------------------|----------|------------|
         00000110111011110111011011010111111011110 1000011100 000000000000
         time 41                                   worker 10  sequence 12
    """
    columns = [field["bits"] for field in fields]
    if sum(columns) + len(columns) + 1 > width:
        return []
    numbers = names = ""
    starts = accumulate((count + 1 for count in columns), initial=1)
    for field, start in zip(fields, starts, strict=False):
        if start == 1 or start > len(numbers):  # there is room for the number of its highest bit
            numbers = numbers.ljust(start) + str(field["offset"] + field["bits"] - 1)
        names = names.ljust(start) + f"{field['name']} {field['bits']}  "
    end = sum(columns) + len(columns) - 1
    return [
        numbers.ljust(end) + "0" if len(numbers) < end else numbers,
        "|" + "|".join("-" * count for count in columns) + "|",
        " " + " ".join(field["digits"] for field in fields),
        names.rstrip(),
    ]


def _clock(text: str) -> str:
    moment = datetime.fromisoformat(text)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d} UTC"
