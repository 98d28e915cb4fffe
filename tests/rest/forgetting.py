"""A service that begins anew: what its process knew is forgotten."""

from __future__ import annotations

from django.core.cache import cache

from django_idgen.process import handlers
from django_idgen.rest.authentication import TOKENS
from django_idgen.rest.tags import KNOWN_TAGS

__all__ = ["forget"]


def forget() -> None:
    """Forget generators, segments, tokens, tags and the throttles' counts."""
    handlers.reset()
    TOKENS.clear()
    KNOWN_TAGS.clear()
    cache.clear()
