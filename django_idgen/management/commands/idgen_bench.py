"""Measure what ids cost here, and prove that none repeats."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import threading
from argparse import RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from time import monotonic
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from ...contrib.bench.drawing import (
    Picture,
    check_drawing,
    insert_picture,
    picture,
    save_picture,
)
from ...contrib.bench.inserts import insert_rows, insert_table
from ...contrib.bench.measure import LIMITS, STOPPED, Plan, run_here, run_in_processes
from ...contrib.bench.proof import Fault
from ...contrib.bench.report import as_json, environment, figures_of, table
from ...contrib.bench.targets import PEER, PEERS, PeerMissing, open_target, peer
from ...core.errors import ConfigurationError, IdgenError

REPEATS, NOT_MEASURED = 1, 2
FILES = ("json", "plot")


class Command(BaseCommand):
    help = (
        "Measure generators, and prove that no id repeats in all threads and processes.\n\nNo "
        "process gets these ids again: with segment:TAG they are a gap in the ids of that "
        "tag,\nso name a tag that you made for this. Exit code 1: an id repeats or doesn't "
        "rise.\n2: the ids could not be measured, or the report could not be written."
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
            help="ids per call: 1 measures next_id(), more measure next_ids() (default: 1)",
        )
        add(
            "--against",
            default="",
            metavar="PEER,...",
            help=f"compare with {', '.join(PEERS)}; one that isn't installed is skipped",
        )
        add(
            "--latency",
            action="store_true",
            help="more percentiles of single calls, and a histogram of them",
        )
        add(
            "--insert",
            type=int,
            metavar="ROWS",
            help=(
                "instead, save this many rows with each kind of key: the targets', BigAutoField, "
                "UUIDv4 and UUIDv7. The tables are made for this, and dropped"
            ),
        )
        add("--database", default="default", help="the database of --insert (default: default)")
        add("--json", metavar="FILE", help="write all figures, and what they depend on, to FILE")
        add("--plot", metavar="FILE", help="draw the figures into FILE (.svg or .png)")

    def handle(self, *_args: Any, **options: Any) -> None:
        measure = self._bench if options["insert"] is None else self._insert
        try:
            with _one_interrupt(ends_process=getattr(self, "_called_from_command_line", False)) as (
                gate
            ):
                _check_files(options)
                measure(tuple(dict.fromkeys(options["targets"] or ["default"])), options, gate)
        except KeyboardInterrupt:
            raise CommandError("Stopped. No report was written.", returncode=STOPPED) from None
        except Fault as error:
            raise CommandError(str(error), returncode=REPEATS) from error
        except (IdgenError, ImproperlyConfigured, OSError) as error:
            raise CommandError(str(error), returncode=NOT_MEASURED) from error

    def _bench(
        self, names: tuple[str, ...], options: dict[str, Any], gate: Callable[[], None]
    ) -> None:
        peers = self._installed(filter(None, map(str.strip, options["against"].split(","))))
        plan = Plan((*names, *peers), **{limit: options[limit] for limit in LIMITS})
        targets = [open_target(name) for name in plan.names]
        if plan.processes > 1 and "DJANGO_SETTINGS_MODULE" not in os.environ:
            raise ConfigurationError(
                "--processes needs settings that a fresh process can import: set "
                "DJANGO_SETTINGS_MODULE, or give --settings."
            )
        with tempfile.TemporaryDirectory(prefix="idgen-bench-") as name:
            folder = Path(name)
            if plan.processes == 1:
                measured = [run_here(plan, targets, folder, gate=gate)]
            else:
                measured = run_in_processes(plan, folder)
            figures = figures_of(targets, measured, folder)
        self.stdout.write("\n".join(table(figures, plan, latency=options["latency"])))
        _report(options, as_json(figures, plan), picture(figures))

    def _insert(
        self, names: tuple[str, ...], options: dict[str, Any], gate: Callable[[], None]
    ) -> None:
        for name in names:
            open_target(name)
        self._installed(["uuid7"])
        found = insert_rows(names, options["insert"], database=options["database"], gate=gate)
        self.stdout.write("\n".join(insert_table(found, database=options["database"])))
        _report(options, {"inserts": [asdict(each) for each in found]}, insert_picture(found))

    def _installed(self, names: Iterable[str]) -> list[str]:
        """The peers that can be measured. Says which of them can't, and why."""
        found = []
        for name in dict.fromkeys(names):
            try:
                peer(name)
            except PeerMissing as missing:
                self.stderr.write(
                    f'{name} is skipped: {missing} (pip install "django-idgen[bench]").'
                )
            else:
                found.append(PEER + name)
        return found


@contextmanager
def _one_interrupt(*, ends_process: bool) -> Iterator[Callable[[], None]]:
    """Take the signals of one Ctrl-C as one.

    ``timeout`` sends its signal to the process and to its group, so it comes twice. The second
    one would interrupt what gives the worker ids back. A Ctrl-C after a second counts again,
    until the process exits.

    Yields a function that raises after a Ctrl-C: Python loses one that comes in a finalizer.
    """
    last = -1.0

    def check() -> None:
        if last > 0:
            raise KeyboardInterrupt

    usual = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or (
        usual is not signal.default_int_handler
    ):
        yield check
        return

    def stop(*_args: object) -> None:
        nonlocal last
        repeated, last = monotonic() - last < 1, monotonic()
        if not repeated:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, stop)
    try:
        yield check
    except Exception:
        check()  # it may be a database's, about the statement that Ctrl-C ended
        raise
    finally:
        ignored = ends_process and last > 0
        signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else usual)


def _check_files(options: dict[str, Any]) -> None:
    """Raise for a report that could not be written after all the work."""
    for option in FILES:
        if options[option]:
            path = Path(options[option])
            with _naming(option, path):
                if path.exists():
                    path.open("ab").close()
                else:
                    tempfile.TemporaryFile(dir=path.parent).close()
    if options["plot"]:
        check_drawing(options["plot"])


def _report(options: dict[str, Any], figures: dict[str, Any], drawing: Picture) -> None:
    """Write the files that were asked for."""
    if options["json"]:
        text = json.dumps({"environment": environment(), **figures}, indent=2) + "\n"
        with _naming("json", options["json"]):
            Path(options["json"]).write_text(text, encoding="utf-8")
    if options["plot"]:
        with _naming("plot", options["plot"]):
            save_picture(drawing, options["plot"])


@contextmanager
def _naming(option: str, path: object) -> Iterator[None]:
    """Name the option and its file in what keeps it from being written."""
    try:
        yield
    except OSError as error:
        raise CommandError(
            f"--{option} {path} can't be written: {error.strerror}.", returncode=NOT_MEASURED
        ) from error
