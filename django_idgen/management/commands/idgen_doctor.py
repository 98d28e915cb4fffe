"""``manage.py idgen_doctor``: see whether ids are, and will be, unique; mend what isn't."""

from __future__ import annotations

import json
import sys
from argparse import RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections

from django_idgen.ops.doctor.examinations import EXAMINATIONS, diagnose
from django_idgen.ops.doctor.findings import (
    NOT_EXAMINED,
    Affirmed,
    Diagnosis,
    Finding,
    Severity,
    exit_code,
    lines,
    to_json,
)
from django_idgen.ops.doctor.project import FAILURES, Project, words_of
from django_idgen.settings.config import SettingsError, read_settings


class Command(BaseCommand):
    help = (
        "Examine the settings, the databases and Redis for whatever could repeat ids or stop "
        "them, and say what to do. Changes nothing without --fix, which shows first what it "
        "would do, and asks.\n\n"
        "Exit status: 0 all is well (or for information), 1 warnings, 2 errors, 3 something "
        "could not be examined (and there is no error)."
    )
    # It has to run in a project that they find fault with.
    requires_system_checks: list[str] = []  # noqa: RUF012

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        kwargs.setdefault("formatter_class", RawDescriptionHelpFormatter)
        return super().create_parser(prog_name, subcommand, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="write JSON, for monitoring")
        parser.add_argument(
            "--only", nargs="+", metavar="NAME", help=f"of {', '.join(EXAMINATIONS)}"
        )
        parser.add_argument(
            "--database", nargs="+", metavar="ALIAS", help="look into these databases alone"
        )
        parser.add_argument("--fix", action="store_true", help="mend what can be mended")
        parser.add_argument("--yes", action="store_true", help="with --fix: don't ask")
        parser.add_argument(
            "--fail-on",
            choices=["warning", "error"],
            default="warning",
            help="the exit status is 0 below that (default: warning)",
        )
        parser.add_argument(
            "--others-stopped",
            action="store_true",
            help="you know that no process takes ids of the namespace, on any host",
        )
        parser.add_argument(
            "--trust-tables",
            action="store_true",
            help="you know that no id is anywhere (logs, queues, other services) that the "
            "project's tables don't have",
        )

        parser.add_argument(
            "--moved-from",
            nargs="+",
            metavar="ALIAS",
            help="the namespaces were moved from these databases to those of the settings, and "
            "no other project lends from them",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        _check(options)
        try:
            settings = read_settings()
        except SettingsError as error:
            raise CommandError(str(error), returncode=NOT_EXAMINED) from error
        affirmed = Affirmed(
            options["others_stopped"],
            options["trust_tables"],
            frozenset(options["moved_from"] or ()),
        )
        only, say = options["only"] or (), self._say(options)

        def look() -> Diagnosis:
            project = Project(settings, databases=options["database"], affirmed=affirmed)
            self._opened.append(project)
            return diagnose(project, only)

        self._opened: list[Project] = []
        try:
            diagnosis = look()
            say(lines(diagnosis))
            if options["fix"] and self._mend(diagnosis, affirmed, options, say):
                diagnosis = look()
                say(["", "After that:", *lines(diagnosis)])
        finally:
            for project in self._opened:
                project.close()
        self._end(diagnosis, options)

    def _say(self, options: dict[str, Any]) -> Callable[[Iterable[str]], None]:
        # With --json people read what the other stream has; without --fix there is nothing.
        silent = options["json"] and not options["fix"]
        stream = self.stderr if options["json"] else self.stdout
        return lambda words: None if silent else stream.write("\n".join(words), lambda text: text)

    def _end(self, diagnosis: Diagnosis, options: dict[str, Any]) -> None:
        code = exit_code(diagnosis, Severity[options["fail_on"].upper()])
        if options["json"]:
            self.stdout.write(json.dumps(to_json(diagnosis, code), indent=2))
        if code:
            sys.exit(code)

    def _mend(
        self,
        diagnosis: Diagnosis,
        affirmed: Affirmed,
        options: dict[str, Any],
        say: Callable[[Iterable[str]], None],
    ) -> bool:
        """Do what can be done, once it was shown and agreed to; whether anything was."""
        due = [each for each in diagnosis.findings if _is_possible(each, affirmed)]
        say(["", *_plan(diagnosis, due)])
        if not due or not (options["yes"] or agreed()):
            say(["Nothing was changed."])
            return False
        for finding in due:
            say([_applied(finding)])
        return True


def _check(options: dict[str, Any]) -> None:
    aliases = connections.settings
    known: dict[str, Iterable[str]] = {
        "only": EXAMINATIONS,
        "database": aliases,
        "moved_from": aliases,
    }
    for option, names in known.items():
        for name in options[option] or ():
            if name not in names:
                given = f"--{option.replace('_', '-')} {name!r}"
                raise CommandError(f"{given} is not known. There are {', '.join(names)}.")
    if options["json"] and options["fix"] and not options["yes"]:
        raise CommandError("--json can't ask: give --yes with --fix, or leave one of them out.")


def _is_possible(finding: Finding, affirmed: Affirmed) -> bool:
    return finding.fix is not None and finding.fix.needs <= affirmed.given()


def _plan(diagnosis: Diagnosis, due: list[Finding]) -> list[str]:
    left = [each for each in diagnosis.findings if each.fix is not None and each not in due]
    words = ["Nothing can be mended from here."] if not due else ["What --fix will do:"]
    words += [f"  {each.subject}: {each.fix.does}" for each in due if each.fix]
    words += [
        f"  {each.subject}: not without {' '.join(sorted(each.fix.needs))}"
        for each in left
        if each.fix
    ]
    return words


def agreed() -> bool:
    """Whether somebody at the terminal says yes."""
    try:
        return input("Do it? [y/N] ").strip().lower() in {"y", "yes"}
    except EOFError:
        return False


def _applied(finding: Finding) -> str:
    assert finding.fix is not None  # noqa: S101  # nosec B101  # only those are given here
    try:
        return f"  done: {finding.subject}: {finding.fix.apply()}"
    except FAILURES as error:
        return f"  FAILED: {finding.subject}: {words_of(error)} Run it again."
