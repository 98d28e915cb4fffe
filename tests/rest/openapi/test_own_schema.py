"""A project's own schema, made by drf-spectacular, has our URLs beside its own."""

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

command = ["manage.py", "spectacular", "--validate", "--fail-on-warn", "--format", "openapi-json"]
execute_from_command_line([*command, "--file", file])
json.dump({"first": json.load(open(file))}, open(file, "w"))
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


@pytest.mark.parametrize(
    "shop", ["as the docs say", *tiers.long("at several places", "OpenAPI 3.1")]
)
def test_our_urls_are_described_without_a_warning(make: Make, shop: str) -> None:
    """``spectacular --validate --fail-on-warn`` has nothing to complain of, wherever they are."""
    for place in places_of(shop):
        assert len(operations(make(shop)["first"], f"/{place}")) > 20


def of_the_shop(document: Document) -> list[Any]:
    """Its own operations and components."""
    schemas = document["components"]["schemas"]
    return [
        operations(document, "/shop/"),
        {name: each for name, each in schemas.items() if "Idgen" not in name},
    ]


def test_what_the_shop_says_stays_as_it_is(make: Make) -> None:
    """With our URLs and without: its operations and components are the same.

    The old servers' URLs and the figures are no part of it.
    """
    without, with_ours = (make(shop)["first"] for shop in ("without", "as the docs say"))
    assert of_the_shop(with_ours) == of_the_shop(without)
    assert len(operations(without)) == 7
    others = [path for path in with_ours["paths"] if not path.startswith(("/shop/", "/idgen/"))]
    assert others == ["/openapi"]


def test_who_may_be_known_how(make: Make) -> None:
    """Tokens have no permissions, and only tokens borrow worker ids."""
    ours = operations(make("as the docs say")["first"], "/idgen/")
    both = [{"idgenToken": []}, {"cookieAuth": []}, {"basicAuth": []}]
    assert ours["post tags/{tag}/ids"]["security"] == both
    assert ours["post tags/{tag}/skip"]["security"] == both[1:]
    assert ours["post generators/{alias}/leases"]["security"] == both[:1]
