"""The namespace that these tests lend from, and a look into its rows."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from django_idgen.core.lease import Namespace
from django_idgen.core.stored import ALL, SERVER
from django_idgen.db.connection import OwnConnection, own_connection
from django_idgen.leases.book_registry import BookRegistry
from django_idgen.leases.server import ServerStore
from django_idgen.models import Installation, NamespaceRecord, WorkerLease

EPOCH_US = 1_735_689_600_000_000
WINDOW = 1000
SKEW = 50
SHOP = Namespace(
    "shop",
    epoch_us=EPOCH_US,
    tick_us=1000,
    max_ticks=2**41,
    workers=range(16),
    window_ticks=WINDOW,
    skew_ticks=SKEW,
    fingerprint={"layout": "41/10/12", "workers": [0, 16]},
)


class ServerLeases(BookRegistry):
    """A registry in the tables of ``alias``, whatever that means later: a test's alone."""

    def __init__(
        self, namespace: Namespace, *, alias: str, own: OwnConnection | None = None, **options: Any
    ) -> None:
        self.alias = alias
        store = ServerStore(namespace.name, own or own_connection(alias), **options)
        super().__init__(namespace, store)


class Time:
    """The registry's clock, driven by hand; its unit is the tick."""

    def __init__(self, tick: int = 1_000_000) -> None:
        self.tick = tick

    def __call__(self, connection: Any) -> int:
        return EPOCH_US + self.tick * SHOP.tick_us


def changed(leases: ServerLeases, time: Any = None, **changes: Any) -> ServerLeases:
    """A second registry on the same database, whose namespace differs in ``changes``."""
    return ServerLeases(replace(SHOP, **changes), alias=leases.alias, read_now=time)


def record_of(leases: ServerLeases) -> NamespaceRecord:
    return NamespaceRecord.objects.using(leases.alias).get(pk="shop")


def rows_of(leases: ServerLeases) -> Any:
    return WorkerLease.objects.using(leases.alias).filter(namespace="shop")


def forget_server(leases: ServerLeases) -> None:
    NamespaceRecord.objects.using(leases.alias).update(server="another server")


def forget_workers(leases: ServerLeases) -> None:
    rows_of(leases).all().delete()


def forget_record(leases: ServerLeases) -> None:
    record_of(leases).delete(using=leases.alias)


def forget_namespace(leases: ServerLeases) -> None:
    forget_record(leases)
    forget_workers(leases)


def forget_first_use(leases: ServerLeases, server: str) -> None:
    """As on a new server, which missed all that ``server`` wrote of the namespace."""
    forget_namespace(leases)
    row = Installation.objects.using(leases.alias).get()
    memory = json.loads(row.namespaces)
    del memory["shop"]
    memory[ALL][SERVER] = server
    row.namespaces = json.dumps(memory)
    row.save(using=leases.alias)


def forget_installation(leases: ServerLeases) -> None:
    Installation.objects.using(leases.alias).all().delete()


def forget_everything(leases: ServerLeases) -> None:
    forget_namespace(leases)
    forget_installation(leases)


LOSSES = [
    forget_server,
    forget_workers,
    forget_record,
    forget_namespace,
    forget_installation,
    forget_everything,
]
