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
