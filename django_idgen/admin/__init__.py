"""The admin pages: tags and steps, worker ids, access tokens, ids taken apart.

Nothing here may make an id come again: nothing lowers a mark, and nothing deletes one.
"""

from __future__ import annotations

from .decode import DecodeAdmin
from .tags.pages import LeafAllocAdmin, SegmentHistoryAdmin
from .tokens import AccessTokenAdmin
from .workers.pages import NamespaceRecordAdmin, WorkerLeaseAdmin

__all__ = [
    "AccessTokenAdmin",
    "DecodeAdmin",
    "LeafAllocAdmin",
    "NamespaceRecordAdmin",
    "SegmentHistoryAdmin",
    "WorkerLeaseAdmin",
]
