"""What the native API's views share."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NoReturn

from django.conf import settings
from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from django.db import Error as AnyDatabaseError
from django.http import HttpRequest, UnreadablePostError
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import (
    APIException,
    NotAuthenticated,
    NotFound,
    UnsupportedMediaType,
)
from rest_framework.negotiation import BaseContentNegotiation, DefaultContentNegotiation
from rest_framework.parsers import BaseParser, FormParser
from rest_framework.permissions import BasePermission, IsAuthenticated
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView, exception_handler

from ..core.errors import IdgenError
from ..db.atomic_requests import never_atomic
from .access import Caller, default_authentication
from .authentication import check_credentials
from .failures import (
    DATABASE_AWAY,
    INTERRUPTED,
    MOST_BODY,
    MOST_URL,
    NO_LENGTH,
    TOO_LARGE,
    Failure,
    Refused,
    bad_request,
    failure_of,
    log_database,
)
from .serializers import Operation, StrictJSONParser

__all__ = [
    "NEVER_CACHED",
    "Conflict",
    "IdgenView",
    "ManagementView",
    "NotThereView",
    "check_body",
    "check_url",
    "has_unmeasured_body",
    "known_failure",
    "response_of",
]

NEVER_CACHED = {
    "Cache-Control": "max-age=0, no-cache, no-store, must-revalidate, private",
    "Expires": "Thu, 01 Jan 1970 00:00:00 GMT",
}
"""Headers of every answer: no id may come out of a cache."""


class IdgenView(APIView):
    """JSON in, JSON out; closed to those who don't say who they are; never cached.

    Outside any transaction of ``ATOMIC_REQUESTS``: no id is taken in one anyway. Of the
    project's DRF settings, its authentications and throttles count here.
    """

    renderer_classes: Sequence[type[BaseRenderer]] = (JSONRenderer,)
    parser_classes: Sequence[type[BaseParser]] = (StrictJSONParser, FormParser)
    permission_classes: Sequence[type[BasePermission]] = (IsAuthenticated,)
    content_negotiation_class: type[BaseContentNegotiation] = DefaultContentNegotiation
    versioning_class = None
    group: ClassVar[str] = "tags"
    """Under which the schema has its operations."""

    @classmethod
    def as_view(cls, **initkwargs: Any) -> Any:
        return never_atomic(super().as_view(**initkwargs))

    @classmethod
    def operation_of(cls, method: str) -> Operation | None:
        """What ``method`` takes and answers; a subclass that overrides it may say nothing new."""
        name = {"HEAD": "get"}.get(method, method.lower())
        said = (getattr(vars(kind).get(name), "operation", None) for kind in cls.__mro__)
        return next(filter(None, said), None)

    @classmethod
    def described(cls) -> type:
        """What drf-spectacular reads instead of this view, which works without it."""
        from . import openapi

        return openapi.described(cls)

    @property
    def operation(self) -> Operation:
        """Of the request."""
        found = self.operation_of(str(self.request.method))
        if found is None:
            raise TypeError(f"{type(self).__name__} names no Operation for {self.request.method}.")
        return found

    def read(self) -> dict[str, Any]:
        """What the request asks for. Raises DRF's ``ValidationError``, by field."""
        return self.operation.asked(self.request)

    def respond(self, content: Any) -> Response:
        """``content``, as the serializer of the operation writes it."""
        kind: Any = self.operation.answer
        return Response(kind(content).data, self.operation.status)

    def get_authenticators(self) -> list[BaseAuthentication]:
        return [authentication() for authentication in default_authentication()]

    def get_exception_handler(self) -> Callable[[Exception, dict[str, Any]], Response | None]:
        # The project's own may write errors in a form that our clients don't know.
        return exception_handler

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        # First: a session's CSRF check would read the body.
        check_body(request._request)
        super().initial(request, *args, **kwargs)

    def perform_authentication(self, request: Request) -> None:
        check_credentials(request)
        super().perform_authentication(request)

    def handle_exception(self, exc: Exception) -> Response:
        failure = known_failure(exc)
        if failure is not None:
            response = response_of(failure)
            response.exception = True
            return response
        response = super().handle_exception(exc)
        if isinstance(exc, APIException) and isinstance(exc.detail, str):
            # A code to branch on, where DRF has but words.
            response.data.setdefault("code", exc.get_codes())
        return response

    def finalize_response(
        self, request: Request, response: Response, *args: Any, **kwargs: Any
    ) -> Response:
        final = super().finalize_response(request, response, *args, **kwargs)
        for name, value in NEVER_CACHED.items():
            final[name] = value
        return final

    @property
    def caller(self) -> Caller:
        """Who sent the request. Raises :class:`NotAuthenticated`."""
        found = Caller.of(self.request)
        if found is None:
            raise NotAuthenticated
        return found


class ModelPermissions(BasePermission):
    """Django's permissions, as the view's operations name them. Access tokens have none."""

    message: str | None = None

    def has_permission(self, request: Request, view: Any) -> bool:
        method = str(request.method)
        operation = view.operation_of(method)
        if operation is None:
            # What names no permission is closed; a method that there is not gets its 405 next.
            return method == "OPTIONS" or not hasattr(view, method.lower())
        caller = Caller.of(request)
        permission = operation.permission
        self.message = f"That takes a permission that you don't have: {permission}."
        return caller is not None and caller.has_perm(permission)


class ManagementView(IdgenView):
    """A view for people of the project who have the permissions for it."""

    permission_classes: Sequence[type[BasePermission]] = (IsAuthenticated, ModelPermissions)


class NotThereView(IdgenView):
    """For what can't be a tag or a generator: a 404 in JSON, as for one that there is not."""

    schema = None

    def get(self, request: Request, **_kwargs: str) -> NoReturn:  # noqa: ARG002
        raise NotFound

    post = put = patch = delete = get


class Conflict(APIException):
    """409: what is asked for does not go with how things stand."""

    status_code = 409
    default_code = "conflict"


def response_of(failure: Failure) -> Response:
    """A failure as DRF's own would be: ``{"<field>": ["…"]}`` or ``{"detail": …, "code": …}``."""
    headers = {} if failure.retry_after is None else {"Retry-After": str(failure.retry_after)}
    return Response(failure.content, status=failure.status, headers=headers)


def known_failure(exc: Exception) -> Failure | None:
    """What to answer to what DRF has no answer to."""
    if isinstance(exc, IdgenError):
        return failure_of(exc)
    if isinstance(exc, Refused):
        return exc.failure
    if isinstance(exc, AnyDatabaseError):
        log_database(exc)
        return DATABASE_AWAY
    if isinstance(exc, RequestDataTooBig):
        return TOO_LARGE
    if isinstance(exc, SuspiciousOperation):
        return bad_request(str(exc))
    if isinstance(exc, UnreadablePostError):
        return INTERRUPTED
    return None


def check_url(request: HttpRequest) -> None:
    """Refuse a path and query that are longer than this API needs."""
    if len(request.path_info) + len(request.META.get("QUERY_STRING", "")) > MOST_URL:
        raise Refused(TOO_LARGE)


def check_body(request: HttpRequest) -> None:
    """Refuse what would be read whole, not at all, or as what it isn't."""
    check_url(request)
    meta = request.META
    chunked = meta.get("HTTP_TRANSFER_ENCODING") and not meta.get("CONTENT_LENGTH")
    if chunked or has_unmeasured_body(request):
        # WSGI servers hand it on in different ways, and Django reads nothing of it.
        raise Refused(NO_LENGTH)
    most = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    if _length(request) > (MOST_BODY if most is None else min(most, MOST_BODY)):
        raise Refused(TOO_LARGE)
    charset = (request.content_params or {}).get("charset")
    if charset is not None and not _is_utf8(charset):
        raise UnsupportedMediaType(f"{request.content_type}; charset={charset}")


def has_unmeasured_body(request: HttpRequest) -> bool:
    """Whether an ASGI server took a body without saying how long, as HTTP/2 lets clients send."""
    if request.META.get("CONTENT_LENGTH"):
        return False
    if hasattr(request, "_body"):  # a middleware has read it
        return bool(request._body)
    stream: Any = getattr(request, "_stream", None)
    if not hasattr(request, "scope") or stream is None or not stream.seekable():
        return False
    first = stream.read(1)
    stream.seek(0)
    return bool(first)


def _length(request: HttpRequest) -> int:
    text = request.META.get("CONTENT_LENGTH") or "0"
    if not (text.isascii() and text.isdigit()):
        raise Refused(bad_request("Content-Length is no number."))
    return int(text) if len(text) < 20 else MOST_BODY + 1


def _is_utf8(charset: str) -> bool:
    # Django would decode the query, too, with whatever codec has that name.
    try:
        return codecs.lookup(charset).name in ("utf-8", "ascii")
    except (LookupError, ValueError):
        return False
