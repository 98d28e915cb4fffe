"""The store behind the registries of a test, and the account of what they granted."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from typing import TypeVar

from ...core.errors import NoFreeWorker
from ...core.lease import Lease, Namespace
from ...core.registry import Registry

T = TypeVar("T")
EPOCH_US = 1_735_689_600_000_000
START_US = EPOCH_US + 10**12
HOUR_US = 3_600_000_000
WINDOW = 1000
WORKERS = 4

NAMESPACE = Namespace(
    name="contract",
    epoch_us=EPOCH_US,
    tick_us=1000,
    max_ticks=2**41,
    workers=range(WORKERS),
    window_ticks=WINDOW,
    skew_ticks=100,
    fingerprint={"layout": [["time", 41], ["worker", 2]], "registry": "contract"},
)


class DrivenTime:
    """The registry's clock, in µs since 1970, moved by hand."""

    def __init__(self, now_us: int = START_US) -> None:
        self.now_us = now_us

    def read(self) -> int:
        return self.now_us

    def pass_ticks(self, ticks: int) -> None:
        self.now_us += ticks * NAMESPACE.tick_us


class Lender(ABC):
    """The store behind the registries of one test."""

    remembers_high_water = True
    """Whether the ends of deleted rows are known exactly, not by the clock."""

    def __init__(self, name: str = NAMESPACE.name) -> None:
        self.time = DrivenTime()
        self.namespace = replace(NAMESPACE, name=name)
        self._made: list[Registry] = []

    def registry(self, namespace: Namespace | None = None) -> Registry:
        """One more registry on this store, as another process would have."""
        made = self.make(namespace or self.namespace)
        self._made.append(made)
        return made

    @abstractmethod
    def make(self, namespace: Namespace) -> Registry: ...

    def label(self, holder: str) -> str:
        """What is stored of one who calls itself ``holder``."""
        return holder

    def overseen(self) -> Registry:
        """What an administrator looks into."""
        return self.registry()

    def free(self, worker: int) -> bool:
        """Free a worker id by hand, as an administrator may."""
        return self.overseen().free(worker)

    @abstractmethod
    def forget(self) -> None:
        """Delete the row of every worker id behind the registry's back."""

    def lose(self, how: int) -> None:
        """Lose some of what is stored, one of as many ways as there are."""
        self.forget()

    def crash(self, registry: Registry) -> None:
        """What a SIGKILL of the registry's process leaves behind."""
        registry.abandon()

    def elsewhere(self, namespace: Namespace) -> Callable[[], Registry]:
        """Something that can be pickled and makes a registry in another process."""
        raise NotImplementedError

    def close(self) -> None:
        for made in self._made:
            made.close()


class Claims:
    """Every tick that a holder may stamp, by worker id; two claims never overlap (I1)."""

    def __init__(self) -> None:
        self._claims: dict[int, dict[str, tuple[int, int]]] = defaultdict(dict)
        self._lock = threading.Lock()

    def granted(self, lease: Lease) -> Lease:
        with self._lock:
            claims = self._claims[lease.worker]
            known = claims.get(lease.token)
            assert known is None or (lease.start == known[0] and lease.until >= known[1])
            claims[lease.token] = (lease.start, lease.until)
        return lease

    def given_back(self, lease: Lease, last_tick: int | None) -> None:
        end = lease.start if last_tick is None else last_tick + 1
        with self._lock:
            self._claims[lease.worker][lease.token] = (lease.start, end)

    def check(self) -> None:
        for worker, claims in self._claims.items():
            windows = sorted(window for window in claims.values() if window[0] < window[1])
            for (_, end), (start, _) in pairwise(windows):
                assert start >= end, f"worker {worker}: {windows}"

    def highest(self) -> int:
        return max(
            (end for claims in self._claims.values() for _, end in claims.values()), default=0
        )


def at_once(count: int, job: Callable[[int], T]) -> list[T]:
    """The results of ``job(0)`` to ``job(count - 1)``, each in a thread, let go together."""
    barrier = threading.Barrier(count)

    def run(number: int) -> T:
        barrier.wait()
        return job(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def churn(job: tuple[Callable[[], Registry], str]) -> list[tuple[Lease, int | None]]:
    """In a process of its own: grants, each with its last tick if given back."""
    make, holder = job
    registry = make()
    granted: list[tuple[Lease, int | None]] = []
    for number in range(6):
        try:
            lease = registry.acquire(holder=holder).lease
        except NoFreeWorker:
            continue
        last = lease.start + number
        registry.release(lease, last_tick=last)
        granted.append((lease, last))
    registry.close()
    return granted
