"""``schema/``: what drf-spectacular describes, and that the API needs nobody to describe it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.generators import SchemaGenerator
from rest_framework.test import APIClient

from django_idgen import segments
from django_idgen.rest import leases, tags, urls
from tests import warm
from tests.rest.openapi import versioned_urls
from tests.rest.tags.people import Person, clerk, client_of

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.urls("tests.remote.urls")


def described(**chosen: Any) -> dict[str, Any]:
    """What drf-spectacular says of the API, without a warning."""
    GENERATOR_STATS.reset()
    make: Any = SchemaGenerator
    found: dict[str, Any] = make(**chosen).get_schema(request=None, public=True)
    assert not GENERATOR_STATS
    return found


def test_the_schema_is_served_with_the_place_where_it_is_mounted() -> None:
    """For those who say who they are; paths are relative to the API."""
    answer = client_of(Person()).get("/idgen/schema/")
    assert answer.status_code == 200
    assert answer.json()["openapi"].startswith("3.")
    assert answer.json()["servers"] == [{"url": "/idgen"}]
    assert answer.json()["paths"] == described(urlconf=urls.__name__)["paths"]
    assert APIClient().get("/idgen/schema/").status_code == 401


def test_the_table_of_urls_has_each_of_them() -> None:
    """With all its methods: it is where a reader looks first. The schema has them, too."""
    row = re.compile(r"^``(\S+)`` +([A-Z]+(?:, [A-Z]+)*)", re.MULTILINE)
    told = {
        f"{method.lower()} /{path.replace('<', '{').replace('>', '}')}"
        for path, methods in row.findall(urls.__doc__ or "")
        for method in methods.split(", ")
    }
    unsaid = {"get /health/live", "get /health/ready", "get /schema/"}
    paths = described(urlconf=urls.__name__)["paths"]
    assert told - unsaid == {
        f"{method} {path}" for path, found in paths.items() for method in found
    }


def test_to_describe_it_asks_no_registry_and_no_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither may answer where a schema is written, such as in a build."""
    asked: list[object] = []
    monkeypatch.setattr(tags, "matching_names", asked.append)
    monkeypatch.setattr(leases, "_leases", lambda: asked.append("leases") or [])
    assert described(urlconf=urls.__name__)["paths"]
    assert asked == []


def test_ids_are_described_as_strings() -> None:
    """They don't fit the numbers of JavaScript; marks among them neither."""
    schemas = described(urlconf=urls.__name__)["components"]["schemas"]
    assert schemas["IdgenTagShown"]["properties"]["max_id"]["type"] == "string"
    assert schemas["IdgenIds"]["properties"]["id"]["type"] == "string"


@pytest.mark.urls("tests.rest.openapi.versioned_urls")
@pytest.mark.django_db
def test_where_the_place_has_a_part_of_its_own() -> None:
    """A version, say: the schema names it, and our views answer as at any other place."""
    segments["versioned"].next_id()
    found = described(patterns=versioned_urls.urlpatterns)
    for method, path in (
        ("get", "decode?id=54901763806867456"),
        ("post", "generators/default/ids"),
        ("get", "tags/"),
        ("post", "tags/versioned/pause"),
        ("get", "tags/versioned/segment"),
        ("get", "leases/"),
    ):
        answer = getattr(clerk(), method)(f"/api/v1/idgen/{path}")
        assert answer.status_code == 200, answer.content
        place = path.partition("?")[0].replace("versioned", "{tag}").replace("default", "{alias}")
        parameters = found["paths"][f"/api/{{version}}/idgen/{place}"][method]["parameters"]
        assert "version" in [each["name"] for each in parameters]


MISSING = """
import sys
sys.modules["drf_spectacular"] = None
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if "spectacular" in name else find(name, *more)
"""
WITHOUT = """
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


@pytest.mark.parametrize("before", [MISSING, ""])
def test_without_drf_spectacular_the_api_works_and_says_so(before: str) -> None:
    """501 with what to install, or to name in INSTALLED_APPS; all else goes on."""
    done = warm.run(["-c", before + WITHOUT], cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == ["501 not_installed", "{'live': True}"]
