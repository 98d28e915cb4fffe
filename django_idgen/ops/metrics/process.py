"""The ids that this process gave out and holds, as metrics of prometheus_client.

Giving out an id costs nothing more. Generators count on their slow path, and a *look* reads
their counts: at each scrape, or (if processes write to the files of ``PROMETHEUS_MULTIPROC_DIR``)
every few seconds, and once more when a generator is closed. The difference since the last look
is added to counters of the library, which never go down. A look takes no id and no lease, makes
no generator, and does no I/O except to those files.
"""

from __future__ import annotations

import math
import os
import threading
from collections import Counter as Sums
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final
from weakref import WeakKeyDictionary

from ...core.clock import SYSTEM_CLOCK, Clock
from ...core.generator import Generator
from ...core.keeper import LeaseKeeper
from ...core.loader import PerProcess
from ...db.sqlite import no_fork
from ...process import maps
from .definitions import BUCKETS, PROCESS, Definition

try:
    from prometheus_client import Counter, Gauge, Histogram, values
    from prometheus_client.metrics_core import Metric
except ImportError as error:
    raise ImportError(
        "Metrics need prometheus_client, which is not installed. Install it by "
        "'pip install django-idgen[prometheus]', or remove METRICS from IDGEN and "
        "django_idgen.ops.metrics from your URLs."
    ) from error


OTHER: Final = "other"
"""The name of all tags that have no series of their own."""
SMOOTHING: Final = 60.0
"""Seconds after which an old rate counts for 1/e."""

GENERATOR_COUNTS: Final[Mapping[str, str]] = {
    "ids_issued": "issued",
    "generator_waits": "waits",
    "generator_wait_seconds": "waited",
    "ticks_borrowed": "borrowed",
    "clock_backwards": "backwards",
    "worker_changes": "worker_changes",
    "ids_degraded": "degraded",
    "lease_renewals": "renewals",
}
"""Counters, and their names in the ``stats()`` of a generator."""
TAG_COUNTS: Final[Mapping[str, str]] = {
    "segment_ids_issued": "issued",
    "segment_loads": "loads",
    "segment_load_failures": "failures",
    "segment_waits": "waits",
    "segment_ids_given_back": "given_back",
}
ERRORS: Final[Mapping[str, str]] = {
    "lease_lost": "LeaseLost",
    "release_failed": "RegistryUnavailable",
    "renewal_failed": "RegistryUnavailable",
    "lease_quota_near": "",
    "clock_skewed": "",
    "clock_moved_backwards": "",
    "worker_changed": "",
    "ids_degraded": "RegistryUnavailable",
    "segment_load_failed": "SegmentUnavailable",
    "segment_paused": "",
    "segment_skipped": "",
    "pool_unavailable": "SegmentUnavailable",
    "pool_dropped": "",
}
"""Signals, and the usual class of their error."""
EVENTS: Final = (*ERRORS, "lease_acquired", "segment_loaded", "segment_waited")
"""The signals that are counted."""
SHORTEST: Final = 0.05
"""Seconds between two looks from which a rate is worked out."""

Metrics = Mapping[str, Any]
Counts = tuple[float, ...]


def is_multiprocess() -> bool:
    """Whether figures go to the files of ``PROMETHEUS_MULTIPROC_DIR``.

    The library decides that once, when it is imported.
    """
    return bool(getattr(values.ValueClass, "_multiprocess", False))


class ProcessMetrics(PerProcess):
    """The metrics of one process. Thread-safe; a forked child begins at 0.

    ``most_tags``: how many tags have series of their own.
    """

    def __init__(self, *, most_tags: int, clock: Clock = SYSTEM_CLOCK) -> None:
        self._most_tags = most_tags
        self._clock = clock
        self.forget()

    def forget(self) -> None:
        """In the child of a fork: the counts are the parent's. Takes no lock."""
        self._lock = threading.Lock()
        self._metrics: Metrics | None = None
        self._tally = Tally()
        self._names = TagNames(self._most_tags, for_good=is_multiprocess())
        self._rates: dict[str, Smoothed] = {}
        self._since_rates: Sums[str] = Sums()
        self._rates_at = self._clock.stopwatch()
        self._aliases: set[str] = set()
        self._pid = os.getpid()

    # --- looking ------------------------------------------------------------------

    def look(self) -> None:
        """Update all metrics."""
        self.check_process()
        # The library's lock must not be held at a fork: the child could never release it.
        with no_fork(), self._lock:
            metrics = self._all()
            made = maps.generators.made()
            for alias, generator in made.items():
                self._count_generator(metrics, alias, generator)
            for alias in {*self._aliases, *made}:
                self._show_lease(metrics, alias, made[alias].keeper if alias in made else None)
            self._aliases.update(made)
            self._look_at_tags(metrics, maps.segments.made())

    def count_removed(self, kind: str, name: str, generator: Generator) -> None:
        """Count what a generator did until its end; later looks don't find it."""
        self.check_process()
        with no_fork(), self._lock:
            metrics = self._all()
            if kind == "generator":
                self._count_generator(metrics, name, generator)
                self._show_lease(metrics, name, None)
            else:
                self._names.admit({**dict.fromkeys(self._names.named, 0), name: 0})
                self._count_tag(metrics, name, self._read_tag(generator)[1])
                if self._names.name_of(name) == name:
                    metrics["segment_buffer_ids"].labels(name).set(0)

    def happened(self, event: str, values: Mapping[str, object]) -> None:
        """Count a signal of :data:`EVENTS`."""
        self.check_process()
        with no_fork(), self._lock:
            metrics = self._all()
            if event == "lease_acquired":
                metrics["lease_acquires"].labels(getattr(values["lease"], "namespace", "")).inc()
            elif event == "segment_loaded":
                metrics["segment_load_seconds"].observe(values["seconds"])
            elif event == "segment_waited":
                metrics["segment_wait_seconds"].observe(values["seconds"])
            else:
                error = values.get("error")
                kind = "" if error is None else type(error).__name__
                metrics["errors"].labels(event, kind).inc()

    def collect(self) -> Iterator[Metric]:
        """All metrics, as of the last look."""
        with self._lock:
            metrics = self._all()
        for metric in metrics.values():
            yield from metric.collect()

    # --- with the lock held -----------------------------------------------------------

    def _all(self) -> Metrics:
        # Not in forget(): a fork's hook must not wait for the library's lock.
        if self._metrics is None:
            self._metrics = {name: _made(each) for name, each in PROCESS.items()}
            # They start at 0: Prometheus sees no increase in a series that begins with 1.
            for event, error in ERRORS.items():
                self._metrics["errors"].labels(event, error)
        return self._metrics

    def _count_generator(self, metrics: Metrics, alias: str, generator: Generator) -> None:
        stats = generator.stats()
        refusals = generator.keeper.refusals if generator.keeper else 0
        grown = self._tally.since(generator, [*_read(stats, GENERATOR_COUNTS), refusals])
        _add(metrics, (*GENERATOR_COUNTS, "lease_refusals"), alias, grown)

    def _show_lease(self, metrics: Metrics, alias: str, keeper: LeaseKeeper | None) -> None:
        lease = keeper.lease if keeper else None
        metrics["lease_held"].labels(alias).set(lease is not None)
        if keeper is None or lease is None:
            return
        keeper.keep_renewing()  # a fork ended its thread, and an idle process would cause an alert
        offset_us = self._clock.wall_ns() // 1000 - keeper.now_us()
        metrics["lease_seconds_left"].labels(alias).set(keeper.seconds_left)
        metrics["worker_id"].labels(alias).set(lease.worker)
        metrics["clock_offset_seconds"].labels(alias).set(offset_us / 1e6)

    def _look_at_tags(self, metrics: Metrics, made: Mapping[str, Any]) -> None:
        read = {tag: self._read_tag(generator) for tag, generator in made.items()}
        for tag in self._names.admit({tag: grown[0] for tag, (_, grown) in read.items()}):
            self._remove(metrics, tag)
        held: Sums[str] = Sums()
        for tag, (remaining, grown) in read.items():
            held[self._names.name_of(tag)] += remaining
            self._count_tag(metrics, tag, grown)
        self._show_buffers(metrics, held)

    def _read_tag(self, generator: Any) -> tuple[int, Counts]:
        """How many ids it holds, and the growth of its counts."""
        stats = generator.stats()
        grown = self._tally.since(generator, _read(stats, TAG_COUNTS))
        return getattr(stats, "remaining", 0), grown

    def _count_tag(self, metrics: Metrics, tag: str, grown: Counts) -> None:
        name = self._names.name_of(tag)
        if name == tag or any(grown):
            self._since_rates[name] += int(grown[0])
            _add(metrics, TAG_COUNTS, name, grown)

    def _show_buffers(self, metrics: Metrics, held: Mapping[str, int]) -> None:
        now = self._clock.stopwatch()
        seconds = now - self._rates_at
        names = {*held, *self._rates}
        for name in names:
            metrics["segment_buffer_ids"].labels(name).set(held.get(name, 0))
        if seconds < SHORTEST:
            return  # two scrapes at once
        for name in names:
            rate = self._rates.setdefault(name, Smoothed())
            a_second = rate.update(self._since_rates[name], seconds)
            metrics["segment_issue_rate"].labels(name).set(a_second)
        self._since_rates.clear()
        self._rates_at = now

    def _remove(self, metrics: Metrics, tag: str) -> None:
        self._rates.pop(tag, None)
        for name, definition in PROCESS.items():
            if definition.labels == ("tag",):
                metrics[name].remove(tag)


def _made(definition: Definition) -> Any:
    kinds: Mapping[str, Callable[..., Any]] = {
        "counter": Counter,
        "gauge": Gauge,
        "histogram": Histogram,
    }
    options: dict[str, Any] = {"registry": None}
    if definition.kind == "gauge":
        options["multiprocess_mode"] = definition.mode
    if definition.kind == "histogram":
        options["buckets"] = BUCKETS
    return kinds[definition.kind](definition.name, definition.help, definition.labels, **options)


def _add(metrics: Metrics, names: Iterable[str], label: str, counts: Counts) -> None:
    for name, count in zip(names, counts, strict=True):
        series = metrics[name].labels(label)  # exists from the first look on, if only as 0
        if count:
            series.inc(count)


def _read(stats: Any, counts: Mapping[str, str]) -> list[float]:
    """The counts of ``stats``; 0 for those that a user's generator doesn't have."""
    return [getattr(stats, name, 0) for name in counts.values()]


# --- what was counted already ----------------------------------------------------------------


class Tally:
    """The counts of generators that are in the metrics already. Not thread-safe.

    A generator's counts may be read at a moment when they are a little too low. Nothing that
    was counted is ever taken back.
    """

    def __init__(self) -> None:
        self._counted: WeakKeyDictionary[Any, tuple[float, ...]] = WeakKeyDictionary()

    def since(self, generator: object, counts: Sequence[float]) -> tuple[float, ...]:
        """The growth of ``counts`` since the last call for ``generator``; never negative."""
        before = self._counted.get(generator)
        if before is None:
            before = (0,) * len(counts)
        self._counted[generator] = tuple(map(max, before, counts))
        return tuple(max(now - then, 0) for now, then in zip(counts, before, strict=True))


class TagNames:
    """The ``most`` tags that have series of their own. Not thread-safe.

    Of the tags that are new at a look, the busiest ones come first. With ``for_good`` (where a
    series can't be removed) a tag keeps its series.
    """

    def __init__(self, most: int, *, for_good: bool) -> None:
        self.most = most
        self.named: set[str] = set()
        self._for_good = for_good

    def name_of(self, tag: str) -> str:
        """The tag's own name, or :data:`OTHER`."""
        return tag if tag in self.named else OTHER

    def admit(self, used: Mapping[str, float]) -> AbstractSet[str]:
        """Admit new tags, given the ids that each one ``used``; returns the tags that left.

        Only tags that are no longer in use (not in ``used``) leave.
        """
        new = sorted((tag for tag in used if tag not in self.named), key=lambda t: -used[t])
        new = new[: self.most]
        lacking = len(self.named) + len(new) - self.most
        gone: set[str] = set()
        if lacking > 0 and not self._for_good:
            gone = set(sorted(self.named - used.keys())[:lacking])
            self.named -= gone
        self.named.update(new[: max(self.most - len(self.named), 0)])
        return gone


class Smoothed:
    """An exponentially smoothed rate. Not thread-safe."""

    __slots__ = ("a_second",)

    def __init__(self) -> None:
        self.a_second = math.nan

    def update(self, count: float, seconds: float) -> float:
        """The rate after ``count`` more in ``seconds`` (above 0)."""
        sample = count / seconds
        if math.isnan(self.a_second):
            self.a_second = sample
        else:
            self.a_second += (sample - self.a_second) * (1 - math.exp(-seconds / SMOOTHING))
        return self.a_second
