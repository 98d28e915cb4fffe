"""The admin pages: tags and steps, worker ids, access tokens.

Nothing here may make an id come again: nothing lowers a mark, and nothing deletes one.
"""

from __future__ import annotations

from .leases import NamespaceRecordAdmin, WorkerLeaseAdmin
from .tags import LeafAllocAdmin, SegmentHistoryAdmin
from .tokens import AccessTokenAdmin

__all__ = [
    "AccessTokenAdmin",
    "LeafAllocAdmin",
    "NamespaceRecordAdmin",
    "SegmentHistoryAdmin",
    "WorkerLeaseAdmin",
]
