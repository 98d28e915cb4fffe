"""What the views of the native API share."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NoReturn

from django.conf import settings
from django.http import HttpRequest, QueryDict
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import NotAuthenticated, NotFound, UnsupportedMediaType
from rest_framework.negotiation import BaseContentNegotiation, DefaultContentNegotiation
from rest_framework.parsers import BaseParser, FormParser
from rest_framework.permissions import SAFE_METHODS, BasePermission, IsAuthenticated
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer
from rest_framework.views import exception_handler
from rest_framework.viewsets import GenericViewSet

from ..db.transactions import never_atomic
from .asgi import check_body_limit
from .authentication import (
    Caller,
    authenticated,
    default_authentication,
    has_foreign_secret,
)
from .failures import MOST_BODY, MOST_URL, Refusal, answer_to, content_of, too_large
from .serializers import Input, Pages, StrictParser
from .tokens import PREFIX

NEVER_CACHED = {
    "Cache-Control": "max-age=0, no-cache, no-store, must-revalidate, private",
    "Expires": "Thu, 01 Jan 1970 00:00:00 GMT",
}
"""Headers of every answer: no cache may repeat an id."""


class IdgenView(GenericViewSet):  # type: ignore[type-arg]
    """JSON in, JSON out; closed to anonymous callers; never cached.

    It runs outside the transaction of ``ATOMIC_REQUESTS``, since no id is taken inside one. Of
    the project's DRF settings, the authentication and throttle classes count here.
    """

    renderer_classes: Sequence[type[BaseRenderer]] = (JSONRenderer,)
    parser_classes: Sequence[type[BaseParser]] = (StrictParser, FormParser)
    permission_classes: Sequence[type[BasePermission]] = (IsAuthenticated,)
    pagination_class = Pages
    filter_backends = ()
    content_negotiation_class: type[BaseContentNegotiation] = DefaultContentNegotiation
    versioning_class = None
    inputs: ClassVar[Mapping[str, type[Serializer[Any]]]] = {}
    """By action: what it reads, from the query of a GET or from the body. None: no field."""
    answers: ClassVar[Mapping[str, type[Serializer[Any]]]] = {}
    """By action: what it answers, for the description of the API."""
    for_tokens = True
    """Whether a caller with an access token may get an answer, for the description, too."""
    for_users = True

    @classmethod
    def as_view(cls, actions: Any = None, **initkwargs: Any) -> Any:
        view: Any = never_atomic(super().as_view(actions, **initkwargs))
        view.idgen_check = check_body_limit
        return view

    def get_serializer_class(self) -> Any:
        kinds = self.answers if self.action in ("list", "retrieve") else self.inputs
        return kinds.get(self.action, Input)

    def get_serializer(self, *args: Any, **options: Any) -> Any:
        if "data" in options:
            options["data"] = _plain(options["data"])
        return super().get_serializer(*args, **options)

    def read(self) -> dict[str, Any]:
        """The input of the action. Raises DRF's ``ValidationError``, by field."""
        request = self.request
        asked = request.query_params if request.method in SAFE_METHODS else request.data
        return self.checked(self.inputs.get(self.action, Input), asked)

    @staticmethod
    def checked(kind: type[Serializer[Any]], asked: Any) -> dict[str, Any]:
        given = kind(data=_plain(asked))
        given.is_valid(raise_exception=True)
        return dict(given.validated_data)

    def get_authenticators(self) -> list[BaseAuthentication]:
        return [authentication() for authentication in default_authentication()]

    def get_exception_handler(self) -> Callable[[Exception, dict[str, Any]], Response | None]:
        # The project's own handler may write errors in a form that this API's clients can't read.
        return exception_handler

    def perform_authentication(self, request: Request) -> None:
        authenticated(request)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        # First, since a session's CSRF check would read the body.
        check_url(request._request)
        check_body(request._request)
        super().initial(request, *args, **kwargs)

    def handle_exception(self, exc: Exception) -> Response:
        answer = answer_to(exc)
        response = super().handle_exception(answer or exc)
        if answer is not None:
            response.data = content_of(answer)
        return response

    def finalize_response(self, *args: Any, **kwargs: Any) -> Response:
        final = super().finalize_response(*args, **kwargs)
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


class ActionPermissions(BasePermission):
    """The Django permission that ``permissions`` of the view names. Access tokens have none."""

    message: str | None = None

    def has_permission(self, request: Request, view: Any) -> bool:
        if view.action in (None, "metadata"):
            # A method that the view lacks gets its 405 next; one that a subclass adds is closed.
            return bool(view.action) or not hasattr(view, str(request.method).lower())
        permission = view.permissions.get(view.action)
        self.message = f"You need a permission that you don't have: {permission}."
        caller = Caller.of(request)
        return bool(caller and permission and caller.has_perm(permission))


class ManagementView(IdgenView):
    """A view for users of the project who have Django's permissions for it."""

    for_tokens = False
    permission_classes: Sequence[type[BasePermission]] = (IsAuthenticated, ActionPermissions)
    permissions: ClassVar[Mapping[str, str]]
    """The permission for each action."""


class NotThereView(IdgenView):
    """A 404 in JSON for a name that can't be a tag or a generator."""

    schema = None

    def missing(self, request: Request, **_kwargs: str) -> NoReturn:  # noqa: ARG002
        raise NotFound


def _plain(asked: Any) -> Any:
    # In a form DRF takes an empty value for a missing one.
    return asked.dict() if isinstance(asked, QueryDict) else asked


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
