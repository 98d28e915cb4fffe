"""Redis as we use it: django-redis' raw client, and nothing ever sent twice.

django-redis' cache API pickles values and can turn a dead server into "not found",
and redis-py repeats a command whose answer was lost, ten times by default: a script
that was applied would be applied again. So the client that the project configured
under a cache alias is taken as it is, but for its retries and its time limits.
"""

from __future__ import annotations

from copy import copy
from typing import Any

from .core.errors import ConfigurationError

__all__ = ["SOCKET_TIMEOUT", "UNREACHABLE", "raw_client"]

try:
    import redis
    from django_redis import get_redis_connection
    from redis.backoff import NoBackoff
    from redis.retry import Retry
except ImportError as error:
    raise ConfigurationError(
        f"Redis was asked for in settings, but {error.name!r} is not installed: "
        f"pip install 'django-idgen[redis]'."
    ) from error

SOCKET_TIMEOUT = 1.0
"""Seconds, unless the cache alias says otherwise."""
UNREACHABLE = (redis.ConnectionError, redis.TimeoutError, OSError)
"""What is raised when an answer did not come: the command may have been applied."""


def raw_client(alias: str) -> redis.Redis:
    """A client of its own for the Redis of the cache ``alias``, which repeats nothing.

    Thread-safe; a forked child opens sockets of its own. Opens none by itself.
    Raises :class:`ConfigurationError` for an alias that is not in CACHES, or not django-redis'.
    """
    try:
        configured = get_redis_connection(alias)
    except Exception as error:
        raise ConfigurationError(
            f"CACHES[{alias!r}] can't be used as a Redis: {error} It must be an alias with "
            f"BACKEND 'django_redis.cache.RedisCache'."
        ) from error
    pool = configured.connection_pool
    own = copy(pool)
    options: dict[str, Any] = {
        "socket_timeout": SOCKET_TIMEOUT,
        "socket_connect_timeout": SOCKET_TIMEOUT,
        **pool.connection_kwargs,
        "retry": Retry(NoBackoff(), 0),
        "retry_on_timeout": False,
        "retry_on_error": [],
        "decode_responses": False,
    }
    own.connection_kwargs = options
    own.reset()
    return redis.Redis(connection_pool=own)
