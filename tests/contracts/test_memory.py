"""The registry and the source in memory keep the contracts."""

from __future__ import annotations

import threading

from django_idgen.core.lease import Namespace
from django_idgen.core.registry import Registry
from django_idgen.core.segment import check_step
from django_idgen.core.source import Source
from django_idgen.leases.memory import MemoryLeases, MemoryMarks
from django_idgen.sources.memory import MemorySource
from django_idgen.testing.contracts import LeaseContract, Lender, Shop, SourceContract


class MemoryLender(Lender):
    def __init__(self) -> None:
        super().__init__()
        self.marks = MemoryMarks()

    def make(self, namespace: Namespace) -> Registry:
        return MemoryLeases(namespace, marks=self.marks, read_now_us=self.time.read)

    def forget(self) -> None:
        MemoryLeases(self.namespace, marks=self.marks).clear()


class TestMemoryLeases(LeaseContract):
    shared_by_processes = False
    lends = MemoryLender

    def test_registries_without_common_marks_are_strangers(self) -> None:
        """Each registry has marks of its own unless it is given some to share."""
        namespace = MemoryLender().namespace
        first, second = MemoryLeases(namespace), MemoryLeases(namespace)
        lease = first.acquire(holder="a").lease
        assert second.release(lease, last_tick=None) is False
        assert first.release(lease, last_tick=None) is True


class MemoryShop(Shop):
    def __init__(self) -> None:
        super().__init__()
        self.only: MemorySource | None = None
        self.making = threading.Lock()

    def make(self, default_step: int) -> Source:
        # One process has one: another object would be another process' memory.
        check_step(default_step)
        with self.making:
            if self.only is None:
                self.only = MemorySource(default_step)
            return self.only

    def set_step(self, tag: str, step: int) -> None:
        assert self.only is not None
        self.only.set_step(tag, step)

    def forget(self) -> None:
        assert self.only is not None
        self.only.flush()

    def tags(self) -> list[str]:
        return [] if self.only is None else sorted(self.only._max_ids)


class TestMemorySource(SourceContract):
    fetches_from = MemoryShop
