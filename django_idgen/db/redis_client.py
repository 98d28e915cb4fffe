"""Our Redis client. It uses the project's server and never sends anything twice.

django-redis' cache API pickles values and can turn a dead server into "not found". redis-py
repeats a command whose answer was lost, ten times by default: a script
that was applied would be applied again. So we use the address, user, TLS and Sentinels of the
project's cache alias, but our own connections, with timeouts and without retries.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Sequence
from copy import copy
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Any, TypeVar

from django.conf import settings

from ..core.errors import ConfigurationError, IdgenError, sentence

try:
    import redis
    from django_redis import get_redis_connection
    from redis.backoff import NoBackoff
    from redis.retry import Retry
    from redis.sentinel import SentinelConnectionPool
except ImportError as error:
    raise ConfigurationError(
        f"The settings use Redis, but {error.name!r} is not installed: pip install "
        "'django-idgen[redis]'."
    ) from error

T = TypeVar("T")

SOCKET_TIMEOUT = 1.0
"""Seconds to wait for a connection, and then for an answer, by default."""
UNREACHABLE = (redis.ConnectionError, redis.TimeoutError, OSError)
"""Errors without an answer: the command may have been applied."""

_LIMITS = ("socket_timeout", "socket_connect_timeout")
_DROPPED = ("connection_pool", "event_dispatcher", "himport_registry", *_LIMITS)
"""Options of a pool's connections that belong to that pool alone."""
_REPEATING = ("retry", "retry_on_timeout", "retry_on_error")
_REFUSED = re.compile(r"NOPERM|no permissions|ACL failure|can't run this command|Unknown .*command")


class OwnRedis:
    """The Redis of the cache ``alias``, on its own connections. Thread-safe.

    ``timeout`` (seconds) bounds connecting and answering, each. A shorter
    timeout of the alias stays. A forked child gets new connections and locks,
    however it was forked. Connects on first use.
    """

    def __init__(self, alias: str, *, timeout: float = SOCKET_TIMEOUT) -> None:
        self.alias = alias
        self.timeout = timeout
        self._made: tuple[int, redis.Redis] | None = None

    @property
    def client(self) -> redis.Redis:
        """The client of this process.

        Raises :class:`ConfigurationError` for an alias that is not in CACHES, or
        not django-redis'.
        """
        made = self._made
        # By process id, since uWSGI forks without Python's hooks.
        if made is None or made[0] != os.getpid():
            made = self._made = os.getpid(), raw_client(self.alias, timeout=self.timeout)
        return made[1]

    def ask(self, call: Callable[[redis.Redis], T], *, unavailable: type[IdgenError]) -> T:
        """Return ``call(client)``. Calls it once.

        Raises ``unavailable`` where the server can't be reached, is too slow or
        fails (the call may still have been applied), and
        :class:`ConfigurationError` where its access rules refuse the call.
        """
        client = self.client
        try:
            return call(client)
        except UNREACHABLE as error:
            raise unavailable(
                f"The Redis of CACHES[{self.alias!r}] did not answer: {_words(error)} Check that "
                "the server is up, can be reached from here, and accepts this user."
            ) from error
        except redis.RedisError as error:
            if _REFUSED.search(str(error)):
                raise self.refused(str(error)) from error
            raise unavailable(
                f"The Redis of CACHES[{self.alias!r}] refused a command: {_words(error)} "
                "django_idgen can't use it until that is fixed."
            ) from error

    def refused(self, reason: str) -> ConfigurationError:
        """The error that names the rule its access control list lacks."""
        return ConfigurationError(
            f"The Redis of CACHES[{self.alias!r}] does not let its user do what django_idgen "
            f"needs ({reason.strip()}). Add to that user's ACL: {self.rule(reason)}"
        )

    def rule(self, reason: str = "") -> str:
        """The ACL rules that we need, or the one that ``reason`` names."""
        named = re.search(r"'(\w+)(\|\w+)?' command", reason)
        # One that a script lacks is one of several: Redis 8 names them one after the other.
        if named and "in script" not in reason:
            return f"+{named[1].lower()}"
        return "+select +info +time +ping +eval +evalsha +pexpire +@hash +del ~django_idgen:*"

    def reset(self) -> None:
        """After a fork, forget the parent's connections. May be called late."""
        self._made = None

    def close(self) -> None:
        """Close the connections of this process. May be called twice. The next use reconnects."""
        made, self._made = self._made, None
        if made is not None and made[0] == os.getpid():
            made[1].connection_pool.disconnect()


def raw_client(alias: str, *, timeout: float = SOCKET_TIMEOUT) -> redis.Redis:
    """A client for the Redis of the cache ``alias``, without retries.

    Thread-safe. Connects on first use. Raises :class:`ConfigurationError` for an
    alias that is not in CACHES, or not django-redis'.
    """
    try:
        pool: Any = get_redis_connection(alias).connection_pool
    except NotImplementedError as error:  # django-redis' words for another backend
        backend = settings.CACHES[alias]["BACKEND"]
        raise _not_a_redis(alias, f"its BACKEND is {backend!r}") from error
    except Exception as error:
        raise _not_a_redis(alias, str(error)) from error
    if not isinstance(pool, redis.ConnectionPool):
        raise _not_a_redis(alias, f"its connections are a {type(pool).__name__}")
    return redis.Redis(connection_pool=_own_pool(pool, timeout))


def _not_a_redis(alias: str, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"CACHES[{alias!r}] can't be used as a Redis: {sentence(reason)} It must be an "
        f"alias with BACKEND 'django_redis.cache.RedisCache' that leads to one server or to "
        f"Sentinels."
    )


def _own_pool(pool: redis.ConnectionPool, timeout: float) -> redis.ConnectionPool:
    """A pool that connects as ``pool`` does, but shares no lock, socket or limit with it."""
    options = {
        name: value
        for name, value in pool.connection_kwargs.items()
        if name not in (*_DROPPED, *_REPEATING) and not _is_of_maintenance(name)
    }
    options.update({name: _limit(pool, name, timeout) for name in _LIMITS})
    options["retry"] = Retry(NoBackoff(), 0)
    options["decode_responses"] = False
    options["connection_class"] = pool.connection_class
    options["max_connections"] = 2**31
    if "maint_notifications_config" in inspect.signature(redis.ConnectionPool).parameters:
        # Such notifications extend timeouts and move a connection to another server.
        options["maint_notifications_config"] = _no_maintenance()
    if not isinstance(pool, SentinelConnectionPool):
        return redis.ConnectionPool(**options)
    return SentinelConnectionPool(  # type: ignore[no-untyped-call]
        pool.service_name,
        _own_sentinel(pool.sentinel_manager, timeout),
        is_master=True,
        check_connection=False,
        **options,
    )


def _own_sentinel(sentinel: Any, timeout: float) -> Any:
    own = copy(sentinel)
    # They are asked one after another, and share one timeout.
    share = timeout / max(1, len(sentinel.sentinels))
    own.sentinels = [
        redis.Redis(connection_pool=_own_pool(each.connection_pool, share))
        for each in sentinel.sentinels
    ]
    return own


def _limit(pool: redis.ConnectionPool, name: str, timeout: float) -> float:
    configured = pool.connection_kwargs.get(name)
    return timeout if configured is None else min(timeout, configured)


def _is_of_maintenance(name: str) -> bool:
    return "maint_notifications" in name or name.startswith("orig_")


def _no_maintenance() -> Any:
    from redis.maint_notifications import MaintNotificationsConfig

    return MaintNotificationsConfig(enabled=False)


def _words(error: Exception) -> str:
    # Without redis-py's page about each Sentinel, with the options of its connection.
    return sentence(str(error).partition(" : <")[0] or type(error).__name__)


def run_script(
    client: redis.Redis, parts: Sequence[str], keys: Sequence[str], words: Sequence[object]
) -> list[str]:
    """Run the script made of ``parts`` (``package/name`` of .lua files). Returns texts.

    Raises what the client raises; the script may still have been applied.
    """
    script, digest = _script(*parts)
    given = (len(keys), *keys, *words)
    try:
        answer = client.execute_command("EVALSHA", digest, *given)  # type: ignore[no-untyped-call]
    except redis.exceptions.NoScriptError:
        # The server has run nothing: this is not a retry.
        answer = client.execute_command("EVAL", script, *given)  # type: ignore[no-untyped-call]
    return [_text(word) for word in answer]


@cache
def _script(*parts: str) -> tuple[str, str]:
    """A script's text, and the digest under which a server keeps it."""
    texts = []
    for part in parts:
        package, _, name = part.rpartition("/")
        folder = files(package) / "lua"
        texts.append((folder / f"{name}.lua").read_text(encoding="utf-8"))
    text = "\n".join(texts)
    return text, sha1(text.encode(), usedforsecurity=False).hexdigest()  # as Redis names scripts


def _text(word: object) -> str:
    return word.decode("utf-8", "replace") if isinstance(word, bytes) else str(word)
