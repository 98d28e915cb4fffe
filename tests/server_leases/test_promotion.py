"""A real failover: a PostgreSQL replica that missed the last commits is promoted."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from django_idgen import vendor
from django_idgen.core.clock import SYSTEM_CLOCK
from django_idgen.core.errors import LeaseLost
from django_idgen.leases.server import ServerLeases
from tests.server_leases.shop import SHOP, SKEW, assert_disjoint
from tests.server_tools import execute

LIMIT = 60


@dataclass(frozen=True)
class Cluster:
    """A PostgreSQL server of this test's own."""

    binaries: Path
    directory: Path
    port: int

    def control(self, *arguments: str) -> None:
        run(self.binaries / "pg_ctl", "-D", self.directory, "-w", "-s", *arguments)

    def start(self) -> None:
        options = f"-p {self.port} -c unix_socket_directories={self.directory} -c fsync=off"
        options += " -c listen_addresses=127.0.0.1 -c shared_buffers=16MB -c max_connections=30"
        self.control("-l", f"{self.directory}.log", "-o", options, "start")


def run(*command: object) -> None:
    # PostgreSQL refuses to run as root.
    owner = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}
    subprocess.run(
        [str(word) for word in command],
        check=True,
        timeout=LIMIT,
        stdout=subprocess.DEVNULL,
        cwd="/",
        **owner,
    )


def find_binaries() -> Path:
    places = [Path(found).parent for found in [shutil.which("initdb")] if found]
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for place in places:
        if (place / "pg_basebackup").exists():
            return place
    reason = "No initdb and pg_basebackup found. Install the PostgreSQL server's package."
    if os.environ.get("IDGEN_REQUIRE_SERVERS") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@pytest.fixture
def pair() -> Iterator[tuple[Cluster, Cluster]]:
    """A primary, and a replica that has all of its commits so far."""
    binaries = find_binaries()
    with tempfile.TemporaryDirectory(prefix="idgen-clusters-") as name:
        if os.geteuid() == 0:
            shutil.chown(name, "postgres", "postgres")
        primary = Cluster(binaries, Path(name, "primary"), free_port())
        run(binaries / "initdb", "-D", primary.directory, "-A", "trust", "-U", "postgres")
        primary.start()
        replica = Cluster(binaries, Path(name, "replica"), free_port())
        try:
            where = ("-h", "127.0.0.1", "-p", primary.port, "-U", "postgres")
            run(binaries / "pg_basebackup", *where, "-D", replica.directory, "-R", "-c", "fast")
            replica.start()
            yield primary, replica
        finally:
            for cluster in (primary, replica):
                if (cluster.directory / "postmaster.pid").exists():
                    cluster.control("-m", "immediate", "stop")


@contextmanager
def pointing_at(cluster: Cluster, alias: str) -> Iterator[None]:
    """The alias leads to ``cluster`` for the block."""
    settings = connections.settings[alias]
    configured = dict(settings)
    connections[alias].close()
    settings.update(HOST="127.0.0.1", PORT=str(cluster.port), USER="postgres", NAME="postgres")
    try:
        yield
    finally:
        connections[alias].close()
        settings.update(configured)


def eventually(query: str, alias: str) -> None:
    deadline = SYSTEM_CLOCK.stopwatch() + LIMIT
    while execute(alias, query) != [(True,)]:
        assert SYSTEM_CLOCK.stopwatch() < deadline, query
        SYSTEM_CLOCK.sleep(0.05)


def test_what_the_replica_missed_is_not_lent_again(
    pair: tuple[Cluster, Cluster], postgres: str
) -> None:
    """I1, L7, hazards 17, 52 and 59: the windows before and after never overlap."""
    primary, replica = pair
    leases: Any = ServerLeases(SHOP, alias=postgres)
    with pointing_at(primary, postgres):
        held = [leases.acquire(holder=str(number)).lease for number in range(8)]
        identity = vendor.server_identity(connections[postgres])
        (position,) = execute(postgres, "SELECT pg_current_wal_lsn()::text")[0]
    with pointing_at(replica, postgres):
        eventually(f"SELECT pg_last_wal_replay_lsn() >= '{position}'", postgres)
        execute(postgres, "ALTER SYSTEM SET primary_conninfo = ''")
        execute(postgres, "SELECT pg_reload_conf()")
        eventually("SELECT count(*) = 0 FROM pg_stat_wal_receiver", postgres)
    with pointing_at(primary, postgres):
        # From here on nothing reaches the replica: longer windows, a worker id that
        # changes hands, and newcomers.
        windows = [leases.renew(lease, last_tick=lease.start + SKEW).lease for lease in held]
        leases.release(windows[0], last_tick=windows[0].start)
        windows += [leases.acquire(holder=f"newcomer {number}").lease for number in range(8)]
    primary.control("-m", "immediate", "stop")
    replica.control("promote")
    with pointing_at(replica, postgres):
        # At once, before any checkpoint has told the control file of the new timeline.
        assert vendor.server_identity(connections[postgres]) != identity
        after = [leases.acquire(holder=f"later {number}").lease for number in range(64)]
        for lease in windows:
            with pytest.raises(LeaseLost):
                leases.renew(lease, last_tick=lease.start)
    assert {lease.generation for lease in after} == {2}
    assert min(lease.start for lease in after) >= max(lease.until for lease in windows)
    spans = [(lease.worker, lease.start, lease.until) for lease in windows[1:] + after]
    assert_disjoint(spans)
