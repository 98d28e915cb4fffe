"""Database servers of a test's own that can be taken away, and brought back."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests import servers
from tests.faults.failover.mariadb_pair import MariadbServer
from tests.faults.failover.mariadb_pair import install as install_mariadb
from tests.own_servers import DatabaseServer, pointing_at
from tests.private_postgres import postgres_farm


@dataclass
class Outages:
    """Takes a server away ``how``: ``crashed`` (connections are refused) or ``hung`` (silent)."""

    name: str
    server: DatabaseServer

    def take_away(self, how: str) -> None:
        self.server.kill() if how == "crashed" else self.server.pause()

    def bring_back(self, how: str) -> float:
        """The last moment (of ``time.monotonic``) at which it did not answer yet."""
        if how == "crashed":
            return self.server.start_and_watch()
        moment = time.monotonic()
        self.server.resume()
        return moment

    def restore(self) -> None:
        """See that it answers, whatever a test left behind."""
        if self.server.runs:
            self.server.resume()
        else:
            self.server.start()


@contextmanager
def own_postgres(alias: str) -> Iterator[Outages]:
    """A PostgreSQL server that the new ``alias`` leads to for the block."""
    with postgres_farm() as farm:
        server = farm.server()
        with pointing_at(server, alias):
            yield Outages("PostgreSQL", server)


@contextmanager
def own_mariadb(alias: str) -> Iterator[Outages]:
    """A MariaDB server that the new ``alias`` leads to for the block."""
    with tempfile.TemporaryDirectory(prefix="idgen-mariadb-", dir=servers.fast_directory()) as name:
        directory = Path(name, "1")
        install_mariadb(directory)
        server = MariadbServer(directory, 1)
        try:
            server.start()
            with pointing_at(server, alias):
                yield Outages("MariaDB", server)
        finally:
            server.kill()
