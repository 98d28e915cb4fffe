"""``manage.py idgen_native``: ids for rows that other programs insert."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error, connections, router
from django.db.backends.base.base import BaseDatabaseWrapper

from django_idgen.core.errors import ConfigurationError, IdgenError, one_line
from django_idgen.ops.native import (
    LENGTH,
    NativeColumn,
    native_column,
    on_own_connection,
    segment_fields,
    unsupported,
)

Work = Callable[[NativeColumn], str]


class Command(BaseCommand):
    help = (
        "Give the id columns of a tag a default in the database (a sequence of PostgreSQL or "
        "MariaDB), so that psql, ETL and triggers can leave the id out. Its ids are a segment of "
        "the tag, and never repeat those that Django gives. Without a tag: list the sequences."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "tag", nargs="?", help="tag of the field, by default app_label.modelname"
        )
        parser.add_argument(
            "--database", metavar="ALIAS", help="where the table is (default: as the router says)"
        )
        parser.add_argument(
            "--length",
            type=int,
            help=f"ids to reserve at a time (default: {LENGTH}, then as many as last time)",
        )
        action = parser.add_mutually_exclusive_group()
        for name, help_text in (
            ("list", "show the sequences, and how many ids are left"),
            ("extend", "set the next segment of sequences that are half used up"),
            (
                "renew",
                "stop using the present segment, for example after a restore of the database",
            ),
            ("remove", "remove the default, and drop the sequence"),
        ):
            action.add_argument(f"--{name}", action="store_true", help=help_text)

    def handle(self, *_args: Any, **options: Any) -> None:
        tag, work = options["tag"], self._work(options)
        if tag is None and (options["renew"] or options["remove"]):
            raise CommandError("Name the tag.")
        try:
            lines = 0
            for field in _fields(tag):
                # Written at once: after a failure it shows what was done.
                for line in self._done(field, work, options):
                    self.stdout.write(line)
                    lines += 1
        except (IdgenError, Error) as error:
            raise CommandError(one_line(error)) from error
        if not lines:
            self.stdout.write("There are no sequences of idgen_native.")

    def _work(self, options: dict[str, Any]) -> Work:
        length = options["length"]
        if options["remove"]:
            return NativeColumn.remove
        if options["renew"]:
            return lambda column: column.extend(length, renew=True)
        if options["extend"]:
            return lambda column: column.extend(length) or column.describe()
        if options["tag"] is None or options["list"]:
            return NativeColumn.describe
        return lambda column: column.install(length)

    def _done(self, field: Any, work: Work, options: dict[str, Any]) -> Iterator[str]:
        alias = options["database"] or router.db_for_write(field.model)
        if alias not in connections.settings:
            raise ConfigurationError(f"There is no database {alias!r}.")
        known = router.allow_migrate_model(alias, field.model)
        if known and connections[alias].vendor in {"postgresql", "mysql"}:
            run = partial(_run, field, work, every=options["tag"] is None)
            if done := on_own_connection(alias, run):
                yield done
        elif options["tag"] is not None:
            if known:
                raise unsupported(connections[alias])
            raise ConfigurationError(f"{field.model._meta.label} has no table in {alias!r}.")


def _run(field: Any, work: Work, connection: BaseDatabaseWrapper, *, every: bool) -> str:
    column = native_column(connection, field)
    if column is None and not every:
        raise unsupported(connection)
    if column is None or (every and column.position() is None):
        return ""
    return work(column)


def _fields(tag: str | None) -> list[Any]:
    found = segment_fields(tag)
    if tag is not None and not found:
        known = ", ".join(sorted({field.resolved_tag for field in segment_fields()})) or "none"
        raise ConfigurationError(
            f"No model has a SegmentIdField or SegmentAutoField with tag {tag!r}. The tags of "
            f"models are: {known}."
        )
    return found
