"""Ids as strings wherever a library makes JSON of models: who is told, and when."""

from __future__ import annotations

from ..conf import SettingsError
from ..handlers import current_settings
from .on_import import when_imported

__all__ = ["watch"]


def watch() -> None:
    """Adopt each library that the project uses, as soon as it is imported. Idempotent."""
    when_imported("rest_framework.serializers", _serializers, f"{HERE}.fields", f"{HERE}.adoption")
    when_imported("rest_framework.metadata", _metadata)
    when_imported("django_filters.filterset", _filters, f"{HERE}.filters")
    when_imported("django_filters.rest_framework.filterset", _filters_of_rest, f"{HERE}.filters")
    when_imported("drf_spectacular.extensions", _schemas)
    when_imported("ninja.orm.factory", _ninja)


HERE = __name__.rpartition(".")[0]


def _wanted() -> bool:
    try:
        return current_settings().rest.strings
    except SettingsError:
        return True  # django_idgen.E001 says so


def _serializers() -> None:
    if _wanted():
        from . import adoption

        adoption.adopt()


def _metadata() -> None:
    from rest_framework.metadata import SimpleMetadata

    from .fields import IdField

    SimpleMetadata.label_lookup[IdField] = "string"


def _filters() -> None:
    if _wanted():
        from . import filters

        filters.adopt()


def _filters_of_rest() -> None:
    # A copy, which is none of ours where it was made before we came.
    if _wanted():
        from django_filters.rest_framework import filterset  # type: ignore[import-untyped]

        from . import filters

        filters.adopt(filterset.FILTER_FOR_DBFIELD_DEFAULTS)


def _schemas() -> None:
    from . import schema_extension  # noqa: F401  # it registers itself


def _ninja() -> None:
    if _wanted():
        from .. import ninja

        ninja.adopt()
