"""What a row of :class:`~.models.WorkerLease` says, in words and moments."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from enum import Enum

from django.db.models import OuterRef, QuerySet, Subquery

from .core.moments import MAX_UNIX_US, moment
from .models import NamespaceRecord, WorkerLease

__all__ = ["LeaseState", "promised_until", "state_of", "with_namespaces"]


class LeaseState(Enum):
    """Whether a worker id is in use."""

    HELD = "held"
    FREE = "free"
    """It was given back."""
    LAPSED = "lapsed"
    """Whoever had it was killed, or can't reach the database."""


def with_namespaces(rows: QuerySet[WorkerLease]) -> QuerySet[WorkerLease]:
    """The leases with what their ticks mean, which :func:`promised_until` needs."""
    record = NamespaceRecord.objects.filter(name=OuterRef("namespace"))
    return rows.annotate(namespace_print=Subquery(record.values("fingerprint")[:1]))


def promised_until(lease: WorkerLease) -> datetime | None:
    """The mark as a moment: no id of this worker is stamped later. None if it isn't known."""
    ticks = _ticks(getattr(lease, "namespace_print", None))
    if ticks is None:
        return None
    epoch_us, tick_us = ticks
    end_us = epoch_us + lease.until * tick_us
    return moment(end_us) if end_us <= MAX_UNIX_US else None


def state_of(lease: WorkerLease) -> LeaseState:
    """By this host's clock: a lease that lapses just now may be either."""
    if not lease.token:
        return LeaseState.FREE
    until = promised_until(lease)
    lapsed = until is not None and until < datetime.now(UTC)
    return LeaseState.LAPSED if lapsed else LeaseState.HELD


def _ticks(fingerprint: str | None) -> tuple[int, int] | None:
    """The epoch and the length of a tick, both in µs."""
    found = json.loads(fingerprint or "{}")
    if not {"epoch_us", "tick_us"} <= found.keys():
        return None
    return int(found["epoch_us"]), int(found["tick_us"])
