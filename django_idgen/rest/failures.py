"""What goes wrong with ids, as HTTP: one place for status codes, codes and words.

====  ===============================  ==============================================
400   bad input                        ``{"<field>": ["…"]}``, as DRF has it
411   a body of unknown length         ``length_required``
413   a body or URL that is too large  ``too_large``
404   unknown tag or generator         ``{"detail": "…", "code": "not_found"}``
409   a lost lease, other settings,    ``lease_lost``, ``namespace_mismatch``,
      a tag with no ids left, or       ``exhausted``,
      one that is paused               ``paused``
503   no ids just now                  ``unavailable``, with ``Retry-After``
====  ===============================  ==============================================

A message says what a caller can do; what went on behind it is in our log, not in the answer.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from itertools import islice
from typing import Any

from ..core.errors import (
    ClockError,
    ConfigurationError,
    GeneratorClosed,
    IdgenError,
    InvalidId,
    InvalidTag,
    LeaseError,
    LeaseLost,
    NamespaceMismatch,
    NoFreeWorker,
    SegmentError,
    SegmentExhausted,
    TagPaused,
    TimeExhausted,
)

__all__ = [
    "DATABASE_AWAY",
    "INTERRUPTED",
    "NO_LENGTH",
    "TOO_LARGE",
    "Failure",
    "Refused",
    "bad_request",
    "failure_of",
    "few_of",
    "log_database",
]

RETRY_AFTER = 1
"""Seconds after which a caller may ask again."""
MOST_BODY = 65_536
"""Bytes of a body: no request needs more."""
MOST_URL = 8_192
"""Characters of a path with its query."""
MOST_NAMED = 10
"""Unknown fields that an answer names."""
MOST_NAME = 80
"""Characters of such a name."""

logger = logging.getLogger("django_idgen")


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """An answer that is no id. Frozen."""

    status: int
    code: str
    detail: str
    field: str | None = None
    """The field of the input that was wrong, with status 400."""
    retry_after: int | None = None
    """Seconds, with status 503."""
    values: Mapping[str, object] = dataclasses.field(default_factory=dict)
    """What does not fit, for a program to read."""

    @property
    def content(self) -> dict[str, Any]:
        """The body of the answer."""
        if self.field is not None:
            return {self.field: [self.detail]}
        return {"detail": self.detail, "code": self.code, **self.values}


class Refused(Exception):
    """A request that is answered with ``failure``."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(failure.detail)


TOO_LARGE = Failure(
    413,
    "too_large",
    f"The request is too large: a body has {MOST_BODY} bytes at most, and a path with its query "
    f"{MOST_URL}.",
)
NO_LENGTH = Failure(411, "length_required", "Send the body's length (Content-Length).")
INTERRUPTED = Failure(400, "interrupted", "The body did not come whole.")
DATABASE_AWAY = Failure(
    503, "unavailable", "The service's database can't be asked just now.", retry_after=5
)

_KINDS: tuple[tuple[type[IdgenError], Failure], ...] = (
    (
        NamespaceMismatch,
        Failure(
            409,
            "namespace_mismatch",
            "The service's namespace was opened with other settings (layout, epoch or worker "
            "ids): going on would repeat ids.",
        ),
    ),
    (
        LeaseLost,
        Failure(409, "lease_lost", "This lease is not known any more. Take a new one."),
    ),
    (
        SegmentExhausted,
        Failure(409, "exhausted", "The tag has reached 2**63 - 1: there are no higher ids."),
    ),
    (
        # No 503: clients and proxies would ask again, or ask another server.
        TagPaused,
        Failure(409, "paused", "The tag is paused: it gives out no ids until it is resumed."),
    ),
    (
        NoFreeWorker,
        Failure(503, "no_free_worker", "All worker ids are held. Try again later.", retry_after=5),
    ),
    (
        TimeExhausted,
        Failure(503, "time_exhausted", "The time bits of the layout are used up."),
    ),
    (
        ConfigurationError,
        Failure(503, "misconfigured", "The service's own settings can't work; see its log."),
    ),
    (
        GeneratorClosed,
        Failure(503, "closing", "The process is going down.", retry_after=RETRY_AFTER),
    ),
    (
        SegmentError,
        Failure(503, "unavailable", "No ids can be had just now.", retry_after=RETRY_AFTER),
    ),
    (
        LeaseError,
        Failure(503, "unavailable", "No ids can be had just now.", retry_after=RETRY_AFTER),
    ),
    (
        ClockError,
        Failure(503, "unavailable", "The clock forbids ids just now.", retry_after=RETRY_AFTER),
    ),
)
"""The first that fits counts."""
_UNKNOWN = Failure(503, "unavailable", "No ids can be had just now.", retry_after=RETRY_AFTER)


def failure_of(error: IdgenError) -> Failure:
    """What to answer. What is the service's own fault goes to the log, with its cause."""
    if isinstance(error, InvalidTag):
        return Failure(400, "invalid_tag", str(error), field="tag")
    if isinstance(error, InvalidId):
        return Failure(400, "invalid_id", str(error), field="id")
    failure = next((known for kind, known in _KINDS if isinstance(error, kind)), _UNKNOWN)
    if isinstance(error, TagPaused):
        # It is meant so, and ``segment_paused`` has said it once.
        logger.debug("Answered %d: %s", failure.status, error)
    else:
        logger.warning("Answered %d: %s", failure.status, error, exc_info=error)
    return failure


def few_of(wrong: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """The first few of ``wrong``, which a client may fill with names without end."""
    found = {name[:MOST_NAME]: words for name, words in islice(wrong.items(), MOST_NAMED)}
    if len(wrong) > MOST_NAMED:
        found["non_field_errors"] = [f"{len(wrong) - MOST_NAMED} more fields are wrong."]
    return found


def bad_request(detail: str) -> Failure:
    """A request that Django itself refuses."""
    return Failure(400, "bad_request", detail)


def log_database(error: BaseException) -> None:
    """Log what the answer does not say, such as a missing table."""
    logger.warning(
        "Answered 503, since the database failed: %s. If a table of django_idgen is missing, run "
        "'manage.py migrate django_idgen'.",
        error,
        exc_info=error,
    )
