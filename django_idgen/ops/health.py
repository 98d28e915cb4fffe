"""Views for load balancers and orchestrators; plain Django.

``path("health/live", django_idgen.ops.health.live)`` says that the process answers requests,
and asks nothing else. ``path("health/ready", django_idgen.ops.health.ready)`` says, with status 200
or 503, whether it can give out ids: see :mod:`.readiness`.

Both are open, since an orchestrator can't log in; so they tell little. Staff sees the
details.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_safe

from ..db.transactions import never_atomic
from .readiness import Readiness, readiness

__all__ = ["RETRY_AFTER", "describe", "live", "ready"]

RETRY_AFTER = "5"
"""Seconds after which one that is not ready may be asked again."""


@csrf_exempt
@require_safe
@never_cache
@never_atomic
def live(request: HttpRequest) -> HttpResponse:  # noqa: ARG001
    """The process answers requests: ``{"live": true}``."""
    return JsonResponse({"live": True})


@csrf_exempt
@require_safe
@never_cache
@never_atomic
def ready(request: HttpRequest) -> HttpResponse:
    """Whether the process can give out ids: ``{"ready": true}``, or 503 and what fails."""
    found = readiness()
    content = describe(found, lambda: getattr(request, "user", None))
    response = JsonResponse(content, status=200 if found.ready else 503)
    if not found.ready:
        response["Retry-After"] = RETRY_AFTER
    return response


def describe(found: Readiness, user: Callable[[], Any]) -> dict[str, Any]:
    """What to tell; ``user`` is asked only where the database is not known to hang."""
    content: dict[str, Any] = {"ready": found.ready}
    if not found.ready:
        content["failing"] = list(found.failing)
    if found.answered and _is_staff(user):
        content["parts"] = [
            {"name": part.name, "ready": part.ready, "detail": part.detail} for part in found.parts
        ]
    return content


def _is_staff(user: Callable[[], Any]) -> bool:
    try:
        return bool(getattr(user(), "is_staff", False))
    except DatabaseError:
        return False  # who can't be told is not
