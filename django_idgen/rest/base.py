"""What the views of the native API share."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NoReturn

from django.conf import settings
from django.http import HttpRequest
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import NotAuthenticated, NotFound, UnsupportedMediaType
from rest_framework.negotiation import BaseContentNegotiation, DefaultContentNegotiation
from rest_framework.parsers import BaseParser, FormParser
from rest_framework.permissions import BasePermission, IsAuthenticated
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView, exception_handler

from ..db.transactions import never_atomic
from .authentication import (
    Caller,
    check_credentials,
    default_authentication,
    has_foreign_secret,
)
from .failures import MOST_BODY, MOST_URL, Refusal, answer_to, content_of, too_large
from .serializers import Operation, StrictJSONParser
from .tokens import PREFIX

NEVER_CACHED = {
    "Cache-Control": "max-age=0, no-cache, no-store, must-revalidate, private",
    "Expires": "Thu, 01 Jan 1970 00:00:00 GMT",
}
"""Headers of every answer: no cache may repeat an id."""


class IdgenView(APIView):
    """JSON in, JSON out; closed to anonymous callers; never cached.

    It runs outside the transaction of ``ATOMIC_REQUESTS``, since no id is taken inside one. Of
    the project's DRF settings, the authentication and throttle classes count here.
    """

    renderer_classes: Sequence[type[BaseRenderer]] = (JSONRenderer,)
    parser_classes: Sequence[type[BaseParser]] = (StrictJSONParser, FormParser)
    permission_classes: Sequence[type[BasePermission]] = (IsAuthenticated,)
    content_negotiation_class: type[BaseContentNegotiation] = DefaultContentNegotiation
    versioning_class = None
    group: ClassVar[str] = "tags"
    """The group of its operations in the schema."""

    @classmethod
    def as_view(cls, **initkwargs: Any) -> Any:
        return never_atomic(super().as_view(**initkwargs))

    @classmethod
    def operation_of(cls, method: str) -> Operation | None:
        """What ``method`` takes and answers, also if a subclass overrides it undecorated."""
        name = {"HEAD": "get"}.get(method, method.lower())
        found = (getattr(vars(kind).get(name), "operation", None) for kind in cls.__mro__)
        return next(filter(None, found), None)

    @classmethod
    def described(cls) -> type:
        """The class that drf-spectacular reads instead of this view, which works without it."""
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
        """The input of the request. Raises DRF's ``ValidationError``, by field."""
        return self.operation.read(self.request)

    def respond(self, content: Any) -> Response:
        """``content``, as the serializer of the operation writes it."""
        kind: Any = self.operation.answer
        return Response(kind(content).data, self.operation.status)

    def get_authenticators(self) -> list[BaseAuthentication]:
        return [authentication() for authentication in default_authentication()]

    def get_exception_handler(self) -> Callable[[Exception, dict[str, Any]], Response | None]:
        # The project's own handler may write errors in a form that this API's clients can't read.
        return exception_handler

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        # First, since a session's CSRF check would read the body.
        check_url(request._request)
        check_body(request._request)
        super().initial(request, *args, **kwargs)

    def perform_authentication(self, request: Request) -> None:
        check_credentials(request)
        super().perform_authentication(request)

    def handle_exception(self, exc: Exception) -> Response:
        answer = answer_to(exc)
        response = super().handle_exception(answer or exc)
        if answer is not None:
            response.data = content_of(answer)
        return response

    def finalize_response(
        self, request: Request, response: Response, *args: Any, **kwargs: Any
    ) -> Response:
        final = super().finalize_response(request, response, *args, **kwargs)
        for name, value in NEVER_CACHED.items():
            final[name] = value
        return final

    def permission_denied(
        self, request: Request, message: str | None = None, code: str | None = None
    ) -> NoReturn:
        if request.successful_authenticator is None and has_foreign_secret(request):
            raise NotAuthenticated(f"This is not an access token: those begin with {PREFIX}.")
        super().permission_denied(request, message, code)

    @property
    def caller(self) -> Caller:
        """The sender of the request. Raises :class:`NotAuthenticated`."""
        found = Caller.of(self.request)
        if found is None:
            raise NotAuthenticated
        return found


class ModelPermissions(BasePermission):
    """The Django permissions that the view's operations name. Access tokens have none."""

    message: str | None = None

    def has_permission(self, request: Request, view: Any) -> bool:
        method = str(request.method)
        operation = view.operation_of(method)
        if operation is None:
            # Closed, but for a method that the view lacks: that gets its 405 next.
            return method == "OPTIONS" or not hasattr(view, method.lower())
        caller = Caller.of(request)
        permission = operation.permission
        self.message = f"You need a permission that you don't have: {permission}."
        return caller is not None and caller.has_perm(permission)


class ManagementView(IdgenView):
    """A view for users of the project who have Django's permissions for it."""

    permission_classes: Sequence[type[BasePermission]] = (IsAuthenticated, ModelPermissions)


class NotThereView(IdgenView):
    """A 404 in JSON for a name that can't be a tag or a generator."""

    schema = None

    def get(self, request: Request, **_kwargs: str) -> NoReturn:  # noqa: ARG002
        raise NotFound

    post = put = patch = delete = get


def check_url(request: HttpRequest) -> None:
    """Refuse a path and query that are longer than this API needs."""
    if len(request.path_info) + len(request.META.get("QUERY_STRING", "")) > MOST_URL:
        raise too_large()


def check_body(request: HttpRequest) -> None:
    """Refuse a body that is too large, has no length, or is not in UTF-8."""
    meta = request.META
    length = meta.get("CONTENT_LENGTH")
    if not length:
        if meta.get("HTTP_TRANSFER_ENCODING") or has_unmeasured_body(request):
            # WSGI servers differ in how they pass it on, and Django reads nothing of it.
            raise Refusal(411, "length_required", "Send the body's length (Content-Length).")
    elif not (length.isascii() and length.isdigit()):
        raise Refusal(400, "bad_request", "Content-Length is not a number.")
    else:
        most = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        if len(length) >= 20 or int(length) > (MOST_BODY if most is None else min(most, MOST_BODY)):
            raise too_large()
    charset = (request.content_params or {}).get("charset")
    if charset is not None and not _is_utf8(charset):
        raise UnsupportedMediaType(f"{request.content_type}; charset={charset}")


def has_unmeasured_body(request: HttpRequest) -> bool:
    """Whether an ASGI server took a body without a length, which HTTP/2 lets clients send."""
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


def _is_utf8(charset: str) -> bool:
    # Django would decode the query, too, with any codec of that name.
    try:
        return codecs.lookup(charset).name in ("utf-8", "ascii")
    except (LookupError, ValueError):
        return False
