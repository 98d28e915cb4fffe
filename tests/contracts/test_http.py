"""What a service lends over HTTP keeps the contracts, with PostgreSQL behind it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from unittest import mock

import pytest
from django.db import connections

from django_idgen.core.lease import Namespace
from django_idgen.core.registry import Registry
from django_idgen.core.segment import check_step
from django_idgen.core.segment_generator import SegmentAllocator
from django_idgen.core.source import Source
from django_idgen.process import maps
from django_idgen.process.maps import registries
from django_idgen.rest import lending
from django_idgen.rest.lending import Lending
from django_idgen.sources.database import DatabaseSource
from django_idgen.sources.http import HttpSource
from django_idgen.testing.contracts import LeaseContract, Lender, Shop, SourceContract
from tests.remote.service import SECRET, service
from tests.tiers import LONG

from .elsewhere import http_leases
from .places import PATIENT, on
from .test_server import ServerLender, ServerShop

GENERATORS = 8
"""Aliases of the service, one for each set of settings that a test tries."""


class HttpLender(Lender):
    """Clients of a service whose registries stand in one database, on the test's clock."""

    def __init__(self, alias: str, url: str, stack: ExitStack) -> None:
        super().__init__(f"contract-{secrets.token_hex(4)}")
        self.url = url
        self._behind = ServerLender(alias)
        self._behind.time = self.time
        self._behind.namespace = self.namespace
        self._stack = stack
        self._lent: list[Namespace] = []

    def make(self, namespace: Namespace) -> Registry:
        return http_leases(self.url, self._alias_of(namespace), SECRET, namespace)

    def _alias_of(self, namespace: Namespace) -> str:
        if namespace not in self._lent:
            alias = f"lent{len(self._lent)}"
            registry = self._behind.registry(namespace)
            registry.database = self._behind.alias  # type: ignore[attr-defined]
            registry.lend_on()  # type: ignore[attr-defined]
            self._stack.enter_context(registries.override(alias, registry))
            self._lent.append(namespace)
        return f"lent{self._lent.index(namespace)}"

    def label(self, holder: str) -> str:
        """With the name of the token in front."""
        return f'"tests" {holder}'

    def overseen(self) -> Registry:
        """There, since nothing can be seen from a client."""
        return self._behind.overseen()

    def forget(self) -> None:
        self._behind.forget()

    def elsewhere(self, namespace: Namespace) -> Callable[[], Registry]:
        return partial(http_leases, self.url, self._alias_of(namespace), SECRET, namespace)

    def close(self) -> None:
        super().close()
        self._behind.close()


@pytest.fixture(scope="class")
def lender_url(database: str) -> Iterator[str]:
    """The address of a service that lends worker ids."""
    leases = {"LEASES": {"OPTIONS": {"database": database}}}
    idgen = {
        "GENERATORS": {f"lent{number}": leases for number in range(GENERATORS)},
        "REST": {"max_leases": 1000},
    }
    # The clock of these tests stands in another year.
    with mock.patch.object(lending, "latest_tick", return_value=2**62), service(idgen) as url:
        yield url


@on("postgres")
class TestHttpLeases(LeaseContract):
    shortens_windows = False
    examples = 3
    acquirers = 24 if LONG else 12
    needs = ("database", "lender_url")

    @contextmanager
    def new_lender(self) -> Iterator[Lender]:
        with ExitStack() as stack:
            yield HttpLender(*self.backing, stack)


class HttpShop(Shop):
    """Clients of a service whose rows stand in one database."""

    failover_skip = ServerShop.failover_skip

    def __init__(self, alias: str, url: str) -> None:
        super().__init__()
        self.url = url
        self._behind = ServerShop(alias)
        self._step = 0

    def make(self, default_step: int) -> Source:
        if check_step(default_step) != self._step:
            self._step = default_step
            maps.segments.close()
            source = DatabaseSource(database=self._behind.alias, default_step=default_step)
            maps.segments._allocator = SegmentAllocator(source, source.loader)
        waiting = {"timeout": PATIENT, "connect_timeout": PATIENT}
        return HttpSource(base_urls=self.url, token=SECRET, **waiting)

    def set_step(self, tag: str, step: int) -> None:
        self._behind.set_step(tag, step)

    def forget(self) -> None:
        self._behind.forget()

    def tags(self) -> list[str]:
        return self._behind.tags()

    def close(self) -> None:
        super().close()
        maps.segments.close()
        connections[self._behind.alias].close()


@pytest.fixture(scope="class")
def source_url() -> Iterator[str]:
    """The address of a service that lends segments."""
    rest = {"make_tags": True, "max_segment": 10**9}
    # Sources skip as far as they are told to; that services don't is tested elsewhere.
    with (
        mock.patch.object(Lending, "_check_floor", return_value=None),
        service({"REST": rest}) as url,
    ):
        yield url


@on("postgres")
class TestHttpSource(SourceContract):
    examples = 3
    fetchers = 24 if LONG else 12
    fetches_from, needs = HttpShop, ("database", "source_url")
