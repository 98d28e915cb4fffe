"""Liveness and readiness as part of the API. ``ops.health`` answers the same without DRF."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from rest_framework import serializers
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import AllowAny, BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.throttling import BaseThrottle

from ..ops.health import RETRY_AFTER, describe, readiness
from .base import IdgenView
from .serializers import Answer, Operation


class Live(Answer):
    """Whether the process answers."""

    example: ClassVar[Any] = {"live": True}
    live = serializers.BooleanField()


class Part(Answer):
    """A part of the service that ids depend on."""

    name = serializers.CharField()
    ready = serializers.BooleanField()
    detail = serializers.CharField()


class Ready(Answer):
    """Whether the process can give out ids; staff also sees the parts."""

    ready = serializers.BooleanField()
    failing = serializers.ListField(child=serializers.CharField(), required=False)
    parts = Part(many=True, required=False)


class OpenView(IdgenView):
    """Open to all and never throttled: a probe can't log in, and comes all the time."""

    group = "health"
    permission_classes: Sequence[type[BasePermission]] = (AllowAny,)
    throttle_classes: Sequence[type[BaseThrottle]] = ()

    def get_authenticators(self) -> list[BaseAuthentication]:
        """None: checking a password is slow, also a wrong one."""
        return []

    def perform_authentication(self, request: Request) -> None:
        """Not in advance: it may query the very database that hangs."""


class LiveView(OpenView):
    """Whether the process answers requests; makes no query."""

    @Operation(name="live", summary="Whether the process answers requests", answer=Live)
    def get(self, request: Request, **_kwargs: str) -> Response:  # noqa: ARG002
        return self.respond({"live": True})


class ReadyView(OpenView):
    """Whether the process can give out ids."""

    @Operation(
        name="ready",
        summary="Whether the process can give out ids",
        answer=Ready,
        examples={200: {"ready": True}, 503: {"ready": False, "failing": ["segments"]}},
    )
    def get(self, request: Request, **_kwargs: str) -> Response:
        found = readiness()
        response = self.respond(describe(found, lambda: getattr(request._request, "user", None)))
        if not found.ready:
            response.status_code = 503
            response.headers["Retry-After"] = RETRY_AFTER
        return response
