"""Every metric: its kind, help text and labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["counter", "gauge", "histogram"]
PREFIX: Final = "django_idgen_"
BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds. By default a caller waits for half a second at most."""


@dataclass(frozen=True, slots=True)
class Definition:
    """One metric."""

    name: str
    """Without the suffix of its kind (``_total``, ``_bucket`` ...)."""
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    mode: str = ""
    """How the gauges of several processes are combined: see ``multiprocess_mode``."""


def _counter(name: str, text: str, *labels: str) -> Definition:
    return Definition(PREFIX + name, "counter", text, labels)


def _gauge(name: str, text: str, *labels: str, mode: str = "") -> Definition:
    return Definition(PREFIX + name, "gauge", text, labels, mode)


def _histogram(name: str, text: str) -> Definition:
    return Definition(PREFIX + name, "histogram", text)


def _by_name(*definitions: Definition) -> Mapping[str, Definition]:
    return {each.name.removeprefix(PREFIX): each for each in definitions}


PROCESS: Final = _by_name(
    _counter("ids_issued", "Ids given out by a generator.", "generator"),
    _counter("generator_waits", "Times that a caller slept for the next tick.", "generator"),
    _counter(
        "generator_wait_seconds", ("Seconds that callers slept for the next tick."), "generator"
    ),
    _counter("ticks_borrowed", "Ticks that were stamped before their time.", "generator"),
    _counter("clock_backwards", "Times that the clock was behind the last id.", "generator"),
    _counter("worker_changes", "Worker ids changed because the clock stayed behind.", "generator"),
    _counter("ids_degraded", "Ids given without a lease, which may repeat.", "generator"),
    _counter("lease_renewals", "Renewals of the lease.", "generator"),
    _counter("lease_refusals", "Times that no lease was available.", "generator"),
    _counter("lease_acquires", "Leases of worker ids that were taken.", "namespace"),
    _gauge("lease_held", "1 if the process holds a lease.", "generator", mode="liveall"),
    _gauge(
        "lease_seconds_left", ("Seconds left of the lease's window."), "generator", mode="liveall"
    ),
    _gauge("worker_id", "The worker id that the process holds.", "generator", mode="liveall"),
    _gauge(
        "clock_offset_seconds",
        "Seconds that the wall clock is ahead of the registry's.",
        "generator",
        mode="liveall",
    ),
    _counter("segment_ids_issued", "Ids given out of segments.", "tag"),
    _counter("segment_loads", "Segments that were loaded.", "tag"),
    _counter("segment_load_failures", "Loads that failed, and segments refused.", "tag"),
    _counter("segment_waits", "Calls that had nothing left and had to wait.", "tag"),
    _counter("segment_ids_given_back", "Ids that went back to the source.", "tag"),
    _gauge("segment_buffer_ids", "Ids held and not given out yet.", "tag", mode="livesum"),
    _gauge("segment_issue_rate", "Ids a second, over about a minute.", "tag", mode="livesum"),
    _histogram("segment_wait_seconds", "Seconds that a caller waited for a segment."),
    _histogram("segment_load_seconds", "Seconds that a load of a segment took."),
    _counter("errors", "Errors, by signal and class of exception.", "event", "error"),
)
"""The figures of a process."""

DERIVED: Final = _by_name(
    _gauge("segment_buffer_seconds", "Seconds that the ids held will last.", "tag"),
)
"""Computed from the former at each scrape."""

SHARED: Final = _by_name(
    _gauge("up", "1 if the database, Redis or registry answered.", "part"),
    _gauge("worker_ids", "Worker ids of the layout, by state.", "generator", "state"),
    _gauge("generator_exhaustion_seconds", "Seconds until the layout's time ends.", "generator"),
    _gauge("tags", "Tags in a database.", "database"),
    _gauge("tag_max_id", "The first id that was not handed out.", "database", "tag"),
    _gauge("tag_step", "Ids that a process takes at a time, at least.", "database", "tag"),
    _gauge("tag_fetch_rate", "Ids a second that processes fetched.", "database", "tag"),
    _gauge("tag_paused", "1 if the tag is paused.", "database", "tag"),
    _gauge("tag_exhaustion_seconds", "Seconds until the tag's ids end.", "database", "tag"),
    _gauge("tag_segment_seconds", "Seconds that the last fetch should last.", "database", "tag"),
    _gauge("tag_pool_ids", "Ids ready in the pool.", "database", "tag"),
    _gauge("tag_pool_seconds", "Seconds that the ids in the pool will last.", "database", "tag"),
    _gauge("pool_memory_bytes", "Memory that the pool's Redis uses.", "alias"),
)
"""The figures that all processes share, read from databases and Redis."""

ALL: Final[Mapping[str, Definition]] = {**PROCESS, **DERIVED, **SHARED}
