"""Redis servers of a test's own: started, killed, stopped, replicated, watched by a Sentinel."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import redis
from django.core.cache import caches
from django.test import override_settings
from django_redis.pool import ConnectionFactory

from django_idgen.core.clock import SYSTEM_CLOCK
from tests import servers
from tests.ports import free_port

PATIENCE = 60
"""Seconds that a server may take for anything, on a loaded machine."""
PORTS_TRIED = 5


def eventually(condition: Callable[[], Any], what: str) -> Any:
    """Wait for what ``condition`` returns to be true, and return it."""
    deadline = SYSTEM_CLOCK.stopwatch() + PATIENCE
    while SYSTEM_CLOCK.stopwatch() < deadline:
        try:
            found = condition()
        except redis.RedisError:
            found = None
        if found:
            return found
        SYSTEM_CLOCK.sleep(0.05)
    raise AssertionError(f"Not within {PATIENCE} s: {what}")


def binary() -> str:
    """The path of ``redis-server``; skips (or fails, as for any server) where there is none."""
    found = shutil.which("redis-server")
    if found is None:
        servers.absent("No redis-server found. Install the Redis server's package.")
    return found


class RedisServer:
    """One ``redis-server`` in ``directory``. It persists nothing unless ``options`` ask for it.

    ``options`` are those of redis.conf, with ``_`` for ``-``: ``maxmemory="2mb"``.
    """

    def __init__(self, directory: Path, **options: Any) -> None:
        self.directory = directory
        self.port = free_port()
        self.options = options
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> RedisServer:
        """Start it, on the port that it had before, and wait until it answers."""
        for _ in range(PORTS_TRIED):
            self._process = subprocess.Popen(
                [binary(), str(self._configured()), *self.arguments],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            eventually(self._is_up_or_over, f"an answer of Redis on port {self.port}")
            if self._process.poll() is None:
                return self
            self.port = free_port()  # another test's server was quicker to take it
        raise AssertionError((self.directory / "log").read_text())

    arguments: ClassVar[list[str]] = []

    def _is_up_or_over(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            return True
        return int(self.info("server")["process_id"]) == self._process.pid

    def _configured(self) -> Path:
        given = {
            "port": self.port,
            "bind": "127.0.0.1",
            "dir": self.directory,
            "logfile": self.directory / "log",
            "save": '""',
            "appendonly": "no",
            "repl-diskless-sync-delay": 0,  # a replica is served at once
            **{name.replace("_", "-"): value for name, value in self.options.items()},
        }
        config = self.directory / "redis.conf"
        config.write_text("".join(f"{name} {value}\n" for name, value in given.items()))
        return config

    def client(self, **options: Any) -> redis.Redis:
        """A client for the test's own use; close it."""
        password = self.options.get("requirepass")
        given = {"socket_timeout": 5, "socket_connect_timeout": 5, "password": password, **options}
        return redis.Redis(host="127.0.0.1", port=self.port, **given)

    def run(self, *command: Any) -> Any:
        """What one command answers."""
        with self.client() as client:
            return client.execute_command(*command)

    def answers(self) -> bool:
        with self.client() as client:
            return bool(client.ping())

    def info(self, section: str) -> dict[str, Any]:
        with self.client() as client:
            return dict(client.info(section))

    def kill(self) -> None:
        """End it as a crash does (SIGKILL), and wait for its end. May be called twice."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def pause(self) -> None:
        """SIGSTOP: it holds its connections, and says nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def restart_empty(self) -> None:
        """Kill it, throw away what it had on disk, and start it anew on the same port."""
        self.kill()
        for kept in (*self.directory.glob("*.rdb"), *self.directory.glob("appendonlydir")):
            shutil.rmtree(kept) if kept.is_dir() else kept.unlink()
        self.start()

    def follow(self, primary: RedisServer) -> None:
        """Become a replica of ``primary``, and wait until all of its data is here."""
        self.run("REPLICAOF", "127.0.0.1", primary.port)
        eventually(
            lambda: self.info("replication").get("master_link_status") == "up", "the replica"
        )
        self.catch_up(primary)

    def catch_up(self, primary: RedisServer) -> None:
        """Wait until everything that ``primary`` has written so far is here."""
        offset = primary.info("replication")["master_repl_offset"]
        eventually(
            lambda: self.info("replication").get("slave_repl_offset", -1) >= offset,
            "the replica has caught up",
        )

    def promote(self) -> None:
        """Make a replica a primary, with what it has."""
        self.run("REPLICAOF", "NO", "ONE")
        eventually(lambda: self.info("replication")["role"] == "master", "the promotion")

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"


class SentinelServer(RedisServer):
    """A Sentinel that watches ``primary`` as ``name``, and alone decides on a failover."""

    arguments: ClassVar[list[str]] = ["--sentinel"]

    def __init__(self, directory: Path, primary: RedisServer) -> None:
        super().__init__(directory)
        # django-redis keeps its connections by the URL, for the life of the process.
        self.name = f"primary-{primary.port}"
        self._watched = primary.port

    def _configured(self) -> Path:
        config = self.directory / "redis.conf"
        config.write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {self.directory}\n"
            f"logfile {self.directory / 'log'}\n"
            f"sentinel monitor {self.name} 127.0.0.1 {self._watched} 1\n"
            f"sentinel down-after-milliseconds {self.name} 5000\n"
            f"sentinel failover-timeout {self.name} 10000\n"
        )
        return config

    @property
    def url(self) -> str:
        return f"redis://{self.name}/0"

    def sees(self, server: RedisServer) -> bool:
        """Whether the Sentinel takes ``server`` for the primary, and for alive."""
        with self.client() as client:
            state = client.sentinel_master(self.name)
        return state["port"] == server.port and state["flags"] == "master"

    def knows_replicas(self, count: int) -> bool:
        with self.client() as client:
            return len(client.execute_command("SENTINEL", "REPLICAS", self.name)) >= count


class RedisFarm:
    """Makes servers for one test, and ends them all."""

    first: RedisServer

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._servers: list[RedisServer] = []

    def server(self, **options: Any) -> RedisServer:
        """A new server, started; ``options`` as :class:`RedisServer` takes them."""
        return self._started(RedisServer(self._place(), **options))

    def sentinel(self, primary: RedisServer) -> SentinelServer:
        """A new Sentinel of its own quorum, started, that watches ``primary``."""
        server = SentinelServer(self._place(), primary)
        self._started(server)
        return server

    def _started(self, server: RedisServer) -> RedisServer:
        self._servers.append(server)
        return server.start()

    def _place(self) -> Path:
        place = self._directory / str(len(self._servers))
        place.mkdir()
        return place

    def close(self) -> None:
        for server in self._servers:
            server.kill()


@contextmanager
def redis_farm() -> Iterator[RedisFarm]:
    """Servers for a block; all are ended with it."""
    binary()
    with TemporaryDirectory(prefix="idgen-redis-") as directory:
        farm = RedisFarm(Path(directory))
        try:
            yield farm
        finally:
            farm.close()


@contextmanager
def cache_alias(alias: str, location: Any, **options: Any) -> Iterator[str]:
    """``CACHES[alias]`` is django-redis' at ``location`` for the block."""
    from django.conf import settings

    entry = {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": location,
        "OPTIONS": options,
    }
    with ExitStack() as stack:
        stack.enter_context(override_settings(CACHES={**settings.CACHES, alias: entry}))
        stack.callback(_forget_pools, location)
        stack.callback(lambda: caches[alias].close())
        yield alias


def _forget_pools(location: Any) -> None:
    # django-redis keeps the options of the first who had an address, in all of the process;
    # another test's server may have the same one.
    for address in [location] if isinstance(location, str) else location:
        ConnectionFactory._pools.pop(address, None)


def sentinel_options(sentinel: SentinelServer) -> dict[str, Any]:
    """The OPTIONS of a cache whose LOCATION is ``sentinel.url``."""
    return {
        "CLIENT_CLASS": "django_redis.client.SentinelClient",
        "CONNECTION_FACTORY": "django_redis.pool.SentinelConnectionFactory",
        "SENTINELS": [("127.0.0.1", sentinel.port)],
    }
