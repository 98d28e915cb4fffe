"""Answers as Leaf's HTTP server does: ``path("", include(leaf.urls()))``.

=====================================  ===============================================
``api/segment/get/<key>``              the next id of tag ``key``, as plain text
``api/snowflake/get/<key>``            the next id of a generator, whatever the key
``decodeSnowflakeId?snowflakeId=``     ``{"timestamp":"<ms>(<local time>)",…}``
``cache``, ``db``                      lead to the tags in the admin
=====================================  ===============================================

Each path takes every method. An error is an HTTP error as Spring Boot 1.5 sends it, in JSON:
``timestamp``, ``status``, ``error``, ``exception``, ``message`` and ``path``. The message of
a 500 is ``Result{id=-2, status=EXCEPTION}`` for an unknown key, ``-3`` if there is no segment,
``-1`` if the generator can't give ids. Callers without access get 401, 403 or 429.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from datetime import datetime
from http import HTTPStatus

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import NoReverseMatch, URLPattern, reverse
from django.utils.encoding import escape_uri_path
from django.utils.html import format_html
from django.utils.timezone import get_default_timezone
from rest_framework.exceptions import APIException, NotFound, ParseError

from ...core.clock import in_zone, unix_us
from ...core.errors import InvalidTag, SegmentError, TimeOutOfRange
from ...core.layout import BitLayout
from ...process.maps import current_settings
from ...rest.tags import UnknownTag
from ...settings import DEFAULT_ALIAS
from .mounting import DEFAULT, KEY, Authentication, OldServer, json_answer, parameter

TEXT = "text/plain;charset=UTF-8"
JSON = "application/json;charset=UTF-8"
HTML = "text/html;charset=UTF-8"
PAGE = "<html><body><h1>{status} {reason}</h1><p>{message}</p></body></html>"
THROWN = "com.sankuai.inf.leaf.server.exception.LeafServerException"
NOT_READY, NO_KEY, NO_SEGMENT = -1, -2, -3
NUMBER = re.compile(r"[0-9]{1,19}", re.ASCII)
NO_ADMIN = (
    "Tags are shown in the admin here, and this project has none: add django.contrib.admin to "
    "INSTALLED_APPS, and admin.site.urls to the URLs."
)


def urls(
    *,
    authentication: Authentication = DEFAULT,
    generator: str = DEFAULT_ALIAS,
    tags: Iterable[str] = ("*",),
    make_tags: bool | None = None,
) -> list[URLPattern]:
    """The URL patterns, for ``include()``.

    ``authentication``: DRF's classes, one of which must know the caller; by default access tokens,
    then the project's own. None lets all callers take and decode ids, and a system check warns of
    it. ``generator``: the alias of the snowflake URLs. ``tags``: patterns of the tags to serve.
    ``make_tags``: whether an unknown key makes its tag; None: as ``IDGEN["REST"]["make_tags"]``
    says.

    Raises :class:`~django.core.exceptions.ImproperlyConfigured`.
    """
    server = Leaf(authentication, generator, tags=tags, make_tags=make_tags)
    return [
        server.path(f"api/segment/get/(?P<key>{KEY})", server.segment),
        server.path(f"api/snowflake/get/(?P<key>{KEY})", server.snowflake),
        server.path("decodeSnowflakeId", server.decode),
        server.path("cache", server.pages),
        server.path("db", server.pages),
    ]


class Leaf(OldServer):
    name = "leaf"
    epoch = "2010-11-04T01:42:54.657Z"
    """Twitter's epoch."""

    def segment(self, request: HttpRequest, key: str) -> HttpResponse:
        generator = self.of_tag(self.door.caller(request), key)
        return HttpResponse(b"%d" % generator.next_id(), content_type=TEXT)

    def snowflake(self, request: HttpRequest, key: str) -> HttpResponse:  # noqa: ARG002
        generator = self.of_generator(self.door.caller(request), self.alias)
        return HttpResponse(b"%d" % generator.next_id(), content_type=TEXT)

    def decode(self, request: HttpRequest) -> HttpResponse:
        self.door.caller(request)
        given = parameter(request, "snowflakeId")
        if given is None:
            raise ParseError("snowflakeId is missing.")
        layout = current_settings().generators[self.alias].layout
        return json_answer(_decoded(given, layout), JSON)

    def pages(self, request: HttpRequest) -> HttpResponse:
        """Where the tags are shown here: a page of the admin, which asks for its own permission."""
        self.door.caller(request)
        try:
            return HttpResponseRedirect(reverse("admin:django_idgen_leafalloc_changelist"))
        except NoReverseMatch:
            raise NotFound(NO_ADMIN) from None

    def failed(self, error: Exception, answer: APIException, request: HttpRequest) -> HttpResponse:
        if isinstance(error, (UnknownTag, InvalidTag)):
            return _exception(NO_KEY, request)
        if isinstance(error, SegmentError):
            return _exception(NO_SEGMENT, request)
        if answer.status_code >= 500:
            return _exception(NOT_READY, request)
        return _error(answer.status_code, str(answer.detail), request)


def _decoded(text: str, layout: BitLayout) -> dict[str, str]:
    if not NUMBER.fullmatch(text):
        return {"errorMsg": "snowflakeId must be a whole number."}
    try:
        parts = layout.unpack(int(text))
    except (ValueError, TimeOutOfRange) as error:
        return {"errorMsg": str(error)}
    return {
        "timestamp": f"{unix_us(parts.created) // 1000}({_local(parts.created)})",
        "workerId": str(parts.worker),
        "sequenceId": str(parts.sequence),
    }


def _local(moment: datetime) -> str:
    local = in_zone(moment, get_default_timezone())
    return f"{local:%Y-%m-%d %H:%M:%S}.{local.microsecond // 1000:03}"


def _exception(number: int, request: HttpRequest) -> HttpResponse:
    return _error(500, f"Result{{id={number}, status=EXCEPTION}}", request, exception=THROWN)


def _error(status: int, message: str, request: HttpRequest, **more: str) -> HttpResponse:
    """An error as Spring Boot 1.5 sends it: a page if the client prefers HTML, else JSON."""
    reason = HTTPStatus(status).phrase
    if request.get_preferred_type(["application/json", "text/html"]) == "text/html":
        page = format_html(PAGE, status=status, reason=reason, message=message)
        return HttpResponse(page, status=status, content_type=HTML)
    content = {
        "timestamp": time.time_ns() // 1_000_000,
        "status": status,
        "error": reason,
        **more,
        "message": message,
        "path": escape_uri_path(request.path),
    }
    return json_answer(content, JSON, status)
