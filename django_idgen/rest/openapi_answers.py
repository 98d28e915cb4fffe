"""What the API answers, as JSON schemas."""

from __future__ import annotations

from typing import Any

from .openapi_fields import ID, TAG, WHOLE

__all__ = [
    "CLEARED",
    "COMPONENTS",
    "DECODED",
    "IDS",
    "LEASES",
    "LEASE_RELEASED",
    "LIVE",
    "PRELOADED",
    "READY",
    "SKIPPED",
    "TAGS",
    "TAG_SHOWN",
    "object_of",
]

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
NUMBER: Schema = {"type": "number"}
MOMENT: Schema = {"type": "string", "format": "date-time"}


def object_of(optional: tuple[str, ...] = (), /, **properties: Schema) -> Schema:
    """An object with just these properties, all of them required but ``optional``."""
    required = [name for name in properties if name not in optional]
    found: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**found, "required": required} if required else found


def _or_null(schema: Schema) -> Schema:
    return {**schema, "nullable": True}


def _list_of(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def _page_of(schema: Schema) -> Schema:
    link = _or_null({"type": "string", "format": "uri"})
    return object_of(count=WHOLE, next=link, previous=link, results=_list_of(schema))


def _either(schema: Schema) -> Schema:
    """As text, or as a number on request."""
    return {"oneOf": [schema, {"type": "integer", "minimum": 1, "maximum": 2**63 - 1}]}


COMPONENTS: Schema = {
    "IdgenProblem": {
        "type": "object",
        "description": "What went wrong, in words and as a code to branch on.",
        "properties": {"detail": TEXT, "code": TEXT},
        "required": ["detail", "code"],
        "example": {"detail": "There is no tag 'orders'.", "code": "not_found"},
    },
    "IdgenWrongFields": {
        "type": "object",
        "description": "What is wrong, by the field of the request.",
        "additionalProperties": {},
        "example": {"step": ["It must be a whole number of 1 to 1000000000."]},
    },
}

IDS: Schema = {
    "oneOf": [
        object_of(id=_either(ID)),
        object_of(ids=_list_of(_either(ID))),
    ]
}

_ROW = object_of(
    database=TEXT, max_id=ID, step=WHOLE, delta=WHOLE, remainder=WHOLE, updated_at=MOMENT
)
_TAG_PROPERTIES: dict[str, Schema] = {
    "tag": TAG,
    "max_id": {**ID, "description": "The first id that was not given out yet."},
    "step": {**WHOLE, "description": "Ids that a process takes at a time."},
    "description": TEXT,
    "fetch_rate": {
        "type": "number",
        "description": "Ids a second that processes fetched, when last measured.",
    },
    "paused": {**FLAG, "description": "Whether no process is given more of its ids."},
    "updated_at": MOMENT,
    "databases": _list_of(_ROW),
}
TAG_SHOWN = object_of((), **_TAG_PROPERTIES)
TAGS = _page_of(TAG_SHOWN)
_CLEARED_COUNT: Schema = {
    **WHOLE,
    "description": "Ids that the process which answers held, and has let go of.",
}
SKIPPED = object_of(
    (),
    **_TAG_PROPERTIES,
    cleared=_CLEARED_COUNT,
    pool_cleared=_or_null(
        {**FLAG, "description": "Whether the pool was emptied; null without a pool."}
    ),
)
CLEARED = object_of(tag=TAG, process=TEXT, cleared=_CLEARED_COUNT)
PRELOADED = object_of(
    tag=TAG,
    process=TEXT,
    ready=FLAG,
    held={**WHOLE, "description": "Ids that this process holds now."},
    pooled=_or_null({**WHOLE, "description": "Ids put into the pool; null without a pool."}),
)

LEASES = _page_of(
    object_of(
        generator=_or_null({**TEXT, "description": "An alias; null if none here uses it."}),
        namespace=TEXT,
        registry={**TEXT, "description": "The kind of what lends it, such as database or redis."},
        place={
            **TEXT,
            "description": "Where that one keeps it, such as the alias of the database: two "
            "namespaces of one name may be kept in two places.",
        },
        worker=WHOLE,
        lease={
            **TEXT,
            "description": "What this lease is called when it is released by hand. It lets "
            "nobody renew it. Empty if the worker id is free.",
        },
        state={"type": "string", "enum": ["free", "held", "lapsing", "lapsed"]},
        holder=TEXT,
        promised_until=_or_null(MOMENT),
        window_left=_or_null(
            {**NUMBER, "description": "Seconds that its holder may still stamp by itself."}
        ),
        clock_offset=_or_null(
            {
                **NUMBER,
                "description": "Seconds that the holder's clock was ahead of the registry's when "
                "it was seen last; below 0: behind.",
            }
        ),
        acquired_at=_or_null(MOMENT),
        seen_at=_or_null(MOMENT),
    )
)

LEASE_RELEASED = object_of(
    generator=TEXT,
    worker=WHOLE,
    released={**FLAG, "description": "False if nobody had it."},
)

DECODED = object_of(
    generator=TEXT,
    id=ID,
    time=MOMENT,
    time_ms={**WHOLE, "description": "The same in milliseconds since 1970."},
    worker=WHOLE,
    worker_parts={"type": "object", "additionalProperties": WHOLE},
    sequence=WHOLE,
    batch=WHOLE,
    layout=object_of(
        name=TEXT,
        bits={"type": "object", "additionalProperties": WHOLE},
        tick_ms={"type": "number"},
        epoch=MOMENT,
    ),
)

LIVE = object_of(live=FLAG)
READY = object_of(
    ("failing", "parts"),
    ready=FLAG,
    failing=_list_of(TEXT),
    parts=_list_of(object_of(name=TEXT, ready=FLAG, detail=TEXT)),
)
