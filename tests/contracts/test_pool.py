"""A source with a pool before it keeps the contract of sources."""

from __future__ import annotations

from django_idgen.core.segment import STEP, Demand, Segment, check_step, check_tag
from django_idgen.core.source import Source
from tests.sources.pool.shop import OwnedSource, pool

from .lease_contract import on
from .source_contract import Shop, SourceContract
from .test_server import ServerShop


class Rows(OwnedSource):
    """Keeps the step that a tag was made with, as a row does."""

    def fetch(self, tag: str, *, floor: int = 0, demand: Demand = STEP) -> Segment:
        self._steps.setdefault(check_tag(tag), self.default_step)
        return super().fetch(tag, floor=floor, demand=demand)


class PooledMemoryShop(Shop):
    def __init__(self, alias: str) -> None:
        super().__init__()
        self.alias = alias
        self.behind = Rows()

    def make(self, default_step: int) -> Source:
        self.behind.default_step = check_step(default_step)
        return pool(self.alias, self.behind)

    def set_step(self, tag: str, step: int) -> None:
        self.behind.set_step(tag, step)

    def forget(self) -> None:
        self.behind.flush()

    def tags(self) -> list[str]:
        return sorted(self.behind._max_ids)


class TestPoolOverMemory(SourceContract):
    examples = 15
    fetches_from, needs = PooledMemoryShop, ("redis",)


class PooledServerShop(ServerShop):
    def __init__(self, alias: str, cache: str) -> None:
        super().__init__(alias)
        self.cache = cache
        self.whose = OwnedSource().whose

    def make(self, default_step: int) -> Source:
        behind = super().make(default_step)
        behind.owner = lambda tag, *, max_age=0: self.whose  # type: ignore[method-assign]
        behind.can_be_pooled = True  # type: ignore[misc]
        return pool(self.cache, behind)


@on("postgres")
class TestPoolOverServer(SourceContract):
    examples = 4
    fetches_from, needs = PooledServerShop, ("database", "redis")
