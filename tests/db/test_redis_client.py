"""The client of a cache alias: as the project configured it, but nothing is sent twice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis as redis_py

from django_idgen.core.errors import ConfigurationError, RegistryUnavailable
from django_idgen.db.redis_client import OwnRedis, raw_client
from tests.redis_servers import (
    RedisFarm,
    RedisServer,
    cache_alias,
    sentinel_options,
)
from tests.segment_tools import in_child
from tests.servers import free_port


@contextmanager
def own_redis(location: Any, *, timeout: float = 60.0, **options: Any) -> Iterator[OwnRedis]:
    with cache_alias("client", location, **options) as alias:
        own = OwnRedis(alias, timeout=timeout)
        yield own
        own.close()


def options_of(own: OwnRedis) -> dict[str, Any]:
    return dict(own.client.connection_pool.connection_kwargs)


def answers(own: OwnRedis) -> bool:
    return bool(own.ask(lambda client: client.ping(), unavailable=RegistryUnavailable))


REPEATING = {
    "CONNECTION_POOL_KWARGS": {
        "retry_on_timeout": True,
        "retry_on_error": [redis_py.ConnectionError],
    }
}


@pytest.mark.parametrize("options", [{}, REPEATING])
def test_nothing_is_tried_again(farm: RedisFarm, options: dict[str, Any]) -> None:
    """Whatever the alias asks for, its connections repeat no command."""
    with own_redis(farm.server().url, **options) as own:
        assert answers(own)
        connection = own.client.connection_pool.get_connection()
        assert connection.retry._retries == 0
        assert not connection.retry_on_error
        own.client.connection_pool.release(connection)


def test_the_alias_is_taken_over(farm: RedisFarm) -> None:
    """User, password and database number are the alias' own; answers are bytes."""
    server = farm.server(requirepass="secret")
    url = f"redis://:secret@127.0.0.1:{server.port}/7"
    with own_redis(url, CONNECTION_POOL_KWARGS={"decode_responses": True}) as own:
        own.client.set("a", "1")
        assert own.client.get("a") == b"1"
        assert own.client.connection_pool.connection_kwargs["db"] == 7
    wrong = f"redis://:wrong@127.0.0.1:{server.port}/7"
    with (
        own_redis(wrong) as own,
        pytest.raises(RegistryUnavailable, match="accepts this user") as caught,
    ):
        answers(own)
    assert "wrong" not in str(caught.value)


def test_a_unix_socket(farm: RedisFarm, tmp_path: Path) -> None:
    """``unix://`` leads to the socket."""
    path = tmp_path / "redis.sock"
    farm.server(unixsocket=path)
    with own_redis(f"unix://{path}?db=2") as own:
        assert answers(own)


def test_a_pool_of_another_kind_and_protocol(farm: RedisFarm) -> None:
    """A blocking pool of one connection doesn't make us wait for the project's own users."""
    server = farm.server()
    options = {
        "CONNECTION_POOL_CLASS": "redis.BlockingConnectionPool",
        "CONNECTION_POOL_KWARGS": {"max_connections": 1, "timeout": 1, "protocol": 3},
    }
    with own_redis(server.url, **options) as own:
        connections = [own.client.connection_pool.get_connection() for _ in range(3)]
        for each in connections:
            own.client.connection_pool.release(each)
        assert answers(own)
        moves: Any = getattr(own.client.connection_pool, "maint_notifications_enabled", bool)
        assert not moves()


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_connection_that_the_server_has_closed_is_not_used(
    farm: RedisFarm, protocol: int
) -> None:
    """After a restart of the server the first command goes out on a new connection."""
    server = farm.server()
    with own_redis(f"{server.url}?protocol={protocol}") as own:
        assert answers(own)
        server.restart_empty()
        assert answers(own)


def test_the_shorter_limit_holds() -> None:
    """The alias' own timeout if it is shorter than ours, else ours."""
    port = free_port()
    with own_redis(f"redis://127.0.0.1:{port}/0", timeout=2.0, SOCKET_TIMEOUT=0.5) as own:
        assert options_of(own)["socket_timeout"] == 0.5
        assert options_of(own)["socket_connect_timeout"] == 2.0
    with own_redis(f"redis://127.0.0.1:{port}/1", timeout=2.0, SOCKET_TIMEOUT=60) as own:
        assert options_of(own)["socket_timeout"] == 2.0


def test_sentinels_share_the_time(farm: RedisFarm) -> None:
    """Dead Sentinels are passed over; the one that lives names the primary."""
    primary = farm.server()
    sentinel = farm.sentinel(primary)
    options = sentinel_options(sentinel)
    options["SENTINELS"] = [("127.0.0.1", free_port()), *options["SENTINELS"]]
    with own_redis(sentinel.url, timeout=8.0, **options) as own:
        assert answers(own)
        assert own.client.info("server")["tcp_port"] == primary.port
        watching = own.client.connection_pool.sentinel_manager.sentinels
        for each in watching:
            kept = each.connection_pool.connection_kwargs
            assert (kept["socket_timeout"], kept["retry"]._retries) == (4.0, 0)
            each.close()
        sentinel.kill()
        primary.kill()
        with pytest.raises(RegistryUnavailable) as caught:
            answers(own)
        assert len(str(caught.value)) < 400


def test_an_alias_that_is_no_redis(tmp_path: Path) -> None:
    """Another backend, or none, is refused with what it has to be."""
    for alias in ("default", "nowhere"):
        with pytest.raises(ConfigurationError, match=rf"CACHES\['{alias}'\].*RedisCache"):
            raw_client(alias)


def test_a_child_has_a_client_of_its_own(farm: RedisFarm) -> None:
    """Told of the fork or not, with a thread of the parent inside the pool or not."""
    with own_redis(farm.server().url) as own:
        assert answers(own)
        pool = own.client.connection_pool
        held = threading.Event()
        done = threading.Event()

        def hold() -> None:
            with getattr(pool, "_lock", threading.Lock()):
                held.set()
                done.wait(30)

        holder = threading.Thread(target=hold)
        holder.start()
        held.wait(30)
        answered = in_child(lambda: [answers(own)])
        done.set()
        holder.join()
        assert answered == [True]
        assert answers(own)


def test_a_server_that_is_gone_is_named(farm: RedisFarm) -> None:
    """The error is the one asked for, and the client works again when the server does.

    Closing twice is harmless; the next use opens anew.
    """
    server: RedisServer = farm.server()
    with own_redis(server.url) as own:
        server.kill()
        with pytest.raises(RegistryUnavailable, match=r"CACHES\['client'\] did not answer"):
            answers(own)
        server.start()
        assert answers(own)
        own.close()
        own.close()
        assert answers(own)
