"""Errors as HTTP answers: one place for status codes, codes and texts.

====  ===============================  ==============================================
400   bad input                        ``{"<field>": ["…"]}``, as DRF has it
411   a body of unknown length         ``length_required``
413   a body or URL that is too large  ``too_large``
404   unknown tag or generator         ``{"detail": "…", "code": "not_found"}``
409   a lost lease, other settings,    ``lease_lost``, ``namespace_mismatch``,
      a tag with no ids left, one      ``exhausted``,
      that is paused, one that exists, ``paused``, ``exists``,
      or tags that are kept elsewhere  ``tags_elsewhere``
429   too many worker ids              ``too_many_leases``, with ``Retry-After``
503   no ids just now                  ``unavailable``, with ``Retry-After``
====  ===============================  ==============================================

The text says what a caller can do. The cause goes to the log, not into the answer.
"""

from __future__ import annotations

import logging
from typing import Any

from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from django.db import Error as AnyDatabaseError
from django.http import UnreadablePostError
from rest_framework.exceptions import APIException

from ..core.errors import (
    ClockError,
    ConfigurationError,
    GeneratorClosed,
    IdgenError,
    InvalidId,
    InvalidTag,
    LeaseLost,
    NamespaceMismatch,
    NoFreeWorker,
    SegmentExhausted,
    TagPaused,
    TimeExhausted,
)
from ..ops.tags.edits import HeldInRedis, TagExists, Unstorable
from ..process.tags import TagsElsewhere
from .clients import TooManyLeases

RETRY_AFTER = 1
"""Seconds after which a caller may ask again."""
MOST_BODY = 65_536
"""Bytes of a body."""
MOST_URL = 8_192
"""Characters of a path with its query."""

logger = logging.getLogger("django_idgen")


class Refusal(APIException):
    """An error of this API: ``{"detail": …, "code": …}``, or ``{"<field>": ["…"]}``.

    ``wait``: seconds for ``Retry-After``. ``values``: more keys of the body, for programs.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        field: str | None = None,
        wait: float | None = None,
        **values: object,
    ) -> None:
        super().__init__(detail, code)
        self.status_code = status
        self.field = field
        self.wait = wait
        self.values = values


def content_of(error: APIException) -> Any:
    """The body of the answer to ``error``."""
    if not isinstance(error.detail, str):
        return error.detail  # by field
    if isinstance(error, Refusal) and error.field is not None:
        return {error.field: [error.detail]}
    values = error.values if isinstance(error, Refusal) else {}
    return {"detail": error.detail, "code": error.get_codes(), **values}


def answer_to(error: Exception) -> APIException | None:
    """The answer to ``error``; None for one that this API doesn't know."""
    if isinstance(error, APIException):
        return error
    if isinstance(error, IdgenError):
        return _answer_to_own(error)
    if isinstance(error, AnyDatabaseError):
        log_database(error)
        return Refusal(
            503, "unavailable", "The service's database does not answer just now.", wait=5
        )
    if isinstance(error, RequestDataTooBig):
        return too_large()
    if isinstance(error, SuspiciousOperation):
        return Refusal(400, "bad_request", str(error))
    if isinstance(error, UnreadablePostError):
        return Refusal(400, "interrupted", "The body is incomplete.")
    return None


def too_large() -> Refusal:
    return Refusal(
        413,
        "too_large",
        f"The request is too large: a body has {MOST_BODY} bytes at most, and a path with its "
        f"query {MOST_URL}.",
    )


_ANSWERS: tuple[tuple[type[IdgenError], int, str, str, int | None], ...] = (
    (
        NamespaceMismatch,
        409,
        "namespace_mismatch",
        "The service's namespace was opened with other settings (layout, epoch or worker ids): "
        "going on would repeat ids.",
        None,
    ),
    (LeaseLost, 409, "lease_lost", "This lease is not known any more. Take a new one.", None),
    (
        SegmentExhausted,
        409,
        "exhausted",
        "The tag has reached 2**63 - 1: there are no higher ids.",
        None,
    ),
    (
        # Not 503: clients and proxies would ask again, or ask another server.
        TagPaused,
        409,
        "paused",
        "The tag is paused: it gives out no ids until it is resumed.",
        None,
    ),
    (NoFreeWorker, 503, "no_free_worker", "All worker ids are held. Try again later.", 5),
    (TimeExhausted, 503, "time_exhausted", "The time bits of the layout are used up.", None),
    (
        ConfigurationError,
        503,
        "misconfigured",
        "The service's settings are wrong; see its log.",
        None,
    ),
    (GeneratorClosed, 503, "closing", "The process is shutting down.", RETRY_AFTER),
    (
        ClockError,
        503,
        "unavailable",
        ("The clock is wrong, so no ids are available just now."),
        RETRY_AFTER,
    ),
    (IdgenError, 503, "unavailable", "No ids are available just now.", RETRY_AFTER),
)
"""Error, status, code, text and ``Retry-After``. The first match counts."""


_ANSWERS_TO_CALLERS: tuple[tuple[type[IdgenError], int, str, str | None], ...] = (
    (InvalidTag, 400, "invalid_tag", "tag"),
    (InvalidId, 400, "invalid_id", "id"),
    (Unstorable, 400, "unstorable", "description"),
    (TagExists, 409, "exists", None),
    (TagsElsewhere, 409, "tags_elsewhere", None),
    (HeldInRedis, 409, "tags_elsewhere", None),
)
"""Errors of the request itself: status, code and field. Their own texts are the answers."""


def _answer_to_own(error: IdgenError) -> Refusal:
    """Logs what is the service's own fault, with its cause."""
    for kind, status, code, field in _ANSWERS_TO_CALLERS:
        if isinstance(error, kind):
            return Refusal(status, code, str(error), field=field)
    if isinstance(error, TooManyLeases):
        return Refusal(429, "too_many_leases", str(error), wait=error.wait)
    _, status, code, detail, wait = next(row for row in _ANSWERS if isinstance(error, row[0]))
    if isinstance(error, TagPaused):
        logger.debug("Answered %d: %s", status, error)  # the event segment_paused reports it
    else:
        logger.warning("Answered %d: %s", status, error, exc_info=error)
    return Refusal(status, code, detail, wait=wait)


def log_database(error: BaseException) -> None:
    """Log what the answer leaves out, such as a missing table."""
    logger.warning(
        "Answered 503, because the database failed: %s. If a table of django_idgen is missing, "
        "run 'manage.py migrate django_idgen'.",
        error,
        exc_info=error,
    )
