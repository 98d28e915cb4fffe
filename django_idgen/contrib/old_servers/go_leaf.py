"""Answers as the Go Leaf does: ``path("", include(go_leaf.urls()))``.

===============================  =====================================================
``GET api/leaf?biz_tag=``        ``{"code":0,"data":{"ID":1},"msg":"success"}``
``POST api/leaf``                make a tag: ``biz_tag``, ``max_id`` (1), ``step`` (200),
                                 ``descprition`` (its clients spell it so) or ``description``
``PUT api/leaf/init/cache``      load the next segment of ``biz_tag`` into this process;
                                 ``data`` shows what this process holds
``PUT api/leaf/step``            set the ``step`` of ``biz_tag``
===============================  =====================================================

The HTTP status is 200 and ``code`` tells the result: 0 for success, 1000 for a body that can't be
read, 1001 for any other error, also a missing ``biz_tag``. But callers without the right get 401,
403 or 429 (with code 1001), and a request that is too large gets 413.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from io import BytesIO
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from rest_framework.exceptions import APIException, ParseError

from ...core.errors import InvalidTag
from ...core.segment import MAX_ID, MAX_STEP, check_tag
from ...core.segment_generator import SegmentStats
from ...ops.tags import edits as tag_edits
from ...ops.tags.change_log import record
from ...process.maps import current_settings
from ...process.tags import TagUnknown, find_tag
from ...rest.serializers import StrictParser
from .mounting import DEFAULT, Authentication, OldServer, json_answer

OK, BAD_PARAMETER, ERROR = 0, 1000, 1001
SUCCESS = "success"
DEFAULT_STEP = 200
MOST_DESCRIPTION = 256
JSON = "application/json; charset=utf-8"
CLOSED = (401, 403, 413, 429)
Body = Mapping[str, Any]


def urls(
    *,
    authentication: Authentication = DEFAULT,
    tags: Iterable[str] = ("*",),
    make_tags: bool | None = None,
    writes: bool = False,
) -> list[URLPattern]:
    """The URL patterns, for ``include()``.

    ``authentication``: DRF's classes, one of which must know the caller; by default access tokens,
    then the project's own. None lets all callers take ids, and a system check warns of it. Only a
    user with ``django_idgen.add_leafalloc`` may make a tag, and only one with
    ``django_idgen.change_leafalloc`` may load or change one. That also holds where all callers may
    take ids, unless ``writes=True`` opens tags to them, too. ``tags``: patterns of the tags to
    serve. ``make_tags``: whether taking an id of an unknown tag makes it; None: as
    ``IDGEN["REST"]["make_tags"]`` says.

    Raises :class:`~django.core.exceptions.ImproperlyConfigured`.
    """
    server = GoLeaf(authentication, tags=tags, make_tags=make_tags)
    server.open_writes = writes
    if writes and not server.door.is_open:
        raise ImproperlyConfigured(
            "writes=True lets anybody make tags, so it needs authentication=None. Otherwise "
            "Django's permissions say who may make tags."
        )
    return [
        server.path("api/leaf", get=server.take, post=server.make),
        server.path("api/leaf/init/cache", put=server.load),
        server.path("api/leaf/step", put=server.change_step),
    ]


class GoLeaf(OldServer):
    name = "go_leaf"
    open_writes = False

    def take(self, request: HttpRequest) -> HttpResponse:
        caller = self.door.caller(request)
        value = self.of_tag(caller, request.GET.get("biz_tag", "")).next_id()
        return _answer(OK, SUCCESS, {"ID": value})

    def make(self, request: HttpRequest) -> HttpResponse:
        user = self._need(request, "django_idgen.add_leafalloc")
        body = _body(request)
        tag = self._served(body)
        step = _number(body, "step", MAX_STEP, default=DEFAULT_STEP)
        first = _number(body, "max_id", MAX_ID, default=1)
        tag_edits.make_tag(tag, max_id=first, step=step, description=_description(body))
        record(user, tag, "added", step=(None, step), max_id=(None, first))
        return _answer(OK, SUCCESS)

    def load(self, request: HttpRequest) -> HttpResponse:
        self._need(request, "django_idgen.change_leafalloc")
        generator: Any = self.of_tag(None, _tag(_body(request)))
        generator.preload(current_settings().segments.first_timeout)
        return _answer(OK, SUCCESS, _cached(generator.stats()))

    def change_step(self, request: HttpRequest) -> HttpResponse:
        user = self._need(request, "django_idgen.change_leafalloc")
        body = _body(request)
        tag, step = self._served(body), _number(body, "step", MAX_STEP)
        before = find_tag(tag)
        tag_edits.change_tag(tag, step=step)
        record(user, tag, "changed", step=(before and before.first.step, step))
        return _answer(OK, SUCCESS)

    def _need(self, request: HttpRequest, permission: str) -> Any:
        """The user who has the permission; "anybody" where writes are open."""
        return "anybody" if self.open_writes else self.door.need(request, permission)

    def _served(self, body: Body) -> str:
        tag = _tag(body)
        self.tags.serve(tag)
        return tag

    def failed(self, error: Exception, answer: APIException, request: HttpRequest) -> HttpResponse:  # noqa: ARG002
        status, detail = answer.status_code, str(answer.detail)
        if status in CLOSED:
            return _answer(ERROR, detail, status=status)
        if isinstance(error, (InvalidTag, TagUnknown)):
            return _answer(ERROR, str(error))
        is_bad = 400 <= status < 500 and status not in (404, 409)
        return _answer(BAD_PARAMETER if is_bad else ERROR, detail)


def _body(request: HttpRequest) -> Body:
    """The JSON object in the request. Raises :class:`ParseError`, as all that read from it."""
    found = StrictParser().parse(BytesIO(request.body))
    if not isinstance(found, dict):
        raise ParseError('The body must be an object, such as {"biz_tag": "orders"}.')
    return found


def _tag(body: Body) -> str:
    found = body.get("biz_tag", "")
    if not isinstance(found, str):
        raise ParseError("biz_tag must be a string.")
    return check_tag(found)


def _number(body: Body, name: str, most: int, default: int | None = None) -> int:
    found = body.get(name, default)
    if isinstance(found, bool) or not isinstance(found, int) or not 1 <= found <= most:
        raise ParseError(f"{name} must be a whole number of 1 to {most}.")
    return found


def _description(body: Body) -> str:
    for name in ("descprition", "description"):
        found = body.get(name)
        if found is None:
            continue
        if not isinstance(found, str) or len(found) > MOST_DESCRIPTION or "\0" in found:
            raise ParseError(f"{name} must be a string of {MOST_DESCRIPTION} characters at most.")
        if found:
            return found
    return ""


def _cached(stats: SegmentStats) -> dict[str, Any]:
    """The segments of a tag, in the form of the Go Leaf's struct."""
    left = stats.remaining
    buffer: list[dict[str, object]] = []
    for segment in reversed(stats.held):
        ids = segment.ids()
        unused = min(left, len(ids))
        left -= unused
        cursor = ids[-1] - unused * segment.delta  # the last id that was given out
        buffer.insert(0, {"Cursor": cursor, "Max": ids[-1], "Min": ids[0], "InitOk": True})
    return {
        "Key": stats.tag,
        "Step": stats.held[-1].step if stats.held else 0,
        "CurrentPos": 0,
        "Buffer": buffer,
        "UpdateTime": datetime.now(UTC).isoformat(),
        "IsPreload": False,
        "Waiting": {},
    }


def _answer(code: int, message: str, data: object = None, status: int = 200) -> HttpResponse:
    # In the order in which Go writes the keys of a map. Errors have no data.
    content = {"code": code, **({"data": data} if code == OK else {}), "msg": message}
    return json_answer(content, JSON, status)
