from __future__ import annotations

import pytest

from django_idgen.sources.server import ServerSource
from tests.places import empty_place as empty_place


@pytest.fixture
def source(server_alias: str) -> ServerSource:
    """A source on an empty database, without tables; new tags have steps of 100."""
    return ServerSource(alias=server_alias, default_step=100)
