"""What no client means: refused by field, and never a 500."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.urls import reverse

from django_idgen.contrib.old_servers.cosid import Instance
from tests.remote.service import SECRET

from .test_leases import Api, api

__all__ = ["api"]


@pytest.mark.parametrize("seconds", ["nan", "NaN", "-nan", "inf", "1e999", "-1", "1e7"])
def test_seconds_that_are_none_are_refused(api: Api, seconds: str) -> None:
    """As text, which Python reads more of than JSON has."""
    answer = api.post("renew-seen", {"idle_after": seconds, **api.settings()})
    assert answer.status_code == 400, answer.content
    assert list(answer.json()) == ["idle_after"]


@pytest.mark.parametrize("seconds", [False, True, "600", 10**400, None, [1]])
def test_seconds_are_a_number(api: Api, seconds: object) -> None:
    """No text, no truth value, and none that no float holds."""
    answer = api.post("renew-seen", {"idle_after": seconds, **api.settings()})
    assert answer.status_code == 400, answer.content
    assert list(answer.json()) == ["idle_after"]


@pytest.mark.parametrize("token", [7, 1.5, True, None, "", "x" * 129, "a\n"])
def test_the_token_of_a_lease_is_a_text(api: Api, token: object) -> None:
    """A number is none that was ever lent; it is not read as one."""
    lease = {**api.acquire().json()["lease"], "token": token}
    answer = api.post("lease-release", {"lease": lease})
    assert (answer.status_code, list(answer.json())) == (400, ["lease"]), answer.content


@pytest.mark.parametrize("value", ["1e999", "[-1e999]", '{"a": 1e400}'])
def test_a_number_past_all_floats_is_no_json_of_ours(api: Api, value: str) -> None:
    """Python reads infinity, which the answer that names the setting could not say."""
    body: dict[str, Any] = {**api.settings(), "holder": "h"}
    body["fingerprint"] = {**body["fingerprint"], "epoch_us": "HERE"}
    answer = api.client.post(
        reverse("django_idgen:generator-leases", args=["default"]),
        data=json.dumps(body).replace('"HERE"', value),
        content_type="application/json",
        headers={"Authorization": f"Bearer {SECRET}"},
    )
    assert answer.status_code == 400, answer.content


def test_nobody_borrows_in_the_name_of_a_cosid_instance(api: Api) -> None:
    """Which is known by its name alone: it would be given the borrower's worker id, too."""
    instance = Instance("shop", "a", stable=True)
    answer = api.acquire(holder=instance.label)
    assert (answer.status_code, list(answer.json())) == (400, ["holder"]), answer.content
    assert api.acquire(holder=f"not {instance.label}").status_code == 200
