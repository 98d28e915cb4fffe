"""All breaks, in the order of the lists."""

from __future__ import annotations

from . import (
    checkpoints,
    disposable,
    forms,
    kinds,
    leases,
    native,
    pool,
    processes,
    redis_leases,
    requests,
    rights,
    segments,
    servers,
    snowflakes,
    sqlite,
    static,
    zookeeper,
)
from .definition import Break

__all__ = ["BREAKS"]

BREAKS: tuple[Break, ...] = (
    *leases.BREAKS,
    *disposable.BREAKS,
    *checkpoints.BREAKS,
    *servers.BREAKS,
    *redis_leases.BREAKS,
    *zookeeper.BREAKS,
    *static.BREAKS,
    *sqlite.BREAKS,
    *snowflakes.BREAKS,
    *kinds.BREAKS,
    *segments.BREAKS,
    *pool.BREAKS,
    *native.BREAKS,
    *processes.BREAKS,
    *forms.BREAKS,
    *requests.BREAKS,
    *rights.BREAKS,
)
