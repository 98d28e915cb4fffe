"""A Django project for the groups that need one: settings, and a PostgreSQL database."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import django
from django.conf import settings
from django.db import connection, connections

from tests import servers

from .bars import Skipped

__all__ = ["REDIS", "configure", "own_database", "settings_of_a_process"]

NAME = f"idgen_bench_{os.getpid()}"
REDIS = "idgen"
"""The cache alias of the Redis that the tests use."""


def configure() -> None:
    """Settings over a PostgreSQL database that does not exist yet. May be called twice."""
    if not settings.configured:
        settings.configure(
            DATABASES={"default": {**servers.database("postgres"), "NAME": NAME}},
            CACHES={
                REDIS: {
                    "BACKEND": "django_redis.cache.RedisCache",
                    "LOCATION": servers.REDIS["redis"],
                }
            },
            INSTALLED_APPS=["django_idgen"],
            USE_TZ=True,
        )
        django.setup()


@contextmanager
def own_database() -> Iterator[None]:
    """Make the database, migrate it, and drop it at the end. Raises :class:`Skipped`."""
    if not servers.is_open("postgres"):
        raise Skipped(f"no PostgreSQL server at {servers.URLS['postgres']}")
    configure()
    from django.core.management import call_command

    _on_the_server(f'CREATE DATABASE "{NAME}"')
    try:
        call_command("migrate", verbosity=0)
        yield
    finally:
        from django_idgen.process.maps import reset

        reset()
        connection.close()
        _on_the_server(f'DROP DATABASE "{NAME}" WITH (FORCE)')


def settings_of_a_process() -> dict[str, object]:
    """Settings for a process of its own on this database, as JSON can carry them."""
    database = {
        name: value
        for name, value in connections.settings["default"].items()
        if name in ("ENGINE", "HOST", "NAME", "OPTIONS", "PASSWORD", "PORT", "USER")
    }
    return {
        "DATABASES": {"default": database},
        "INSTALLED_APPS": ["django_idgen"],
        "USE_TZ": True,
    }


def _on_the_server(statement: str) -> None:
    # Django's own way to the maintenance database, which creates and drops test databases.
    with connection._nodb_cursor() as cursor:
        cursor.execute(statement)
