"""Who holds which worker id, over HTTP: listed, and freed by hand."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, ClassVar

from rest_framework import serializers
from rest_framework.exceptions import NotFound
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
from .serializers import (
    Answer,
    Choice,
    Input,
    Moment,
    Operation,
    PageInput,
    Text,
    page_of,
    pages_of,
)

logger = logging.getLogger("django_idgen")

ORDER = ("namespace", "registry", "place", "worker")
STATES = ("free", "held", "lapsing", "lapsed", "used", "reserved")
"""The states of worker ids that were ever lent."""


class LeasesInput(PageInput):
    """Which leases to show."""

    namespace = Text(max_length=128, required=False, help_text="Only worker ids of this namespace.")
    state = Choice(
        STATES,
        required=False,
        help_text=(
            "free: released, or freed by hand; held: renewed in time; lapsing: the renewal is "
            "late; lapsed: the window has ended, or a loss has made it void; used: its holder has "
            "ended, and the registry lends no worker id again; reserved: outside of workers."
        ),
    )


class ReleaseLeaseInput(Input):
    """Which lease to end: a newer holder of the worker id keeps it."""

    example: ClassVar[Any] = {"lease": "5b2f0a6c1d9e4387"}
    lease = Text(max_length=64, help_text="The lease, as in the list of leases.")


class LeaseShown(Answer):
    """Who holds a worker id."""

    example: ClassVar[Any] = {
        "generator": "default",
        "namespace": "default",
        "registry": "database",
        "place": "default",
        "worker": 3,
        "lease": "5b2f0a6c1d9e4387",
        "state": "held",
        "holder": "web-1",
        "promised_until": "2025-06-01T12:03:00Z",
        "window_left": 171.5,
        "clock_offset": 0.004,
        "acquired_at": "2025-06-01T08:00:00Z",
        "seen_at": "2025-06-01T12:00:00Z",
    }
    generator = serializers.CharField(
        allow_null=True, help_text="An alias; null if none here uses it."
    )
    namespace = serializers.CharField()
    registry = serializers.CharField(
        help_text="The kind of its registry, such as database or redis."
    )
    place = serializers.CharField(
        help_text="Where the registry keeps it, such as the alias of the database: namespaces of "
        "one name may be in several places."
    )
    worker = serializers.IntegerField()
    lease = serializers.CharField(
        help_text="Identifies the lease to release it by hand; it can't renew it. Empty if the "
        "worker id is free."
    )
    state = Choice(STATES)
    holder = serializers.CharField()
    promised_until = Moment(allow_null=True)
    window_left = serializers.FloatField(
        allow_null=True, help_text="Seconds that its holder may still stamp without renewing."
    )
    clock_offset = serializers.FloatField(
        allow_null=True,
        help_text="Seconds that the holder's clock was ahead of the registry's when last seen; "
        "negative: behind.",
    )
    acquired_at = Moment(allow_null=True)
    seen_at = Moment(allow_null=True)


class ReleasedByHand(Answer):
    """What became of a lease."""

    example: ClassVar[Any] = {"generator": "default", "worker": 3, "released": True}
    generator = serializers.CharField()
    worker = serializers.IntegerField()
    released = serializers.BooleanField(help_text="False if it was free.")


class WorkerLeasesView(ManagementView):
    """Who holds which worker id, without the tokens that renew leases."""

    group = "leases"

    @Operation(
        name="list_leases",
        summary="Who holds which worker id",
        permission="django_idgen.view_workerlease",
        query=LeasesInput,
        answer=pages_of(LeaseShown),
    )
    def get(self, request: Request, **_kwargs: str) -> Response:
        wanted = self.read()
        asked = [(key, wanted[key]) for key in ("namespace", "state") if key in wanted]
        fitting = [each for each in _leases() if all(each[key] == value for key, value in asked)]
        fitting.sort(key=lambda each: tuple(each[key] for key in ORDER))
        return self.respond(page_of(request, wanted, fitting))


class ReleaseLeaseView(ManagementView):
    """Free a worker id by hand, as after its holder was killed."""

    group = "leases"

    @Operation(
        name="free_worker",
        summary="Free a worker id by hand",
        description=(
            "For a holder that was killed. A running holder notices at its next renewal: it uses "
            "up its window and takes another lease. The next holder of the worker id starts after "
            "that window, so that no id repeats. If it now has another holder, nothing is done: "
            "409."
        ),
        permission="django_idgen.change_workerlease",
        body=ReleaseLeaseInput,
        answer=ReleasedByHand,
        errors=(409,),
    )
    def post(self, request: Request, alias: str, worker: int, **_kwargs: str) -> Response:
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
                "%s released worker id %d of generator %r by hand",
                request.user,
                worker,
                alias,
                extra={"idgen_event": "worker_released"},
            )
        return self.respond({"generator": alias, "worker": worker, "released": released})


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


def _leases() -> Iterator[dict[str, Any]]:
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
                yield _document(alias, entry)
    for database, users in lease_databases().items():
        if is_missing("WorkerLease", database):
            continue
        # Namespaces that no generator here uses any more.
        known = {each.namespace for each in users}
        rows = WorkerLease.objects.using(database).exclude(namespace__in=known)
        for entry in entries_from_rows(rows, database).values():
            yield _document(None, entry)


def _document(alias: str | None, entry: WorkerEntry) -> dict[str, Any]:
    return {
        "generator": alias,
        "namespace": entry.namespace,
        "registry": entry.registry,
        "place": entry.place,
        "worker": entry.worker,
        "lease": entry.lease,
        "state": entry.state.value,
        "holder": entry.holder,
        "promised_until": entry.until,
        "window_left": entry.window_left,
        "clock_offset": entry.clock_offset,
        "acquired_at": entry.acquired_at,
        "seen_at": entry.seen_at,
    }
