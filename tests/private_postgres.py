"""PostgreSQL servers of a test's own: started, crashed, hung, replicated, promoted."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psycopg

from tests import servers
from tests.own_servers import PATIENCE, PORTS_TRIED, DatabaseServer, Farm
from tests.servers import free_port


class PostgresServer(DatabaseServer):
    """One PostgreSQL server in ``directory``, which :meth:`initialize` or a backup has filled."""

    engine, user, name = "django.db.backends.postgresql", "postgres", "postgres"

    def __init__(self, binaries: Path, directory: Path) -> None:
        super().__init__(directory)
        self.binaries = binaries

    def initialize(self) -> None:
        """Make an empty cluster, whose user ``postgres`` needs no password."""
        self._run("initdb", "-D", self.directory, "-A", "trust", "-U", "postgres", "--no-sync")

    def start(self) -> None:
        for _ in range(PORTS_TRIED):
            with suppress(subprocess.CalledProcessError):
                self._start("-w")
                return
            if self.runs:
                break
            self.port = free_port()  # another test's server was quicker to take it
        raise AssertionError(self._log.read_text())

    def launch(self) -> None:
        self._start("-W")

    def stop(self, mode: str = "immediate") -> None:
        """Stop it in one of pg_ctl's modes: as a crash does, unless told. May be called twice."""
        if self.runs:
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

    @property
    def runs(self) -> bool:
        return (self.directory / "postmaster.pid").exists()

    def answers(self) -> bool:
        try:
            psycopg.connect(host="127.0.0.1", port=self.port, user="postgres").close()
        except psycopg.Error:
            return False
        return True

    def kill(self) -> None:
        """End it, whatever state it is in. May be called twice."""
        if self.runs:
            self.resume()
            self.stop()

    @property
    def _log(self) -> Path:
        return Path(f"{self.directory}.log")

    def _postmaster(self) -> int:
        return int((self.directory / "postmaster.pid").read_text().split()[0])

    def _start(self, wait: str) -> None:
        options = f"-p {self.port} -c unix_socket_directories={self.directory} -c fsync=off"
        options += " -c listen_addresses=127.0.0.1 -c shared_buffers=16MB -c max_connections=100"
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


class PostgresFarm(Farm[PostgresServer]):
    """Makes servers for one test, and ends them all."""

    def __init__(self, binaries: Path, directory: Path) -> None:
        super().__init__(directory)
        self._binaries = binaries

    def server(self) -> PostgresServer:
        """A new server, empty, started."""
        server = PostgresServer(self._binaries, self.place())
        server.initialize()
        return self.started(server)

    def replica(self, primary: PostgresServer) -> PostgresServer:
        """A new replica of ``primary``, started."""
        return self.started(primary.replica(self.place()))


@contextmanager
def postgres_farm() -> Iterator[PostgresFarm]:
    """Servers for a block; all are ended with it."""
    found = binaries()
    with tempfile.TemporaryDirectory(
        prefix="idgen-postgres-", dir=servers.fast_directory()
    ) as name:
        if os.geteuid() == 0:
            shutil.chown(name, "postgres", "postgres")
        with closing(PostgresFarm(found, Path(name))) as farm:
            yield farm


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
