"""A service that begins anew: what its process knew is forgotten."""

from __future__ import annotations

from django.core.cache import cache

from django_idgen.process import handlers
from django_idgen.rest.known_tags import KNOWN_TAGS
from django_idgen.rest.token_cache import TOKENS

__all__ = ["forget"]


def forget() -> None:
    """Forget generators, segments, tokens, tags and the throttles' counts."""
    handlers.reset()
    TOKENS.clear()
    KNOWN_TAGS.clear()
    cache.clear()
