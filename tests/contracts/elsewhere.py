"""Registries for processes forked from one in which nothing but these imports has happened."""

from __future__ import annotations

import django
from django.apps import apps

if not apps.ready:
    django.setup()

from django.conf import settings
from django.db import connections

from django_idgen.core.lease import Namespace
from django_idgen.core.registry import Registry
from django_idgen.leases.http import HttpLeases
from django_idgen.leases.redis.registry import RedisLeases
from django_idgen.leases.zookeeper import ZooKeeperLeases
from tests.leases.server.shop import ServerLeases

from .places import PATIENT


def server_leases(alias: str, database: str, namespace: Namespace) -> Registry:
    """A registry in ``database`` of server ``alias``."""
    connections.settings[alias]["NAME"] = database
    return ServerLeases(namespace, alias=alias, timeout=PATIENT)


def redis_leases(url: str, alias: str, database: str, namespace: Namespace) -> Registry:
    """A registry in the Redis at ``url``, whose root is ``database`` of server ``alias``."""
    connections.settings[alias]["NAME"] = database
    settings.CACHES = {
        "redis": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url, "OPTIONS": {}}
    }
    return RedisLeases(namespace, alias="redis", database=alias, timeout=PATIENT)


def zookeeper_leases(hosts: str, alias: str, database: str, namespace: Namespace) -> Registry:
    """A registry in the ZooKeeper at ``hosts``, whose root is ``database`` of server ``alias``."""
    connections.settings[alias]["NAME"] = database
    return ZooKeeperLeases(namespace, hosts=hosts, database=alias, timeout=PATIENT)


def http_leases(url: str, generator: str, token: str, namespace: Namespace) -> Registry:
    """A registry behind the service at ``url``."""
    return HttpLeases(
        namespace,
        base_urls=url,
        generator=generator,
        token=token,
        timeout=PATIENT,
        connect_timeout=PATIENT,
    )
