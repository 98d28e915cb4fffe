"""Collectors for a registry of prometheus_client: the default one, or the view's own."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ...core.errors import IdgenError
from ...settings.config import MetricsSettings
from ..probes import Probes
from ..status import status
from .definitions import DERIVED, PREFIX, PROCESS, SHARED, Definition
from .process import ProcessMetrics

# After our modules, which explain what to do if it is missing.
from prometheus_client.metrics_core import Metric  # isort: skip
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead  # isort: skip
from prometheus_client.samples import Sample  # isort: skip


logger = logging.getLogger("django_idgen")

Document = dict[str, Any]
Families = dict[str, Metric]
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
OF_A_LEASE: Final = frozenset(
    PREFIX + name for name in ("lease_seconds_left", "worker_id", "clock_offset_seconds")
)
"""Only meaningful for a process that holds a lease."""
BUFFER_SECONDS: Final = DERIVED["segment_buffer_seconds"]


class ProcessCollector:
    """The figures of this process, updated by each scrape. Thread-safe.

    ``files``: those of all processes, from ``PROMETHEUS_MULTIPROC_DIR``.
    """

    def __init__(self, process: ProcessMetrics, *, files: bool = False) -> None:
        self._process = process
        self._files = files

    def describe(self) -> list[Metric]:
        return [_described(each) for each in (*PROCESS.values(), *DERIVED.values())]

    def collect(self) -> Iterator[Metric]:
        self._process.look()
        if not self._files:
            yield from _published(self._process.collect())
            return
        _remove_dead()
        files: Any = MultiProcessCollector(None)  # type: ignore[no-untyped-call]
        yield from _published(files.collect())


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


class SharedCollector:
    """The figures that all processes share. Thread-safe."""

    def __init__(self, settings: MetricsSettings) -> None:
        self._settings = settings
        self._probes = Probes()

    def describe(self) -> list[Metric]:
        return [_described(each) for each in SHARED.values()]

    def collect(self) -> Iterable[Metric]:
        families = {name: _described(each) for name, each in SHARED.items()}
        try:
            found = status(
                most_tags=self._settings.tags,
                within=self._settings.within,
                max_age=self._settings.max_age,
                probes=self._probes,
            )
        except (IdgenError, ImportError) as error:
            logger.warning("The setting IDGEN is wrong, so there are no shared metrics: %s", error)
            _add(families["up"], 0, "settings")
        else:
            for entry in found["generators"]:
                _add_generator(families, entry)
            for entry in found["tags"]:
                _add_tags(families, entry)
            _add_places(families, found)
        return families.values()


def _add_generator(families: Families, entry: Document) -> None:
    alias = entry["alias"]
    _add(families["generator_exhaustion_seconds"], entry["exhausted_in"], alias)
    if entry["seen"]:
        _add(families["up"], entry["error"] is None, f"generator:{alias}")
    for state, count in (entry["workers"] or {}).items():
        if state != "total":
            _add(families["worker_ids"], count, alias, state)


def _add_tags(families: Families, entry: Document) -> None:
    database = entry["database"]
    _add(families["up"], entry["error"] is None, f"tags:{database}")
    _add(families["tags"], entry["total"], database)
    for tag in entry["list"]:
        for metric, name in TAG_FIGURES.items():
            _add(families[metric], tag[name], database, tag["tag"])


def _add_places(families: Families, found: Document) -> None:
    for entry in found["databases"]:
        _add(families["up"], entry["error"] is None, f"database:{entry['alias']}")
    pool = found["pool"]
    if pool is not None:
        _add(families["up"], pool["error"] is None, f"redis:{pool['alias']}")
        _add(families["pool_memory_bytes"], pool["memory"], pool["alias"])


def _add(family: Metric, value: float | None, *labels: str) -> None:
    """Add a sample, unless its value is unknown."""
    if value is not None:
        names = SHARED[family.name.removeprefix("django_idgen_")].labels
        family.add_sample(family.name, dict(zip(names, labels, strict=True)), float(value))


# --- families of samples --------------------------------------------------------------------


def _published(families: Iterable[Metric]) -> Iterator[Metric]:
    """Our metrics among ``families``, and those derived from them."""
    ours = {family.name: family for family in families if family.name.startswith(PREFIX)}
    held = {_key(s.labels) for s in _samples(ours, "lease_held") if s.value}
    for name, family in ours.items():
        # Processes that write to files have no time when a counter began.
        family.samples = [
            sample
            for sample in family.samples
            if not sample.name.endswith("_created")
            and (name not in OF_A_LEASE or _key(sample.labels) in held)
        ]
        yield family
    yield _buffer_seconds(ours)


def _buffer_seconds(families: dict[str, Metric]) -> Metric:
    rates = {s.labels["tag"]: s.value for s in _samples(families, "segment_issue_rate")}
    family = _described(BUFFER_SECONDS)
    for sample in _samples(families, "segment_buffer_ids"):
        rate = rates.get(sample.labels["tag"], 0.0)
        if rate > 0:
            family.add_sample(family.name, sample.labels, sample.value / rate)
    return family


def _described(definition: Definition) -> Metric:
    """The family of a definition, without samples."""
    return Metric(definition.name, definition.help, definition.kind)


def _samples(families: dict[str, Metric], name: str) -> Iterable[Sample]:
    family = families.get(PREFIX + name)
    return () if family is None else family.samples


def _key(labels: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))
