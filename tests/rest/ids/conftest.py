"""A client with a token that may take all ids, and a tag."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import Client

from django_idgen.models import LeafAlloc
from django_idgen.rest.tokens import make_token
from tests.rest.forgetting import new_service

TAG = "shop/orders"
URL = f"/idgen/tags/{TAG}/ids"
GENERATOR_URL = "/idgen/generators/default/ids"

EMPTY: dict[str, Any] = {"data": b"", "content_type": "text/plain"}
"""A POST without a body, for Django's client, which would send an empty form."""

Asking = Callable[..., Any]


@pytest.fixture(autouse=True)
def _nothing_known(request: pytest.FixtureRequest, settings: Any) -> Iterator[None]:
    settings.ROOT_URLCONF = "tests.remote.urls"
    settings.IDGEN = {}  # a maker of ids of this test's own
    yield from new_service(request)


@pytest.fixture
def tag(db: None) -> str:
    LeafAlloc.objects.create(biz_tag=TAG, step=10_000)
    return TAG


@pytest.fixture
def secret(db: None) -> str:
    return make_token("tests", tags=["*"], generators=["*"])[1]


@pytest.fixture
def ask(secret: str) -> Asking:
    """``ask("get", URL)``, with the token."""
    client = Client()

    def asked(method: str, url: str, **options: Any) -> Any:
        headers = {"Authorization": f"Bearer {secret}"} | options.pop("headers", {})
        if method == "post" and "data" not in options:
            options |= EMPTY
        return getattr(client, method)(url, headers=headers, **options)

    return asked
