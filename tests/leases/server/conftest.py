from __future__ import annotations

import pytest

from tests.leases.server.shop import SHOP, ServerLeases, Time


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def leases(server_alias: str, time: Time) -> ServerLeases:
    """A registry of 64 worker ids on an empty database, on a clock driven by hand."""
    return ServerLeases(SHOP, alias=server_alias, read_now=time)
