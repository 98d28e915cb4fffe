"""Lending segments and worker ids to other services, described."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .lending_input import AcquireInput, ReleaseInput, RenewInput, RenewSeenInput, SegmentInput
from .openapi_answers import FLAG, TEXT, object_of
from .openapi_fields import FINGERPRINT, WHOLE
from .openapi_saying import ALIAS_IN_PATH, BODY, TAG_IN_PATH, Saying, say

__all__ = ["LENDING_OPERATIONS"]

Schema = dict[str, Any]

NUMBER: Schema = {"type": "string", "pattern": "^[0-9]{1,20}$", "example": "13089600517"}
"""A number that JavaScript may not be able to hold."""
NONCE = ("nonce",)
FIELDS = FINGERPRINT["properties"]["fields"]
WORKERS = FINGERPRINT["properties"]["workers"]
INSTALLATION: Schema = {
    **TEXT,
    "description": "Whose ids these are: two databases give out the same ones. A client that "
    "sends it is lent nothing of another one's.",
}
ECHO: Schema = {**TEXT, "description": "What the request said, for its sender to know it by."}
NOW: Schema = {**NUMBER, "description": "The registry's time in µs since 1970."}
LEASE = object_of(
    worker=WHOLE,
    token={**TEXT, "description": "Lets its holder renew and release: a secret."},
    start={**NUMBER, "description": "The first tick that may be stamped."},
    until={**NUMBER, "description": "The first tick that may not."},
    generation=WHOLE,
)
LENT = object_of(NONCE, lease=LEASE, now_us=NOW, installation=INSTALLATION, nonce=ECHO)
TERMS = object_of(
    namespace=TEXT,
    layout=object_of(name=TEXT, fields=FIELDS, worker_parts=FIELDS, tick_us=WHOLE, epoch_us=NUMBER),
    workers=WORKERS,
    window_ticks=NUMBER,
    skew_ticks=NUMBER,
    ahead_ticks=NUMBER,
    fingerprint=FINGERPRINT,
    installation=INSTALLATION,
)
MOST: Schema = {**WHOLE, "description": "Ids that a segment has at most."}
SEGMENT_TERMS = object_of(tag=TEXT, installation=INSTALLATION, max_segment=MOST)
SEGMENT = object_of(
    NONCE,
    tag=TEXT,
    start={**NUMBER, "description": "The first id."},
    stop={**NUMBER, "description": "Past the last id."},
    step={**WHOLE, "description": "The tag's step, as it is now."},
    delta={**WHOLE, "description": "From one id to the next."},
    installation=INSTALLATION,
    max_segment=MOST,
    nonce=ECHO,
)
RELEASED = object_of(
    NONCE,
    known={**FLAG, "description": "Whether there was such a lease."},
    installation=INSTALLATION,
    nonce=ECHO,
)
RENEWED = object_of(
    NONCE,
    renewed={**WHOLE, "description": "How many leases were."},
    installation=INSTALLATION,
    nonce=ECHO,
)

# --- examples ----------------------------------------------------------------------------

OURS = {"installation": "4fd1c3a09b7e4d52a6f0c2d8e1b37a95"}
ASKING = {"nonce": "9f2c41d07ab35e68"}
TOLD = {**OURS, **ASKING}
STANDARD = {
    "fields": [["time", 41], ["worker", 10], ["sequence", 12]],
    "tick_us": 1000,
    "epoch_us": 1735689600000000,
    "workers": [0, 1024],
}
SETTLED = {"fingerprint": STANDARD, "window": "180000", "ahead": "0"}
HELD = {
    "worker": 3,
    "token": "b7c1e0d24f8a4c6f9a35d1e2f0b86c47",  # nosec B105  # an example in the schema
    "start": "13089600517",
    "until": "13089780517",
    "generation": 1,
}
LATER = {**HELD, "until": "13089840517"}
TERMS_SHOWN = {
    "namespace": "default",
    "layout": {
        "name": "standard",
        "fields": STANDARD["fields"],
        "worker_parts": [],
        "tick_us": 1000,
        "epoch_us": "1735689600000000",
    },
    "workers": [0, 1024],
    "window_ticks": "180000",
    "skew_ticks": "1000",
    "ahead_ticks": "0",
    "fingerprint": STANDARD,
    **OURS,
}
SEGMENT_SHOWN = {
    "tag": "orders",
    "start": "5001",
    "stop": "6001",
    "step": 1000,
    "delta": 1,
    "max_segment": 1000000,
    **TOLD,
}


def _lend(name: str, summary: str, answer: Schema, example: Any, **more: Any) -> dict[str, Any]:
    return say(
        name,
        summary,
        answer,
        example=example,
        errors=(404, 409, 429, *BODY),
        group="lending",
        **{"parameters": (ALIAS_IN_PATH,), **more},
    )


LENDING_OPERATIONS: Mapping[str, Saying] = {
    "lending_segments.SegmentView": {
        "get": _lend(
            "segment_terms",
            "Whose ids a segment of a tag would be; nothing is taken",
            SEGMENT_TERMS,
            {"tag": "orders", "max_segment": 1000000, **OURS},
            parameters=(TAG_IN_PATH,),
        ),
        "post": _lend(
            "take_segment",
            "Take a whole segment of a tag, to give its ids out elsewhere",
            SEGMENT,
            SEGMENT_SHOWN,
            description="`floor` is the end of the highest segment that the client has had; "
            "`times` how many steps it would like (0: none), `at_least` how many ids. A user "
            "needs the "
            "permission to change tags. A floor that skips more than the setting max_skip is "
            "refused: 403 with the code `skip_too_far`.",
            parameters=(TAG_IN_PATH,),
            request=SegmentInput,
            asked={"tag": "orders", "floor": "4001", "times": 1, "at_least": 1, **ASKING},
        ),
    },
    "lending_leases.LeasesView": {
        "get": _lend(
            "lease_terms", "What a borrower of worker ids has to be set up with", TERMS, TERMS_SHOWN
        ),
        "post": _lend(
            "borrow_worker",
            "Borrow a worker id",
            LENT,
            {"lease": HELD, "now_us": "1748779200517000", **TOLD},
            description="`not_before` is the tick after the last one that the client has stamped; "
            "`avoid` a worker id that it does not want back.",
            request=AcquireInput,
            asked={"holder": "web-1", "not_before": "0", **SETTLED, **ASKING},
        ),
    },
    "lending_leases.RenewView": {
        "post": _lend(
            "renew_lease",
            "Move the end of a borrowed worker id's window up",
            LENT,
            {"lease": LATER, "now_us": "1748779260517000", **TOLD},
            request=RenewInput,
            asked={"lease": HELD, "last_tick": "13089660511", **SETTLED, **ASKING},
        )
    },
    "lending_leases.ReleaseView": {
        "post": _lend(
            "release_lease",
            "Give a borrowed worker id back",
            RELEASED,
            {"known": True, **TOLD},
            request=ReleaseInput,
            asked={"lease": LATER, **ASKING},
        )
    },
    "lending_leases.RenewSeenView": {
        "post": _lend(
            "renew_seen_leases",
            "Renew all that was borrowed by holders seen lately",
            RENEWED,
            {"renewed": 12, **TOLD},
            request=RenewSeenInput,
            asked={"idle_after": 600.0, **SETTLED, **ASKING},
        )
    },
}
