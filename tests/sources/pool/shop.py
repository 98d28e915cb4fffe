"""What the tests of the pool are made with: a source that says whose it is, and an account."""

from __future__ import annotations

import secrets
import threading
from dataclasses import dataclass, field
from typing import Any

from django_idgen.core.segment import STEP, Demand, Segment
from django_idgen.db.redis_client import OwnRedis
from django_idgen.sources.memory import MemorySource
from django_idgen.sources.pool.source import PoolSource
from tests.segment_tools import Events

STEP_LENGTH = 10
PATIENT = 20.0
"""Seconds for an answer of Redis on a loaded machine, where its absence is not the matter."""


class OwnedSource(MemorySource):
    """A memory source with an owner, so that its ids can be pooled; it counts its fetches."""

    can_be_pooled = True

    def __init__(self, default_step: int = STEP_LENGTH) -> None:
        super().__init__(default_step)
        self.whose = secrets.token_hex(8)
        self.fetches: list[Segment] = []

    def owner(self, tag: str, *, max_age: float = 0) -> str:
        return self.whose

    def fetch(self, tag: str, *, floor: int = 0, demand: Demand = STEP) -> Segment:
        segment = super().fetch(tag, floor=floor, demand=demand)
        self.fetches.append(segment)
        return segment


@dataclass
class Claims:
    """Which ids were given out. Thread-safe: an id that comes twice is kept twice."""

    ids: list[int] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def use(self, ids: Any) -> None:
        with self._lock:
            self.ids.extend(ids)

    def check(self) -> None:
        assert len(self.ids) == len(set(self.ids)), "ids came twice"


def pool(alias: str, source: Any, *, timeout: float = PATIENT, **options: Any) -> PoolSource:
    """One process' source, with the pool in the Redis of ``alias``; ``events`` are its own."""
    return PoolSource(
        alias=alias,
        source=source,
        emit=options.pop("emit", None) or Events(),
        own=OwnRedis(alias, timeout=timeout),
        **options,
    )


def events_of(made: PoolSource) -> list[str]:
    return [name for name, _ in made._emit]  # type: ignore[attr-defined]
