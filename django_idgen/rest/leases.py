"""Who holds which worker id, over HTTP: listed, and freed by hand."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from operator import attrgetter
from typing import Any, ClassVar

from rest_framework import serializers
from rest_framework.exceptions import NotFound
from rest_framework.mixins import ListModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from ..core.errors import NotSeenFromHere, WorkerOutOfRange
from ..core.inspection import WorkerEntry
from ..db.tables import is_missing
from ..models import WorkerLease
from ..ops.workers import entries_from_rows, release_worker, worker_map
from ..process.factory import lease_databases
from ..process.maps import current_settings
from .base import ManagementView
from .failures import Refusal
from .serializers import Choice, Input, Moment, PageInput, Text

logger = logging.getLogger("django_idgen")

ORDER = ("namespace", "registry", "place", "worker")
STATES = ("free", "held", "lapsing", "lapsed", "used", "reserved")
"""The states of worker ids that were ever lent."""


class LeasesInput(PageInput):
    """Which leases to show."""

    namespace = Text(max_length=128, required=False)
    state = Choice(STATES, required=False)


class FreeInput(Input):
    """Which lease to end: a newer holder of the worker id keeps it."""

    lease = Text(max_length=64, help_text="The lease, as in the list of leases.")


class LeaseShown(serializers.Serializer):  # type: ignore[type-arg]
    """Who holds a worker id."""

    generator = serializers.CharField(
        allow_null=True, help_text="An alias; null if none here uses it."
    )
    namespace = serializers.CharField()
    registry = serializers.CharField()
    place = serializers.CharField(help_text="Where the registry keeps it.")
    worker = serializers.IntegerField()
    lease = serializers.CharField(help_text="Identifies the lease; it can't renew it.")
    state = Choice(STATES, source="state.value")
    holder = serializers.CharField()
    promised_until = Moment(source="until", allow_null=True)
    window_left = serializers.FloatField(
        allow_null=True, help_text="Seconds that its holder may still stamp without renewing."
    )
    clock_offset = serializers.FloatField(
        allow_null=True, help_text="Seconds that the holder's clock was ahead of the registry's."
    )
    acquired_at = Moment(allow_null=True)
    seen_at = Moment(allow_null=True)


class Freed(serializers.Serializer):  # type: ignore[type-arg]
    """What became of a lease."""

    generator = serializers.CharField()
    worker = serializers.IntegerField()
    released = serializers.BooleanField(help_text="False if it was free.")


class LeasesView(ListModelMixin, ManagementView):
    """Who holds which worker id, without the tokens that renew leases."""

    queryset = WorkerLease.objects.none()  # for schemas, which would ask each registry
    inputs: ClassVar[Any] = {"list": LeasesInput, "release": FreeInput}
    answers: ClassVar[Any] = {"list": LeaseShown, "release": Freed}
    permissions: ClassVar[Any] = {
        "list": "django_idgen.view_workerlease",
        "release": "django_idgen.change_workerlease",
    }

    def get_queryset(self) -> Any:
        wanted = self.read()
        namespace, state = wanted.get("namespace"), wanted.get("state")
        fitting = [
            each
            for each in _leases()
            if namespace in (None, each.namespace) and state in (None, each.state.value)
        ]
        return sorted(fitting, key=attrgetter(*ORDER))

    def release(self, request: Request, alias: str, worker: int, **_kwargs: str) -> Response:
        """Free a worker id by hand, as after its holder was killed."""
        if alias not in current_settings().generators:
            raise NotFound(f"There is no generator {alias!r}.")
        lease = self.read()["lease"]
        try:
            released = release_worker(alias, worker, lease)
            if not released:
                _check_holder(alias, worker, lease)
        except WorkerOutOfRange as error:
            raise NotFound(str(error)) from error
        except NotSeenFromHere as error:
            raise Refusal(409, "not_seen_from_here", str(error)) from error
        if released:
            logger.warning(
                "%r released worker id %d of generator %r by hand",
                str(request.user),
                worker,
                alias,
                extra={"idgen_event": "worker_released"},
            )
        return Response({"generator": alias, "worker": worker, "released": released})


def _check_holder(alias: str, worker: int, lease: str) -> None:
    """Refuse if ``worker`` has a lease other than ``lease``."""
    entry = worker_map(alias).entries.get(worker)
    if entry is not None and entry.lease not in ("", lease):
        raise Refusal(
            409,
            "changed_hands",
            f"Worker id {worker} of generator {alias!r} now has another holder than lease "
            f"{lease!r} ({entry.holder or 'without a name'}): nothing was released. Read the "
            "list of leases again.",
        )


class _Shown:
    """An entry, and the generator that uses it."""

    def __init__(self, generator: str | None, entry: WorkerEntry) -> None:
        self.generator = generator
        self.entry = entry

    def __getattr__(self, name: str) -> Any:
        return getattr(self.entry, name)


def _leases() -> Iterator[_Shown]:
    """Each worker id once, though several generators may share a namespace.

    Namespaces of one name in two places are two.
    """
    seen: set[tuple[str, str, str, int]] = set()
    for alias in current_settings().generators:
        try:
            entries = worker_map(alias).entries.values()
        except NotSeenFromHere:
            continue  # a service lists those that it lends
        for entry in entries:
            key = entry.registry, entry.place or alias, entry.namespace, entry.worker
            if key not in seen:
                seen.add(key)
                yield _Shown(alias, entry)
    for database, users in lease_databases().items():
        if is_missing("WorkerLease", database):
            continue
        # Namespaces that no generator here uses any more.
        known = {each.namespace for each in users}
        rows = WorkerLease.objects.using(database).exclude(namespace__in=known)
        for entry in entries_from_rows(rows, database).values():
            yield _Shown(None, entry)
