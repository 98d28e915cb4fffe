"""W007: URLs that give ids to anybody. Needs no Django REST framework to be there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Warning  # noqa: A004
from django.urls import URLPattern, get_resolver

__all__ = ["check_open_mounts"]


def check_open_mounts(**_kwargs: Any) -> list[CheckMessage]:
    """W007. One warning for each place where an old server's URLs are mounted open."""
    if not getattr(settings, "ROOT_URLCONF", None):
        return []
    try:
        found = dict.fromkeys(_open_mounts(get_resolver(), ""))
    except Exception:  # noqa: BLE001  (a URL conf that can't be loaded is Django's to report)
        return []
    return [
        Warning(
            f"{name}.urls() at {'/' + prefix!r} gives ids to anybody who can reach it: it is "
            f"mounted with authentication=None.",
            hint="Leave authentication out, and give each client an access token; or see that "
            "nobody else can reach it, and silence this check.",
            id="django_idgen.W007",
        )
        for name, prefix in found
    ]


def _open_mounts(resolver: Any, prefix: str) -> Iterator[tuple[str, str]]:
    for entry in resolver.url_patterns:
        if not isinstance(entry, URLPattern):
            yield from _open_mounts(entry, prefix + str(entry.pattern))
        elif name := getattr(entry.callback, "idgen_open", ""):
            yield name, prefix
