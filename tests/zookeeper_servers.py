"""ZooKeeper servers of a test's own: alone or as an ensemble, killed, stopped, set back."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from tests import servers
from tests.own_servers import Farm, OwnServer, eventually
from tests.servers import free_port

JAR = Path("/usr/share/java/zookeeper.jar")
QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx96m")
MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
TICK_MS = 300


class ZooKeeper(OwnServer):
    """One server with its data in ``directory``; with ``ensemble`` it is ``number`` of those."""

    def __init__(self, directory: Path, number: int = 1) -> None:
        if not JAR.exists() or shutil.which("java") is None:
            servers.absent("No ZooKeeper found. Install the package 'zookeeper' of Debian.")
        super().__init__(directory)
        self.number = number
        self.peers = (free_port(), free_port())
        self.ensemble: list[ZooKeeper] = []

    @property
    def hosts(self) -> str:
        return ",".join(each.host for each in self.ensemble or [self])

    @property
    def host(self) -> str:
        """Its own address."""
        return f"127.0.0.1:{self.port}"

    def leads(self) -> bool:
        """Whether it is the leader of its ensemble."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as asked:
            asked.sendall(b"srvr")
            return b"Mode: leader" in b"".join(iter(lambda: asked.recv(4096), b""))

    def command(self) -> list[object]:
        data = self.directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        (data / "myid").write_text(str(self.number))
        settings = {
            "tickTime": TICK_MS,
            "initLimit": 20,
            "syncLimit": 20,
            "dataDir": data,
            "clientPort": self.port,
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "maxClientCnxns": 0,
            **{
                f"server.{each.number}": f"127.0.0.1:{each.peers[0]}:{each.peers[1]}"
                for each in self.ensemble
            },
        }
        config = self.directory / "zoo.cfg"
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return ["java", *QUICK, "-cp", JAR, MAIN, config]

    def answers(self) -> bool:
        # kazoo leaves the socket of a refused connection open.
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            return self._answers()
        return False

    def _answers(self) -> bool:
        with suppress(KazooException, KazooTimeoutError), self.client(timeout=1) as client:
            return client.exists("/") is not None
        return False

    @contextmanager
    def client(self, timeout: float = 20) -> Iterator[Any]:
        """A client of the test's own."""
        client = KazooClient(self.hosts)
        try:
            client.start(timeout=timeout)
            yield client
        finally:
            client.stop()
            client.close()

    def wipe(self) -> None:
        """Throw away what it has on disk. It must not run."""
        shutil.rmtree(self.directory / "data")

    def save(self) -> Path:
        """A copy of its disk as it is now."""
        kept = self.directory / "kept"
        shutil.copytree(self.directory / "data", kept)
        return kept

    def set_back(self) -> None:
        """Give it the disk that :meth:`save` has kept. It must not run."""
        self.wipe()
        (self.directory / "kept").rename(self.directory / "data")


@contextmanager
def zookeeper() -> Iterator[ZooKeeper]:
    """A server that runs alone."""
    with (
        TemporaryDirectory(dir=servers.fast_directory()) as directory,
        closing(Farm(Path(directory))) as farm,
    ):
        yield farm.started(ZooKeeper(farm.place()))


@contextmanager
def ensemble(size: int = 3) -> Iterator[list[ZooKeeper]]:
    """Servers that elect a leader."""
    with TemporaryDirectory(dir=servers.fast_directory()) as directory, ExitStack() as stack:
        made = [ZooKeeper(Path(directory) / str(n), n) for n in range(1, size + 1)]
        for each in made:
            each.ensemble = made
            stack.callback(each.kill)
            each.launch()
        eventually(made[0].answers, "an elected leader")
        yield made
