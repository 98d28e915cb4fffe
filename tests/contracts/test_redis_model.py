"""The Redis in memory keeps the contract of registries, and answers as a real Redis does."""

from __future__ import annotations

import os

from django_idgen.core.lease import Namespace
from django_idgen.core.registry import Registry
from django_idgen.leases.redis.registry import RedisLeases
from tests.simulation.redis_model import RedisModel

from .places import PATIENT, on
from .test_rooted import RootedContract, RootedLender


class ModelLender(RootedLender):
    """Processes that all reach one model."""

    def __init__(self, database: str) -> None:
        super().__init__(database)
        self.model = RedisModel(self.time.read)

    def make(self, namespace: Namespace) -> Registry:
        made = RedisLeases(
            namespace,
            database=self.database,
            timeout=PATIENT,
            read_now_us=self.time.read,
        )
        made._own._made = os.getpid(), self.model  # type: ignore[assignment]
        return made

    def forget(self) -> None:
        for known in self.model.hashes.values():
            for field in [field for field in known if field.startswith("w:")]:
                del known[field]


@on("memory")
class TestRedisModel(RootedContract):
    examples = 4
    lends, needs = ModelLender, ("database",)
