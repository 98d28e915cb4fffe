"""What servers of a test's own have in common: a process, an end, and patience with them."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

import redis
from django.db import Error, connections

from django_idgen.core.clock import SYSTEM_CLOCK
from tests.server_tools import make_tables, wait_for_threads
from tests.servers import free_port

PATIENCE = 60
"""Seconds that a server may take for anything, on a loaded machine."""
PORTS_TRIED = 5


def eventually(condition: Callable[[], Any], what: str, *errors: type[Exception]) -> Any:
    """Wait for what ``condition`` returns to be true, and return it.

    A server that is away, and the ``errors``, are waited out.
    """
    deadline = SYSTEM_CLOCK.stopwatch() + PATIENCE
    while SYSTEM_CLOCK.stopwatch() < deadline:
        try:
            found = condition()
        except (Error, redis.RedisError, *errors):
            found = None
        if found:
            return found
        SYSTEM_CLOCK.sleep(0.05)
    raise AssertionError(f"Not within {PATIENCE} s: {what}")


class OwnServer:
    """A server of one process, with its files in ``directory`` and a port of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[object]:
        """How it is started, once its files are there."""
        raise NotImplementedError

    def answers(self) -> bool:
        """Whether it answers: itself, not another's server that was quicker to take the port."""
        raise NotImplementedError

    @property
    def runs(self) -> bool:
        """Whether it was started, and has not ended since."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it, on the port that it had before, and wait until it answers."""
        for _ in range(PORTS_TRIED):
            self.launch()
            eventually(lambda: not self.runs or self.answers(), f"an answer on port {self.port}")
            if self.runs:
                return
            self.port = free_port()  # another test's server was quicker to take it
        raise AssertionError(self._log.read_text())

    def start_and_watch(self) -> float:
        """Start it: the last moment (of ``time.monotonic``) at which it did not answer yet."""
        self.launch()
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            before = time.monotonic()
            if self.answers():
                return before
            time.sleep(0.01)
        raise AssertionError(self._log.read_text())

    def launch(self) -> None:
        """Start it, and don't wait."""
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [str(word) for word in self.command()]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self) -> None:
        """End it as a crash does (SIGKILL), and wait for its end. May be called twice."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def pause(self) -> None:
        """SIGSTOP: it holds its connections, and says nothing once all its threads stand still."""
        assert self._process is not None
        self._send(signal.SIGSTOP)
        tasks = Path(f"/proc/{self._process.pid}/task")
        if tasks.exists():
            eventually(lambda: all(map(_stands_still, tasks.iterdir())), "a stop", OSError)

    def resume(self) -> None:
        """End a pause. Harmless without one."""
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    @property
    def _log(self) -> Path:
        return self.directory / "log"


def _stands_still(task: Path) -> bool:
    return (task / "stat").read_text().rpartition(")")[2].split()[0] == "T"


S = TypeVar("S", bound=OwnServer)


class Farm(Generic[S]):
    """Makes servers for one test, and ends them all."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._servers: list[S] = []

    def place(self) -> Path:
        """The directory of the next server."""
        return self._directory / str(len(self._servers))

    def started(self, server: S) -> S:
        self._servers.append(server)
        server.start()
        return server

    def close(self) -> None:
        for server in self._servers:
            server.kill()


class DatabaseServer(OwnServer):
    """A server that an alias of DATABASES can lead to.

    It is taken away ``how``: ``crashed`` (connections are refused) or ``hung`` (it is silent).
    """

    engine: str
    user: str
    name: str
    """Of the database."""

    @property
    def settings(self) -> dict[str, Any]:
        """What leads to it."""
        return {
            "ENGINE": self.engine,
            "HOST": "127.0.0.1",
            "PORT": str(self.port),
            "USER": self.user,
            "PASSWORD": "",
            "NAME": self.name,
            "OPTIONS": {},
        }

    def take_away(self, how: str) -> None:
        self.kill() if how == "crashed" else self.pause()

    def bring_back(self, how: str) -> float:
        """The last moment (of ``time.monotonic``) at which it did not answer yet."""
        if how == "crashed":
            return self.start_and_watch()
        moment = time.monotonic()
        self.resume()
        return moment


@contextmanager
def pointing_at(server: DatabaseServer, alias: str, *, migrated: bool = True) -> Iterator[str]:
    """The alias of DATABASES, a new one perhaps, leads to ``server`` for the block.

    Our tables are there; not if ``migrated`` is False.
    """
    settings = connections.settings
    configured = settings.get(alias)
    if configured is not None:
        connections[alias].close()
    settings[alias] = {**settings["default"], **server.settings}
    _forget_connection(alias)
    try:
        if migrated:
            make_tables(alias)
            connections[alias].close()
        yield alias
    finally:
        wait_for_threads(alias)  # or one of ours would still be connected there
        _forget_connection(alias)
        del settings[alias]
        if configured is not None:
            settings[alias] = configured


def _forget_connection(alias: str) -> None:
    connections[alias].close()
    del connections[alias]
