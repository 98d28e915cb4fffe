"""What goes wrong with ids, as HTTP: one place for status codes, codes and words.

====  ===============================  ==============================================
400   bad input                        ``{"<field>": ["…"]}``, as DRF has it
404   unknown tag or generator         ``{"detail": "…", "code": "not_found"}``
409   a lost lease, other settings,    ``lease_lost``, ``namespace_mismatch``,
      a tag with no ids left           ``exhausted``
503   no ids just now                  ``unavailable``, with ``Retry-After``
====  ===============================  ==============================================

A message says what a caller can do; what went on behind it is in our log, not in the answer.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

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
    TimeExhausted,
)

__all__ = ["Failure", "failure_of"]

RETRY_AFTER = 1
"""Seconds after which a caller may ask again."""

logger = logging.getLogger("django_idgen")


@dataclass(frozen=True, slots=True)
class Failure:
    """An answer that is no id. Frozen."""

    status: int
    code: str
    detail: str
    field: str | None = None
    """The field of the input that was wrong, with status 400."""
    retry_after: int | None = None
    """Seconds, with status 503."""


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
    logger.warning("Answered %d: %s", failure.status, error, exc_info=error)
    return failure
