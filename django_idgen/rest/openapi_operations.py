"""What each operation of the API takes and answers, in the words of drf-spectacular."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse

from .decode import DecodeInput
from .leases import LeasesInput
from .openapi_answers import (
    CLEARED,
    DECODED,
    IDS,
    LEASES,
    LIVE,
    PRELOADED,
    READY,
    SKIPPED,
    TAG_SHOWN,
    TAGS,
    object_of,
)
from .openapi_fields import TAG, number_or_text
from .openapi_lending import LENDING
from .tags import NewTagInput, TagInput, TagsInput

__all__ = ["OPERATIONS", "Saying"]

PROBLEM = {"$ref": "#/components/schemas/Problem"}
WRONG = {
    "anyOf": [{"$ref": "#/components/schemas/WrongFields"}, PROBLEM],
}
ERRORS: dict[int, tuple[dict[str, Any], str]] = {
    400: (WRONG, "Something is wrong in the request; the field is named."),
    401: (PROBLEM, "Nobody says who is asking."),
    403: (PROBLEM, "Who is asking may not do this."),
    404: (PROBLEM, "There is no such tag or generator."),
    406: (PROBLEM, "Only JSON can be had."),
    409: (PROBLEM, "It does not go with how things stand; `code` says why."),
    411: (PROBLEM, "The body's length is not given."),
    413: (PROBLEM, "The body is too large."),
    415: (PROBLEM, "Only JSON is read."),
    429: (PROBLEM, "Too many requests; see `Retry-After`."),
    503: (PROBLEM, "Not possible just now; see `Retry-After`."),
}
RETRY_AFTER = OpenApiParameter(
    "Retry-After",
    {"type": "integer", "minimum": 0},
    OpenApiParameter.HEADER,
    response=[429, 503],
    description="Seconds after which it may be tried again.",
)
TAG_IN_PATH = OpenApiParameter(
    "tag", TAG, OpenApiParameter.PATH, description="A segment tag; it may have slashes."
)
ALIAS_IN_PATH = OpenApiParameter(
    "alias",
    {"type": "string", "minLength": 1, "example": "default"},
    OpenApiParameter.PATH,
    description="A generator: an alias of IDGEN['GENERATORS'].",
)

Saying = dict[str, dict[str, Any]]
"""By HTTP method: what ``extend_schema`` is told."""


def _say(
    name: str,
    summary: str,
    answer: Any,
    *,
    description: str = "",
    status: int = 200,
    errors: tuple[int, ...] = (),
    parameters: tuple[Any, ...] = (),
    request: Any = None,
    example: Any = None,
    group: str = "tags",
    **more: Any,
) -> dict[str, Any]:
    codes = dict.fromkeys((401, 403, 406, *errors, 503))
    responses = {status: answer, **{code: _problem(code) for code in sorted(codes)}}
    shown = (
        []
        if example is None
        else [OpenApiExample("An answer", example, response_only=True, status_codes=[str(status)])]
    )
    return {
        "operation_id": name,
        "summary": summary,
        "description": description or summary,
        "responses": responses,
        "request": request,
        "parameters": [*parameters, RETRY_AFTER],
        "examples": shown,
        "tags": [group],
        **more,
    }


def _problem(code: int) -> OpenApiResponse:
    schema, words = ERRORS[code]
    return OpenApiResponse(schema, description=words)


BODY = (400, 411, 413, 415)
SHOWN = {
    "tag": "orders",
    "max_id": "5001",
    "step": 1000,
    "description": "Orders of the shop",
    "rate": 1.5,
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
COUNT = OpenApiParameter(
    "count",
    {"type": "integer", "minimum": 1, "maximum": 10_000},
    description="How many ids, as a list; one that is not in a list if it is not given. The "
    "service's setting max_count is the most.",
)
AS = OpenApiParameter(
    "as",
    {"type": "string", "enum": ["string", "number"]},
    description="Whether ids are JSON strings or numbers: JavaScript reads long ones wrong.",
)
WANTED = object_of(
    ("count", "as"),
    count={"type": "integer", "minimum": 1, "maximum": 10_000},
    **{"as": {"type": "string", "enum": ["string", "number"]}},
)
SKIP = {
    "oneOf": [
        object_of(to=number_or_text(1, 2**63 - 1)),
        object_of(by={"type": "integer", "minimum": 1, "maximum": 1_000_000_000}),
    ]
}


def _ids(what: str, path: OpenApiParameter) -> Saying:
    def say(method: str, **more: Any) -> dict[str, Any]:
        return _say(
            f"{method}_ids_of_{what}",
            f"Take ids of a {what}",
            IDS,
            errors=(400, 404, 409, 429, *more.pop("errors", ())),
            example={"ids": ["249876543210987520", "249876543210987521"]},
            group="ids",
            **more,
        )

    return {
        "get": say("get", parameters=(path, COUNT, AS), description="As POST; never cached."),
        "post": say("take", parameters=(path,), request={"application/json": WANTED}, errors=BODY),
    }


OPERATIONS: Mapping[str, Saying] = {
    "ids.GeneratorIdsView": _ids("generator", ALIAS_IN_PATH),
    "ids.TagIdsView": _ids("tag", TAG_IN_PATH),
    "tags.TagsView": {
        "get": _say(
            "list_tags",
            "Find tags",
            TAGS,
            errors=(400,),
            parameters=(TagsInput,),
            example={"count": 1, "next": None, "previous": None, "results": [SHOWN]},
        ),
        "post": _say(
            "make_tag",
            "Make a tag",
            TAG_SHOWN,
            status=201,
            errors=(*BODY, 409),
            request=NewTagInput,
            example=SHOWN,
        ),
    },
    "tags.TagView": {
        "get": _say(
            "read_tag",
            "Read a tag",
            TAG_SHOWN,
            errors=(400, 404),
            parameters=(TAG_IN_PATH,),
            example=SHOWN,
        ),
        "patch": _say(
            "change_tag",
            "Change a tag's step or description",
            TAG_SHOWN,
            description="A step counts from the next fetch of each process on.",
            errors=(*BODY, 404, 409),
            parameters=(TAG_IN_PATH,),
            request=TagInput,
            example=SHOWN,
        ),
    },
    "tags.PreloadView": {
        "post": _say(
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
        "post": _say(
            "skip_tag",
            "Skip ahead, never back",
            SKIPPED,
            description="No fetch gets ids below, from now on. Processes use up what they hold "
            "already, but for the one that answers; a pool is emptied. The setting max_skip is "
            "the furthest at once.",
            errors=(*BODY, 404, 409),
            parameters=(TAG_IN_PATH,),
            request={"application/json": SKIP},
            example={**SHOWN, "cleared": 950, "pool_cleared": None},
        )
    },
    "tags.ClearView": {
        "post": _say(
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
    "leases.WorkerLeasesView": {
        "get": _say(
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
                        "namespace": "default",
                        "worker": 3,
                        "state": "held",
                        "holder": "web-1",
                        "promised_until": "2025-06-01T12:03:00Z",
                        "acquired_at": "2025-06-01T08:00:00Z",
                        "seen_at": "2025-06-01T12:00:00Z",
                    }
                ],
            },
        )
    },
    "decode.DecodeView": {
        method: _say(
            f"{name}_id",
            "Take an id apart",
            DECODED,
            description="When and by which worker it was made. Takes none.",
            group="ids",
            **more,
            example={
                "generator": "default",
                "id": "249817364518924288",
                "time": "2026-11-21T08:31:22.517000Z",
                "time_ms": 1795249882517,
                "worker": 3,
                "worker_parts": {},
                "sequence": 0,
                "batch": 0,
                "layout": {
                    "name": "standard",
                    "bits": {"time": 41, "worker": 10, "sequence": 12},
                    "tick_ms": 1.0,
                    "epoch": "2025-01-01T00:00:00Z",
                },
            },
        )
        for method, name, more in (
            ("get", "decode", {"parameters": (DecodeInput,), "errors": (400,)}),
            ("post", "take_apart", {"request": DecodeInput, "errors": BODY}),
        )
    },
    "health.LiveView": {
        "get": {
            **_say("live", "Whether the process answers requests", LIVE, group="health"),
            "responses": {200: LIVE},
            "auth": [],
        }
    },
    "health.ReadyView": {
        "get": {
            **_say("ready", "Whether the process can give out ids", READY, group="health"),
            "responses": {200: READY, 503: READY},
            "auth": [],
        }
    },
    "openapi.SchemaView": {
        "get": _say(
            "schema", "This very description", {"type": "object"}, group="schema", errors=()
        )
    },
    **{
        name: {
            method: _say(
                **words,
                errors=(400, 404, 409, 411, 413, 415, 429),
                parameters=(TAG_IN_PATH if "segments" in name else ALIAS_IN_PATH,),
                group="lending",
                auth=[{"accessToken": []}],
            )
            for method, words in saying.items()
        }
        for name, saying in LENDING.items()
    },
}
