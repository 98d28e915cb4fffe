"""Redis servers of a test's own: started, killed, stopped, replicated, watched by a Sentinel."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import redis
from django.core.cache import caches
from django.test.signals import setting_changed
from django_redis.pool import ConnectionFactory

from tests import servers
from tests.own_servers import Farm, OwnServer, eventually


def binary() -> str:
    """The path of ``redis-server``; skips (or fails, as for any server) where there is none."""
    found = shutil.which("redis-server")
    if found is None:
        servers.absent("No redis-server found. Install the Redis server's package.")
    return found


class RedisServer(OwnServer):
    """One ``redis-server`` in ``directory``. It persists nothing unless ``options`` ask for it.

    ``options`` are those of redis.conf, with ``_`` for ``-``: ``maxmemory="2mb"``.
    """

    arguments: ClassVar[list[str]] = []

    def __init__(self, directory: Path, **options: Any) -> None:
        super().__init__(directory)
        self.options = options

    def command(self) -> list[object]:
        config = self.directory / "redis.conf"
        config.write_text("".join(f"{name} {value}\n" for name, value in self.configured()))
        return [binary(), config, *self.arguments]

    def answers(self) -> bool:
        assert self._process is not None
        return int(self.info("server")["process_id"]) == self._process.pid

    def configured(self) -> Iterable[tuple[str, object]]:
        """The lines of its configuration."""
        given = {
            "port": self.port,
            "bind": "127.0.0.1",
            "dir": self.directory,
            "save": '""',
            "appendonly": "no",
            "repl-diskless-sync-delay": 0,  # a replica is served at once
            **{name.replace("_", "-"): value for name, value in self.options.items()},
        }
        return given.items()

    def client(self, **options: Any) -> redis.Redis:
        """A client for the test's own use; close it."""
        password = self.options.get("requirepass")
        given = {"socket_timeout": 5, "socket_connect_timeout": 5, "password": password, **options}
        return redis.Redis(host="127.0.0.1", port=self.port, **given)

    def run(self, *command: Any) -> Any:
        """What one command answers."""
        with self.client() as client:
            return client.execute_command(*command)

    def info(self, section: str) -> dict[str, Any]:
        with self.client() as client:
            return dict(client.info(section))

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

    def configured(self) -> Iterable[tuple[str, object]]:
        return [
            ("port", self.port),
            ("bind", "127.0.0.1"),
            ("dir", self.directory),
            ("sentinel monitor", f"{self.name} 127.0.0.1 {self._watched} 1"),
            ("sentinel down-after-milliseconds", f"{self.name} 5000"),
            ("sentinel failover-timeout", f"{self.name} 10000"),
        ]

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


class RedisFarm(Farm[RedisServer]):
    """Makes servers for one test, and ends them all."""

    first: RedisServer

    def server(self, **options: Any) -> RedisServer:
        """A new server, started; ``options`` as :class:`RedisServer` takes them."""
        return self.started(RedisServer(self.place(), **options))

    def sentinel(self, primary: RedisServer) -> SentinelServer:
        """A new Sentinel of its own quorum, started, that watches ``primary``."""
        server = SentinelServer(self.place(), primary)
        self.started(server)
        return server


@contextmanager
def redis_farm() -> Iterator[RedisFarm]:
    """Servers for a block; all are ended with it."""
    binary()
    with (
        TemporaryDirectory(prefix="idgen-redis-") as directory,
        closing(RedisFarm(Path(directory))) as farm,
    ):
        yield farm


@contextmanager
def cache_alias(alias: str, location: Any, **options: Any) -> Iterator[str]:
    """``CACHES[alias]`` is django-redis' at ``location`` for the block."""
    from django.conf import settings

    entry = {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": location,
        "OPTIONS": options,
    }
    # In place: pytest-django's ``settings`` may end later, and would bring an
    # ``override_settings`` that ended first back for all tests after.
    known = settings.CACHES
    before = dict(known)
    with ExitStack() as stack:
        stack.callback(_changed, known)
        stack.callback(lambda: (known.clear(), known.update(before)))
        known[alias] = entry
        _changed(known)
        stack.callback(_forget_pools, location)
        stack.callback(lambda: caches[alias].close())
        yield alias


def _changed(known: dict[str, Any]) -> None:
    setting_changed.send(sender=cache_alias, setting="CACHES", value=known, enter=True)


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
