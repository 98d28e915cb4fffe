"""Who holds which worker id, over HTTP: to be looked at, and freed by hand."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from django.db import connections
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from ..core.errors import NotSeenFromHere, WorkerOutOfRange
from ..handlers import current_settings
from ..models import WorkerLease
from ..registries import lease_databases
from ..tables import missing_tables
from ..worker_map import WorkerEntry, WorkerState, release_worker, worker_map
from .management import Conflict, ManagementView
from .pagination import PageInput, page_of
from .strict_input import Choice, Input, Text, read_body, read_query

__all__ = ["LeasesInput", "ReleaseLeaseView", "WorkerLeasesView"]

logger = logging.getLogger("django_idgen")

STATES = ("free", "held", "lapsing", "lapsed")
"""Of worker ids that were ever lent."""


class LeasesInput(PageInput):
    """Which leases to show."""

    namespace = Text(max_length=128, required=False, help_text="Of this namespace.")
    state = Choice(
        STATES,
        required=False,
        help_text="Held; held, but its renewal is overdue (lapsing); given back (free); or held "
        "by somebody who does not renew it (lapsed).",
    )


class NoInput(Input):
    """A body without fields."""


@dataclass(frozen=True, slots=True)
class _Listed:
    """What is shown: read whole, as a map is."""

    shown: Sequence[Mapping[str, Any]]

    def count(self) -> int:
        return len(self.shown)

    def part(self, start: int, stop: int) -> Sequence[Mapping[str, Any]]:
        return self.shown[start:stop]


class WorkerLeasesView(ManagementView):
    """Who holds which worker id; never what lets one renew it."""

    permissions: ClassVar[Mapping[str, str]] = {"GET": "django_idgen.view_workerlease"}

    def get(self, request: Request) -> Response:
        wanted = read_query(request, LeasesInput)
        asked = [(key, wanted[key]) for key in ("namespace", "state") if key in wanted]
        fitting = [each for each in _leases() if all(each[key] == value for key, value in asked)]
        fitting.sort(key=lambda each: (each["namespace"], each["worker"]))
        return Response(page_of(request, wanted, _Listed(fitting), dict))


class ReleaseLeaseView(ManagementView):
    """Free a worker id by hand, as after its holder was killed."""

    permissions: ClassVar[Mapping[str, str]] = {"POST": "django_idgen.change_workerlease"}

    def post(self, request: Request, alias: str, worker: int) -> Response:
        if alias not in current_settings().generators:
            raise NotFound(f"There is no generator {alias!r}.")
        read_body(request, NoInput)
        try:
            released = release_worker(alias, worker)
        except WorkerOutOfRange as error:
            raise NotFound(str(error)) from error
        except NotSeenFromHere as error:
            raise Conflict(str(error), code="not_seen_from_here") from error
        if released:
            words = (request.user, worker, alias)
            logger.warning(
                "%s released worker id %d of generator %r by hand",
                *words,
                extra={"idgen_event": "worker_released"},
            )
        return Response({"generator": alias, "worker": worker, "released": released})


def _leases() -> Iterator[dict[str, Any]]:
    """Each worker id once, though several generators may share a namespace."""
    met: set[tuple[str, int]] = set()
    for alias in current_settings().generators:
        for entry in _entries(alias):
            key = entry.namespace, entry.worker
            if key not in met:
                met.add(key)
                yield _shown(alias, entry)
    namespaces = {namespace for namespace, _ in met}
    for database in lease_databases():
        yield from _strays(database, namespaces)


def _entries(alias: str) -> Iterable[WorkerEntry]:
    try:
        return worker_map(alias).entries.values()
    except NotSeenFromHere:
        return ()  # those of a service are listed there


def _shown(alias: str, entry: WorkerEntry) -> dict[str, Any]:
    return {
        "generator": alias,
        "namespace": entry.namespace,
        "worker": entry.worker,
        "state": entry.state.value,
        "holder": entry.holder,
        "promised_until": entry.until,
        "window_left": entry.window_left,
        "clock_offset": entry.clock_offset,
        "acquired_at": entry.acquired_at,
        "seen_at": entry.seen_at,
    }


def _strays(database: str, namespaces: set[str]) -> Iterator[dict[str, Any]]:
    """Rows of namespaces that no generator here has (any more), whose ticks mean nothing here."""
    if missing_tables(connections[database], ["WorkerLease"]):
        return
    for lease in WorkerLease.objects.using(database).exclude(namespace__in=namespaces):
        state = WorkerState.HELD if lease.token else WorkerState.FREE
        offset_us = lease.clock_offset_us
        yield {
            "generator": None,
            "namespace": lease.namespace,
            "worker": lease.worker,
            "state": state.value,
            "holder": lease.holder,
            "promised_until": None,
            "window_left": None,
            "clock_offset": None if offset_us is None else offset_us / 1e6,
            "acquired_at": lease.acquired_at,
            "seen_at": lease.seen_at,
        }
