"""Real processes on a small site: starting them, asking them, ending them, and their leases."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from tests import server_tools, servers, warm
from tests.servers import free_port
from tests.tiers import LONG, long
from tests.upkeep_tools import forget_redis, redis_leases_on

Taken = dict[str, Any]

PATIENCE = 600.0 if LONG else 60.0
"""Seconds after which a test gives up on a process; what is tested takes a fraction."""


ON_SQLITE = pytest.mark.parametrize("site", ["sqlite", *long("postgres", "mariadb")], indirect=True)
ON_POSTGRES = pytest.mark.parametrize(
    "site", ["postgres", *long("sqlite", "mariadb")], indirect=True
)
"""Where the database is not the point: one on push, each in long."""

ROWS = "SELECT worker, token, start, until FROM django_idgen_workerlease"


@dataclass(frozen=True)
class LeaseRow:
    """A worker id's mark as it stands in the registry."""

    worker: int
    token: str
    start: int
    until: int


@dataclass
class Site:
    """The site on one database, with a directory of its own."""

    directory: Path
    database: dict[str, Any]
    alias: str
    """Of the same database in this process; "sqlite" where it is a file."""
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def env(self) -> dict[str, str]:
        root = Path(__file__).parents[2]
        return {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.faults.site.settings",
            "PYTHONPATH": str(root),
            "SITE_DATABASE": json.dumps(self.database),
            "SITE_JOURNAL": str(self.directory / "journal"),
            **self.environment,
        }

    def set_leases(self, options: dict[str, Any]) -> None:
        """Other options for the leases, such as a window short enough to expire in a test."""
        self.set_idgen({"GENERATORS": {"default": {"LEASES": {"OPTIONS": options}}}})

    def set_idgen(self, more: dict[str, Any]) -> None:
        """Add to the setting ``IDGEN``."""
        before = json.loads(self.environment.get("SITE_IDGEN", "{}"))
        self.environment["SITE_IDGEN"] = json.dumps({**before, **more})

    def use_redis(self) -> None:
        """Have the alias ``idgen`` of CACHES lead to the shared Redis."""
        entry = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": servers.REDIS["redis"]}
        self.environment["SITE_CACHES"] = json.dumps({"idgen": entry})

    def journal(self) -> list[Taken]:
        """What the processes wrote down themselves."""
        path = self.directory / "journal"
        text = path.read_text() if path.exists() else ""
        # A line that is just being written may be seen in part.
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def recorded(self) -> list[Taken]:
        """The journal's entries of ids."""
        return [entry for entry in self.journal() if "ids" in entry]

    def leases(self) -> list[LeaseRow]:
        """The worker ids that were ever lent."""
        if self.alias == "sqlite":
            with closing(sqlite3.connect(f"{self.database['NAME']}-idgen")) as db:
                rows = db.execute(ROWS).fetchall()
        else:
            rows = server_tools.execute(self.alias, ROWS)
        return [LeaseRow(*row) for row in rows]

    def held(self) -> set[int]:
        """The worker ids that nobody gave back."""
        return {row.worker for row in self.leases() if row.token}

    def sessions(self) -> int:
        """Connections to the database that other processes have open."""
        return 0 if self.alias == "sqlite" else server_tools.sessions(self.alias)

    def start(self, *argv: str, cold: bool = False) -> Running:
        """Start a program in a process group of its own, with its output in a file.

        One that is written in Python is started as :mod:`tests.warm` does, unless ``cold`` or where
        gevent is to patch it.
        """
        log = self.directory / f"output-{time.monotonic_ns()}"
        command = list(argv)
        if command[0] == sys.executable:
            del command[0]
        start: Callable[..., Any] = partial(warm.Process, cold=cold or "gevent" in command)
        if command[0] == program("uwsgi"):
            start = subprocess.Popen
        with log.open("wb") as output:
            process = start(
                command,
                env=self.env,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return Running(process, log)

    def python(self, code: str, *, setup: bool = True) -> Running:
        """Start a script, which has Django set up before its first line."""
        script = self.directory / f"script_{time.monotonic_ns()}.py"
        begin = "import django; django.setup()\n" if setup else ""
        script.write_text(begin + code)
        # What starts processes has to find its script in them again.
        cold = "multiprocessing" in code or "concurrent" in code
        return self.start(sys.executable, "-W", "ignore", str(script), cold=cold)


@dataclass
class Running:
    """A program that was started; it and all its children are killed at the end of a ``with``."""

    process: subprocess.Popen[bytes] | warm.Process
    log: Path

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *exc: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def finish(self) -> int:
        """Wait for the program to end by itself; returns its exit status."""
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running:\n{self.output}") from None

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.send(number)
        return self.finish()

    def wait_until(self, holds: Callable[[], object]) -> None:
        """Come back once ``holds()`` is true; fail if the program ends before."""
        eventually(holds, unless=lambda: self.process.poll() is not None, say=lambda: self.output)


class Web:
    """A web server of the site, listening on ``port``."""

    def __init__(self, running: Running, port: int, side: int) -> None:
        self.running = running
        self.port = port
        self.side = side
        """Of whatever else the server serves."""
        running.wait_until(lambda: is_listening(port))

    def take(self, count: int = 5) -> Taken:
        """Have whichever worker is asked take ids."""
        taken = self.try_to_take(count)
        assert taken is not None, self.running.output
        return taken

    def try_to_take(self, count: int = 5) -> Taken | None:
        """As :meth:`take`; ``None`` if the worker answers with an error."""
        with closing(
            http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        ) as client:
            client.request("GET", f"/ids/{count}")
            answer = client.getresponse()
            body = answer.read()
        return dict(json.loads(body)) if answer.status == 200 else None

    def take_from_all(self, workers: int, *, at_once: int = 8) -> list[Taken]:
        """Ask until ``workers`` processes have answered; returns all that was taken."""
        taken: list[Taken] = []

        def all_answered() -> bool:
            with ThreadPoolExecutor(at_once) as pool:
                taken.extend(pool.map(lambda _: self.take(), range(2 * at_once)))
            return len({entry["pid"] for entry in taken}) >= workers

        self.running.wait_until(all_answered)
        return taken


@contextmanager
def serving(site: Site, *argv: str) -> Iterator[Web]:
    """A web server; ``{port}`` and ``{side}`` in ``argv`` are replaced by free ports."""
    port, side = free_port(), free_port()
    with site.start(*(word.format(port=port, side=side) for word in argv)) as running:
        yield Web(running, port, side)


def is_listening(port: int) -> bool:
    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex(("127.0.0.1", port)) == 0


def eventually(
    holds: Callable[[], object],
    *,
    unless: Callable[[], bool] = lambda: False,
    say: Callable[[], str] = lambda: "",
) -> None:
    """Wait until ``holds()`` is true; what it raises fails the test at once."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert not unless(), f"the process ended:\n{say()}"
        assert time.monotonic() < deadline, f"it never came to pass:\n{say()}"
        time.sleep(0.02)


def program(name: str) -> str:
    """A console script beside the running Python, whatever the PATH says."""
    return str(Path(sys.executable).with_name(name))


def assert_no_repeats(taken: Iterable[Taken]) -> None:
    """No id of either kind came twice."""
    entries = list(taken)
    for kind in ("ids", "tag"):
        ids = [value for entry in entries for value in entry[kind]]
        assert ids, "nothing was taken"
        assert len(set(ids)) == len(ids)


def assert_workers_differ(taken: Iterable[Taken]) -> None:
    """No worker id was used by two of the processes."""
    processes: dict[int, set[int]] = defaultdict(set)
    for entry in taken:
        processes[entry["worker"]].add(entry["pid"])
    shared = {worker: pids for worker, pids in processes.items() if len(pids) > 1}
    assert not shared, f"worker ids of several processes: {shared}"


@contextmanager
def worker_ids_from_redis(site: Site, redis: str) -> Iterator[Site]:
    """``site``, with worker ids from the shared Redis, with its database as their root."""
    site.set_idgen(redis_leases_on("idgen", "default"))
    site.use_redis()
    yield site
    forget_redis(redis, site.alias)


def database_settings(alias: str) -> dict[str, Any]:
    """The setting of this process' test database, migrated, fit to be passed to another process."""
    server_tools.make_tables(alias)
    connections[alias].close()  # the server may be stopped soon
    keys = ("ENGINE", "HOST", "PORT", "USER", "PASSWORD", "NAME")
    return {key: connections.settings[alias][key] for key in keys}
