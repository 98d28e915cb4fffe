"""``manage.py idgen_decode``: ids taken apart, in whatever form they come."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser, no_translations
from django.db import models
from django.utils import timezone

from ...core.errors import IdgenError, InvalidId
from ...ops.decoding import (
    FORMS,
    Reading,
    RowFound,
    SegmentReading,
    SnowflakeReading,
    Standing,
    TagReadings,
    label,
    readings,
)
from ...ops.decoding.documents import reading_document
from ...ops.decoding.drawing import drawn_bits

__all__ = ["Command"]

STANDINGS = {
    Standing.POSSIBLE: "may be of it: its next free id is {max_id}; no history says who took it",
    Standing.AHEAD: "not given out yet: its next free id is {max_id}",
    Standing.UNKNOWN: "there is no such tag",
}


class Command(BaseCommand):
    help = (
        "Say what ids are: their time, worker id and sequence, who held that worker id then, and "
        "the segment that a number was handed out with. An id is a number, or a text in any form "
        "that a field writes; all that it can be is shown. Works without a database, as far as it "
        "can."
    )
    requires_system_checks: list[str] = []  # noqa: RUF012

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "ids", nargs="+", metavar="ID", help="an id in any form; - reads more, one a line"
        )
        parser.add_argument("--generator", metavar="ALIAS", help="read it as one of this generator")
        parser.add_argument("--tag", help="read it as one of this tag")
        parser.add_argument("--form", choices=FORMS, help="the form that it is written in")
        parser.add_argument("--json", action="store_true", help="one JSON document a line")
        parser.add_argument(
            "--offline", action="store_true", help="ask no database, no Redis and no service"
        )

    @no_translations
    def handle(self, *_args: Any, **options: Any) -> None:
        unread = []
        for given in self._given(options["ids"]):
            try:
                found = readings(
                    given,
                    generator=options["generator"],
                    tag=options["tag"],
                    form=options["form"],
                    offline=options["offline"],
                )
            except InvalidId as error:
                unread.append(str(error))
                if options["json"]:
                    self._write_json({"given": given, "error": str(error), "readings": []})
                continue
            except IdgenError as error:
                raise CommandError(str(error)) from error
            self._tell(given, found, options)
        if unread:
            raise CommandError("\n".join(unread))

    def _given(self, words: Iterable[str]) -> Iterator[str]:
        for word in words:
            if word == "-":
                yield from (line.strip() for line in _standard_input() if line.strip())
            else:
                yield word

    def _tell(self, given: str, found: list[Reading], options: dict[str, Any]) -> None:
        if options["json"]:
            documents = [reading_document(reading) for reading in found]
            self._write_json({"given": given, "error": "", "readings": documents})
            return
        columns = shutil.get_terminal_size().columns
        for reading in found:
            self.stdout.write(self.style.MIGRATE_HEADING(f"{reading.id}"))
            for line in described(reading, columns - 2, asked=not options["offline"]):
                self.stdout.write(f"  {line}".rstrip())
            self.stdout.write("")

    def _write_json(self, document: dict[str, Any]) -> None:
        self.stdout.write(json.dumps(document))


def _standard_input() -> Iterable[str]:
    # Bytes that are no text make one line no id, not the whole of it unreadable.
    reconfigure = getattr(sys.stdin, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")
    return sys.stdin


# --- in words -----------------------------------------------------------------------------


def described(reading: Reading, width: int, *, asked: bool) -> Iterator[str]:
    """Everything about a reading, line by line; the bits no wider than ``width``.

    They are drawn of the generators whose id it may well be, or of the only one.
    """
    spelling = reading.spelling
    yield f"read from {_short(spelling.text)}: {spelling.why}"
    for row in reading.rows:
        yield _row(row)
    for each in reading.snowflakes:
        yield ""
        drawn = each.is_plausible or len(reading.snowflakes) == 1
        yield from _snowflake(each, width if drawn else 0, asked)
    yield from _segments(reading.segments)


def _row(found: RowFound) -> str:
    model: type[models.Model] = found.field.model
    if found.problem:
        return f"{label(found.field)}: {found.problem}"
    if found.row is None:
        return f"{label(found.field)}: no {model._meta.verbose_name} has it"
    return f"{label(found.field)}: {model._meta.verbose_name} “{found.row}”"


def _snowflake(reading: SnowflakeReading, width: int, asked: bool) -> Iterator[str]:
    name = f"generator {reading.alias!r} ({reading.layout})"
    if reading.parts is None:
        yield f"{name}: {reading.doubts[0]}"
        return
    yield f"{name}:" if reading.is_plausible else f"{name}: hardly one of its ids"
    for doubt in reading.doubts:
        yield f"  ! {doubt}"
    if width:
        yield from (f"  {line}" for line in drawn_bits(reading.fields, width - 2))
    for key, value in _facts(reading, asked):
        yield f"  {key:<9} {value}"


def _facts(reading: SnowflakeReading, asked: bool) -> Iterator[tuple[str, str]]:
    parts = reading.parts
    if parts is None:
        return
    yield "time", f"{_moment(parts.created)} (tick {parts.tick})"
    named = ", ".join(f"{name} {value}" for name, value in parts.worker_parts.items())
    yield "worker", f"{parts.worker} ({named})" if named else f"{parts.worker}"
    yield "sequence", f"{parts.sequence}"
    if reading.layout.batches > 1:
        yield "batch", f"{parts.batch}"
    if reading.is_plausible:
        yield "held by", _holder(reading) if asked else "not asked (--offline)"


def _holder(reading: SnowflakeReading) -> str:
    past_lease = reading.past_lease
    if past_lease is None:
        return f"can't be told: {reading.past_lease_unknown}"
    since = "" if past_lease.acquired_at is None else f", since {_moment(past_lease.acquired_at)}"
    return f"{past_lease.holder or 'somebody without a name'}{since}"


def _segments(found: TagReadings) -> Iterator[str]:
    for note in found.notes:
        yield ""
        yield f"tags: {note}"
    for reading in found.tags:
        yield ""
        yield from _segment(reading)
    if found.more:
        yield f"and {found.more} more tags have given out higher ids"


def _segment(reading: SegmentReading) -> Iterator[str]:
    fields = ", ".join(map(label, reading.fields))
    name = f"tag {reading.tag!r}" + (f" ({fields})" if fields else "")
    if not reading.grants:
        yield f"{name}: {STANDINGS[reading.standing].format(max_id=reading.max_id)}"
        return
    yield f"{name}:"
    for grant in reading.grants:
        every = f", every {grant.delta}th" if grant.delta > 1 else ""
        yield (
            f"  handed to {grant.holder} at {_moment(grant.taken_at)}, in a segment of "
            f"{grant.start} to {grant.last}{every} (database {grant.database!r})"
        )


def _moment(when: datetime) -> str:
    shown = when if timezone.is_aware(when) else timezone.make_aware(when)
    utc = shown.astimezone(timezone.get_fixed_timezone(0))
    return f"{utc:%Y-%m-%d %H:%M:%S}.{utc.microsecond // 1000:03d} UTC"


def _short(text: str) -> str:
    return repr(text) if len(text) <= 80 else f"{text[:77]!r}..."
