"""The admin pages: tags, segments granted, worker ids, access tokens, and decoding.

No page can make an id come twice: none lowers a mark, and none deletes a tag.
"""

from __future__ import annotations

from .decode import DecodeAdmin
from .tags import LeafAllocAdmin, SegmentHistoryAdmin
from .tokens import AccessTokenAdmin
from .workers import WorkerLeaseAdmin

__all__ = [
    "AccessTokenAdmin",
    "DecodeAdmin",
    "LeafAllocAdmin",
    "SegmentHistoryAdmin",
    "WorkerLeaseAdmin",
]
