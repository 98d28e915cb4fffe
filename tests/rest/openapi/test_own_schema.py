"""A project's own schema, made by drf-spectacular, says of our URLs what ``schema/`` says."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest

from tests import tiers, warm

ROOT = Path(__file__).parents[3]
MAKE = """
import json, sys
import django
from django.conf import settings

file, chosen, *places = sys.argv[1:]
settings.configure(
    SECRET_KEY="tests",
    USE_TZ=True,
    ALLOWED_HOSTS=["*"],
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    INSTALLED_APPS=[
        "django.contrib.contenttypes", "django.contrib.auth", "rest_framework", "drf_spectacular",
        "django_idgen", "tests.app",
    ],
    ROOT_URLCONF="tests.rest.openapi.shop_urls",
    SILENCED_SYSTEM_CHECKS=["django_idgen.W011"],  # it never had a finger-mark server
    IDGEN={
        "GENERATORS": {"default": {}, "second": {"LAYOUT": "js_safe"}},
        "SCRAMBLE_KEYS": {"A": "the tests' key of gift cards"},
    },
    **json.loads(chosen),
)
django.setup()
from django.core.management import execute_from_command_line
from rest_framework.test import APIClient
from tests.rest.tags.people import VIEW, Person, client_of

command = ["manage.py", "spectacular", "--validate", "--fail-on-warn", "--format", "openapi-json"]
execute_from_command_line([*command, "--file", file])
found = {"first": json.load(open(file))}
for place in places:
    found["ours"] = client_of(Person()).get(f"/{place}schema/").json()
if places:
    for name, client in (
        ("nobody", APIClient()), ("user", client_of(Person())), ("reader", client_of(Person(VIEW)))
    ):
        found[name] = client.get("/openapi").json()
json.dump(found, open(file, "w"))
"""
Document = dict[str, Any]
Make = Callable[..., dict[str, Document]]


def shop(
    mounts: dict[str, str | None], versioning: str = "", **spectacular: object
) -> dict[str, Any]:
    """The settings of one that has our URLs in these places, each in a namespace."""
    rest = {"DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema"}
    if versioning:
        rest["DEFAULT_VERSIONING_CLASS"] = f"rest_framework.versioning.{versioning}Versioning"
        rest["DEFAULT_VERSION"] = "1"
    places = list(mounts.items())
    return {"MOUNTS": places, "REST_FRAMEWORK": rest, "SPECTACULAR_SETTINGS": spectacular}


SHOPS: dict[str, dict[str, Any]] = {
    "without": shop({}),
    "as the docs say": shop({"idgen/": None}, SERVE_PUBLIC=False),
    "at several places": shop(
        {"": None, "team-a/idgen/": "other", "idgen/": "third"},
        "Namespace",
        COMPONENT_SPLIT_REQUEST=True,
        SORT_OPERATION_PARAMETERS=False,
    ),
    "OpenAPI 3.1": shop({"v1/": None}, "URLPath", OAS_VERSION="3.1.0", SCHEMA_PATH_PREFIX="/v1"),
}


def places_of(shop: str) -> list[str]:
    return [place for place, _ in SHOPS[shop]["MOUNTS"]]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """The schemas of a shop."""
    file = tmp_path_factory.mktemp("shop") / "schema.json"

    @cache
    def made(shop: str) -> dict[str, Document]:
        command = ["-c", MAKE, str(file), json.dumps(SHOPS[shop]), *places_of(shop)]
        done = warm.run(command, cwd=ROOT)
        assert (done.returncode, done.stderr) == (0, "")
        return cast(dict[str, Document], json.loads(file.read_text()))

    return made


def operations(document: Document, at: str = "/") -> dict[str, Any]:
    """What is described below ``at``: by method, and path from there."""
    return {
        f"{method} {path.removeprefix(at)}": operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if path.startswith(at)
    }


def of_the_shop(document: Document) -> list[Any]:
    """Its own operations and components."""
    known, schemas = operations(document), document["components"]["schemas"]
    return [
        {key: each for key, each in known.items() if not each["tags"][0].startswith("idgen ")},
        {name: each for name, each in schemas.items() if not name.startswith("Idgen")},
    ]


def renamed(operations: dict[str, Any], place: str) -> dict[str, Any]:
    """The same, whose names begin with where they are."""
    prefix = place.replace("/", "_").replace("-", "_")
    return {
        key: {**each, "operationId": f"{prefix}{each['operationId']}"}
        for key, each in operations.items()
    }


def entries(part: dict[str, Any]) -> set[tuple[str, str]]:
    return {(key, json.dumps(value, sort_keys=True)) for key, value in part.items()}


@pytest.mark.parametrize(
    "shop", ["as the docs say", *tiers.long("at several places", "OpenAPI 3.1")]
)
def test_it_says_what_ours_says(make: Make, shop: str) -> None:
    """``spectacular --validate --fail-on-warn`` has nothing to complain of, before anybody asks
    for ``schema/``. Operation by operation it is the same, wherever our URLs are; no two have one
    name, nor a number to tell them apart."""
    found = make(shop)
    ours = operations(found["ours"])
    assert len(ours) > 20
    for place in places_of(shop):
        assert entries(operations(found["first"], f"/{place}")) >= entries(renamed(ours, place))
    for part, components in found["ours"]["components"].items():
        assert entries(found["first"]["components"][part]) >= entries(components)
    for document in found.values():
        names = [each["operationId"] for each in operations(document).values()]
        assert len(set(names)) == len(names)
        assert not [name for name in names if name[-1].isdigit()]


def test_who_may_be_known_how(make: Make) -> None:
    """People by the project's ways, programs by their tokens: each where it opens something.

    A schema that is made for its reader (``SERVE_PUBLIC``) shows what that one may do.
    """
    found = make("as the docs say")
    ours = operations(found["first"], "/idgen/")
    both = [{"idgenToken": []}, {"cookieAuth": []}, {"basicAuth": []}]
    assert ours["post tags/{tag}/ids"]["security"] == both
    assert ours["post tags/{tag}/segment"]["security"] == both
    assert ours["post tags/{tag}/skip"]["security"] == both[1:]
    assert ours["post generators/{alias}/leases"]["security"] == both[:1]
    assert found["first"]["components"]["securitySchemes"]["idgenToken"]["scheme"] == "bearer"
    nobody, user, reader = (
        set(operations(found[name], "/idgen/")) for name in ("nobody", "user", "reader")
    )
    assert nobody == {"get health/live", "get health/ready"}
    assert {"get tags/{tag}/ids", "post generators/{alias}/ids", "get decode"} <= user
    assert reader - user == {"get tags/", "get tags/{tag}"}


@pytest.mark.parametrize("shop", ["as the docs say", *tiers.long("OpenAPI 3.1")])
def test_what_may_be_null_is_so_in_any_version(make: Make, shop: str) -> None:
    """OpenAPI 3.1 has no ``nullable``."""
    (place,) = places_of(shop)
    answer = operations(make(shop)["first"], f"/{place}")["get leases/"]["responses"]["200"]
    link = answer["content"]["application/json"]["schema"]["properties"]["next"]
    uri = {"type": "string", "format": "uri"}
    new = {**uri, "type": ["string", "null"]}
    assert link == (new if shop == "OpenAPI 3.1" else {**uri, "nullable": True})


def test_what_the_shop_says_stays_as_it_is(make: Make) -> None:
    """With our URLs and without: its components and choices keep their names, which ours have, too;
    the old servers' URLs and the figures are no part of it."""
    without = make("without")["first"]
    assert of_the_shop(make("as the docs say")["first"]) == of_the_shop(without)
    names = without["components"]["schemas"].keys()
    assert {"Problem", "TagInput", "FormEnum", "GeneratorEnum"} <= names
    assert len(operations(without)) == 7
