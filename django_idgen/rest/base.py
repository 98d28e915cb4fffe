"""What the native API's views share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import transaction
from django.utils.cache import add_never_cache_headers
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import APIException, NotAuthenticated
from rest_framework.parsers import BaseParser, FormParser, JSONParser
from rest_framework.permissions import BasePermission, IsAuthenticated
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ..core.errors import IdgenError
from .access import Caller, default_authentication
from .failures import Failure, failure_of

__all__ = ["IdgenView", "response_of"]


class IdgenView(APIView):
    """JSON in, JSON out; closed to those who don't say who they are; never cached.

    Outside any transaction of ``ATOMIC_REQUESTS``: no id is taken in one anyway.
    """

    renderer_classes: Sequence[type[BaseRenderer]] = (JSONRenderer,)
    parser_classes: Sequence[type[BaseParser]] = (JSONParser, FormParser)
    permission_classes: Sequence[type[BasePermission]] = (IsAuthenticated,)

    @classmethod
    def as_view(cls, **initkwargs: Any) -> Any:
        return transaction.non_atomic_requests(super().as_view(**initkwargs))

    def get_authenticators(self) -> list[BaseAuthentication]:
        return [authentication() for authentication in default_authentication()]

    def handle_exception(self, exc: Exception) -> Response:
        if isinstance(exc, IdgenError):
            return self._sealed(response_of(failure_of(exc)))
        response = super().handle_exception(exc)
        if isinstance(exc, APIException) and isinstance(exc.detail, str):
            # A code to branch on, where DRF has but words.
            response.data.setdefault("code", exc.get_codes())
        return response

    def finalize_response(
        self, request: Request, response: Response, *args: Any, **kwargs: Any
    ) -> Response:
        final = super().finalize_response(request, response, *args, **kwargs)
        add_never_cache_headers(final)
        return final

    @property
    def caller(self) -> Caller:
        """Who sent the request. Raises :class:`NotAuthenticated`."""
        found = Caller.of(self.request)
        if found is None:
            raise NotAuthenticated
        return found

    def _sealed(self, response: Response) -> Response:
        response.exception = True
        return response


def response_of(failure: Failure) -> Response:
    """A failure as DRF's own would be: ``{"<field>": ["…"]}`` or ``{"detail": …, "code": …}``."""
    if failure.field is not None:
        return Response({failure.field: [failure.detail]}, status=failure.status)
    headers = {} if failure.retry_after is None else {"Retry-After": str(failure.retry_after)}
    body = {"detail": failure.detail, "code": failure.code}
    return Response(body, status=failure.status, headers=headers)
