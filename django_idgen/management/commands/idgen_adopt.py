"""``manage.py idgen_adopt``: move tables to our fields, and tags from other servers to ours."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser, no_translations
from django.db import DEFAULT_DB_ALIAS, Error, models

from ...contrib.adopt.integer_keys import IntegerKey
from ...contrib.adopt.plans import Options, Plan, Stages
from ...contrib.adopt.project import Project
from ...contrib.adopt.swap_operations import SwitchKey
from ...contrib.adopt.takeover import KINDS, Takeover
from ...contrib.adopt.uuid_keys import UuidKey
from ...core.errors import ConfigurationError, IdgenError
from ...fields.base import GeneratedOnSave

__all__ = ["Command"]

INTEGERS = (models.AutoField, models.BigAutoField, models.SmallAutoField, GeneratedOnSave)


class Command(BaseCommand):
    help = (
        "Move the ids of a table in use to django_idgen: APP.MODEL. Run it again after each stage: "
        "it finds out the present stage, and says what to do next. With --from, take over the tags "
        "of a running Leaf or TinyID, whose tables are in DATABASE."
    )
    requires_system_checks: list[str] = []  # noqa: RUF012

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("target", nargs="+", metavar="APP.MODEL | DATABASE")
        parser.add_argument("--field", choices=("segment", "snowflake"), default="")
        parser.add_argument("--generator", metavar="ALIAS", default="", help="for snowflakes")
        parser.add_argument("--tag", default="", help="for segments; with --from: only this one")
        parser.add_argument("--database", metavar="ALIAS", default=DEFAULT_DB_ALIAS)
        parser.add_argument("--batch", type=int, default=1000, metavar="ROWS")
        parser.add_argument(
            "--margin",
            type=int,
            metavar="IDS",
            help="how many ids the old counter (with --from: the old server) may still give out",
        )
        parser.add_argument(
            "--at-once",
            action="store_true",
            help="for a site that is stopped while it migrates: one migration does everything",
        )
        parser.add_argument("--keep-as", metavar="NAME", default="", help="for a UUID key")
        parser.add_argument("--back", action="store_true", help="undo it")
        parser.add_argument("--status", action="store_true", help="only show the present stage")
        parser.add_argument("--dry-run", action="store_true", help="only show what would be done")
        parser.add_argument("--yes", action="store_true", help="don't ask")
        parser.add_argument("--from", choices=KINDS, dest="kind", help="the server to take over")
        parser.add_argument("--into", metavar="ALIAS", help="with --from: where our tags are")

    @no_translations
    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            if options["kind"]:
                self._take_over(options)
            else:
                self._adopt(options)
        except (IdgenError, Error) as error:
            raise CommandError(" ".join(str(error).split())) from error

    # --- tables ------------------------------------------------------------------------

    def _adopt(self, options: dict[str, Any]) -> None:
        if len(options["target"]) > 1 or options["into"]:
            raise ConfigurationError(
                "Name one APP.MODEL. (--into and several targets need --from.)"
            )
        asked = Options(
            kind=options["field"],
            generator=options["generator"],
            tag=options["tag"],
            margin=options["margin"],
            batch=options["batch"],
            at_once=options["at_once"],
            back=options["back"],
            keep_as=options["keep_as"],
        )
        project = Project(options["target"][0], options["database"])
        stages = _stages_of(project, asked)
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
                f"migrate' first."
            )

    def _carry_out(self, plan: Plan, options: dict[str, Any]) -> None:
        self.stdout.write("\n".join(plan.does))
        if not plan.is_empty and not self._may_go_on(options):
            if plan.migration is not None:
                self.stdout.write(f"It would write {plan.migration.path}.")
            return
        if plan.migration is not None:
            self.stdout.write(self.style.SUCCESS(f"Written: {plan.migration.write()}"))
        if plan.work is not None:
            self.stdout.write(self.style.SUCCESS(plan.work(self.stdout.write)))
        if plan.edit:
            self.stdout.write(f"\n{plan.edit}\n")
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
        if takeover.moves and not options["status"] and self._may_go_on(options):
            takeover.run(self.stdout.write)
            self.stdout.write("\n".join(takeover.after()))
        if takeover.left_out:
            reasons = (f"{tag!r}. {why}" for tag, why in takeover.left_out.items())
            raise CommandError(f"Left out: {' '.join(reasons)}")
        if met := takeover.met():
            raise CommandError(
                f"The old server has reached ids that were given out here, too: {', '.join(met)}."
            )

    def _may_go_on(self, options: dict[str, Any]) -> bool:
        if options["dry_run"]:
            self.stdout.write("Nothing was done: that was a dry run.")
            return False
        if options["yes"]:
            return True
        if sys.stdin is not None and sys.stdin.isatty():
            if input("Go on? [y/N] ").strip().lower() in {"y", "yes"}:
                return True
            self.stdout.write("Nothing was done.")
            return False
        self.stdout.write("Nothing was done yet. Run it again with --yes to do it.")
        return False


def _stages_of(project: Project, options: Options) -> Stages:
    """Raises :class:`ConfigurationError` for a key of a kind that can't be adopted."""
    written = list(project.written((*IntegerKey.operations, *UuidKey.operations)))
    key = project.migrated_key
    was_uuid = bool(written) and isinstance(written[-1].operation, UuidKey.operations)
    if was_uuid or isinstance(key, models.UUIDField):
        return UuidKey(project, options)
    if isinstance(key, INTEGERS):
        return IntegerKey(project, options)
    raise ConfigurationError(
        f"The key of {project.name} is a {type(key).__name__}. AutoField, BigAutoField, "
        f"SmallAutoField and UUIDField can be adopted."
    )
