"""Every metric: those that a process counts, and the names of those that all processes share.

Not in the default registry, which would show them as they were at the last look: see
:mod:`.process`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

try:
    from prometheus_client import Counter, Gauge, Histogram
except ImportError as error:
    raise ImportError(
        "Metrics need prometheus_client, which is not installed. Install it by "
        "'pip install django-idgen[prometheus]', or remove METRICS from IDGEN and "
        "django_idgen.ops.metrics from your URLs."
    ) from error

PREFIX: Final = "django_idgen_"
BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds. By default a caller waits for half a second at most."""


def _counter(name: str, text: str, *labels: str) -> Counter:
    return Counter(PREFIX + name, text, labels, registry=None)


def _gauge(name: str, text: str, label: str, mode: Any) -> Gauge:
    return Gauge(PREFIX + name, text, [label], registry=None, multiprocess_mode=mode)


def _histogram(name: str, text: str) -> Histogram:
    return Histogram(PREFIX + name, text, registry=None, buckets=BUCKETS)


GENERATOR_COUNTS: Final[Mapping[str, Counter]] = {
    "issued": _counter("ids_issued", "Ids issued by a generator.", "generator"),
    "waits": _counter(
        "generator_waits", "Times that a caller slept for the next tick.", "generator"
    ),
    "waited": _counter(
        "generator_wait_seconds", "Seconds that callers slept for the next tick.", "generator"
    ),
    "borrowed": _counter(
        "ticks_borrowed", "Ticks that were stamped before their time.", "generator"
    ),
    "backwards": _counter(
        "clock_backwards", "Times that the clock was behind the last id.", "generator"
    ),
    "worker_changes": _counter(
        "worker_changes", "Worker ids changed because the clock stayed behind.", "generator"
    ),
    "degraded": _counter(
        "ids_degraded", "Ids given without a lease, which may repeat.", "generator"
    ),
    "renewals": _counter("lease_renewals", "Renewals of the lease.", "generator"),
    "refusals": _counter("lease_refusals", "Times that no lease was available.", "generator"),
}
"""By their names in the ``stats()`` of a generator."""
ACQUIRES: Final = _counter("lease_acquires", "Leases of worker ids that were taken.", "namespace")
HELD: Final = _gauge("lease_held", "1 if the process holds a lease.", "generator", "liveall")
SECONDS_LEFT: Final = _gauge(
    "lease_seconds_left", "Seconds left of the lease's window.", "generator", "liveall"
)
WORKER: Final = _gauge("worker_id", "The worker id that the process holds.", "generator", "liveall")
CLOCK_OFFSET: Final = _gauge(
    "clock_offset_seconds",
    "Seconds that the wall clock is ahead of the registry's.",
    "generator",
    "liveall",
)
TAG_COUNTS: Final[Mapping[str, Counter]] = {
    "issued": _counter("segment_ids_issued", "Ids issued from segments.", "tag"),
    "loads": _counter("segment_loads", "Segments that were loaded.", "tag"),
    "failures": _counter(
        "segment_load_failures", "Loads that failed, and segments refused.", "tag"
    ),
    "waits": _counter("segment_waits", "Calls that had nothing left and had to wait.", "tag"),
    "given_back": _counter("segment_ids_given_back", "Ids that went back to the source.", "tag"),
}
BUFFER: Final = _gauge("segment_buffer_ids", "Ids held and not issued yet.", "tag", "livesum")
RATE: Final = _gauge("segment_issue_rate", "Ids a second, over about a minute.", "tag", "livesum")
WAIT: Final = _histogram("segment_wait_seconds", "Seconds that a caller waited for a segment.")
LOAD: Final = _histogram("segment_load_seconds", "Seconds that a load of a segment took.")
ERRORS: Final = _counter("errors", "Errors, by signal and class of exception.", "event", "error")

OF_A_LEASE: Final = (SECONDS_LEFT, WORKER, CLOCK_OFFSET)
"""Only meaningful for a process that holds a lease."""
PROCESS: Final = (
    *GENERATOR_COUNTS.values(),
    ACQUIRES,
    HELD,
    *OF_A_LEASE,
    *TAG_COUNTS.values(),
    BUFFER,
    RATE,
    WAIT,
    LOAD,
    ERRORS,
)
"""The figures of a process."""

Names = Mapping[str, tuple[str, tuple[str, ...]]]
"""Gauges that are made at each scrape: a help text and labels, by name."""
DERIVED: Final[Names] = {
    "segment_buffer_seconds": ("Seconds that the ids held will last.", ("tag",)),
}
"""Worked out from those of all processes."""
SHARED: Final[Names] = {
    "up": ("1 if the database, Redis or registry answered.", ("part",)),
    "worker_ids": ("Worker ids of the layout, by state.", ("generator", "state")),
    "generator_exhaustion_seconds": ("Seconds until the layout's time ends.", ("generator",)),
    "tags": ("Tags in a database.", ("database",)),
    "tag_max_id": ("The first id that was not handed out.", ("database", "tag")),
    "tag_step": ("Ids that a process takes at a time, at least.", ("database", "tag")),
    "tag_fetch_rate": ("Ids a second that processes fetched.", ("database", "tag")),
    "tag_paused": ("1 if the tag is paused.", ("database", "tag")),
    "tag_exhaustion_seconds": ("Seconds until the tag's ids end.", ("database", "tag")),
    "tag_segment_seconds": ("Seconds that the last fetch should last.", ("database", "tag")),
    "tag_pool_ids": ("Ids ready in the pool.", ("database", "tag")),
    "tag_pool_seconds": ("Seconds that the ids in the pool will last.", ("database", "tag")),
    "pool_memory_bytes": ("Memory that the pool's Redis uses.", ("alias",)),
}
"""The figures that all processes share, read from databases and Redis."""
