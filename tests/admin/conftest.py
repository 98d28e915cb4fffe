"""Where the rows are that the admin shows; several databases that share a tag."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from django_idgen import segments
from django_idgen.models import LeafAlloc
from tests import servers
from tests.contrib.sharding.conftest import _shards, shards
from tests.ops.test_tag_edits import source_of

from .tag_tools import on, shown_at

__all__ = ["_shards", "shards"]


@pytest.fixture(params=[on("postgres"), on("mariadb")])
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, settings: Any) -> str:
    """Our tables are on this server: the rows there are what a fetch reads."""
    servers.require(request.param)
    shown_at(request.param, monkeypatch, settings)
    return str(request.param)


@pytest.fixture(params=[on(alias, transaction=True) for alias in ("default", *servers.URLS)])
def one(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> Iterator[str]:
    """The alias of a database that ids come from, and that the admin shows."""
    alias = str(request.param)
    if alias != "default":
        servers.require(alias)
    shown_at(alias, monkeypatch, settings)
    with source_of(database=alias):
        LeafAlloc.objects.all().delete()
        yield alias
        segments.close()
        LeafAlloc.objects.all().delete()  # no flush does
