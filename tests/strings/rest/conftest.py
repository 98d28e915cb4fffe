"""A client of the API in shop_api.py, and rows whose ids a double can't hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import rest_framework
from rest_framework.test import APIClient

from tests.app.models import Order, Shipment, Tag

FAR = 2**62 + 1
"""An id that JavaScript would read as 2**62."""


@pytest.fixture
def api(settings: Any, db: None) -> APIClient:
    """A client of the API, with the templates of the browsable one."""
    settings.ROOT_URLCONF = "tests.strings.rest.shop_api"
    templates = settings.TEMPLATES[0]
    settings.TEMPLATES = [
        templates
        | {
            "DIRS": [Path(rest_framework.__file__).parent / "templates"],
            "OPTIONS": templates["OPTIONS"]
            | {"libraries": {"rest_framework": "rest_framework.templatetags.rest_framework"}},
        }
    ]
    return APIClient(raise_request_exception=True)


@pytest.fixture
def order(db: None) -> Order:
    return Order.objects.create(pk=FAR, note="tea")


@pytest.fixture
def tag(db: None) -> Tag:
    return Tag.objects.create(pk=FAR + 2, name="red")


@pytest.fixture
def shipment(order: Order) -> Shipment:
    return Shipment.objects.create(pk=FAR + 4, order=order)


def sent(response: Any, status: int = 200) -> Any:
    """What a client that reads numbers as JavaScript does makes of the answer."""
    assert response.status_code == status, response.content[:2000]
    return json.loads(response.content, parse_int=lambda digits: int(float(digits)))
