"""``manage.py idgen_decode``: decode ids in any of their forms."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from ...core.errors import IdgenError, InvalidId
from ...ops.decoding import FORMS, readings
from ...ops.decoding.rendering import lines


class Command(BaseCommand):
    help = (
        "Decode ids: their time, worker id and sequence, who holds the worker id, and the "
        "segment that they were handed out with. An id is a number, or a text in any form that a "
        "field writes; all possible readings are shown. Shows what it can without a database."
    )
    requires_system_checks: list[str] = []  # noqa: RUF012

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "ids",
            nargs="+",
            metavar="ID",
            help="an id in any form; - reads ids from standard input, one per line",
        )
        parser.add_argument("--generator", metavar="ALIAS", help="read it as one of this generator")
        parser.add_argument("--tag", help="read it as one of this tag")
        parser.add_argument("--form", choices=FORMS, help="the form that it is written in")
        parser.add_argument("--json", action="store_true", help="one JSON document per line")
        parser.add_argument(
            "--offline", action="store_true", help="ask no database, Redis or service"
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        errors = []
        for given in _ids(options["ids"]):
            found: list[dict[str, Any]] = []
            error = ""
            try:
                found = readings(
                    given,
                    generator=options["generator"],
                    tag=options["tag"],
                    form=options["form"],
                    offline=options["offline"],
                )
            except InvalidId as failure:
                error = str(failure)
                errors.append(error)
            except IdgenError as failure:
                raise CommandError(str(failure)) from failure
            if options["json"]:
                self.stdout.write(json.dumps({"given": given, "error": error, "readings": found}))
            else:
                self._write(found, offline=options["offline"])
        if errors:
            raise CommandError("\n".join(errors))

    def _write(self, found: list[dict[str, Any]], *, offline: bool) -> None:
        columns = shutil.get_terminal_size().columns
        for reading in found:
            self.stdout.write(self.style.MIGRATE_HEADING(reading["id"]))
            for line in lines(reading, columns - 2, offline=offline):
                self.stdout.write(f"  {line}".rstrip())
            self.stdout.write("")


def _ids(given: Iterable[str]) -> Iterator[str]:
    for each in given:
        if each == "-":
            # A line of bytes that are no text is one invalid id, and does not end the rest.
            if reconfigure := getattr(sys.stdin, "reconfigure", None):
                reconfigure(errors="replace")
            yield from (line.strip() for line in sys.stdin if line.strip())
        else:
            yield each
