"""Measure what ids cost here, and prove that none repeats."""

from __future__ import annotations

import errno
import json
import os
import shlex
import signal
import sys
import tempfile
import threading
from argparse import RawDescriptionHelpFormatter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Any

import django
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from ...contrib.bench.drawing import (
    Picture,
    check_drawing,
    html_page,
    insert_picture,
    picture,
    save_picture,
)
from ...contrib.bench.inserts import BATCH, insert_rows, insert_table
from ...contrib.bench.measure import STOPPED, Measured, Plan, run_here, run_in_processes
from ...contrib.bench.report import (
    ProgressBar,
    as_json,
    environment,
    faults,
    figures_of,
    read_json,
    table,
)
from ...contrib.bench.targets import (
    PEER,
    PEERS,
    SEGMENT,
    Opener,
    PeerMissing,
    open_over_http,
    open_target,
    over_http,
    peer,
)
from ...core.errors import IdgenError
from ...process.handlers import segments

REPEATS, NOT_MEASURED = 1, 2
COUNT, COUNT_OVER_HTTP = 1_000_000, 10_000
SEGMENT_TIMEOUT = 60.0
"""Seconds that a benchmark waits for a segment: a slow source is a figure, not a failure."""


def set_up() -> None:
    """Set Django up in a fresh process, which then takes its own leases and segments."""
    django.setup()
    segments.allocator().timeout = SEGMENT_TIMEOUT


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
            default=None,
            help=(
                f"ids of each target, all threads and processes together (default: {COUNT}; "
                f"with --http {COUNT_OVER_HTTP})"
            ),
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
        add(
            "--http",
            metavar="URL",
            help=(
                "instead, measure the targets of the service at URL, by requests and by the "
                "client; the token is read from IDGEN_TOKEN"
            ),
        )
        add("--json", metavar="FILE", help="write all figures, and what they depend on, to FILE")
        add("--compare", metavar="FILE", help="compare with a file that --json wrote earlier")
        add("--plot", metavar="FILE", help="draw the figures into FILE (.svg or .png)")
        add("--html", metavar="FILE", help="write a page with the figures and a plot to FILE")

    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            with _one_interrupt(ends_process=getattr(self, "_called_from_command_line", False)):
                _check_files(options)
                if options["insert"] is None:
                    self._bench(options)
                else:
                    self._insert(options)
        except KeyboardInterrupt:
            raise CommandError("Stopped. No report was written.", returncode=STOPPED) from None
        except (IdgenError, ImproperlyConfigured, OSError) as error:
            raise CommandError(str(error), returncode=NOT_MEASURED) from error

    def _bench(self, options: dict[str, Any]) -> None:
        url = options["http"]
        opener: Opener = open_target
        names = list(dict.fromkeys(options["targets"] or ["default"]))
        if url:
            opener = partial(open_over_http, url=url.rstrip("/") + "/")
            names = [way for name in names for way in over_http(name)]
        earlier = read_json(options["compare"]) if options["compare"] else None
        peers, skipped = self._installed(options["against"])
        usual = COUNT_OVER_HTTP if url else COUNT
        plan = Plan(
            names=(*names, *(PEER + name for name in peers)),
            count=usual if options["count"] is None else options["count"],
            threads=options["threads"],
            processes=options["processes"],
            batch=options["batch"],
        )
        _check_targets(plan, opener)
        with tempfile.TemporaryDirectory(prefix="idgen-bench-") as folder:
            figures = figures_of(self._measure(plan, opener, Path(folder)))
        lines = list(table(figures, plan, earlier=earlier, latency=options["latency"]))
        self.stdout.write("\n".join(lines))
        if options["json"]:
            _write("json", options["json"], as_json(figures, plan, skipped))
        _draw(options, picture(figures), lines)
        if found := faults(figures):
            raise CommandError("\n".join(found), returncode=REPEATS)

    def _insert(self, options: dict[str, Any]) -> None:
        targets = tuple(dict.fromkeys(options["targets"] or ["default"]))
        _check_targets(Plan(names=targets, count=1), open_target)
        self._installed("uuid7")
        bar = self._bar(options["insert"] // BATCH * (len(targets) + 3))
        try:
            found = insert_rows(
                targets, options["insert"], database=options["database"], on_step=bar.step
            )
        finally:
            bar.clear()
        lines = list(insert_table(found, database=options["database"]))
        self.stdout.write("\n".join(lines))
        if options["json"]:
            rows = {"environment": environment(), "inserts": [asdict(each) for each in found]}
            _write("json", options["json"], json.dumps(rows, indent=2) + "\n")
        _draw(options, insert_picture(found), lines)

    def _installed(self, given: str) -> tuple[list[str], dict[str, str]]:
        """The peers that can be measured, and why the others can't, which it says."""
        found: list[str] = []
        skipped: dict[str, str] = {}
        for name in dict.fromkeys(filter(None, map(str.strip, given.split(",")))):
            try:
                peer(name)
            except PeerMissing as missing:
                skipped[name] = str(missing)
                self.stderr.write(
                    f'{name} is skipped: {missing} (pip install "django-idgen[bench]").'
                )
            else:
                found.append(name)
        return found, skipped

    def _bar(self, steps: int) -> ProgressBar:
        draw = partial(self.stderr.write, style_func=str, ending="")
        return ProgressBar(steps, draw if self.stderr.isatty() else None)

    def _measure(self, plan: Plan, opener: Opener, folder: Path) -> list[list[Measured]]:
        bar = self._bar(plan.steps)
        allocator = segments.allocator()
        usual, allocator.timeout = allocator.timeout, SEGMENT_TIMEOUT
        try:
            if plan.processes == 1:
                return [run_here(plan, opener, folder, on_step=bar.step)]
            return run_in_processes(plan, opener, folder, set_up=set_up, on_step=bar.step)
        finally:
            allocator.timeout = usual
            bar.clear()


@contextmanager
def _one_interrupt(*, ends_process: bool) -> Iterator[None]:
    """Take the signals of one Ctrl-C as one.

    ``timeout`` sends its signal to the process and to its group, so it comes twice. The second
    one would interrupt what gives the worker ids back, or be printed from a finalizer. A Ctrl-C
    after a second counts again, until the process exits.
    """
    usual = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or (
        usual is not signal.default_int_handler
    ):
        yield
        return
    last = -1.0

    def stop(_signal: int, frame: FrameType | None) -> None:
        nonlocal last
        if _is_in_finalizer(frame):
            later = threading.Timer(0.01, signal.raise_signal, [signal.SIGINT])
            later.daemon = True
            later.start()
            return
        repeated, last = monotonic() - last < 1, monotonic()
        if not repeated:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        ignored = ends_process and last > 0
        signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else usual)


def _is_in_finalizer(frame: FrameType | None) -> bool:
    """Whether Python would print and forget an exception that is raised in ``frame``."""
    while frame is not None:
        if frame.f_code.co_name == "__del__" or "weakref" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


def _check_targets(plan: Plan, opener: Opener) -> None:
    for name in plan.names:
        try:
            opener(name)
        except KeyError as error:
            raise CommandError(
                f"There is no generator {name!r} in IDGEN['GENERATORS']. Name one that is there, "
                f"or a tag as {SEGMENT}TAG.",
                returncode=NOT_MEASURED,
            ) from error
    if plan.processes > 1 and "DJANGO_SETTINGS_MODULE" not in os.environ:
        raise CommandError(
            "--processes needs settings that a fresh process can import: set "
            "DJANGO_SETTINGS_MODULE, or give --settings.",
            returncode=NOT_MEASURED,
        )


def _check_files(options: dict[str, Any]) -> None:
    """Raise :class:`CommandError` for a report that could not be written after all the work."""
    check_drawing(options["plot"], options["html"])
    for option in ("json", "plot", "html"):
        if not options[option]:
            continue
        path = Path(options[option])
        if path.is_dir():
            raise _unwritable(option, path, errno.EISDIR)
        if not path.parent.is_dir():
            raise _unwritable(option, path, errno.ENOENT)
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise _unwritable(option, path, errno.EACCES)


def _unwritable(option: str, path: object, code: int | None) -> CommandError:
    reason = os.strerror(code or errno.EIO)
    return CommandError(f"--{option} {path} can't be written: {reason}.", returncode=NOT_MEASURED)


def _draw(options: dict[str, Any], drawing: Picture, lines: list[str]) -> None:
    if options["plot"]:
        save_picture(drawing, options["plot"])
    if options["html"]:
        command = shlex.join(["python", *map(str, sys.argv)])
        _write("html", options["html"], html_page(drawing, lines, environment(), command))


def _write(option: str, path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise _unwritable(option, path, error.errno) from error
