"""``schema/``: the native API as drf-spectacular describes it, if that is installed."""

from __future__ import annotations

from functools import cache
from typing import Any

from django.apps import apps
from rest_framework.request import Request
from rest_framework.response import Response

from .base import IdgenView
from .failures import Refusal

URLS = "django_idgen.rest.urls"


class SchemaView(IdgenView):
    """The description, with paths relative to the mount. Closed to anonymous callers."""

    schema = None

    def show(self, request: Request, **_kwargs: str) -> Response:
        if not apps.is_installed("drf_spectacular"):
            raise Refusal(
                501,
                "not_installed",
                "The description of the API needs drf-spectacular: pip install "
                "'django-idgen[openapi]', and 'drf_spectacular' in INSTALLED_APPS.",
            )
        mount = request.path.removesuffix("schema/").rstrip("/")
        return Response({**described(), "servers": [{"url": mount or "/"}]})


@cache
def described() -> dict[str, Any]:
    """The schema of all paths. Thread-safe. Raises :class:`ImportError` without drf-spectacular."""
    from drf_spectacular.generators import SchemaGenerator

    make: Any = SchemaGenerator
    found: dict[str, Any] = make(urlconf=URLS).get_schema(request=None, public=True)
    return {**found, "info": {**found["info"], "title": "django_idgen"}}
