"""Answers as finger-mark's."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import Client

from django_idgen import generators
from django_idgen.contrib.old_servers import finger_mark
from django_idgen.core.errors import LeaseExpired
from django_idgen.rest.tokens import make_token

from .conftest import assert_never_cached

SYSTEM_ERROR = b'{"id":-1,"status":"ERROR","msg":"system error!"}'


def test_an_id_is_a_number(client: Client) -> None:
    """Compact, in its order."""
    answer = client.get("/finger/idGen/getId")
    value = answer.json()["id"]
    assert answer.content.decode() == f'{{"id":{value},"status":"SUCCESS","msg":null}}'
    assert answer.headers["Content-Type"] == "application/json;charset=UTF-8"
    assert generators["default"].next_id() > value > 0
    assert_never_cached(answer)


def test_an_application_has_its_generator(client: Client) -> None:
    """As the mount says, else the alias of that name."""
    for url, alias in (
        ("/finger/idGen/getIdByAppKey/app", "second"),
        ("/open/finger/idGen/getIdByAppKey/second", "second"),
        ("/open/finger/idGen/getIdByAppKey/default", "default"),
        ("/finger/idGen/getIdByAppKey/app/", "second"),
        ("/finger/idGen/getId/", "default"),
    ):
        value = client.get(url).json()["id"]
        assert generators[alias].next_id() > value > 0, url


def test_a_key_that_was_never_registered_gives_ids_of_the_default(client: Client) -> None:
    """As in finger-mark."""
    for key in ("nothing", "a/b", "%00", "x" * 3000, "%F0%9F%98%80"):
        for prefix in ("", "/open"):
            value = client.get(f"{prefix}/finger/idGen/getIdByAppKey/{key}").json()["id"]
            assert generators["default"].next_id() > value > 0, key


def test_a_key_gives_nothing_that_the_token_does_not_name(db: None) -> None:
    """A token for another generator gets ids of the default by no key, known or not."""
    _, secret = make_token("other", generators=["second"])
    client = Client(headers={"Authorization": f"Bearer {secret}"})
    assert client.get("/finger/idGen/getIdByAppKey/app").json()["id"] > 0
    for url in ("getId", "getIdByAppKey/nothing", "getIdByAppKey/second", "getIdByAppKey/default"):
        answer = client.get(f"/finger/idGen/{url}")
        assert (answer.status_code, answer.content) == (403, SYSTEM_ERROR)


def test_failures_are_upstreams_and_no_ids(db: None) -> None:
    """HTTP 200 with the state ``ERROR``: finger-mark's clients look there; -1 is no id."""
    error = LeaseExpired("x")
    with patch("django_idgen.core.snowflake.SnowflakeGenerator.next_id", side_effect=error):
        for url in ("getId", "getIdByAppKey/default", "getIdByAppKey/nothing"):
            answer = Client().get(f"/open/finger/idGen/{url}")
            assert (answer.status_code, answer.content) == (200, SYSTEM_ERROR)


def test_closed_and_get_alone(client: Client) -> None:
    """401 without a token, whatever the key; 405 for other methods."""
    for url in ("getId", "getIdByAppKey/app", "getIdByAppKey/nothing"):
        answer = Client().get(f"/finger/idGen/{url}")
        assert (answer.status_code, answer.content) == (401, SYSTEM_ERROR)
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert client.post("/finger/idGen/getId").status_code == 405


@pytest.mark.parametrize("options", [{"generator": "none"}, {"app_keys": {"a": "none"}}])
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    """When the URLs are mounted."""
    with pytest.raises(ImproperlyConfigured):
        finger_mark.urls(**options)
