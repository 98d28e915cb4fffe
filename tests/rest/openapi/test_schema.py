"""``schema/``: what it describes, for whom, and that the API needs nobody to describe it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from django.test import Client
from django.urls import URLPattern
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.generators import SchemaGenerator
from jsonschema import Draft4Validator
from rest_framework.test import APIClient

from django_idgen import segments
from django_idgen.rest import urls
from django_idgen.rest.schema import api_schema
from tests import warm
from tests.rest.openapi import versioned_urls
from tests.rest.openapi.conftest import scheme_of
from tests.rest.tags.people import Person, clerk, client_of

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.urls("tests.remote.urls")
METHODS = {"get", "post", "patch", "put", "delete"}


def operations() -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{method} {path}", operation)
        for path, methods in api_schema()["paths"].items()
        for method, operation in methods.items()
    ]


def test_the_schema_is_served_with_the_place_where_it_is_mounted() -> None:
    """For those who say who they are; paths are relative to the API."""
    answer = client_of(Person()).get("/idgen/schema/")
    assert answer.status_code == 200
    assert answer.json()["openapi"].startswith("3.")
    assert answer.json()["servers"] == [{"url": "/idgen"}]
    assert answer.json()["paths"] == api_schema()["paths"]
    assert APIClient().get("/idgen/schema/").status_code == 401


def test_every_operation_of_the_api_is_described() -> None:
    """One for each method that a view has, and nothing of anybody else's."""
    wanted = set()
    for pattern in urls.urlpatterns:
        assert isinstance(pattern, URLPattern)
        view = pattern.callback.cls
        if pattern.name is not None:
            own = {name for name in METHODS if hasattr(view, name)}
            wanted |= {(view.__name__, method) for method in own}
    assert len(operations()) == len(wanted)
    assert all(not path.startswith("/admin") for path, _ in operations())


def test_an_operation_says_what_there_is_to_know() -> None:
    """A summary, a group, types of fields, answers with schemas; who may, unless it is open."""
    for name, operation in operations():
        assert operation["summary"], name
        assert operation["tags"], name
        for status, response in operation["responses"].items():
            (content,) = response["content"].values()
            assert content["schema"], (name, status)
        if "health" not in name:
            assert operation["security"]
            assert {"401", "403", "503"} <= operation["responses"].keys()
            header = operation["responses"]["503"]["headers"]["Retry-After"]
            assert header["schema"]["type"] == "integer"
        body = operation.get("requestBody", {"content": {}})["content"]
        fields = body.get("application/json", {"schema": {}})["schema"].get("properties", {})
        assert all(each.keys() & {"type", "oneOf", "$ref", "allOf"} for each in fields.values())
        if "fingerprint" in fields:
            assert {"fields", "tick_us", "epoch_us"} <= fields["fingerprint"]["properties"].keys()


def examples() -> list[tuple[str, dict[str, Any], Any]]:
    """Name, schema and value of all that is shown of bodies and answers."""
    return [
        (f"{name} {what}", content["schema"], example["value"])
        for name, operation in operations()
        for what, part in {
            "asks": operation.get("requestBody", {}),
            **operation["responses"],
        }.items()
        for content in part.get("content", {}).values()
        for example in content.get("examples", {}).values()
    ]


def test_every_request_and_every_answer_is_shown() -> None:
    """But for the description itself; errors are shown where their schema stands."""
    shown = {name for name, _, _ in examples()}
    wanted = set()
    for name, operation in operations():
        if "requestBody" in operation:
            wanted.add(f"{name} asks")
        if "/schema/" not in name:
            wanted |= {f"{name} {status}" for status in operation["responses"] if status < "300"}
    assert "post /generators/{alias}/leases/renew-seen asks" in wanted
    assert shown == wanted | {"get /health/ready 503"}


def test_what_is_shown_fits_what_is_said() -> None:
    """An example that a reader can copy."""
    components = _as_json_schema(api_schema()["components"])
    for name, schema, value in examples():
        validator = Draft4Validator({**_as_json_schema(schema), "components": components})
        assert [error.message for error in validator.iter_errors(value)] == [], name


def _as_json_schema(schema: Any) -> Any:
    """OpenAPI 3.0 has a word of its own for what may be null."""
    if isinstance(schema, list):
        return [_as_json_schema(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _as_json_schema(part) for key, part in schema.items() if key != "nullable"}
    return {"anyOf": [found, {"type": "null"}]} if schema.get("nullable") is True else found


def test_ids_are_described_as_strings() -> None:
    """They don't fit the numbers of JavaScript; marks among them neither."""
    tag = api_schema()["paths"]["/tags/{tag}"]["get"]["responses"]["200"]
    schema = tag["content"]["application/json"]["schema"]
    assert schema["properties"]["max_id"]["type"] == "string"


@pytest.mark.urls("tests.rest.openapi.versioned_urls")
@pytest.mark.django_db
def test_where_the_place_has_a_part_of_its_own() -> None:
    """A version, say: the schema names it, and our views answer as at any other place."""
    segments["versioned"].next_id()
    GENERATOR_STATS.reset()
    make: Any = SchemaGenerator
    found = make(patterns=versioned_urls.urlpatterns).get_schema(request=None, public=True)
    assert not GENERATOR_STATS
    for method, path in (
        ("get", "health/live"),
        ("get", "decode?id=54901763806867456"),
        ("post", "generators/default/ids"),
        ("get", "tags/"),
        ("post", "tags/versioned/pause"),
        ("get", "tags/versioned/segment"),
        ("get", "leases/"),
        ("get", "schema/"),
    ):
        answer = getattr(clerk(), method)(f"/api/v1/idgen/{path}")
        assert answer.status_code == 200, answer.content
        place = path.partition("?")[0].replace("versioned", "{tag}").replace("default", "{alias}")
        parameters = found["paths"][f"/api/{{version}}/idgen/{place}"][method]["parameters"]
        assert "version" in [each["name"] for each in parameters]


WITHOUT = """
import sys
sys.modules["drf_spectacular"] = None
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if "spectacular" in name else find(name, *more)
import django
from django.conf import settings
settings.configure(
    SECRET_KEY="x",
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "django_idgen"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    ROOT_URLCONF="tests.remote.urls",
    ALLOWED_HOSTS=["*"],
)
django.setup()
from django.core.management import call_command
call_command("check")
from tests import warm
from tests.rest.openapi import versioned_urls
from tests.rest.tags.people import Person, clerk, client_of
answer = client_of(Person()).get("/idgen/schema/")
print(answer.status_code, answer.json()["code"])
print(client_of(Person()).get("/idgen/health/live").json())
"""


def test_without_drf_spectacular_the_api_works_and_says_so() -> None:
    """501 with what to install; all else goes on."""
    done = warm.run(["-c", WITHOUT], cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == ["501 not_installed", "{'live': True}"]


def test_the_table_of_urls_has_each_of_them() -> None:
    """With all its methods: it is where a reader looks first."""
    row = re.compile(r"^``(\S+)`` +([A-Z]+(?:, [A-Z]+)*)", re.MULTILINE)
    told = {
        f"{method.lower()} /{path.replace('<', '{').replace('>', '}')}"
        for path, methods in row.findall(urls.__doc__ or "")
        for method in methods.split(", ")
    }
    assert told == {name for name, _ in operations()}


# --- the examples, together: who copies them, in the order of a reader, gets answers --------

Data = dict[str, Any]
READ = [
    *("live", "ready", "schema", "make_tag", "list_tags", "read_tag", "change_tag", "preload_tag"),
    *("get_ids_of_tag", "take_ids_of_tag", "skip_tag", "clear_tag", "pause_tag", "resume_tag"),
    *("segment_terms", "take_segment", "get_ids_of_generator", "take_ids_of_generator"),
    *("decode_id", "take_apart_id", "list_leases", "free_worker", "lease_terms", "borrow_worker"),
    *("renew_lease", "renew_seen_leases", "release_lease"),
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
