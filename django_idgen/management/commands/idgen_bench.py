"""Measure what ids cost here, and prove that none repeats."""

from __future__ import annotations

import atexit
import json
import signal
import tempfile
from collections.abc import Iterable
from pathlib import Path
from time import monotonic
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error, connections

from ...contrib.bench.inserts import insert_rows, lines_of_inserts
from ...contrib.bench.measure import LIMITS, STOPPED, Plan, run
from ...contrib.bench.proof import Fault
from ...contrib.bench.report import (
    Row,
    check_drawing,
    draw,
    environment,
    lines_of_ids,
    rows_of_ids,
)
from ...contrib.bench.scratch import scratch_tags
from ...contrib.bench.targets import PEER, PEERS, BenchFailed, Peer
from ...core.errors import IdgenError

REPEATS, NOT_MEASURED = 1, 2


class Command(BaseCommand):
    help = (
        "Measure generators, and prove that no id repeats in all threads and processes. "
        "segment:TAG is measured by a tag with the same step, which is made for this and removed. "
        "Exit code 1: an id repeats or doesn't rise. 2: the ids could not be measured, or the "
        "report could not be written."
    )

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
            "--insert",
            type=int,
            metavar="ROWS",
            help=(
                "instead, save this many rows with each kind of key: the targets', BigAutoField, "
                "UUIDv4 and UUIDv7. The tables are made for this, and dropped"
            ),
        )
        add(
            "--database",
            default="default",
            choices=tuple(connections),
            metavar="ALIAS",
            help="the database of --insert (default: default)",
        )
        add("--json", metavar="FILE", help="write all figures to FILE")
        add("--plot", metavar="FILE", help="draw the figures into FILE (.svg or .png)")

    def handle(self, *_args: Any, **options: Any) -> None:
        if getattr(self, "_called_from_command_line", False):
            _take_one_interrupt()
        try:
            _check_files(options)
            with scratch_tags(options["targets"] or ["default"]) as targets:
                measure = self._bench if options["insert"] is None else self._insert
                rows = measure(targets, options)
            _write(options, rows)
        except KeyboardInterrupt:
            raise CommandError("Stopped. No report was written.", returncode=STOPPED) from None
        except Fault as error:
            raise CommandError(str(error), returncode=REPEATS) from error
        except (IdgenError, ImproperlyConfigured, Error, OSError) as error:
            raise CommandError(str(error), returncode=NOT_MEASURED) from error
        except Exception as error:  # A traceback would end with the code of a repeat.
            reason = f"{type(error).__name__}: {error}"
            raise CommandError(reason, returncode=NOT_MEASURED) from error

    def _bench(self, targets: dict[str, str], options: dict[str, Any]) -> list[Row]:
        against = self._installed(filter(None, map(str.strip, options["against"].split(","))))
        # A generator may have the name of a peer, but none begins as PEER does.
        peers = {PEER + name if name in targets else name: PEER + name for name in against}
        plan = Plan(targets | peers, **{limit: options[limit] for limit in LIMITS})
        with tempfile.TemporaryDirectory(prefix="idgen-bench-") as name:
            folder = Path(name)
            rows = rows_of_ids(plan, run(plan, folder), folder)
        self.stdout.write("\n".join(lines_of_ids(rows, plan)))
        return rows

    def _insert(self, targets: dict[str, str], options: dict[str, Any]) -> list[Row]:
        self._installed(["uuid7"])
        rows = insert_rows(targets, options["insert"], database=options["database"])
        self.stdout.write("\n".join(lines_of_inserts(rows, database=options["database"])))
        return rows

    def _installed(self, names: Iterable[str]) -> list[str]:
        """The peers that can be measured. Says which of them can't, and why."""
        found = []
        for name in names:
            try:
                Peer(name)
                found.append(name)
            except ImportError as missing:
                self.stderr.write(
                    f'{name} is skipped: {missing} (pip install "django-idgen[bench]").'
                )
        return found


def _take_one_interrupt() -> None:
    """Take the signals of one Ctrl-C as one, until the process exits.

    ``timeout`` sends its signal to the process and to its group, so it comes twice. The second
    one would interrupt what gives the worker ids back. A Ctrl-C after a second counts again.
    """
    last = -1.0

    def stop(*_args: object) -> None:
        nonlocal last
        repeated, last = monotonic() - last < 1, monotonic()
        if not repeated:
            raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, stop)
        # Python ends with the system's own way to take a signal, which would lose the exit code.
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


def _check_files(options: dict[str, Any]) -> None:
    """Raise for a report that could not be written after all the work."""
    for option in filter(options.get, ("json", "plot")):
        path = options[option] = Path(options[option])
        try:
            if path.exists():
                path.open("ab").close()
            else:
                tempfile.TemporaryFile(dir=path.parent).close()
        except OSError as error:
            raise BenchFailed(f"--{option} {path} can't be written: {error.strerror}.") from error
    if options["plot"]:
        check_drawing(options["plot"])


def _write(options: dict[str, Any], rows: list[Row]) -> None:
    """Write the files that were asked for."""
    if options["json"]:
        found = {"environment": environment(), "rows": rows}
        options["json"].write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    if options["plot"]:
        draw(rows, options["plot"])
