"""``manage.py idgen_status``: how generators, leases, tags, pools and databases stand."""

from __future__ import annotations

import json
import shutil
import time
from argparse import ArgumentTypeError
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from ...core.errors import ConfigurationError, InvalidTag
from ...core.segment import check_tag
from ...ops.readiness import Probes
from ...ops.status import MOST_TAGS, WITHIN, status
from ...ops.status_text import render
from ...settings.config import SettingsError

__all__ = ["Command"]

CLEARED = "\x1b[H\x1b[2J"
"""Puts a terminal's cursor to the top of an empty screen."""
WATCHED_EVERY = 2.0
LONGEST = 86_400.0
"""Seconds."""


class Command(BaseCommand):
    help = (
        "Show generators and who holds their worker ids, tags and how long their ids last, the "
        "pool, and the databases. Takes no id. It shows what is down; the exit code is "
        "0 nevertheless (see idgen_doctor for monitoring)."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="a document for programs")
        parser.add_argument(
            "--watch",
            nargs="?",
            type=_seconds,
            const=WATCHED_EVERY,
            metavar="SECONDS",
            help=f"look again every so many seconds ({WATCHED_EVERY:g} unless given), and show how "
            f"many ids were fetched in between; Ctrl-C ends it",
        )
        parser.add_argument(
            "--generator",
            action="append",
            metavar="ALIAS",
            help="of these generators alone; may be given several times",
        )
        parser.add_argument("--tag", nargs="+", action="extend", help="of these tags alone")
        parser.add_argument(
            "--all", action="store_true", help=f"all tags, not just the {MOST_TAGS} busiest"
        )
        parser.add_argument(
            "--timeout",
            type=_seconds,
            default=WITHIN,
            metavar="SECONDS",
            help=f"how long databases and Redis may take to answer (default: {WITHIN:g})",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        self._json, self._every = options["json"], options["all"]
        # Of several documents each is on a line of its own.
        self._indent = 2 if options["watch"] is None else None
        self._options: dict[str, Any] = {
            "generators": options["generator"],
            "tags": options["tag"],
            "most_tags": None if options["all"] or options["tag"] else MOST_TAGS,
            "within": options["timeout"],
            # So that one that hangs is not asked again beside itself, look after look.
            "probes": Probes(),
        }
        try:
            for tag in options["tag"] or ():
                check_tag(tag)
            if options["watch"] is None:
                self._show(None)
            else:
                self._watch(options["watch"])
        except (SettingsError, InvalidTag, ConfigurationError) as error:
            raise CommandError(str(error)) from error

    def _watch(self, seconds: float) -> None:
        before: dict[str, Any] | None = None
        try:
            while True:
                before = self._show(before, clear=not self._json and self.stdout.isatty())
                self.stdout.flush()
                time.sleep(seconds)
        except KeyboardInterrupt:
            self.stdout.write("")
        except BrokenPipeError:  # its reader has seen enough
            pass

    def _show(self, before: dict[str, Any] | None, *, clear: bool = False) -> dict[str, Any]:
        found = status(**self._options)
        if self._json:
            self.stdout.write(json.dumps(found, indent=self._indent))
        else:
            width = shutil.get_terminal_size((100, 24)).columns
            text = render(found, width=width, before=before, every=self._every)
            self.stdout.write(CLEARED + text if clear else text)
        return found


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= LONGEST:
        raise ArgumentTypeError(f"{text!r} must be a number of seconds, 0.1 to {LONGEST:g}.")
    return seconds
