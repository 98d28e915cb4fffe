"""Two registries, one behind the other, keep the contract of one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django_idgen.core.lease import Namespace
from django_idgen.core.registry import Registry
from django_idgen.leases.fallback import FallbackLeases
from django_idgen.leases.memory import MemoryLeases

from .lease_contract import LeaseContract
from .lenders import WORKERS, Lender
from .test_memory import MemoryLender


class FallbackLender(MemoryLender):
    """Both registries keep their marks in memory, under names of their own."""

    def make(self, namespace: Namespace) -> Registry:
        parts = FallbackLeases.wrapped(namespace)
        made = {name: self._memory(part) for name, part in parts.items()}
        return FallbackLeases(namespace, **made)

    def forget(self) -> None:
        for part in FallbackLeases.wrapped(self.namespace).values():
            self._memory(part).clear()

    def _memory(self, namespace: Namespace) -> MemoryLeases:
        return MemoryLeases(namespace, marks=self.marks, read_now_us=self.time.read)


class TestFallbackLeases(LeaseContract):
    shared_by_processes = False
    examples = 100

    @contextmanager
    def new_lender(self) -> Iterator[Lender]:
        yield FallbackLender()

    def test_a_holder_comes_back_to_its_worker_id(self, lender: Lender) -> None:
        """Who gave a worker id of the first registry back gets the same one again."""
        registries = [lender.registry() for _ in range(WORKERS - 1)]
        leases = [r.acquire(holder=f"h{n}").lease for n, r in enumerate(registries)]
        for registry, lease in zip(registries, leases, strict=True):
            registry.release(lease, last_tick=lease.start)
        for n in reversed(range(WORKERS - 1)):
            assert lender.registry().acquire(holder=f"h{n}").lease.worker == leases[n].worker
