"""A service that begins anew: what its process knew is forgotten."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.core.cache import cache

from django_idgen.process import maps
from django_idgen.rest.authentication import TOKENS

__all__ = ["forget", "new_service"]


def forget() -> None:
    """Forget generators, segments, tokens, tags and the throttles' counts."""
    maps.reset()
    TOKENS.clear()
    cache.clear()


def new_service(request: pytest.FixtureRequest) -> Iterator[None]:
    """A service for a test, which knows nothing of others; without tags, where it has tables."""
    forget()
    if "db" in request.fixturenames or request.node.get_closest_marker("django_db"):
        request.getfixturevalue("no_tags")
    yield
    forget()
