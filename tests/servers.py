"""Where the servers of the tests are, how they are reached, and what to do where there is none.

Imported without Django and pytest: processes of the tests start with it.
"""

from __future__ import annotations

import os
import socket
from typing import Any, NoReturn
from urllib.parse import unquote, urlsplit

URLS = {
    "postgres": os.environ.get("IDGEN_TEST_POSTGRES", "postgres://postgres@127.0.0.1:5432/idgen"),
    "mariadb": os.environ.get("IDGEN_TEST_MARIADB", "mysql://root@127.0.0.1:3306/idgen"),
}
REDIS = {"redis": os.environ.get("IDGEN_TEST_REDIS", "redis://127.0.0.1:6379/0")}
RABBITMQ = {
    "rabbitmq": os.environ.get("IDGEN_TEST_RABBITMQ", "amqp://guest:guest@127.0.0.1:5672//")
}
_ALL = URLS | REDIS | RABBITMQ
ENGINES = {
    "postgres": "django.db.backends.postgresql",
    "mariadb": "django.db.backends.mysql",
}


def fast_directory() -> str | None:
    """Where files cost no disk's time; ``None``: in the usual place."""
    # So that it is locks, not a slow disk's syncs, that a slow step shows.
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def free_port() -> int:
    """A port that was free just now: for a server to listen on, or to knock at in vain.

    Another process may be quicker; who starts a server tries again with another one.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def use_pymysql_for_mysqlclient() -> None:
    """Have Django find PyMySQL, unless mysqlclient is there. Called by the tests' settings."""
    try:
        import MySQLdb  # noqa: F401
    except ImportError:
        import pymysql

        pymysql.version_info = (2, 2, 1, "final", 0)  # what Django asks of mysqlclient
        pymysql.install_as_MySQLdb()
        # It would load the host's certificates at each connect, and be slower than the fetch.
        pymysql.connections.SSL_ENABLED = False


def is_open(name: str) -> bool:
    """Whether anything listens at the address of server ``name``."""
    url = urlsplit(_ALL[name])
    try:
        with socket.create_connection((url.hostname, url.port), timeout=1):
            return True
    except OSError:
        return False


def database(name: str) -> dict[str, Any]:
    """The Django setting of server ``name``, with a test database of this run's own."""
    url = urlsplit(URLS[name])
    base = url.path.strip("/") or "idgen"
    return {
        "ENGINE": ENGINES[name],
        "HOST": url.hostname,
        "PORT": str(url.port),
        "USER": unquote(url.username or ""),
        "PASSWORD": unquote(url.password or ""),
        "NAME": base,
        "TEST": {"NAME": f"test_{base}_{os.getpid()}"},
    }


def absent(reason: str) -> NoReturn:
    """Skip the test for ``reason``; fail it where everything has to be there."""
    import pytest  # not above: the tests' processes start without it

    if os.environ.get("IDGEN_REQUIRE_SERVERS") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def require(name: str) -> None:
    """Skip the test where server ``name`` is not found; fail if it has to be there."""
    if is_open(name):
        return
    url = urlsplit(_ALL[name])
    reason = (
        f"No {name} server at {url.hostname}:{url.port}. Start one with "
        f"'docker compose up -d {name}', or point IDGEN_TEST_{name.upper()} at one."
    )
    absent(reason)
