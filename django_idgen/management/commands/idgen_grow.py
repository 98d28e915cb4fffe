"""``manage.py idgen_grow``: have more databases share the tags of segments."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error

from django_idgen.contrib.sharding.growth import Growth
from django_idgen.core.errors import ConfigurationError


class Command(BaseCommand):
    help = (
        "Have the tags of segments be shared by more databases than now, while ids are being "
        "taken. Name all of them, those in use first, as the 'databases' option will have them: "
        "their number must be a multiple of those in use. Without --yes it says what it would do."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("databases", nargs="+", help="aliases of DATABASES, in their order")
        parser.add_argument("--yes", action="store_true", help="do it")
        parser.add_argument(
            "--finish",
            action="store_true",
            help="when every process has the new list: refuse those that have the old one",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            self._grow(Growth(options["databases"]), options)
        except (ConfigurationError, Error) as error:
            raise CommandError(
                f"{' '.join(str(error).split())} What was done so far holds; run it again to go on."
            ) from error

    def _grow(self, growth: Growth, options: dict[str, Any]) -> None:
        if options["finish"]:
            growth.finish()
            self.stdout.write("Processes that know of fewer databases are refused from now on.")
            return
        plan = growth.plan()
        if not plan:
            self.stdout.write("Nothing is to be done.")
            return
        self.stdout.write("\n".join(plan))
        if not options["yes"]:
            self.stdout.write("Nothing was done yet. Run it again with --yes to do it.")
            return
        growth.run(self.stdout.write)
        names = ", ".join(map(repr, growth.databases))
        self.stdout.write(
            f"Done. Now give all processes 'databases': [{names}], in this order, and at last run "
            f"this command with --finish."
        )
