"""``manage.py idgen_grow``: spread the tags of segments over more databases."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error

from django_idgen.contrib.sharding.growth import Growth, refuse_use
from django_idgen.core.errors import IdgenError, one_line, sentence


class Command(BaseCommand):
    help = (
        "Spread the tags of segments over more databases. Stop all processes that take ids first. "
        "Name all databases in the order that the 'databases' option will have, those in use "
        "first. Their number must be a multiple of the number in use. Without --yes it only shows "
        "what it would do."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("databases", nargs="+", help="aliases in DATABASES, in order")
        parser.add_argument("--yes", action="store_true", help="do it")

    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            self._grow(Growth(options["databases"]), yes=options["yes"])
        except IdgenError as error:
            raise CommandError(one_line(error)) from error
        except Error as error:
            raise CommandError(f"{sentence(error)} Run it again to continue.") from error

    def _grow(self, growth: Growth, *, yes: bool) -> None:
        plan = growth.plan()
        if not plan:
            self.stdout.write("There is nothing to do.")
            return
        self.stdout.write("\n".join(plan))
        if not yes:
            self.stdout.write("Nothing was done yet. Run it again with --yes to do it.")
            return
        refuse_use(growth.databases)
        growth.run()
        names = ", ".join(map(repr, growth.databases))
        self.stdout.write(
            f"Done. Now give all processes 'databases': [{names}], in this order, and start them."
        )
