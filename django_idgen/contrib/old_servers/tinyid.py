"""Answers as TinyID's server does: ``path("tinyid/", include(tinyid.urls()))``.

TinyID's own server is mounted at ``/tinyid``, where its Java client looks for it.

============================  =====================================================
``id/nextId``                 ``{"data":[2],"code":200,"message":""}``
``id/nextIdSimple``           ``4,5,6``
``id/nextSegmentId``          ``{"data":{"currentId":{"value":0},…},"code":200,…}``
``id/nextSegmentIdSimple``    ``current,loading,max,delta,remainder``
============================  =====================================================

``bizType`` is the tag, ``batchSize`` the number of ids (default 1, capped at ``max_count`` and
100000), ``token`` the secret of an access token that names the tag. They are in the query or in a
form, with any method. A header is a better place for the token, which gets into logs from a query:
see :mod:`.redaction`.

The HTTP status is 200 and ``code`` tells the result: 200 for success, 5 for a wrong token or a
missing ``bizType``, 6 for any other error. The Simple forms answer an error with an empty body.
Only throttled callers get 429, and requests that are too large 413.

A segment's ids are ``currentId + delta``, ``currentId + 2 * delta`` and so on up to
``maxId``. It comes from the segment source, for this client only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.views.decorators.debug import sensitive_variables
from rest_framework.exceptions import (
    APIException,
    AuthenticationFailed,
    NotAuthenticated,
    ParseError,
    PermissionDenied,
)

from ...core.segment import STEP, Segment
from ...process.maps import current_settings
from ...rest.authentication import Caller
from ...rest.lending import Lending
from . import redaction
from .mounting import DEFAULT, Authentication, OldServer, parameter

OK, TOKEN_ERROR, SYSTEM_ERROR = 200, 5, 6
TOKEN_MESSAGE = "token is error"  # noqa: S105  # nosec B105  # what TinyID says
MOST_IDS = 100_000
SENT = (413, 429)
"""Error statuses that are sent; all others become 200."""
LOADING_PERCENT = 20
"""The share of a segment after which the client loads the next one."""
JSON = "application/json;charset=UTF-8"
TEXT = "text/plain;charset=UTF-8"
COUNT = re.compile(r"[0-9]{1,18}", re.ASCII)
SECRET = "idgen_secret"  # noqa: S105  # nosec B105  # the name of an attribute


def urls(
    *,
    authentication: Authentication = DEFAULT,
    tags: Iterable[str] = ("*",),
    make_tags: bool | None = None,
) -> list[URLPattern]:
    """The URL patterns, for ``include()``. Installs the redaction of tokens in Django's own logs.

    ``authentication``: DRF's classes, one of which must know the caller; by default access tokens,
    then the project's own. The parameter ``token`` counts if :class:`TokenAuthentication` is one of
    them. None lets all callers take ids, and a system check warns of it. ``tags``: patterns of the
    tags to serve. ``make_tags``: whether an unknown ``bizType`` makes its tag; None: as
    ``IDGEN["REST"]["make_tags"]`` says.

    Raises :class:`~django.core.exceptions.ImproperlyConfigured`.
    """
    redaction.install()
    server = TinyId(authentication, tags=tags, make_tags=make_tags)
    simply = server.failed_simply
    return [
        server.path("id/nextId", server.ids),
        server.path("id/nextIdSimple", server.ids_simply, failed=simply),
        server.path("id/nextSegmentId", server.segment),
        server.path("id/nextSegmentIdSimple", server.segment_simply, failed=simply),
    ]


class TinyId(OldServer):
    name = "tinyid"

    @sensitive_variables()
    def begin(self, request: HttpRequest) -> None:
        setattr(request, SECRET, redaction.take_token(request))

    def ids(self, request: HttpRequest) -> HttpResponse:
        return _answer(OK, "", f"[{','.join(map(str, self._ids(request)))}]")

    def ids_simply(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse(",".join(map(str, self._ids(request))), content_type=TEXT)

    def segment(self, request: HttpRequest) -> HttpResponse:
        current, loading, last, delta, remainder = _as_tinyid(self._segment(request))
        return _answer(
            OK,
            "",
            f'{{"currentId":{{"value":{current}}},"loadingId":{loading},"maxId":{last},'
            f'"delta":{delta},"remainder":{remainder}}}',
        )

    def segment_simply(self, request: HttpRequest) -> HttpResponse:
        values = _as_tinyid(self._segment(request))
        return HttpResponse(",".join(map(str, values)), content_type=TEXT)

    def _ids(self, request: HttpRequest) -> list[int]:
        caller = self._caller(request)
        count = _count(parameter(request, "batchSize") or "")
        return self.of_tag(caller, _tag(request)).next_ids(count)

    def _segment(self, request: HttpRequest) -> Segment:
        caller, tag = self._caller(request), _tag(request)
        self.tags.check_segments(caller, tag)
        return Lending(tag, current_settings().rest.max_segment).take(STEP, 0)

    @sensitive_variables()
    def _caller(self, request: HttpRequest) -> Caller | None:
        secret = getattr(request, SECRET, None)
        if request.method == "POST":
            secret = redaction.take_token_of_form(request) or secret
        return self.door.caller(request, secret=secret or None)

    def failed(self, error: Exception, answer: APIException, request: HttpRequest) -> HttpResponse:  # noqa: ARG002
        status = answer.status_code if answer.status_code in SENT else 200
        if isinstance(error, (AuthenticationFailed, NotAuthenticated, PermissionDenied)):
            return _answer(TOKEN_ERROR, TOKEN_MESSAGE, status=status)
        return _answer(SYSTEM_ERROR, str(answer.detail), status=status)

    def failed_simply(
        self, _error: Exception, answer: APIException, _: HttpRequest
    ) -> HttpResponse:
        status = answer.status_code if answer.status_code in SENT else 200
        return HttpResponse(status=status, content_type=TEXT)


def _tag(request: HttpRequest) -> str:
    found = parameter(request, "bizType")
    if not found:
        raise PermissionDenied("bizType is missing.")  # TinyID takes it for a tag without tokens
    return found


def _count(text: str) -> int:
    if not text:
        return 1
    if not COUNT.fullmatch(text) or int(text) < 1:
        raise ParseError("batchSize must be a whole number, 1 or more.")
    return min(int(text), current_settings().rest.max_count, MOST_IDS)


def _as_tinyid(segment: Segment) -> tuple[int, int, int, int, int]:
    """``currentId``, ``loadingId``, ``maxId``, ``delta`` and ``remainder``.

    The client's first id is the lowest above ``currentId`` that leaves ``remainder`` when
    divided by ``delta``; so ``currentId`` is where the id before the first one would be.
    """
    ids = segment.ids()
    current, last = ids[0] - segment.delta, ids[-1]
    loading = current + (last - current) * LOADING_PERCENT // 100
    return current, loading, last, segment.delta, ids[0] % segment.delta


def _answer(code: int, message: str, data: str = "null", status: int = 200) -> HttpResponse:
    quoted = json.dumps(message, ensure_ascii=False)
    text = f'{{"data":{data},"code":{code},"message":{quoted}}}'
    return HttpResponse(text, status=status, content_type=JSON)
