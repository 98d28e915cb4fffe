"""E008: metrics that are wanted, and what they need."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from django.core.checks import CheckMessage, Error

from ..settings.config import SettingsError, read_settings

__all__ = ["check_metrics"]


def check_metrics(**_kwargs: Any) -> list[CheckMessage]:
    """E008. Without it, nothing would be counted, and nobody told."""
    try:
        wanted = read_settings().metrics is not None
    except SettingsError:
        return []  # E001 has said so
    if not wanted or find_spec("prometheus_client") is not None:
        return []
    return [
        Error(
            "IDGEN['METRICS'] asks for metrics, and prometheus_client is not installed.",
            hint="Run 'pip install django-idgen[prometheus]', or take METRICS out of IDGEN.",
            id="django_idgen.E008",
        )
    ]
