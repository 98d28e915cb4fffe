"""Families of samples as they are told: without noise, and with what is worked out of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from .definitions import DERIVED, PREFIX, Definition

from prometheus_client.metrics_core import Metric  # isort: skip
from prometheus_client.samples import Sample  # isort: skip

__all__ = ["described", "told"]

OF_A_LEASE: Final = frozenset(
    PREFIX + name for name in ("lease_seconds_left", "worker_id", "clock_offset_seconds")
)
"""They say something only of a process that holds a lease."""
BUFFER_SECONDS: Final = DERIVED["segment_buffer_seconds"]


def told(families: Iterable[Metric]) -> Iterator[Metric]:
    """Those of ``families`` that are ours, and what follows from them."""
    ours = {family.name: family for family in families if family.name.startswith(PREFIX)}
    held = {_key(s.labels) for s in _samples(ours, "lease_held") if s.value}
    for name, family in ours.items():
        # When a counter began is told by none of the processes that write to files.
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
    family = described(BUFFER_SECONDS)
    for sample in _samples(families, "segment_buffer_ids"):
        rate = rates.get(sample.labels["tag"], 0.0)
        if rate > 0:
            family.add_sample(family.name, sample.labels, sample.value / rate)
    return family


def described(definition: Definition) -> Metric:
    """The family of a definition, without samples."""
    return Metric(definition.name, definition.help, definition.kind)


def _samples(families: dict[str, Metric], name: str) -> Iterable[Sample]:
    family = families.get(PREFIX + name)
    return () if family is None else family.samples


def _key(labels: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))
