"""``path("metrics", django_idgen.ops.metrics.view)``: our figures, for a Prometheus server."""

from __future__ import annotations

import re
import secrets
from typing import Any

from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_safe

from ...db.transactions import never_atomic
from .collectors import ProcessCollector
from .process import is_multiprocess
from .switch import Switched, start

from prometheus_client import CollectorRegistry  # isort: skip
from prometheus_client.exposition import choose_encoder  # isort: skip

__all__ = ["exposition", "view"]

VERSION = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){0,2} *(?=[;,]|\Z)", re.ASCII)


@csrf_exempt
@require_safe
@never_cache
@never_atomic
def view(request: HttpRequest) -> HttpResponse:
    """All figures of this package, of this process or of all, in the format that is asked for.

    For clients with the token of ``IDGEN["METRICS"]``, and for staff that is logged in;
    others get 401, or 403 if they are logged in.
    """
    switched = start()
    refusal = _refusal(request, switched.settings.token)
    if refusal is not None:
        return refusal
    content, content_type = exposition(switched, request.headers.get("Accept", ""))
    return HttpResponse(content, content_type=content_type)


def exposition(switched: Switched, accept: str = "") -> tuple[bytes, str]:
    """The figures as bytes, and their content type."""
    registry = CollectorRegistry()
    registry.register(ProcessCollector(switched.process, files=is_multiprocess()))
    if switched.settings.shared:
        registry.register(switched.shared)
    # The library fails at a version that is none, and repeats what follows a good one.
    versions = accept.split("version=")[1:]
    known = all(map(VERSION.match, versions))
    encode, content_type = choose_encoder(accept if known else "")
    return encode(registry), content_type


@sensitive_variables("token", "sent")
def _refusal(request: HttpRequest, token: str | None) -> HttpResponse | None:
    scheme, _, sent = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        # Nothing is asked about the token: it counts while the database hangs, too.
        if token is not None and secrets.compare_digest(_bytes(sent.strip()), _bytes(token)):
            return None
        return _refused(401, "This is not the token of IDGEN['METRICS'].")
    user = _user(request)
    if getattr(user, "is_staff", False) and getattr(user, "is_active", False):
        return None
    if getattr(user, "is_authenticated", False):
        return _refused(403, "Only staff may look at the metrics.")
    return _refused(
        401, "Send the token of IDGEN['METRICS'] as a bearer token, or log in to the admin."
    )


def _user(request: HttpRequest) -> Any:
    user: Any = getattr(request, "user", None)
    try:
        bool(getattr(user, "is_staff", False))  # it is lazy, and the database may be away
    except DatabaseError:
        return None
    return user


def _refused(status: int, words: str) -> HttpResponse:
    response = HttpResponse(words + "\n", status=status, content_type="text/plain; charset=utf-8")
    if status == 401:
        response["WWW-Authenticate"] = 'Bearer realm="metrics"'
    return response


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
