"""The system check of templates: W008."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Warning  # noqa: A004
from django.template.backends.django import DjangoTemplates
from django.utils.module_loading import import_string

from .. import template_backends
from ..fields.base import GeneratedOnSave

__all__ = ["check_thousand_separators"]

BACKEND = f"{template_backends.__name__}.django.DjangoTemplates"


def check_thousand_separators(**_kwargs: Any) -> list[CheckMessage]:
    """W008. Where a project has only Django's backend, its templates group our ids, too."""
    if not settings.USE_THOUSAND_SEPARATOR or not _has_ids() or not _only_plain_backends():
        return []
    return [
        Warning(
            "USE_THOUSAND_SEPARATOR is True, so templates write {{ order.id }} as 1,234,567.",
            hint=f"Set 'BACKEND': {BACKEND!r} in TEMPLATES, which takes the same options, or "
            f"write {{{{ order.id|id_text }}}} after {{% load idgen %}}.",
            id="django_idgen.W008",
        )
    ]


def _has_ids() -> bool:
    return any(
        isinstance(field, GeneratedOnSave)
        for model in apps.get_models()
        for field in model._meta.concrete_fields
    )


def _only_plain_backends() -> bool:
    try:
        kinds = [import_string(str(entry["BACKEND"])) for entry in settings.TEMPLATES]
    except (ImportError, KeyError):
        return False  # Django says so itself
    ours = import_string(BACKEND)
    plain = [kind for kind in kinds if issubclass(kind, DjangoTemplates)]
    return bool(plain) and not any(issubclass(kind, ours) for kind in plain)
