"""Measure what ids cost here, and prove that none repeats."""

from __future__ import annotations

import os
import shutil
import tempfile
from argparse import ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import django
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections

from ...contrib.bench.measure import PEERS, PeerMissing, Target, peer, target_of
from ...contrib.bench.proof import WIDTH
from ...contrib.bench.report import (
    Figures,
    ProgressBar,
    as_json,
    environment,
    faults,
    figures_of,
    table,
)
from ...contrib.bench.run import Measured, Plan, run_here, run_in_processes
from ...core.errors import IdgenError

__all__ = ["Command", "open_target", "set_up"]

SEGMENT = "segment:"
PEER = "peer:"
PATIENCE = 60.0
"""Seconds that a benchmark waits for a segment."""


def open_target(name: str) -> Target:
    """The target of a name: ``alias``, ``segment:TAG`` or ``peer:NAME``."""
    from ...process.handlers import generators, segments

    if name.startswith(PEER):
        return peer(name.removeprefix(PEER))
    if name.startswith(SEGMENT):
        return target_of(name, segments[name.removeprefix(SEGMENT)])
    return target_of(name, generators[name])


def set_up() -> None:
    """Make Django ready in a fresh process, which has leases of its own then."""
    django.setup()
    _wait_for_segments(PATIENCE)


def _wait_for_segments(timeout: float) -> float:
    """Set for how many seconds callers wait, and return what it was.

    That a source can't keep up with a benchmark is a figure, not a failure.
    """
    from ...process.handlers import segments

    allocator = segments.allocator()
    before, allocator.timeout = allocator.timeout, timeout
    return before


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
            type=_whole,
            default=1_000_000,
            help="ids of each target, all threads and processes together (default: 1000000)",
        )
        add("--threads", type=_whole, default=1, help="threads in each process (default: 1)")
        add(
            "--processes",
            type=_whole,
            default=1,
            help="processes, each with worker ids and segments of its own (default: 1)",
        )
        add(
            "--batch",
            type=_whole,
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
        except (IdgenError, ImproperlyConfigured) as error:
            raise CommandError(str(error)) from error

    def _bench(self, options: dict[str, Any]) -> None:
        peers, skipped = _installed(_names(options["against"]))
        plan = Plan(
            names=(*_unique(options["targets"] or ["default"]), *(PEER + name for name in peers)),
            count=options["count"],
            threads=options["threads"],
            processes=options["processes"],
            batch=options["batch"],
        )
        _check_targets(plan)
        report = _writable(options["json"])
        for name, reason in skipped.items():
            self.stderr.write(f"{name} is skipped: {reason}.")
        with tempfile.TemporaryDirectory(prefix="idgen-bench-") as folder:
            figures = self._figures(plan, _roomy(Path(folder), plan))
        for line in table(figures, plan):
            self.stdout.write(line)
        if report is not None:
            _write(report, as_json(figures, plan, skipped, _surroundings()))
        found = list(faults(figures))
        if found:
            raise CommandError("\n".join(found))

    def _figures(self, plan: Plan, folder: Path) -> list[Figures]:
        try:
            return figures_of(self._measure(plan, folder))
        except OSError as error:
            raise CommandError(f"The ids could not be kept in {folder}: {error}") from error

    def _measure(self, plan: Plan, folder: Path) -> list[list[Measured]]:
        draw = partial(self.stderr.write, style_func=str, ending="")
        bar = ProgressBar(plan.steps, draw if self.stderr.isatty() else None)
        try:
            if plan.processes == 1:
                return [_run_patiently(plan, folder, bar)]
            return run_in_processes(plan, open_target, folder, set_up=set_up, on_step=bar.step)
        finally:
            bar.clear()


def _run_patiently(plan: Plan, folder: Path, bar: ProgressBar) -> list[Measured]:
    usual = _wait_for_segments(PATIENCE)
    try:
        return run_here(plan, open_target, folder, on_step=bar.step)
    finally:
        _wait_for_segments(usual)


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ArgumentTypeError(f"it must be a whole number, not {text!r}") from None


def _names(given: str | Iterable[str] | None) -> list[str]:
    listed = given.split(",") if isinstance(given, str) else given or []
    return _unique(name.strip() for name in listed if name.strip())


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _installed(names: Iterable[str]) -> tuple[list[str], dict[str, str]]:
    """The peers that can be measured, and why the others can't."""
    found: list[str] = []
    skipped: dict[str, str] = {}
    for name in names:
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


def _roomy(folder: Path, plan: Plan) -> Path:
    """``folder``, if what the proof needs fits there."""
    needed = plan.count * len(plan.names) * WIDTH
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise CommandError(
            f"The proof keeps {needed:,} bytes of ids in {folder}, where {free:,} are free. "
            f"Lower --count, or set TMPDIR to a roomier place."
        )
    return folder


def _writable(name: str | None) -> Path | None:
    """The file of ``--json``, tried before an hour is spent on measuring."""
    if name is None:
        return None
    path = Path(name)
    is_new = not path.exists()
    try:
        path.open("a").close()
        if is_new:
            path.unlink()
    except OSError as error:
        raise CommandError(f"--json {name} can't be written: {error.strerror}.") from error
    return path


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"--json {path} can't be written: {error.strerror}.") from error


def _surroundings() -> dict[str, Any]:
    return {
        **environment(),
        "django": django.get_version(),
        "databases": {alias: connections[alias].vendor for alias in connections},
    }
