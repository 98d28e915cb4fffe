"""Taking ids, and taking one apart, described."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import OpenApiParameter

from .decode import DecodeInput
from .openapi_answers import DECODED, IDS, object_of
from .openapi_fields import ID_SHOWN
from .openapi_saying import ALIAS_IN_PATH, BODY, TAG_IN_PATH, Saying, say

__all__ = ["IDS_OPERATIONS"]

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


def _ids(what: str, path: OpenApiParameter) -> Saying:
    def taking(method: str, **more: Any) -> dict[str, Any]:
        return say(
            f"{method}_ids_of_{what}",
            f"Take ids of a {what}",
            IDS,
            errors=(400, 404, 409, 429, *more.pop("errors", ())),
            example={"ids": ["249876543210987520", "249876543210987521"]},
            group="ids",
            **more,
        )

    return {
        "get": taking("get", parameters=(path, COUNT, AS), description="As POST; never cached."),
        "post": taking(
            "take",
            parameters=(path,),
            request={"application/json": WANTED},
            asked={"count": 2},
            errors=BODY,
        ),
    }


IDS_OPERATIONS: Mapping[str, Saying] = {
    "ids.GeneratorIdsView": _ids("generator", ALIAS_IN_PATH),
    "ids.TagIdsView": _ids("tag", TAG_IN_PATH),
    "decode.DecodeView": {
        method: say(
            f"{name}_id",
            "Take an id apart",
            DECODED,
            description="When and by which worker it was made. Takes none.",
            group="ids",
            **more,
            example={
                "generator": "default",
                "id": ID_SHOWN,
                "time": "2025-06-01T12:00:00.517000Z",
                "time_ms": 1748779200517,
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
            (
                "post",
                "take_apart",
                {"request": DecodeInput, "errors": BODY, "asked": {"id": ID_SHOWN}},
            ),
        )
    },
}
