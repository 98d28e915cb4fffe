"""Database servers of a test's own that can be taken away, and brought back."""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Protocol

from django.db import Error, connections

from tests import servers
from tests.faults.failover.mariadb_pair import Server as MariadbServer
from tests.faults.failover.mariadb_pair import install as install_mariadb
from tests.private_postgres import PostgresServer, postgres_farm
from tests.private_postgres import pointing_at as pointing_at_postgres
from tests.server_tools import make_tables

from .processes import PATIENCE


class OwnServer(Protocol):
    """Is taken away ``how``: ``crashed`` (connections are refused) or ``hung`` (it is silent)."""

    name: str

    def take_away(self, how: str) -> None: ...

    def bring_back(self, how: str) -> float:
        """The last moment (of ``time.monotonic``) at which it did not answer yet."""
        ...

    def restore(self) -> None:
        """See that it answers, whatever a test left behind."""
        ...


class OwnPostgres:
    name = "PostgreSQL"

    def __init__(self, server: PostgresServer) -> None:
        self._server = server

    def take_away(self, how: str) -> None:
        self._server.stop() if how == "crashed" else self._server.pause()

    def bring_back(self, how: str) -> float:
        if how == "crashed":
            return self._server.start_and_watch()
        moment = time.monotonic()
        self._server.resume()
        return moment

    def restore(self) -> None:
        if self._server.is_running():
            self._server.resume()
        else:
            self._server.start()


class OwnMariadb:
    name = "MariaDB"

    def __init__(self, server: MariadbServer, alias: str) -> None:
        self._server = server
        self._alias = alias

    def take_away(self, how: str) -> None:
        self._server.kill() if how == "crashed" else self._send(signal.SIGSTOP)

    def bring_back(self, how: str) -> float:
        moment = time.monotonic()
        if how == "hung":
            self._send(signal.SIGCONT)
            return moment
        self._server.start()
        return self.wait()

    def restore(self) -> None:
        if self._is_running():
            self._send(signal.SIGCONT)
        else:
            self._server.start()
            self.wait()

    def wait(self) -> float:
        """Come back once it answers: the last moment at which it did not."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            before = time.monotonic()
            assert self._is_running(), "mariadbd has ended"
            try:
                self._make_database()
            except Error:
                time.sleep(0.01)
            else:
                return before
        raise AssertionError("mariadbd does not answer")

    def _make_database(self) -> None:
        probe = connections.create_connection(self._alias)
        with closing(probe), probe._nodb_cursor() as cursor:
            cursor.execute("CREATE DATABASE IF NOT EXISTS ids")

    def _is_running(self) -> bool:
        return self._server.process is not None and self._server.process.poll() is None

    def _send(self, number: signal.Signals) -> None:
        assert self._server.process is not None
        self._server.process.send_signal(number)


@contextmanager
def own_postgres(alias: str) -> Iterator[OwnServer]:
    """A PostgreSQL server that the new ``alias`` leads to for the block."""
    with postgres_farm() as farm:
        server = farm.server()
        with pointing_at_postgres(server, alias):
            yield OwnPostgres(server)


def _migrate(alias: str) -> None:
    make_tables(alias)
    connections[alias].close()


@contextmanager
def own_mariadb(alias: str) -> Iterator[OwnServer]:
    """A MariaDB server that the new ``alias`` leads to for the block."""
    with tempfile.TemporaryDirectory(prefix="idgen-mariadb-", dir=servers.fast_directory()) as name:
        directory = Path(name, "1")
        install_mariadb(directory)
        server = MariadbServer(directory, 1)
        connections.settings[alias] = {
            **connections.settings["default"],
            "ENGINE": "django.db.backends.mysql",
            "HOST": "127.0.0.1",
            "PORT": str(server.port),
            "USER": "root",
            "PASSWORD": "",
            "NAME": "ids",
            "OPTIONS": {},
        }
        made = OwnMariadb(server, alias)
        try:
            server.start()
            made.wait()
            _migrate(alias)
            yield made
        finally:
            server.kill()
            connections[alias].close()
            del connections[alias]
            del connections.settings[alias]
