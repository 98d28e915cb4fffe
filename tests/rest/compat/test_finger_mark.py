"""Answers as finger-mark's."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import Client

from django_idgen import generators
from django_idgen.core.errors import LeaseExpired
from django_idgen.rest.compat import finger_mark

from .conftest import assert_never_cached


def test_an_id_is_a_number(client: Client) -> None:
    """Compact, in its order."""
    answer = client.get("/finger/idGen/getId")
    value = answer.json()["id"]
    assert answer.content.decode() == f'{{"id":{value},"status":"SUCCESS","msg":""}}'
    assert answer.headers["Content-Type"] == "application/json;charset=UTF-8"
    assert generators["default"].next_id() > value > 0
    assert_never_cached(answer)


@pytest.mark.parametrize(
    ("url", "alias"),
    [
        ("/finger/idGen/getIdByAppKey/app", "second"),
        ("/open/finger/idGen/getIdByAppKey/second", "second"),
        ("/open/finger/idGen/getIdByAppKey/default", "default"),
    ],
)
def test_an_application_has_its_generator(client: Client, url: str, alias: str) -> None:
    """As the mount says, else the alias of that name."""
    value = client.get(url).json()["id"]
    assert generators[alias].next_id() > value > 0


@pytest.mark.parametrize("key", ["nothing", "a/b", "%00", "x" * 3000, "%F0%9F%98%80"])
def test_an_unknown_application_has_no_id(client: Client, key: str) -> None:
    """404, without a number."""
    for prefix in ("", "/open"):
        answer = client.get(f"{prefix}/finger/idGen/getIdByAppKey/{key}")
        assert (answer.status_code, answer.json()["id"]) == (404, None)
        assert answer.json()["status"] == "EXCEPTION"


def test_failures_are_no_ids(db: None) -> None:
    """503 with Retry-After; never -1 in a 200."""
    error = LeaseExpired("x")
    with patch("django_idgen.core.snowflake.SnowflakeGenerator.next_id", side_effect=error):
        answer = Client().get("/open/finger/idGen/getId")
    assert (answer.status_code, answer.json()["id"]) == (503, None)
    assert answer.headers["Retry-After"]


def test_closed_and_get_alone(client: Client) -> None:
    """401 without a token, also for what is not there; 405 for other methods."""
    assert Client().get("/finger/idGen/getId").status_code == 401
    assert Client().get("/finger/idGen/getIdByAppKey/nothing").status_code == 401
    assert client.post("/finger/idGen/getId").status_code == 405


@pytest.mark.parametrize("options", [{"generator": "none"}, {"app_keys": {"a": "none"}}])
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    """When the URLs are mounted."""
    with pytest.raises(ImproperlyConfigured):
        finger_mark.urls(**options)
