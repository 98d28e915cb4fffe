"""What this process gave out and holds, in counters and gauges of prometheus_client.

Giving out an id costs nothing more. Generators count on their slow path, and a *look* reads
their counts and adds what they grew by to the counters, which never go down. A look takes no id
and no lease, makes no generator, and does no I/O except to the files of
``PROMETHEUS_MULTIPROC_DIR``. A process looks

* when it acquires, renews or loses a lease,
* when it loads a segment (at that tag), when a generator is closed, and before it forks,
* at the end of a request or of a Celery task, at most once in ``every`` seconds,
* at a scrape that it answers.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from collections import Counter as Sums
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from weakref import WeakKeyDictionary

from ...core.clock import SYSTEM_CLOCK
from ...core.generator import Generator
from ...core.loader import PerProcess
from ...db.sqlite import no_fork
from ...process import maps
from ...settings.config import MetricsSettings
from .definitions import (
    ACQUIRES,
    BUFFER,
    CLOCK_OFFSET,
    ERRORS,
    GENERATOR_COUNTS,
    HELD,
    LOAD,
    PROCESS,
    RATE,
    SECONDS_LEFT,
    TAG_COUNTS,
    WAIT,
    WORKER,
)

# After our module, which explains what to do if it is missing.
from prometheus_client import Counter, values  # isort: skip


logger = logging.getLogger("django_idgen")

OTHER: Final = "other"
"""The name of all tags that have no series of their own."""
SMOOTHING: Final = 60.0
"""Seconds after which an old rate counts for 1/e."""
SHORTEST: Final = 0.05
"""Seconds between two looks from which a rate is worked out."""
SHARE: Final = 50
"""A pause is so many times as long as the look before it, which so takes 2 % of the time."""
USUAL: Final[Mapping[str, str]] = {
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
"""The signals that count as errors, and the usual class of each error."""
OF_LEASES: Final = {"lease_acquired", "lease_renewed", "lease_lost", "renewal_failed"}
EVENTS: Final = {*USUAL, *OF_LEASES, "segment_loaded", "segment_waited"}
"""The signals that are listened to."""


def is_multiprocess() -> bool:
    """Whether figures go to the files of ``PROMETHEUS_MULTIPROC_DIR``.

    The library decides that once, when it is imported.
    """
    return bool(getattr(values.ValueClass, "_multiprocess", False))


class Figures(PerProcess):
    """Writes the metrics of this process. Thread-safe; a forked child begins at 0."""

    def __init__(self, settings: MetricsSettings) -> None:
        self._settings = settings
        self._now = SYSTEM_CLOCK.stopwatch
        self.forget()

    def forget(self) -> None:
        """In the child of a fork: the counts are the parent's. Takes no lock, writes nothing."""
        self._lock = threading.RLock()  # a generator that is collected in a look may send a signal
        self._is_new = True
        self._counted: WeakKeyDictionary[Generator, dict[str, float]] = WeakKeyDictionary()
        """The counts of each generator that are in the metrics already."""
        self._aliases: set[str] = set()
        self._named: set[str] = set()
        self._rates: dict[str, float] = {}
        self._issued: Sums[str] = Sums()
        """Ids of each name since the rates were worked out."""
        self._rates_at = self._now()
        self._next_look = 0.0
        self._pid = os.getpid()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        self.check_process()
        # The library's lock must not be held at a fork: the child could never release it.
        with no_fork(), self._lock:
            if self._is_new:
                self._begin()
            yield

    def _begin(self) -> None:
        self._is_new = False
        if not is_multiprocess():  # else the library gives a child files of its own
            for metric in PROCESS:
                if metric not in (WAIT, LOAD):  # which have no labels
                    metric.clear()
        # They start at 0: Prometheus sees no increase in a series that begins with 1.
        for event, error in USUAL.items():
            ERRORS.labels(event, error)

    # --- when to look -------------------------------------------------------------

    def on_event(self, event: str, /, **values: Any) -> None:
        """Count a signal of :data:`EVENTS`."""
        with self._writing():
            if event == "lease_acquired":
                ACQUIRES.labels(getattr(values["lease"], "namespace", "")).inc()
            elif event == "segment_waited":
                WAIT.observe(values["seconds"])
            elif event == "segment_loaded":
                LOAD.observe(values["seconds"])
                if found := maps.segments.get(values["tag"]):
                    self._count_tag(values["tag"], found, found.stats())
            elif event in USUAL:
                error = values.get("error")
                ERRORS.labels(event, "" if error is None else type(error).__name__).inc()
        if event in OF_LEASES:
            self.look()
        else:
            self.look_if_due()

    def on_removed(self, kind: str, name: str, generator: Generator) -> None:
        """Count what a generator did until its end; later looks don't find it."""
        try:
            with self._writing():
                if kind == "generator":
                    self._count_generator(name, generator)
                    HELD.labels(name).set(0)
                elif self._count_tag(name, generator, generator.stats()) == name:
                    BUFFER.labels(name).set(0)
        except Exception:
            # The process is usually ending: its ids go back even if its figures are lost.
            logger.exception("The last figures of %s %r could not be counted.", kind, name)

    def look_if_due(self, **_kwargs: object) -> None:
        """Look, unless the last look was a moment ago. Never raises."""
        if self._now() >= self._next_look:
            try:
                self.look()
            except Exception:
                logger.exception("The metrics of this process could not be updated.")

    def before_fork(self) -> None:
        """Count: a parent may do nothing else that makes it look. Never raises.

        It shows no lease, which would start the keeper's thread again.
        """
        try:
            with self._writing():
                self._count_made()
        except Exception:
            logger.exception("The metrics of this process could not be updated.")

    def look(self) -> None:
        """Update all metrics."""
        with self._writing():
            began = self._now()
            made = self._count_made()
            for alias in {*self._aliases, *made}:
                self._show_lease(alias, made.get(alias))
            self._aliases.update(made)
            self._look_at_tags()
            ended = self._now()
            self._next_look = ended + max(self._settings.every, SHARE * (ended - began))

    # --- with the lock held -----------------------------------------------------------

    def _count(
        self, label: str, generator: Generator, counters: Mapping[str, Counter], stats: object
    ) -> float:
        """Add what the counts in ``stats`` grew by; returns how many ids were issued."""
        known = self._counted.setdefault(generator, {})
        issued = 0.0
        for name, counter in counters.items():
            # A user's generator may count less. A reading may be a little too low.
            grown = max(getattr(stats, name, 0) - known.get(name, 0), 0)
            series = counter.labels(label)  # exists from the first look on, if only as 0
            if grown:
                series.inc(grown)
            known[name] = known.get(name, 0) + grown
            issued += grown if name == "issued" else 0
        return issued

    def _count_made(self) -> Mapping[str, Generator]:
        """Count what generators and tags gave out; returns the generators."""
        made = maps.generators.made()
        for alias, generator in made.items():
            self._count_generator(alias, generator)
        for tag, of_tag in maps.segments.made().items():
            self._count_tag(tag, of_tag, of_tag.stats())
        return made

    def _count_generator(self, alias: str, generator: Generator) -> None:
        self._count(alias, generator, GENERATOR_COUNTS, generator.stats())

    def _show_lease(self, alias: str, generator: Generator | None) -> None:
        keeper = generator.keeper if generator else None
        lease = keeper.lease if keeper else None
        HELD.labels(alias).set(lease is not None)
        if keeper is None or lease is None:
            return
        keeper.keep_renewing()  # a fork ended its thread, and an idle process would cause an alert
        SECONDS_LEFT.labels(alias).set(keeper.seconds_left)
        WORKER.labels(alias).set(lease.worker)
        offset_us = SYSTEM_CLOCK.wall_ns() // 1000 - keeper.now_us()
        CLOCK_OFFSET.labels(alias).set(offset_us / 1e6)

    def _count_tag(self, tag: str, generator: Generator, stats: object) -> str:
        """Count what a tag gave out; returns the name of its series."""
        if len(self._named) < self._settings.tags:
            self._named.add(tag)
        name = tag if tag in self._named else OTHER
        self._issued[name] += int(self._count(name, generator, TAG_COUNTS, stats))
        return name

    def _look_at_tags(self) -> None:
        held: Sums[str] = Sums()
        for tag, generator in maps.segments.made().items():
            stats = generator.stats()
            held[self._count_tag(tag, generator, stats)] += getattr(stats, "remaining", 0)
        for name in {*held, *self._rates}:
            BUFFER.labels(name).set(held[name])
        now = self._now()
        if (seconds := now - self._rates_at) >= SHORTEST:  # else two scrapes at once
            for name in {*held, *self._rates}:
                RATE.labels(name).set(self._smoothed(name, seconds))
            self._issued.clear()
            self._rates_at = now

    def _smoothed(self, name: str, seconds: float) -> float:
        sample = self._issued[name] / seconds
        old = self._rates.get(name, sample)
        self._rates[name] = old + (sample - old) * (1 - math.exp(-seconds / SMOOTHING))
        return self._rates[name]
