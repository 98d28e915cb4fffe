"""How often one may ask: Django REST framework's throttles, with our settings.

They keep the moments of the last requests in Django's cache ``default``. While that cache
fails, all requests are let in: ids are worth more than a count.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from hashlib import sha256
from typing import Any, ClassVar

from rest_framework.request import Request
from rest_framework.settings import api_settings
from rest_framework.throttling import BaseThrottle, SimpleRateThrottle

from ..core.clock import SYSTEM_CLOCK
from ..process.handlers import current_settings

__all__ = [
    "CallerThrottle",
    "KnownSecrets",
    "SubjectThrottle",
    "WrongSecretThrottle",
    "ids_throttles",
]

logger = logging.getLogger("django_idgen")

REMEMBERED = 86_400 * 30
"""Seconds for which a secret that was right is let past those who guess."""
WARN_EVERY = 60.0
"""Seconds between two complaints about the cache."""


class SettingThrottle(SimpleRateThrottle):
    """A throttle whose rate is a setting of ``IDGEN["REST"]``; off where that is None."""

    setting: ClassVar[str]
    _warn_at: ClassVar[float] = -math.inf

    def get_rate(self) -> str | None:
        rate: str | None = getattr(current_settings().rest, self.setting)
        return rate

    def get_ident(self, request: Any) -> str:
        """The address that asks. What a proxy says counts where ``NUM_PROXIES`` says so.

        DRF believes any ``X-Forwarded-For`` unless that is set, and callers write what they like.
        """
        if api_settings.NUM_PROXIES is None:
            return str(request.META.get("REMOTE_ADDR") or "")
        return str(super().get_ident(request))

    def allow_request(self, request: Any, view: Any) -> bool:
        try:
            return bool(super().allow_request(request, view))
        except Exception as error:  # noqa: BLE001  (whatever the cache's client raises)
            _warn(error)
            return True


class CallerThrottle(SettingThrottle):
    """``caller_rate``: requests of one user or token; at an open mount, of one address."""

    setting = "caller_rate"

    def get_cache_key(self, request: Request, view: Any) -> str | None:  # noqa: ARG002
        pk = getattr(request.user, "pk", None)
        return _key("open", self.get_ident(request)) if pk is None else _key("caller", str(pk))


class SubjectThrottle(SettingThrottle):
    """``tag_rate``: requests of all callers for one tag, or one generator."""

    setting = "tag_rate"

    def get_cache_key(self, request: Request, view: Any) -> str | None:  # noqa: ARG002
        tag = view.kwargs.get("tag")
        if tag is not None:
            return _key("tag", tag)
        return _key("generator", view.kwargs.get("alias", ""))


class WrongSecretThrottle(SettingThrottle):
    """``caller_rate``, for the wrong secrets that come from one address.

    With ``counting=False`` it only tells whether there were too many.
    """

    setting = "caller_rate"

    def __init__(self, *, counting: bool) -> None:
        super().__init__()
        self.counting = counting

    def get_cache_key(self, request: Any, view: Any) -> str | None:  # noqa: ARG002
        return _key("address", self.get_ident(request))

    def throttle_success(self) -> bool:
        return bool(super().throttle_success()) if self.counting else True


class KnownSecrets(SettingThrottle):
    """The secrets that were right lately, in any process, where ``caller_rate`` is set.

    A process that has just been started knows none: those who asked its predecessor are not
    to wait because a stranger at the same address, which may be a proxy's, keeps on guessing.
    """

    setting = "caller_rate"

    def has(self, secret: str) -> bool:
        return self.rate is not None and bool(self._asked(self.cache.get, _known_key(secret)))

    def add(self, secret: str) -> None:
        if self.rate is not None:
            self._asked(self.cache.set, _known_key(secret), 1, REMEMBERED)

    def _asked(self, ask: Any, *arguments: Any) -> Any:
        try:
            return ask(*arguments)
        except Exception as error:  # noqa: BLE001  (whatever the cache's client raises)
            _warn(error)


def _known_key(secret: str) -> str:
    return _key("known", sha256(secret.encode("utf-8", "surrogatepass")).hexdigest())


def ids_throttles() -> list[type[BaseThrottle]]:
    """The project's own, then those of our settings."""
    known: Iterable[Any] = api_settings.DEFAULT_THROTTLE_CLASSES
    return [*known, CallerThrottle, SubjectThrottle]


def _key(kind: str, name: str) -> str:
    # Some caches refuse spaces, or long keys.
    return f"idgen_throttle_{kind}_{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _warn(error: Exception) -> None:
    now = SYSTEM_CLOCK.stopwatch()
    if now >= SettingThrottle._warn_at:
        SettingThrottle._warn_at = now + WARN_EVERY
        logger.warning("Requests are not throttled, since the cache failed: %r", error)
