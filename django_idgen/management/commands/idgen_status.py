"""``manage.py idgen_status``: the state of generators, leases, tags, pools and databases."""

from __future__ import annotations

import json
import shutil
import time
from argparse import ArgumentTypeError
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from ...core.errors import ConfigurationError, InvalidTag
from ...core.segment import check_tag
from ...ops.probes import Probes
from ...ops.status import MOST_TAGS, WITHIN, status
from ...ops.status_text import render
from ...settings import SettingsError

CLEARED = "\x1b[H\x1b[2J"
"""Clears a terminal."""
WATCHED_EVERY = 2.0
LONGEST = 86_400.0
"""Seconds."""


class Command(BaseCommand):
    help = (
        "Show generators and who holds their worker ids, tags and how long their ids last, the "
        "pool, and the databases. Takes no id. The exit code is 0 even if something is down (see "
        "idgen_doctor for monitoring)."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="print a JSON document")
        parser.add_argument(
            "--watch",
            nargs="?",
            type=_seconds,
            const=WATCHED_EVERY,
            metavar="SECONDS",
            help=f"repeat every SECONDS (default: {WATCHED_EVERY:g}) until Ctrl-C",
        )
        parser.add_argument(
            "--generator",
            action="append",
            metavar="ALIAS",
            help="only these generators; may be given several times",
        )
        parser.add_argument("--tag", nargs="+", action="extend", help="only these tags")
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
        asked: dict[str, Any] = {
            "generators": options["generator"],
            "tags": options["tag"],
            "most_tags": None if options["all"] or options["tag"] else MOST_TAGS,
            "within": options["timeout"],
            "probes": Probes(),  # kept, so that one that hangs is not asked again beside itself
        }
        try:
            for tag in options["tag"] or ():
                check_tag(tag)
            if options["watch"] is None:
                self._show(asked, options)
            else:
                self._watch(asked, options)
        except (SettingsError, InvalidTag, ConfigurationError) as error:
            raise CommandError(str(error)) from error

    def _watch(self, asked: dict[str, Any], options: dict[str, Any]) -> None:
        try:
            while True:
                self._show(asked, options)
                self.stdout.flush()
                time.sleep(options["watch"])
        except KeyboardInterrupt:
            self.stdout.write("")
        except BrokenPipeError:  # its reader has ended
            pass

    def _show(self, asked: dict[str, Any], options: dict[str, Any]) -> None:
        found, watched = status(**asked), options["watch"] is not None
        if options["json"]:
            # Each of several documents is on a line of its own.
            self.stdout.write(json.dumps(found, indent=None if watched else 2))
        else:
            on_terminal = self.stdout.isatty()
            width = shutil.get_terminal_size().columns if on_terminal else None
            text = render(found, width=width, every=options["all"])
            self.stdout.write(CLEARED + text if watched and on_terminal else text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= LONGEST:
        raise ArgumentTypeError(f"{text!r} must be a number of seconds, 0.1 to {LONGEST:g}.")
    return seconds
