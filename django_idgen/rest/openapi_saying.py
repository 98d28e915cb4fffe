"""How an operation of the API is described, in the words of drf-spectacular."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse

from .openapi_fields import TAG

__all__ = ["ALIAS_IN_PATH", "BODY", "TAG_IN_PATH", "WORKER_IN_PATH", "Saying", "examples", "say"]

PROBLEM = {"$ref": "#/components/schemas/IdgenProblem"}
WRONG = {
    "anyOf": [{"$ref": "#/components/schemas/IdgenWrongFields"}, PROBLEM],
}
ERRORS: dict[int, tuple[dict[str, Any], str]] = {
    400: (WRONG, "Something is wrong in the request; the field is named."),
    401: (PROBLEM, "Nobody says who is asking."),
    403: (PROBLEM, "Who is asking may not do this."),
    404: (PROBLEM, "There is no such tag or generator."),
    406: (PROBLEM, "Only JSON can be had."),
    409: (PROBLEM, "It does not go with how things stand; `code` says why."),
    411: (PROBLEM, "The body's length is not given."),
    413: (PROBLEM, "The body, or the URL, is too large."),
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
WORKER_IN_PATH = OpenApiParameter(
    "worker",
    {"type": "integer", "minimum": 0, "maximum": 4_194_303, "example": 3},
    OpenApiParameter.PATH,
    description="A worker id of the generator's layout.",
)

BODY = (400, 411, 413, 415)
"""What may be wrong with a body."""

Saying = dict[str, dict[str, Any]]
"""By HTTP method: what ``extend_schema`` is told."""


def say(
    name: str,
    summary: str,
    answer: Any,
    *,
    description: str = "",
    status: int = 200,
    errors: tuple[int, ...] = (),
    parameters: tuple[Any, ...] = (),
    request: Any = None,
    asked: Any = None,
    example: Any = None,
    group: str = "tags",
    **more: Any,
) -> dict[str, Any]:
    """One operation; ``asked`` is an example of its body, ``example`` of its answer."""
    codes = dict.fromkeys((401, 403, 406, 413, *errors, 503))
    responses = {status: answer, **{code: _problem(code) for code in sorted(codes)}}
    return {
        "operation_id": name,
        "summary": summary,
        "description": description or summary,
        "responses": responses,
        "request": request,
        "parameters": [*parameters, RETRY_AFTER],
        "examples": examples(asked, {status: example} if example is not None else {}),
        "tags": [f"idgen {group}"],
        **more,
    }


def examples(asked: Any, answers: dict[int, Any]) -> list[OpenApiExample]:
    """Of a body, and of answers by their status."""
    found = [] if asked is None else [OpenApiExample("A request", asked, request_only=True)]
    return found + [
        OpenApiExample("An answer", answer, response_only=True, status_codes=[str(status)])
        for status, answer in answers.items()
    ]


def _problem(code: int) -> OpenApiResponse:
    schema, words = ERRORS[code]
    return OpenApiResponse(schema, description=words)
