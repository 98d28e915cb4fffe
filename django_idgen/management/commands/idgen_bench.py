"""Measure what ids cost here, and prove that none repeats."""

from __future__ import annotations

import os
import tempfile
from argparse import RawDescriptionHelpFormatter
from functools import partial
from pathlib import Path
from typing import Any

import django
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from ...contrib.bench.measure import Measured, Plan, run_here, run_in_processes
from ...contrib.bench.report import ProgressBar, as_json, faults, figures_of, table
from ...contrib.bench.targets import PEER, PEERS, SEGMENT, PeerMissing, open_target, peer
from ...core.errors import IdgenError
from ...process.handlers import segments

__all__ = ["Command", "set_up"]

SEGMENT_TIMEOUT = 60.0
"""Seconds that a benchmark waits for a segment: a slow source is a figure, not a failure."""


def set_up() -> None:
    """Set Django up in a fresh process, which then takes its own leases and segments."""
    django.setup()
    segments.allocator().timeout = SEGMENT_TIMEOUT


class Command(BaseCommand):
    help = (
        "Measure generators, and prove that no id repeats in all threads and processes.\n\n"
        "The ids are taken for good: those of segment:TAG leave a gap in the ids of that tag,\n"
        "so name a tag that is made for this. Exit code 1 if an id repeats or doesn't rise."
    )

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        kwargs.setdefault("formatter_class", RawDescriptionHelpFormatter)
        return super().create_parser(prog_name, subcommand, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add(
            "targets",
            nargs="*",
            metavar="alias|segment:TAG",
            help="what to measure; the others are compared with the first (default: default)",
        )
        add(
            "--count",
            type=int,
            default=1_000_000,
            help="ids of each target, all threads and processes together (default: 1000000)",
        )
        add("--threads", type=int, default=1, help="threads in each process (default: 1)")
        add(
            "--processes",
            type=int,
            default=1,
            help="processes, each with worker ids and segments of its own (default: 1)",
        )
        add(
            "--batch",
            type=int,
            default=1,
            help="ids a call: 1 measures next_id(), more next_ids() (default: 1)",
        )
        add(
            "--against",
            default="",
            metavar="PEER,...",
            help=f"compare with {', '.join(PEERS)}; one that isn't installed is skipped",
        )
        add("--json", metavar="FILE", help="write all figures, and what they depend on, to FILE")

    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            self._bench(options)
        except (IdgenError, ImproperlyConfigured, OSError) as error:
            raise CommandError(str(error)) from error

    def _bench(self, options: dict[str, Any]) -> None:
        peers, skipped = _installed(options["against"])
        targets = dict.fromkeys(options["targets"] or ["default"])
        plan = Plan(
            names=(*targets, *(PEER + name for name in peers)),
            count=options["count"],
            threads=options["threads"],
            processes=options["processes"],
            batch=options["batch"],
        )
        _check_targets(plan)
        for name, reason in skipped.items():
            self.stderr.write(f"{name} is skipped: {reason}.")
        with tempfile.TemporaryDirectory(prefix="idgen-bench-") as folder:
            figures = figures_of(self._measure(plan, Path(folder)))
        for line in table(figures, plan):
            self.stdout.write(line)
        if options["json"]:
            _write(options["json"], as_json(figures, plan, skipped))
        if found := faults(figures):
            raise CommandError("\n".join(found))

    def _measure(self, plan: Plan, folder: Path) -> list[list[Measured]]:
        draw = partial(self.stderr.write, style_func=str, ending="")
        bar = ProgressBar(plan.steps, draw if self.stderr.isatty() else None)
        allocator = segments.allocator()
        usual, allocator.timeout = allocator.timeout, SEGMENT_TIMEOUT
        try:
            if plan.processes == 1:
                return [run_here(plan, open_target, folder, on_step=bar.step)]
            return run_in_processes(plan, open_target, folder, set_up=set_up, on_step=bar.step)
        finally:
            allocator.timeout = usual
            bar.clear()


def _installed(given: str) -> tuple[list[str], dict[str, str]]:
    """The peers that can be measured, and why the others can't."""
    found: list[str] = []
    skipped: dict[str, str] = {}
    for name in dict.fromkeys(filter(None, map(str.strip, given.split(",")))):
        try:
            peer(name)
        except PeerMissing as missing:
            skipped[name] = str(missing)
        else:
            found.append(name)
    return found, skipped


def _check_targets(plan: Plan) -> None:
    for name in plan.names:
        try:
            open_target(name)
        except KeyError as error:
            raise CommandError(
                f"There is no generator {name!r} in IDGEN['GENERATORS']. Name one that is there, "
                f"or a tag as {SEGMENT}TAG."
            ) from error
    if plan.processes > 1 and "DJANGO_SETTINGS_MODULE" not in os.environ:
        raise CommandError(
            "--processes needs settings that a fresh process can import: set "
            "DJANGO_SETTINGS_MODULE, or give --settings."
        )


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"--json {path} can't be written: {error.strerror}.") from error
