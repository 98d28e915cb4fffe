"""``schema/``: the API described in OpenAPI 3, by drf-spectacular where it is installed.

It describes the native API alone, relative to where it is mounted. What each view takes
and answers its operations say, which :mod:`.openapi` reads.
"""

from __future__ import annotations

import threading
from importlib.util import find_spec
from typing import Any

from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.response import Response

from .base import IdgenView
from .serializers import Operation

__all__ = ["SchemaView", "api_schema"]


class SchemaUnavailable(APIException):
    """501: nothing is installed that could describe the API."""

    status_code = 501
    default_code = "not_installed"
    default_detail = (
        "The API is described where drf-spectacular is installed: "
        "pip install 'django-idgen[openapi]'."
    )


class SchemaView(IdgenView):
    """The API, described."""

    group = "schema"

    @Operation(name="schema", summary="This very description", answer={"type": "object"})
    def get(self, request: Request, **_kwargs: str) -> Response:
        if find_spec("drf_spectacular") is None:
            raise SchemaUnavailable
        mounted_at = request.path.removesuffix("schema/").rstrip("/")
        return Response({**api_schema(), "servers": [{"url": mounted_at or "/"}]})


def api_schema() -> dict[str, Any]:
    """The schema of all paths, relative to where they are mounted. Thread-safe.

    Raises :class:`ImportError` without drf-spectacular.
    """
    from .openapi import describe

    with _lock:  # it is made with settings that it changes for a moment
        if not _made:
            _made.append(describe())
        return _made[0]


_made: list[dict[str, Any]] = []
_lock = threading.Lock()
