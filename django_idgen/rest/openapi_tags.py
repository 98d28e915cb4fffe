"""Seeing and changing tags, and who holds which worker id, described."""

from __future__ import annotations

from collections.abc import Mapping

from .leases import LeasesInput, ReleaseLeaseInput
from .openapi_answers import (
    CLEARED,
    LEASE_RELEASED,
    LEASES,
    PRELOADED,
    SKIPPED,
    TAG_SHOWN,
    TAGS,
    object_of,
)
from .openapi_fields import number_or_text
from .openapi_saying import ALIAS_IN_PATH, BODY, TAG_IN_PATH, WORKER_IN_PATH, Saying, say
from .tags import NewTagInput, TagInput, TagsInput

__all__ = ["TAG_OPERATIONS"]

SHOWN = {
    "tag": "orders",
    "max_id": "5001",
    "step": 1000,
    "description": "Orders of the shop",
    "fetch_rate": 1.5,
    "paused": False,
    "updated_at": "2025-06-01T12:00:00Z",
    "databases": [
        {
            "database": "default",
            "max_id": "5001",
            "step": 1000,
            "delta": 1,
            "remainder": 0,
            "updated_at": "2025-06-01T12:00:00Z",
        }
    ],
}
SKIP = {
    "oneOf": [
        object_of(to=number_or_text(1, 2**63 - 1)),
        object_of(by={"type": "integer", "minimum": 1, "maximum": 1_000_000_000}),
    ]
}

TAG_OPERATIONS: Mapping[str, Saying] = {
    "tags.TagsView": {
        "get": say(
            "list_tags",
            "Find tags",
            TAGS,
            errors=(400,),
            parameters=(TagsInput,),
            example={"count": 1, "next": None, "previous": None, "results": [SHOWN]},
        ),
        "post": say(
            "make_tag",
            "Make a tag",
            TAG_SHOWN,
            status=201,
            errors=(*BODY, 409),
            request=NewTagInput,
            asked={"tag": "orders", "step": 1000, "description": "Orders of the shop"},
            example=SHOWN,
        ),
    },
    "tags.TagView": {
        "get": say(
            "read_tag",
            "Read a tag",
            TAG_SHOWN,
            errors=(400, 404),
            parameters=(TAG_IN_PATH,),
            example=SHOWN,
        ),
        "patch": say(
            "change_tag",
            "Change a tag's step or description",
            TAG_SHOWN,
            description="A step counts from the next fetch of each process on.",
            errors=(*BODY, 404, 409),
            parameters=(TAG_IN_PATH,),
            request=TagInput,
            asked={"step": 2000},
            example=SHOWN,
        ),
    },
    "tags.PreloadView": {
        "post": say(
            "preload_tag",
            "Load ids ahead, in the process that answers and in the pool",
            PRELOADED,
            errors=(*BODY, 404, 409),
            parameters=(TAG_IN_PATH,),
            example={
                "tag": "orders",
                "process": "web-1:17",
                "ready": True,
                "held": 1900,
                "pooled": None,
            },
        )
    },
    "tags.SkipView": {
        "post": say(
            "skip_tag",
            "Skip ahead, never back",
            SKIPPED,
            description="No fetch gets ids below, from now on. Processes use up what they hold "
            "already, but for the one that answers; a pool is emptied. The setting max_skip is "
            "the furthest at once.",
            errors=(*BODY, 404, 409),
            parameters=(TAG_IN_PATH,),
            request={"application/json": SKIP},
            asked={"by": 1000},
            example={**SHOWN, "cleared": 950, "pool_cleared": None},
        )
    },
    "tags.ClearView": {
        "post": say(
            "clear_tag",
            "Have the process that answers let go of its ids of a tag",
            CLEARED,
            description="They go into the pool, or are a gap. With several processes the others "
            "keep theirs.",
            errors=(*BODY, 404, 409),
            parameters=(TAG_IN_PATH,),
            example={"tag": "orders", "process": "web-1:17", "cleared": 950},
        )
    },
    "tags.PauseView": {
        "post": say(
            "pause_tag",
            "Have nobody be given more ids of a tag",
            TAG_SHOWN,
            description="Processes use up what they hold; then a request for ids is answered "
            "with 409 and the code `paused`. What lies in a pool is kept, and not handed out. "
            "May be repeated.",
            errors=(*BODY, 404, 409),
            parameters=(TAG_IN_PATH,),
            example={**SHOWN, "paused": True},
        )
    },
    "tags.ResumeView": {
        "post": say(
            "resume_tag",
            "Have ids of a tag be given out again",
            TAG_SHOWN,
            description="From the next request on. May be repeated.",
            errors=(*BODY, 404, 409),
            parameters=(TAG_IN_PATH,),
            example=SHOWN,
        )
    },
    "leases.WorkerLeasesView": {
        "get": say(
            "list_leases",
            "Who holds which worker id",
            LEASES,
            errors=(400,),
            parameters=(LeasesInput,),
            group="leases",
            example={
                "count": 1,
                "next": None,
                "previous": None,
                "results": [
                    {
                        "generator": "default",
                        "namespace": "default",
                        "registry": "database",
                        "place": "default",
                        "worker": 3,
                        "lease": "5b2f0a6c1d9e4387",
                        "state": "held",
                        "holder": "web-1",
                        "promised_until": "2025-06-01T12:03:00Z",
                        "window_left": 171.5,
                        "clock_offset": 0.004,
                        "acquired_at": "2025-06-01T08:00:00Z",
                        "seen_at": "2025-06-01T12:00:00Z",
                    }
                ],
            },
        )
    },
    "leases.ReleaseLeaseView": {
        "post": say(
            "free_worker",
            "Free a worker id by hand",
            LEASE_RELEASED,
            description="As after its holder was killed. A holder that lives is told so at its "
            "next renewal: it uses up its window and takes another lease. Whoever is lent the "
            "worker id starts after that window, so that no id comes twice. If another one has "
            "the worker id by now, nothing is done: 409.",
            request=ReleaseLeaseInput,
            asked={"lease": "5b2f0a6c1d9e4387"},
            errors=(*BODY, 404, 409),
            parameters=(ALIAS_IN_PATH, WORKER_IN_PATH),
            group="leases",
            example={"generator": "default", "worker": 3, "released": True},
        )
    },
}
