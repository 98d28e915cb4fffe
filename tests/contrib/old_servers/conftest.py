"""A tag, callers of each kind, and a client that asks the old way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from django_idgen import segments
from django_idgen.models import LeafAlloc
from django_idgen.process.tags import find_tag
from django_idgen.rest.tokens import make_token
from tests.contrib.sharding.conftest import _shards, shards
from tests.rest.forgetting import new_service

__all__ = ["_shards", "shards"]

TAG = "orders"


@pytest.fixture(autouse=True)
def _nothing_known(request: pytest.FixtureRequest, settings: Any) -> Iterator[None]:
    settings.ROOT_URLCONF = "tests.contrib.old_servers.urls"
    settings.IDGEN = {"GENERATORS": {"default": {}, "second": {}}}
    yield from new_service(request)


@pytest.fixture
def tag(db: None) -> str:
    LeafAlloc.objects.create(biz_tag=TAG, step=1000)
    return TAG


@pytest.fixture
def secret(db: None) -> str:
    """Of a token for :data:`TAG`, all generators, and machine ids of the default one."""
    return make_token("tests", tags=[TAG, f"cosid.{TAG}"], generators=["*"], leases=["default"])[1]


@pytest.fixture
def client(secret: str) -> Client:
    """A program with the token in its header."""
    return Client(headers={"Authorization": f"Bearer {secret}"})


@pytest.fixture
def user(db: None) -> Callable[..., Client]:
    """``user("add_leafalloc")``: somebody who is logged in and has these permissions."""

    def logged_in(*permissions: str) -> Client:
        somebody = User.objects.create_user(f"user-{len(permissions)}")
        somebody.user_permissions.set(Permission.objects.filter(codename__in=permissions))
        client = Client()
        client.force_login(somebody)
        return client

    return logged_in


def asking(client: Client, prefix: str = "") -> Callable[[str, str], tuple[int, str]]:
    """How an old client asks: method and URL; status and body."""

    def ask(method: str, url: str) -> tuple[int, str]:
        answer = getattr(client, method.lower())(f"{prefix}{url}")
        return answer.status_code, answer.content.decode()

    return ask


NAMES = (TAG, "new", "nothing", "invoices", "shop/new", "stock/new", "shop.new", "shop.orders")
"""Tags that the tests ask for. In a test's transaction a row is written after its mark."""


def marks() -> dict[str, int]:
    """How far each tag has come, as the source has it."""
    rows = LeafAlloc.objects.values_list("pk", flat=True)
    found = {name: find_tag(name) for name in {*NAMES, *rows}}
    source: Any = segments.allocator().source
    return {
        name: max(tag.max_id, source.marks(name).max_id(name))
        for name, tag in found.items()
        if tag is not None
    }


def assert_never_cached(response: Any) -> None:
    assert "no-store" in response.headers["Cache-Control"]
    assert "private" in response.headers["Cache-Control"]
