"""A MariaDB primary and a replica of a test's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import MySQLdb

from tests import servers
from tests.own_servers import PATIENCE, DatabaseServer, Farm, pointing_at
from tests.server_tools import execute

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


class MariadbServer(DatabaseServer):
    """A ``mariadbd`` whose files :func:`install` or a copy has made."""

    engine, user, name = "django.db.backends.mysql", "root", "ids"

    def __init__(self, directory: Path, number: int) -> None:
        super().__init__(directory)
        self.number = number

    def command(self) -> list[object]:
        return [
            shutil.which("mariadbd") or "/usr/sbin/mariadbd",
            *OPTIONS,
            f"--datadir={self.directory}",
            f"--port={self.port}",
            f"--socket={self.directory}/s",
            f"--pid-file={self.directory}/pid",
            f"--server-id={self.number}",
            *(["--user=root"] if os.geteuid() == 0 else []),
        ]

    def answers(self) -> bool:
        """Whether it answers; then its database is there, too."""
        try:
            connection = MySQLdb.connect(host="127.0.0.1", port=self.port, user="root")
        except MySQLdb.Error:
            return False
        with closing(connection), closing(connection.cursor()) as cursor:
            cursor.execute("CREATE DATABASE IF NOT EXISTS ids")
            cursor.execute("SELECT @@datadir")
            return cursor.fetchone() == (f"{self.directory}/",)


def install(directory: Path) -> None:
    """Make an empty server; skips (or fails, as for any server) where no program can."""
    program = shutil.which("mariadb-install-db")
    if program is None:
        servers.absent("No mariadb-install-db found. Install the MariaDB server's package.")
    _run(program, "--no-defaults", f"--datadir={directory}", "--skip-test-db", *_as_root())


@contextmanager
def mariadb_pair(alias: str) -> Iterator[tuple[MariadbServer, MariadbServer]]:
    """A primary, and a replica that follows it."""
    with (
        tempfile.TemporaryDirectory(dir=servers.fast_directory()) as name,
        closing(Farm(Path(name))) as farm,
    ):
        first = farm.place()
        install(first)
        copy = shutil.copytree(first, Path(name, "copy"))
        primary = farm.started(MariadbServer(first, 1))
        replica = farm.started(MariadbServer(copy, 2))
        with pointing_at(primary, alias):
            execute(alias, "CREATE USER IF NOT EXISTS 'root'@'127.0.0.1'")
            execute(alias, "GRANT ALL ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION")
        with pointing_at(replica, alias):
            execute(alias, "RESET MASTER")  # or it would have a binlog of its own
            execute(
                alias,
                f"CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={primary.port}, "
                "MASTER_USER='root', MASTER_USE_GTID=slave_pos",
            )
            execute(alias, "START SLAVE")
        yield primary, replica


def follow_up(primary: MariadbServer, replica: MariadbServer, alias: str) -> None:
    """Wait until the replica has all of the primary's commits, and cut it off."""
    with pointing_at(primary, alias):
        position = execute(alias, "SELECT @@gtid_binlog_pos")[0][0]
    with pointing_at(replica, alias):
        assert execute(alias, f"SELECT MASTER_GTID_WAIT('{position}', {PATIENCE})")[0][0] == 0
        execute(alias, "STOP SLAVE")


def promote(replica: MariadbServer, alias: str) -> None:
    with pointing_at(replica, alias):
        execute(alias, "RESET SLAVE ALL")


def _as_root() -> list[str]:
    method = "--auth-root-authentication-method=normal"
    return [method, "--user=root"] if os.geteuid() == 0 else [method]


def _run(*command: Any) -> None:
    subprocess.run(command, check=True, timeout=PATIENCE * 2, stdout=subprocess.DEVNULL)
