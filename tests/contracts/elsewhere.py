"""Registries for processes started anew, where Django is not set up yet."""

from __future__ import annotations

from django_idgen.core.lease import Namespace
from django_idgen.core.registry import Registry


def server_leases(alias: str, database: str, namespace: Namespace) -> Registry:
    """A registry in ``database`` of server ``alias``."""
    import django

    django.setup()
    from django.db import connections

    from django_idgen.leases.server import ServerLeases

    connections.settings[alias]["NAME"] = database
    return ServerLeases(namespace, alias=alias)


def redis_leases(url: str, alias: str, database: str, namespace: Namespace) -> Registry:
    """A registry in the Redis at ``url``, whose root is ``database`` of server ``alias``."""
    import django

    django.setup()
    from django.conf import settings
    from django.db import connections

    settings.CACHES = {
        "redis": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url, "OPTIONS": {}}
    }
    from django_idgen.leases.redis.registry import RedisLeases

    connections.settings[alias]["NAME"] = database
    return RedisLeases(namespace, alias="redis", database=alias, timeout=30)


def zookeeper_leases(hosts: str, alias: str, database: str, namespace: Namespace) -> Registry:
    """A registry in the ZooKeeper at ``hosts``, whose root is ``database`` of server ``alias``."""
    import django

    django.setup()
    from django.db import connections

    from django_idgen.leases.zookeeper import ZooKeeperLeases

    connections.settings[alias]["NAME"] = database
    return ZooKeeperLeases(namespace, hosts=hosts, database=alias, timeout=30)


def http_leases(url: str, generator: str, token: str, namespace: Namespace) -> Registry:
    """A registry behind the service at ``url``."""
    from django_idgen.leases.http import HttpLeases

    return HttpLeases(
        namespace, base_urls=url, generator=generator, token=token, timeout=60, connect_timeout=60
    )
