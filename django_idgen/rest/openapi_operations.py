"""What each operation of the API takes and answers, in the words of drf-spectacular."""

from __future__ import annotations

from collections.abc import Mapping

from .openapi_health import HEALTH_OPERATIONS
from .openapi_ids import IDS_OPERATIONS
from .openapi_lending import LENDING_OPERATIONS
from .openapi_saying import Saying
from .openapi_tags import TAG_OPERATIONS

__all__ = ["OPERATIONS", "Saying"]

OPERATIONS: Mapping[str, Saying] = {
    **IDS_OPERATIONS,
    **TAG_OPERATIONS,
    **HEALTH_OPERATIONS,
    **LENDING_OPERATIONS,
}
"""By module and view."""
