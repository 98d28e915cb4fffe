"""``manage.py idgen_doctor``: find what could repeat ids or stop them, and fix it."""

from __future__ import annotations

import json
import sys
from argparse import RawDescriptionHelpFormatter
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections

from django_idgen.core.errors import sentence
from django_idgen.ops.doctor import EXAMINATIONS, diagnose
from django_idgen.ops.doctor.findings import (
    NOT_EXAMINED,
    OTHERS_STOPPED,
    TRUST_TABLES,
    Diagnosis,
    Finding,
    Fix,
    Severity,
    exit_code,
    lines,
    to_json,
)
from django_idgen.ops.doctor.project import FAILURES, Project
from django_idgen.settings.config import SettingsError, read_settings


class Command(BaseCommand):
    help = (
        "Examine the settings, the databases and Redis for what could repeat ids or stop\nthem, "
        "and say what to do. Changes nothing without --fix, which shows first what it "
        "will do,\nand asks. Those that only read are system checks, too: check --deploy "
        "--database ALIAS.\n\nExit status: 0 nothing found (or only information), 1 warnings, 2 "
        "errors, 3 something could\nnot be examined (and there is no error)."
    )
    # It has to run in a project that they find errors in.
    requires_system_checks: list[str] = []  # noqa: RUF012

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        kwargs.setdefault("formatter_class", RawDescriptionHelpFormatter)
        return super().create_parser(prog_name, subcommand, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="write JSON, for monitoring")
        parser.add_argument(
            "--only",
            nargs="+",
            choices=EXAMINATIONS,
            metavar="NAME",
            help=f"only these examinations, of {', '.join(EXAMINATIONS)}",
        )
        parser.add_argument(
            "--database",
            nargs="+",
            choices=tuple(connections),
            metavar="ALIAS",
            help="examine only these databases",
        )
        parser.add_argument("--fix", action="store_true", help="fix what can be fixed")
        parser.add_argument("--yes", action="store_true", help="with --fix: don't ask")
        parser.add_argument(
            "--fail-on",
            choices=["warning", "error"],
            default="warning",
            help="the exit status is 0 below this severity (default: warning)",
        )
        parser.add_argument(
            "--others-stopped",
            action="store_true",
            help="you assert that no process takes ids of the namespace, on any host",
        )
        parser.add_argument(
            "--trust-tables",
            action="store_true",
            help=(
                "you assert that every id in logs, queues and other services is in the project's "
                "tables, too"
            ),
        )
        parser.add_argument(
            "--moved-from",
            nargs="+",
            choices=tuple(connections),
            metavar="ALIAS",
            help="the namespaces and tags were moved from these databases to those of the "
            "settings, and no other project lends from them",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        _check(options)
        diagnosis = self._diagnose(options)
        if options["fix"] and self._fix(diagnosis, options):
            self._say(options, "", "After that:")
            diagnosis = self._diagnose(options)
        code = exit_code(diagnosis, Severity[options["fail_on"].upper()])
        if options["json"]:
            self.stdout.write(json.dumps(to_json(diagnosis, code), indent=2))
        if code:
            sys.exit(code)

    def _diagnose(self, options: dict[str, Any]) -> Diagnosis:
        given = {OTHERS_STOPPED: options["others_stopped"], TRUST_TABLES: options["trust_tables"]}
        try:
            project = Project(
                read_settings(),
                databases=options["database"],
                assurances=[option for option, is_given in given.items() if is_given],
                moved_from=options["moved_from"] or (),
            )
        except SettingsError as error:
            raise CommandError(str(error), returncode=NOT_EXAMINED) from error
        diagnosis = diagnose(project, options["only"] or ())
        self._say(options, *lines(diagnosis))
        return diagnosis

    def _say(self, options: dict[str, Any], *found: str) -> None:
        # JSON goes to the standard output alone.
        stream = self.stderr if options["json"] else self.stdout
        if options["fix"] or not options["json"]:
            stream.write("\n".join(found), lambda text: text)

    def _fix(self, diagnosis: Diagnosis, options: dict[str, Any]) -> bool:
        """Show the possible fixes, ask, and apply them; whether any was applied."""
        fixes = [(each, each.fix) for each in diagnosis.findings if each.fix]
        possible = [each for each in fixes if each[1].needs <= diagnosis.assurances]
        head = "What --fix will do:" if possible else "There is nothing that --fix can do."
        shown = [f"  {finding.subject}: {fix.does}" for finding, fix in possible]
        shown += [
            f"  {finding.subject}: not without {' '.join(sorted(fix.needs))}"
            for finding, fix in fixes
            if (finding, fix) not in possible
        ]
        self._say(options, "", head, *shown)
        if not possible or not (options["yes"] or is_confirmed()):
            self._say(options, "Nothing was changed.")
            return False
        for finding, fix in possible:
            self._say(options, _apply(finding, fix))
        return True


def _check(options: dict[str, Any]) -> None:
    # call_command() asks no parser about values that it is given by name.
    aliases = connections.settings
    for option, known in ("only", EXAMINATIONS), ("database", aliases), ("moved_from", aliases):
        for name in options[option] or ():
            if name not in known:
                given = f"--{option.replace('_', '-')} {name!r}"
                raise CommandError(f"{given} is unknown. Known: {', '.join(known)}.")
    if options["json"] and options["fix"] and not options["yes"]:
        raise CommandError("--json can't ask: give --yes with --fix, or leave one of them out.")


def is_confirmed(question: str = "Do it?") -> bool:
    """Ask the user at the terminal; False without one, or without an answer."""
    try:
        return input(f"{question} [y/N] ").strip().lower() in {"y", "yes"}
    except EOFError:
        return False


def _apply(finding: Finding, fix: Fix) -> str:
    try:
        return f"  done: {finding.subject}: {fix.apply()}"
    except FAILURES as error:
        return f"  FAILED: {finding.subject}: {sentence(error)} Run it again."
