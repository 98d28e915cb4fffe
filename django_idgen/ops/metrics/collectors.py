"""Collectors for a registry of prometheus_client: the default one, or the view's own."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...core.errors import IdgenError
from ...settings.config import MetricsSettings
from ..probes import Probes
from ..status import status
from .definitions import DERIVED, OF_A_LEASE, PREFIX, PROCESS, SHARED, Names
from .process import Figures

# After our modules, which explain what to do if it is missing.
from prometheus_client.metrics_core import GaugeMetricFamily, Metric  # isort: skip
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead  # isort: skip
from prometheus_client.samples import Sample  # isort: skip


logger = logging.getLogger("django_idgen")

Document = dict[str, Any]
Figure = tuple[str, Sequence[str], float | None]
TAG_FIGURES = {
    "tag_max_id": "max_id",
    "tag_step": "step",
    "tag_fetch_rate": "fetch_rate",
    "tag_paused": "paused",
    "tag_exhaustion_seconds": "range_left",
    "tag_segment_seconds": "segment_left",
    "tag_pool_ids": "pooled",
    "tag_pool_seconds": "pool_left",
}
"""Metrics, and their names in a status."""


def _families(names: Names) -> dict[str, GaugeMetricFamily]:
    return {
        name: GaugeMetricFamily(PREFIX + name, text, labels=labels)
        for name, (text, labels) in names.items()
    }


# --- of processes ---------------------------------------------------------------------------


class ProcessCollector:
    """The figures of this process, updated by each scrape. Thread-safe.

    ``files``: those of all processes, from ``PROMETHEUS_MULTIPROC_DIR``. Those of others are as
    they were at their last look.
    """

    def __init__(self, figures: Figures, *, files: bool = False) -> None:
        self._figures = figures
        self._files = files

    def describe(self) -> list[Metric]:
        ours = [family for metric in PROCESS for family in metric.describe()]
        return [*ours, *_families(DERIVED).values()]

    def collect(self) -> Iterator[Metric]:
        self._figures.look()
        found: Iterable[Metric] = (family for metric in PROCESS for family in metric.collect())
        if self._files:
            _remove_dead()
            every: Any = MultiProcessCollector(None)  # type: ignore[no-untyped-call]
            found = [family for family in every.collect() if family.name.startswith(PREFIX)]
        families = {family.name.removeprefix(PREFIX): family for family in found}
        _drop_unwanted(families)
        yield from families.values()
        yield _buffer_seconds(families)


def _drop_unwanted(families: dict[str, Metric]) -> None:
    """Drop what is left of the lease of a process that holds none, and times of creation.

    Of these, processes that write to files know nothing.
    """
    held = [s.labels for s in _samples(families, "lease_held") if s.value]
    of_a_lease = {family.name for metric in OF_A_LEASE for family in metric.describe()}
    for family in families.values():
        family.samples = [
            sample
            for sample in family.samples
            if not sample.name.endswith("_created")
            and (family.name not in of_a_lease or sample.labels in held)
        ]


def _buffer_seconds(families: dict[str, Metric]) -> Metric:
    rates = {s.labels["tag"]: s.value for s in _samples(families, "segment_issue_rate")}
    family = _families(DERIVED)["segment_buffer_seconds"]
    for sample in _samples(families, "segment_buffer_ids"):
        if (rate := rates.get(sample.labels["tag"], 0.0)) > 0:
            family.add_metric([sample.labels["tag"]], sample.value / rate)
    return family


def _samples(families: dict[str, Metric], name: str) -> Iterable[Sample]:
    family = families.get(name)  # the files only have what was written
    return () if family is None else family.samples


def _remove_dead() -> None:
    """Remove the gauges of killed processes, which would stay for ever."""
    if os.name != "posix":
        return  # can't tell which processes live
    directory = os.environ.get("PROMETHEUS_MULTIPROC_DIR", "")
    found = {path.stem.rpartition("_")[2] for path in Path(directory).glob("gauge_live*_*.db")}
    for pid in found:
        if pid.isdecimal() and not _is_alive(int(pid)):
            with suppress(FileNotFoundError):  # another scrape was faster
                mark_process_dead(int(pid))  # type: ignore[no-untyped-call]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's process
        return True
    return True


# --- shared -----------------------------------------------------------------------------------


class SharedCollector:
    """The figures that all processes share. Thread-safe."""

    def __init__(self, settings: MetricsSettings) -> None:
        self._settings = settings
        self._probes = Probes()

    def describe(self) -> Iterable[Metric]:
        return _families(SHARED).values()

    def collect(self) -> Iterable[Metric]:
        families = _families(SHARED)
        for name, labels, value in self._figures():
            if value is not None:
                families[name].add_metric(labels, float(value))
        return families.values()

    def _figures(self) -> Iterator[Figure]:
        try:
            found = status(
                most_tags=self._settings.tags,
                within=self._settings.within,
                max_age=self._settings.max_age,
                probes=self._probes,
            )
        except (IdgenError, ImportError) as error:
            logger.warning("The setting IDGEN is wrong, so there are no shared metrics: %s", error)
            yield "up", ["settings"], 0
            return
        for entry in found["generators"]:
            yield from _of_generator(entry)
        for entry in found["tags"]:
            yield from _of_tags(entry)
        for entry in found["databases"]:
            yield "up", [f"database:{entry['alias']}"], entry["error"] is None
        if (pool := found["pool"]) is not None:
            yield "up", [f"redis:{pool['alias']}"], pool["error"] is None
            yield "pool_memory_bytes", [pool["alias"]], pool["memory"]


def _of_generator(entry: Document) -> Iterator[Figure]:
    alias = entry["alias"]
    yield "generator_exhaustion_seconds", [alias], entry["exhausted_in"]
    if entry["seen"]:
        yield "up", [f"generator:{alias}"], entry["error"] is None
    for state, count in (entry["workers"] or {}).items():
        if state != "total":
            yield "worker_ids", [alias, state], count


def _of_tags(entry: Document) -> Iterator[Figure]:
    database = entry["database"]
    yield "up", [f"tags:{database}"], entry["error"] is None
    yield "tags", [database], entry["total"]
    for tag in entry["list"]:
        for metric, name in TAG_FIGURES.items():
            yield metric, [database, tag["tag"]], tag[name]
