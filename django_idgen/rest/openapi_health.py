"""Whether the service is there, and the description itself, described."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .openapi_answers import LIVE, READY
from .openapi_saying import Saying, examples, say

__all__ = ["HEALTH_OPERATIONS"]

FAILING = {"ready": False, "failing": ["segments"]}


def _open(
    name: str, summary: str, answers: dict[int, Any], shown: dict[int, Any]
) -> dict[str, Any]:
    """An operation that nobody is refused."""
    said = say(name, summary, None, group="health")
    return {**said, "responses": answers, "examples": examples(None, shown), "auth": []}


HEALTH_OPERATIONS: Mapping[str, Saying] = {
    "health.LiveView": {
        "get": _open(
            "live",
            "Whether the process answers requests",
            {200: LIVE},
            {200: {"live": True}},
        )
    },
    "health.ReadyView": {
        "get": _open(
            "ready",
            "Whether the process can give out ids",
            {200: READY, 503: READY},
            {200: {"ready": True}, 503: FAILING},
        )
    },
    "openapi.SchemaView": {
        "get": say("schema", "This very description", {"type": "object"}, group="schema", errors=())
    },
}
