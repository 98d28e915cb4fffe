"""Who holds which worker id, over HTTP: to be looked at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

from django.db import DatabaseError, connections
from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from ..backends import BackendSettings
from ..conf import DEFAULT_ALIAS, nested_leases
from ..core.errors import RegistryUnavailable
from ..handlers import current_settings
from ..lease_state import LeaseState, promised_until, state_of, where_state, with_namespaces
from ..models import WorkerLease
from ..tables import missing_tables
from .management import ManagementView
from .pagination import PageInput, page_of
from .strict_input import Choice, Text, read_query

__all__ = ["WorkerLeasesView"]


class LeasesInput(PageInput):
    """Which leases to show."""

    namespace = Text(max_length=128, required=False, help_text="Of this namespace.")
    state = Choice(
        [state.value for state in LeaseState],
        required=False,
        help_text="Held; given back (free); or held by somebody who does not renew it (lapsed).",
    )


class WorkerLeasesView(ManagementView):
    """Who holds which worker id; never what lets one renew it."""

    permissions: ClassVar[Mapping[str, str]] = {"GET": "django_idgen.view_workerlease"}

    def get(self, request: Request) -> Response:
        wanted = read_query(request, LeasesInput)
        parts = [_fitting(alias, wanted) for alias in _databases()]
        try:
            return Response(page_of(request, wanted, _LeaseList(parts), _shown))
        except DatabaseError as error:
            raise RegistryUnavailable(f"The leases can't be asked for: {error}") from error


@dataclass(frozen=True, slots=True)
class _LeaseList:
    """The leases of each database, one database after the other."""

    parts: Sequence[QuerySet[WorkerLease]]

    def count(self) -> int:
        return sum(part.count() for part in self.parts)

    def part(self, start: int, stop: int) -> Sequence[WorkerLease]:
        return list(chain.from_iterable(self._slices(start, stop)))

    def _slices(self, start: int, stop: int) -> Iterator[QuerySet[WorkerLease]]:
        passed = 0
        for part in self.parts:
            count = part.count()
            if passed < stop and passed + count > start:
                yield part[max(0, start - passed) : stop - passed]
            passed += count


def _fitting(alias: str, wanted: Mapping[str, Any]) -> QuerySet[WorkerLease]:
    rows = with_namespaces(WorkerLease.objects.using(alias))
    if "namespace" in wanted:
        rows = rows.filter(namespace=wanted["namespace"])
    if "state" in wanted:
        rows = rows.filter(where_state(LeaseState(wanted["state"]), alias))
    return rows.order_by("namespace", "worker")


def _databases() -> list[str]:
    """The aliases of all databases that lend worker ids, and have begun to."""
    found = dict.fromkeys(
        alias
        for entry in current_settings().generators.values()
        for alias in _named_by(entry.leases)
    )
    tables = ("NamespaceRecord", "WorkerLease")
    return [alias for alias in found if not missing_tables(connections[alias], tables)]


def _named_by(leases: BackendSettings) -> Iterator[str]:
    alias = str(leases.options.get("database", DEFAULT_ALIAS))
    if alias in connections.settings:
        yield alias
    for name in getattr(leases.load(), "nested", ()):
        yield from _named_by(nested_leases(leases, name))


def _shown(lease: WorkerLease) -> dict[str, Any]:
    return {
        "namespace": lease.namespace,
        "worker": lease.worker,
        "state": state_of(lease).value,
        "holder": lease.holder,
        "promised_until": promised_until(lease),
        "acquired_at": lease.acquired_at,
        "seen_at": lease.seen_at,
    }
