"""PostgreSQL servers of a test's own: started, crashed, hung, replicated, promoted."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
from django.db import connections

from tests import servers
from tests.ports import free_port
from tests.server_tools import make_tables
from tests.threads import wait_for_threads

PATIENCE = 60
"""Seconds that a server may take for anything, on a loaded machine."""
PORTS_TRIED = 5


class PostgresServer:
    """One PostgreSQL server in ``directory``, which :meth:`initialize` or a backup has filled."""

    def __init__(self, binaries: Path, directory: Path) -> None:
        self.binaries = binaries
        self.directory = directory
        self.port = free_port()

    def initialize(self) -> None:
        """Make an empty cluster, whose user ``postgres`` needs no password."""
        self._run("initdb", "-D", self.directory, "-A", "trust", "-U", "postgres", "--no-sync")

    def start(self) -> None:
        """Start it, on the port that it had before, and wait until it answers."""
        for _ in range(PORTS_TRIED):
            with suppress(subprocess.CalledProcessError):
                self._start("-w")
                return
            if self.is_running():
                break
            self.port = free_port()  # another test's server was quicker to take it
        raise AssertionError(self._log.read_text())

    def start_and_watch(self) -> float:
        """Start it: the last moment (of ``time.monotonic``) at which it did not answer yet."""
        self._start("-W")
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            before = time.monotonic()
            if self.answers():
                return before
            time.sleep(0.01)
        raise AssertionError(self._log.read_text())

    def stop(self, mode: str = "immediate") -> None:
        """Stop it in one of pg_ctl's modes: as a crash does, unless told. May be called twice."""
        if self.is_running():
            self._control("-w", "-m", mode, "stop")

    def promote(self) -> None:
        """Make a replica a primary, with what it has."""
        self._control("-w", "promote")

    def replica(self, directory: Path) -> PostgresServer:
        """A replica that has all commits so far, not started yet."""
        other = PostgresServer(self.binaries, directory)
        where = ("-h", "127.0.0.1", "-p", self.port, "-U", "postgres")
        self._run("pg_basebackup", *where, "-D", directory, "-R", "-c", "fast")
        return other

    def pause(self) -> None:
        """SIGSTOP to all its processes: it holds its connections, and says nothing."""
        postmaster = self._postmaster()
        os.kill(postmaster, signal.SIGSTOP)  # first, so that no child is born meanwhile
        _send_all(_children_of(postmaster), signal.SIGSTOP)

    def resume(self) -> None:
        """End a pause. Harmless without one."""
        postmaster = self._postmaster()
        _send_all([*_children_of(postmaster), postmaster], signal.SIGCONT)

    def is_running(self) -> bool:
        return (self.directory / "postmaster.pid").exists()

    def answers(self) -> bool:
        try:
            psycopg.connect(host="127.0.0.1", port=self.port, user="postgres").close()
        except psycopg.Error:
            return False
        return True

    def close(self) -> None:
        """End it, whatever state it is in. May be called twice."""
        if self.is_running():
            self.resume()
            self.stop()

    @property
    def _log(self) -> Path:
        return Path(f"{self.directory}.log")

    def _postmaster(self) -> int:
        return int((self.directory / "postmaster.pid").read_text().split()[0])

    def _start(self, wait: str) -> None:
        options = f"-p {self.port} -c unix_socket_directories={self.directory} -c fsync=off"
        options += " -c listen_addresses=127.0.0.1 -c shared_buffers=16MB -c max_connections=30"
        self._control(wait, "-l", self._log, "-o", options, "start")

    def _control(self, *arguments: object) -> None:
        self._run("pg_ctl", "-D", self.directory, "-s", *arguments)

    def _run(self, program: str, *arguments: object) -> None:
        # PostgreSQL refuses to run as root.
        owner = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}
        subprocess.run(
            [str(word) for word in (self.binaries / program, *arguments)],
            check=True,
            timeout=PATIENCE,
            stdout=subprocess.DEVNULL,
            cwd="/",
            **owner,
        )


class PostgresFarm:
    """Makes servers for one test, and ends them all."""

    def __init__(self, binaries: Path, directory: Path) -> None:
        self._binaries = binaries
        self._directory = directory
        self._servers: list[PostgresServer] = []

    def server(self) -> PostgresServer:
        """A new server, empty, started."""
        server = PostgresServer(self._binaries, self._place())
        server.initialize()
        return self._started(server)

    def replica(self, primary: PostgresServer) -> PostgresServer:
        """A new replica of ``primary``, started."""
        return self._started(primary.replica(self._place()))

    def _started(self, server: PostgresServer) -> PostgresServer:
        self._servers.append(server)
        server.start()
        return server

    def _place(self) -> Path:
        return self._directory / str(len(self._servers))

    def close(self) -> None:
        for server in self._servers:
            server.close()


@contextmanager
def postgres_farm() -> Iterator[PostgresFarm]:
    """Servers for a block; all are ended with it."""
    found = binaries()
    with tempfile.TemporaryDirectory(
        prefix="idgen-postgres-", dir=servers.fast_directory()
    ) as name:
        if os.geteuid() == 0:
            shutil.chown(name, "postgres", "postgres")
        farm = PostgresFarm(found, Path(name))
        try:
            yield farm
        finally:
            farm.close()


@contextmanager
def pointing_at(server: PostgresServer, alias: str, *, migrated: bool = True) -> Iterator[str]:
    """The alias of DATABASES, a new one perhaps, leads to ``server`` for the block.

    Our tables are there; not if ``migrated`` is False.
    """
    settings = connections.settings
    configured = settings.get(alias)
    if configured is not None:
        connections[alias].close()
    settings[alias] = {
        **settings["default"],
        "ENGINE": "django.db.backends.postgresql",
        "HOST": "127.0.0.1",
        "PORT": str(server.port),
        "USER": "postgres",
        "PASSWORD": "",
        "NAME": "postgres",
        "OPTIONS": {},
    }
    _forget_connection(alias)
    try:
        if migrated:
            make_tables(alias)
            connections[alias].close()
        yield alias
    finally:
        wait_for_threads(alias)
        _forget_connection(alias)
        del settings[alias]
        if configured is not None:
            settings[alias] = configured


def _forget_connection(alias: str) -> None:
    connections[alias].close()
    del connections[alias]


def binaries() -> Path:
    """Where PostgreSQL's programs are; skips (or fails, as for any server) if they are nowhere."""
    places = [Path(found).parent for found in [shutil.which("initdb")] if found]
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    found = next((place for place in places if (place / "pg_basebackup").exists()), None)
    if found is None:
        servers.absent(
            "No initdb and pg_basebackup found. Install the PostgreSQL server's package."
        )
    return found


def _children_of(parent: int) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            fields = status.read_text().rpartition(") ")[2].split()
            if int(fields[1]) == parent:
                found.append(int(status.parent.name))
    return found


def _send_all(processes: list[int], number: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)
