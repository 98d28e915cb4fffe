"""``settings.IDGEN``, read in one place and turned into frozen values; imports core alone.

Here is what a process needs that does not read them, or not yet; :mod:`.config` reads them.
"""

from __future__ import annotations

from typing import NoReturn

from django.apps import apps
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from ..core.errors import ConfigurationError

DEFAULT_ALIAS = "default"


class SettingsError(ConfigurationError, ImproperlyConfigured):
    """``settings.IDGEN`` asks for something that can't work; the message says where."""


def refuse_without_app(error: RuntimeError, why: str) -> NoReturn:
    """For Django's error about models of an app that is not installed; raises any other again."""
    if apps.is_installed("django_idgen"):
        raise error
    raise SettingsError(f"{why}: add 'django_idgen' to INSTALLED_APPS.") from error


def are_metrics_wanted() -> bool:
    """Whether the settings have metrics, without reading the rest of ``IDGEN``."""
    idgen = getattr(settings, "IDGEN", None)
    return isinstance(idgen, dict) and idgen.get("METRICS") is not None
