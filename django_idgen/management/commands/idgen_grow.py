"""``manage.py idgen_grow``: spread the tags of segments over more databases."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error

from django_idgen.contrib.sharding.growth import Growth
from django_idgen.core.errors import ConfigurationError, one_line, sentence


class Command(BaseCommand):
    help = (
        "Spread the tags of segments over more databases, while ids are being taken. Name all "
        "databases in the order that the 'databases' option will have, those in use first. Their "
        "number must be a multiple of the number in use. Without --yes it only shows what it "
        "would do."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("databases", nargs="+", help="aliases in DATABASES, in order")
        parser.add_argument("--yes", action="store_true", help="do it")
        parser.add_argument(
            "--finish",
            action="store_true",
            help="once every process has the new list: refuse processes with the old one",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            self._grow(Growth(options["databases"]), options)
        except ConfigurationError as error:
            raise CommandError(one_line(error)) from error
        except Error as error:
            raise CommandError(f"{sentence(error)} Run it again to continue.") from error

    def _grow(self, growth: Growth, options: dict[str, Any]) -> None:
        if options["finish"]:
            growth.finish()
            self.stdout.write("From now on, processes with a shorter list are refused.")
            return
        plan = growth.plan()
        if not plan:
            self.stdout.write("There is nothing to do.")
            return
        self.stdout.write("\n".join(plan))
        if not options["yes"]:
            self.stdout.write("Nothing was done yet. Run it again with --yes to do it.")
            return
        growth.run(self.stdout.write)
        names = ", ".join(map(repr, growth.databases))
        self.stdout.write(
            f"Done. Now give all processes 'databases': [{names}], in this order. Then run this "
            f"command with --finish."
        )
