"""W007, W011: the URLs of old servers. Needs no Django REST framework to be there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Warning  # noqa: A004
from django.urls import URLPattern, get_resolver

from ..settings.config import SettingsError, read_settings

__all__ = ["check_epochs", "check_open_mounts"]

NO_OWNERS = (
    " Its machine ids have no owner: anybody can give back, and then have, the one that an "
    "instance works with."
)


def check_open_mounts(**_kwargs: Any) -> list[CheckMessage]:
    """W007. One warning for each place where an old server's URLs are mounted open."""
    return [
        Warning(
            f"{name}.urls() at {'/' + prefix!r} gives ids to anybody who can reach it: it is "
            f"mounted with authentication=None." + (NO_OWNERS if name == "cosid" else ""),
            hint="Leave authentication out, and give each client an access token; or see that "
            "nobody else can reach it, and silence this check.",
            id="django_idgen.W007",
        )
        for name, prefix in _marks("idgen_open")
    ]


def check_epochs(**_kwargs: Any) -> list[CheckMessage]:
    """W011. One warning for each generator whose ids don't go on above an old server's."""
    try:
        known = read_settings().generators
    except SettingsError:
        return []  # E001 has said so
    return [
        Warning(
            f"{name}.urls() at {'/' + prefix!r} gives ids of generator {alias!r}, whose time "
            f"({known[alias].layout}) is not the old server's ({theirs}): its ids don't go on "
            f"above those of the old server, and may come to some that it gave.",
            hint=f'Add a generator with "EPOCH": "{epoch}" to IDGEN["GENERATORS"], and name it in '
            f"{name}.urls(generator=...). If no client has snowflakes of the old server, silence "
            f"this check.",
            id="django_idgen.W011",
        )
        for (name, epoch, theirs, aliases), prefix in _marks("idgen_snowflakes")
        for alias in aliases
        if alias in known and _time(known[alias].layout) != _time(theirs)
    ]


def _time(layout: Any) -> tuple[int, int, int]:
    """What an id's time is read by; how the bits below are split matters to nobody."""
    return layout.epoch_us, layout.tick_us, layout.time_shift


def _marks(attribute: str) -> dict[tuple[Any, str], None]:
    """What mounted views say in ``attribute``, with the place of the mount, each once."""
    if not getattr(settings, "ROOT_URLCONF", None):
        return {}
    try:
        return dict.fromkeys(_marked(get_resolver(), "", attribute))
    except Exception:  # noqa: BLE001  (a URL conf that can't be loaded is Django's to report)
        return {}


def _marked(resolver: Any, prefix: str, attribute: str) -> Iterator[tuple[Any, str]]:
    for entry in resolver.url_patterns:
        if not isinstance(entry, URLPattern):
            yield from _marked(entry, prefix + str(entry.pattern), attribute)
        elif mark := getattr(entry.callback, attribute, None):
            yield mark, prefix
