"""A MariaDB primary and a replica of a test's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.db import Error, connections

from django_idgen.core.clock import SYSTEM_CLOCK
from tests import servers
from tests.ports import free_port
from tests.server_tools import execute, make_tables
from tests.threads import wait_for_threads

LIMIT = 60
OPTIONS = (
    "--no-defaults",
    "--bind-address=127.0.0.1",
    "--innodb-buffer-pool-size=16M",
    "--innodb-log-file-size=8M",
    "--innodb-flush-log-at-trx-commit=2",
    "--performance-schema=OFF",
    "--log-bin=bin",
    "--binlog-format=ROW",
    "--skip-name-resolve",
)


@dataclass
class Server:
    """A ``mariadbd`` with files and a port of its own."""

    directory: Path
    number: int
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        where = [
            f"--datadir={self.directory}",
            f"--port={self.port}",
            f"--socket={self.directory}/s",
            f"--pid-file={self.directory}/pid",
            f"--server-id={self.number}",
            *(["--user=root"] if os.geteuid() == 0 else []),
        ]
        binary = shutil.which("mariadbd") or "/usr/sbin/mariadbd"
        with (self.directory.parent / f"{self.number}.log").open("wb") as log:
            self.process = subprocess.Popen([binary, *OPTIONS, *where], stdout=log, stderr=log)

    def kill(self) -> None:
        """As a power cut does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(LIMIT)


@contextmanager
def pointing_at(server: Server, alias: str) -> Iterator[None]:
    """The alias leads to ``server`` for the block; waits until it answers."""
    settings = connections.settings[alias]
    configured = dict(settings)
    connections[alias].close()
    settings.update(HOST="127.0.0.1", PORT=str(server.port), USER="root", PASSWORD="", NAME="ids")
    try:
        _wait_for(server, alias)
        make_tables(alias)
        connections[alias].close()
        yield
    finally:
        wait_for_threads(alias)  # or one of ours would still be connected there
        connections[alias].close()
        settings.update(configured)


def _wait_for(server: Server, alias: str) -> None:
    deadline = SYSTEM_CLOCK.stopwatch() + LIMIT
    while True:
        with suppress(Error), connections[alias]._nodb_cursor() as cursor:
            cursor.execute("CREATE DATABASE IF NOT EXISTS ids")
            cursor.execute("SELECT @@datadir")
            # Another's server, if that was quicker to take the port.
            assert cursor.fetchone() == (f"{server.directory}/",)
            return
        assert server.process is not None
        assert server.process.poll() is None, "mariadbd has ended"
        assert SYSTEM_CLOCK.stopwatch() < deadline
        SYSTEM_CLOCK.sleep(0.1)


def install(directory: Path) -> None:
    """Make an empty server; skips (or fails, as for any server) where no program can."""
    program = shutil.which("mariadb-install-db")
    if program is None:
        servers.absent("No mariadb-install-db found. Install the MariaDB server's package.")
    _run(program, "--no-defaults", f"--datadir={directory}", "--skip-test-db", *_as_root())


@contextmanager
def mariadb_pair(alias: str) -> Iterator[tuple[Server, Server]]:
    """A primary, and a replica that follows it."""
    with tempfile.TemporaryDirectory(prefix="idgen-mariadb-", dir=servers.fast_directory()) as name:
        first = Path(name, "1")
        install(first)
        shutil.copytree(first, Path(name, "2"))
        primary, replica = Server(first, 1), Server(Path(name, "2"), 2)
        try:
            primary.start()
            replica.start()
            with pointing_at(primary, alias):
                execute(alias, "CREATE USER IF NOT EXISTS 'root'@'127.0.0.1'")
                execute(alias, "GRANT ALL ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION")
            with _without_a_binlog(replica, alias):
                execute(
                    alias,
                    f"CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={primary.port}, "
                    "MASTER_USER='root', MASTER_USE_GTID=slave_pos",
                )
                execute(alias, "START SLAVE")
            yield primary, replica
        finally:
            primary.kill()
            replica.kill()


@contextmanager
def _without_a_binlog(server: Server, alias: str) -> Iterator[None]:
    with pointing_at(server, alias):
        execute(alias, "RESET MASTER")
        yield


def follow_up(primary: Server, replica: Server, alias: str) -> None:
    """Wait until the replica has all of the primary's commits, and cut it off."""
    with pointing_at(primary, alias):
        position = execute(alias, "SELECT @@gtid_binlog_pos")[0][0]
    with pointing_at(replica, alias):
        assert execute(alias, f"SELECT MASTER_GTID_WAIT('{position}', {LIMIT})")[0][0] == 0
        execute(alias, "STOP SLAVE")


def promote(replica: Server, alias: str) -> None:
    with pointing_at(replica, alias):
        execute(alias, "RESET SLAVE ALL")


def _as_root() -> list[str]:
    method = "--auth-root-authentication-method=normal"
    return [method, "--user=root"] if os.geteuid() == 0 else [method]


def _run(*command: Any) -> None:
    subprocess.run(command, check=True, timeout=LIMIT * 2, stdout=subprocess.DEVNULL)
