"""The description's own examples work: who copies them, in the order of a reader, gets answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlencode

from django.test import Client

from django_idgen.rest.schema import api_schema
from tests.rest.openapi.conftest import scheme_of

Data = dict[str, Any]
READ = [
    "live",
    "ready",
    "schema",
    "make_tag",
    "list_tags",
    "read_tag",
    "change_tag",
    "preload_tag",
    "get_ids_of_tag",
    "take_ids_of_tag",
    "skip_tag",
    "clear_tag",
    "pause_tag",
    "resume_tag",
    "segment_terms",
    "take_segment",
    "get_ids_of_generator",
    "take_ids_of_generator",
    "decode_id",
    "take_apart_id",
    "list_leases",
    "free_worker",
    "lease_terms",
    "borrow_worker",
    "renew_lease",
    "renew_seen_leases",
    "release_lease",
]
COPIED: dict[str, Callable[[dict[str, Any]], Data]] = {
    "free_worker": lambda told: next(
        {name: each[name] for name in ("worker", "lease")}
        for each in told["list_leases"]["results"]
        if each["state"] == "held"
    ),
    "renew_lease": lambda told: {"lease": told["borrow_worker"]["lease"]},
    "release_lease": lambda told: {"lease": told["renew_lease"]["lease"]},
}
"""A lease has a secret of its own: what a reader copies from an earlier answer, no example."""


def test_the_examples_are_accepted_together(credentials: dict[str, str]) -> None:
    """Those of path, query and body at once, by the service with its default settings; ids are
    taken apart into what is shown."""
    told: dict[str, Any] = {}
    found = {
        operation["operationId"]: (path, method, operation)
        for path, methods in api_schema()["paths"].items()
        for method, operation in methods.items()
    }
    assert sorted(READ) == sorted(found)
    for name in READ:
        path, method, operation = found[name]
        copied = COPIED.get(name, lambda _: {})(told)
        answer = Client().generic(
            method,
            f"/idgen{_url(path, operation, copied)}",
            _body(operation, copied),
            content_type="application/json",
            headers={"Authorization": credentials[scheme_of(operation)]},
        )
        assert answer.status_code in (200, 201), (name, answer.content)
        told[name] = answer.json()
        if name in ("decode_id", "take_apart_id"):
            assert told[name] == _only(operation["responses"]["200"]["content"])


def _url(path: str, operation: Data, copied: Data) -> str:
    shown = [
        (each, str(copied.get(each["name"], _shown(each["schema"]))))
        for each in operation.get("parameters", ())
        if each.get("required") or _shown(each["schema"]) is not None
    ]
    for each, value in shown:
        path = path.replace(f"{{{each['name']}}}", quote(value, safe=""))
    query = urlencode([(each["name"], value) for each, value in shown if each["in"] == "query"])
    return f"{path}?{query}"


def _body(operation: Data, copied: Data) -> bytes:
    if "requestBody" not in operation:
        return b""
    shown = _only(operation["requestBody"]["content"])
    return json.dumps({**shown, **{name: copied[name] for name in shown & copied.keys()}}).encode()


def _shown(schema: Data) -> Any:
    """The example of a parameter; one that may be blank is one of two schemas."""
    parts = [schema, *schema.get("oneOf", ())]
    return next((each["example"] for each in parts if "example" in each), None)


def _only(content: Data) -> Any:
    (example,) = content["application/json"]["examples"].values()
    return example["value"]
