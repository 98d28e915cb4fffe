"""``schema/``: the native API in OpenAPI 3, if drf-spectacular is installed.

Paths are relative to the mount. :mod:`.openapi` reads the operations of the views.
"""

from __future__ import annotations

import threading
from importlib.util import find_spec
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from .base import IdgenView
from .failures import Refusal
from .serializers import Operation


class SchemaView(IdgenView):
    """The description of the API."""

    group = "schema"

    @Operation(name="schema", summary="This description", answer={"type": "object"})
    def get(self, request: Request, **_kwargs: str) -> Response:
        if find_spec("drf_spectacular") is None:
            raise Refusal(
                501,
                "not_installed",
                "The description of the API needs drf-spectacular: pip install "
                "'django-idgen[openapi]'.",
            )
        mounted_at = request.path.removesuffix("schema/").rstrip("/")
        return Response({**api_schema(), "servers": [{"url": mounted_at or "/"}]})


def api_schema() -> dict[str, Any]:
    """The schema of all paths, relative to the mount. Thread-safe.

    Raises :class:`ImportError` without drf-spectacular.
    """
    from .openapi import describe

    with _lock:  # describe() changes settings for a moment
        if not _made:
            _made.append(describe())
        return _made[0]


_made: list[dict[str, Any]] = []
_lock = threading.Lock()
