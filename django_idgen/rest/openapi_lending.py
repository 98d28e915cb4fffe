"""What the views that lend to other services take and answer."""

from __future__ import annotations

from typing import Any

from .lending_input import AcquireInput, ReleaseInput, RenewInput, RenewSeenInput, SegmentInput
from .openapi_answers import FLAG, TEXT, WHOLE, object_of

__all__ = ["LENDING"]

Schema = dict[str, Any]

NUMBER: Schema = {"type": "string", "pattern": "^[0-9]{1,20}$", "example": "1795249882517"}
"""A number that JavaScript may not be able to hold."""
NONCE = ("nonce",)
PAIRS: Schema = {"type": "array", "items": {"type": "array", "items": {}}}
LEASE = object_of(worker=WHOLE, token=TEXT, start=NUMBER, until=NUMBER, generation=WHOLE)
LENT = object_of(NONCE, lease=LEASE, now_us=NUMBER, installation=TEXT, nonce=TEXT)
TERMS = object_of(
    namespace=TEXT,
    layout=object_of(name=TEXT, fields=PAIRS, worker_parts=PAIRS, tick_us=WHOLE, epoch_us=NUMBER),
    workers={"type": "array", "items": WHOLE},
    window_ticks=NUMBER,
    skew_ticks=NUMBER,
    ahead_ticks=NUMBER,
    fingerprint={"type": "object", "additionalProperties": {}},
    installation=TEXT,
)
SEGMENT = object_of(
    NONCE,
    tag=TEXT,
    start=NUMBER,
    stop=NUMBER,
    step=WHOLE,
    delta=WHOLE,
    installation=TEXT,
    max_segment=WHOLE,
    nonce=TEXT,
)

LENDING: dict[str, dict[str, dict[str, Any]]] = {
    "lending_segments.SegmentView": {
        "get": {
            "name": "segment_terms",
            "summary": "Whose ids a segment of a tag would be; nothing is taken",
            "answer": object_of(tag=TEXT, installation=TEXT, max_segment=WHOLE),
        },
        "post": {
            "name": "take_segment",
            "summary": "Take a whole segment of a tag, to give its ids out elsewhere",
            "answer": SEGMENT,
            "request": SegmentInput,
        },
    },
    "lending_leases.LeasesView": {
        "get": {
            "name": "lease_terms",
            "summary": "What a borrower of worker ids has to be set up with",
            "answer": TERMS,
        },
        "post": {
            "name": "borrow_worker",
            "summary": "Borrow a worker id",
            "answer": LENT,
            "request": AcquireInput,
        },
    },
    "lending_leases.RenewView": {
        "post": {
            "name": "renew_lease",
            "summary": "Move the end of a borrowed worker id's window up",
            "answer": LENT,
            "request": RenewInput,
        }
    },
    "lending_leases.ReleaseView": {
        "post": {
            "name": "release_lease",
            "summary": "Give a borrowed worker id back",
            "answer": object_of(NONCE, known=FLAG, installation=TEXT, nonce=TEXT),
            "request": ReleaseInput,
        }
    },
    "lending_leases.RenewSeenView": {
        "post": {
            "name": "renew_seen_leases",
            "summary": "Renew all that was borrowed by holders seen lately",
            "answer": object_of(NONCE, renewed=WHOLE, installation=TEXT, nonce=TEXT),
            "request": RenewSeenInput,
        }
    },
}
