"""Registries for processes started anew, where Django is not set up yet."""

from __future__ import annotations

from django_idgen.core.lease import LeaseRegistry, Namespace


def server_leases(alias: str, database: str, namespace: Namespace) -> LeaseRegistry:
    """A registry in ``database`` of server ``alias``."""
    import django

    django.setup()
    from django.db import connections

    from django_idgen.leases.server import ServerLeases

    connections.settings[alias]["NAME"] = database
    return ServerLeases(namespace, alias=alias)


def redis_leases(url: str, alias: str, database: str, namespace: Namespace) -> LeaseRegistry:
    """A registry in the Redis at ``url``, whose root is ``database`` of server ``alias``."""
    import django

    django.setup()
    from django.conf import settings
    from django.db import connections

    settings.CACHES = {
        "redis": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url, "OPTIONS": {}}
    }
    from django_idgen.leases.redis import RedisLeases

    connections.settings[alias]["NAME"] = database
    return RedisLeases(namespace, alias="redis", database=alias, timeout=30)
