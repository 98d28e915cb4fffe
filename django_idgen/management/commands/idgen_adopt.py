"""``manage.py idgen_adopt``: move tables to our fields, and tags over from other servers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser, no_translations
from django.db import DEFAULT_DB_ALIAS, Error
from django.db.migrations.writer import MigrationWriter

from ...contrib.adopt.project import Project
from ...contrib.adopt.stages import Options, Plan, stages_of
from ...contrib.adopt.swap_operations import SwitchKey
from ...contrib.adopt.takeover import KINDS, Takeover
from ...core.errors import ConfigurationError, IdgenError, one_line
from .idgen_doctor import is_confirmed


class Command(BaseCommand):
    help = (
        "Move a table that is in use to a field of django_idgen: APP.MODEL. Run it again after "
        "each stage: it finds how far the table is, and prints the next step. With --from, take "
        "over the tags of a running Leaf or TinyID, whose tables are in DATABASE."
    )
    requires_system_checks: list[str] = []  # noqa: RUF012

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "target",
            nargs="+",
            metavar="APP.MODEL | DATABASE",
            help="the model; with --from: the databases of the server",
        )
        parser.add_argument(
            "--field", choices=("segment", "snowflake"), default="", help="the kind of the new key"
        )
        parser.add_argument(
            "--generator",
            metavar="ALIAS",
            default="",
            help="of the new key, with --field snowflake",
        )
        parser.add_argument(
            "--tag",
            default="",
            help="of the new key, with --field segment; with --from: only this tag",
        )
        parser.add_argument(
            "--database",
            metavar="ALIAS",
            default=DEFAULT_DB_ALIAS,
            help="of the table (default: default)",
        )
        parser.add_argument(
            "--batch",
            type=int,
            default=1000,
            metavar="ROWS",
            help="rows to fill at a time (default: 1000)",
        )
        parser.add_argument(
            "--margin",
            type=int,
            metavar="IDS",
            help="how many more ids the old counter (with --from: the old server) may give; "
            "SQLite and MySQL stop the counter, so there it gives none",
        )
        parser.add_argument(
            "--at-once",
            action="store_true",
            help="one migration does it all; stop the site while it runs",
        )
        parser.add_argument(
            "--created-from",
            metavar="FIELD",
            default="",
            help="of a UUID key: the time of FIELD goes into the new keys, which are made with "
            "--workers. FIELD is the key, with UUIDs of version 7, or a column of dates",
        )
        parser.add_argument(
            "--workers",
            type=int,
            nargs=2,
            metavar=("FIRST", "END"),
            help="with --created-from: worker ids that nothing lends or ever lent, without END",
        )
        parser.add_argument("--keep-as", metavar="NAME", default="", help="a name for the old key")
        parser.add_argument("--back", action="store_true", help="go back to the old kind of key")
        parser.add_argument("--status", action="store_true", help="only show how far the table is")
        parser.add_argument("--dry-run", action="store_true", help="only show what would be done")
        parser.add_argument("--yes", action="store_true", help="do not ask")
        parser.add_argument("--from", choices=KINDS, dest="kind", help="the server to take over")
        parser.add_argument(
            "--into",
            metavar="ALIAS",
            help="with --from: the database for the tags of this project",
        )

    @no_translations
    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            if options["kind"]:
                self._take_over(options)
            else:
                self._adopt(options)
        except (IdgenError, Error) as error:
            raise CommandError(one_line(error)) from error

    # --- tables ------------------------------------------------------------------------

    def _adopt(self, options: dict[str, Any]) -> None:
        if len(options["target"]) > 1 or options["into"]:
            raise ConfigurationError("Name one APP.MODEL. (Several, and --into, are for --from.)")
        asked = Options(
            kind=options["field"],
            generator=options["generator"],
            tag=options["tag"],
            margin=options["margin"],
            batch=options["batch"],
            at_once=options["at_once"],
            back=options["back"],
            keep_as=options["keep_as"],
            created_from=options["created_from"],
            workers=tuple(options["workers"]) if options["workers"] else None,
        )
        project = Project(options["target"][0], options["database"])
        stages = stages_of(project, asked)
        if options["status"]:
            self.stdout.write("\n".join(stages.status()))
            return
        self._check_applied(project)
        self._carry_out(stages.plan(), options)

    def _check_applied(self, project: Project) -> None:
        unapplied = project.unapplied()
        switches = {each.node for each in project.written((SwitchKey,)) if not each.applied}
        if [node for node in unapplied if node not in switches]:
            names = ", ".join(f"{app}.{name}" for app, name in unapplied[:5])
            raise ConfigurationError(
                f"Database {project.alias!r} has unapplied migrations: {names}. Run 'manage.py "
                f"migrate --database {project.alias}' first."
            )

    def _carry_out(self, plan: Plan, options: dict[str, Any]) -> None:
        self.stdout.write("\n".join(plan.does))
        has_work = plan.migration is not None or plan.work is not None
        if has_work and not self._may_go_on(options):
            if plan.migration is not None:
                self.stdout.write(f"It would write {plan.migration.path}.")
            return
        if plan.migration is not None:
            self.stdout.write(self.style.SUCCESS(f"Written: {_write(plan.migration)}"))
        if plan.work is not None:
            self.stdout.write(self.style.SUCCESS(plan.work(self.stdout.write)))
        if plan.edit:
            self.stdout.write("\n".join(["", *plan.edit, ""]))
        if plan.after:
            self.stdout.write("Next:")
            self.stdout.write(
                "\n".join(f"  {number}. {step}" for number, step in enumerate(plan.after, start=1))
            )

    # --- tags --------------------------------------------------------------------------

    def _take_over(self, options: dict[str, Any]) -> None:
        takeover = Takeover(
            options["kind"],
            options["target"],
            tag=options["tag"],
            margin=options["margin"],
            into=options["into"],
        )
        self.stdout.write("\n".join(takeover.plan()))
        if not (takeover.is_done or options["status"]) and self._may_go_on(options):
            takeover.run(self.stdout.write)
            self.stdout.write("\n".join(takeover.after()))
        if takeover.left_out:
            reasons = (f"{tag!r}. {why}" for tag, why in takeover.left_out.items())
            raise CommandError(f"Left out: {' '.join(reasons)}")
        if met := [move.theirs.tag for move in takeover.moves if move.has_met]:
            raise CommandError(
                f"The old server has reached ids that were given out here, too: {', '.join(met)}."
            )

    def _may_go_on(self, options: dict[str, Any]) -> bool:
        if options["dry_run"]:
            self.stdout.write("Nothing was done: this is a dry run.")
            return False
        if options["yes"]:
            return True
        if sys.stdin is not None and sys.stdin.isatty():
            if is_confirmed("Go on?"):
                return True
            self.stdout.write("Nothing was done.")
            return False
        self.stdout.write("Nothing was done yet. Run it again with --yes to do it.")
        return False


def _write(migration: MigrationWriter) -> str:
    path = Path(migration.path)
    try:
        path.write_text(migration.as_string(), encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"The migration can't be written: {error}") from error
    return str(path)
