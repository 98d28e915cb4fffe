"""All breaks, in the order of the lists."""

from __future__ import annotations

from . import (
    checkpoints,
    disposable,
    forms,
    kinds,
    leases,
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
)
from .definition import Break

__all__ = ["BREAKS"]

BREAKS: tuple[Break, ...] = (
    *leases.BREAKS,
    *disposable.BREAKS,
    *checkpoints.BREAKS,
    *servers.BREAKS,
    *redis_leases.BREAKS,
    *static.BREAKS,
    *sqlite.BREAKS,
    *snowflakes.BREAKS,
    *kinds.BREAKS,
    *segments.BREAKS,
    *pool.BREAKS,
    *processes.BREAKS,
    *forms.BREAKS,
    *requests.BREAKS,
    *rights.BREAKS,
)
