"""Liveness and readiness as part of the API; the same as ``ops.health``, which needs no DRF."""

from __future__ import annotations

from collections.abc import Sequence

from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import AllowAny, BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.throttling import BaseThrottle

from ..ops.health import RETRY_AFTER, describe
from ..ops.readiness import readiness
from .base import IdgenView

__all__ = ["LiveView", "ReadyView"]


class OpenView(IdgenView):
    """Open to all, and never throttled: who asks can't log in, and asks all the time."""

    permission_classes: Sequence[type[BasePermission]] = (AllowAny,)
    throttle_classes: Sequence[type[BaseThrottle]] = ()

    def get_authenticators(self) -> list[BaseAuthentication]:
        """None: a wrong password takes as long to look at as a right one."""
        return []

    def perform_authentication(self, request: Request) -> None:
        """Not in advance: it may ask the very database that hangs."""


class LiveView(OpenView):
    """The process answers requests. Nobody is asked."""

    def get(self, request: Request, **_kwargs: str) -> Response:  # noqa: ARG002
        return Response({"live": True})


class ReadyView(OpenView):
    """Whether the process can give out ids."""

    def get(self, request: Request, **_kwargs: str) -> Response:
        found = readiness()
        headers = {} if found.ready else {"Retry-After": RETRY_AFTER}
        content = describe(found, lambda: getattr(request._request, "user", None))
        return Response(content, status=200 if found.ready else 503, headers=headers)
