"""A project whose servers are those that a test names: the doctor asks all that there are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import servers
from tests.ops.doctor.asking import without


@pytest.fixture(autouse=True)
def _no_other_servers(request: pytest.FixtureRequest) -> Iterator[None]:
    named = f"{request.fixturenames} {request.node.name}".lower()
    with without(*(name for name in servers.URLS if name not in named)):
        yield
