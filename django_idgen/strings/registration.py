"""Registers libraries that make JSON of models, so that they write ids as strings.

The libraries in ``INSTALLED_APPS`` are registered when this app is ready. For others call
:func:`register`. Importing this package changes no other library.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Tags, Warning  # noqa: A004
from django.core.checks import register as register_check
from django.db.models import Model

from ..core.errors import ConfigurationError
from ..fields import SnowflakeSource
from ..fields.base import id_held_by
from ..process.maps import current_settings
from ..settings import SettingsError

_registered: set[str] = set()


def register(*libraries: str) -> None:
    """Make each library write ids as strings: ``register("ninja")``. Idempotent.

    The libraries are ``"rest_framework"``, ``"rest_framework_json_api"``, ``"django_filters"``,
    ``"drf_spectacular"``, ``"graphene_django"``, ``"import_export"``, ``"ninja"`` and
    ``"strawberry_django"``. Call this in the ``ready()`` of an app of your project, or beside the
    import of the library. Call it before you define types of GraphQL, schemas of django-ninja or
    filter sets of django-filter, which pick their fields when they are defined.
    ``IDGEN["REST"]["strings"] = False`` overrides this call.

    Raises :class:`~django_idgen.core.errors.ConfigurationError` for any other name, and
    ImportError if the library is missing.
    """
    for name in libraries:
        if name not in LIBRARIES:
            known = ", ".join(map(repr, LIBRARIES))
            raise ConfigurationError(
                f"{name!r} is not a library that django_idgen can register. Known: {known}."
            )
        LIBRARIES[name]()
        _registered.add(name)


def register_installed() -> None:
    """Register the libraries in ``INSTALLED_APPS``."""
    register(*filter(apps.is_installed, LIBRARIES))


def _is_enabled() -> bool:
    try:
        return current_settings().rest.strings
    except SettingsError:
        return True  # django_idgen.E001 reports it


def _rest_framework() -> None:
    from rest_framework.metadata import SimpleMetadata

    from . import drf

    SimpleMetadata.label_lookup[drf.IdField] = "string"
    if _is_enabled():
        drf.adopt()


def _rest_framework_json_api() -> None:
    if _is_enabled():
        from . import json_api

        json_api.adopt()


def _django_filters() -> None:
    if not _is_enabled():
        return
    from . import filters

    filters.adopt()
    # A copy of the defaults. If it is imported later, it copies the changed ones.
    copied = sys.modules.get("django_filters.rest_framework.filterset")
    if copied is not None:
        filters.adopt(copied.FILTER_FOR_DBFIELD_DEFAULTS)


def _drf_spectacular() -> None:
    from . import spectacular  # noqa: F401  # its classes register themselves


def _graphene_django() -> None:
    if _is_enabled():
        from . import graphene

        graphene.adopt()


def _import_export() -> None:
    from . import spreadsheets

    spreadsheets.adopt()


def _strawberry_django() -> None:
    if _is_enabled():
        from . import strawberry

        strawberry.adopt()


def _ninja() -> None:
    if _is_enabled():
        from . import ninja

        ninja.adopt()


LIBRARIES: dict[str, Callable[[], None]] = {
    "rest_framework": _rest_framework,
    "rest_framework_json_api": _rest_framework_json_api,
    "django_filters": _django_filters,
    "drf_spectacular": _drf_spectacular,
    "graphene_django": _graphene_django,
    "import_export": _import_export,
    "ninja": _ninja,
    "strawberry_django": _strawberry_django,
}


# --- hooks -----------------------------------------------------------------------------

_ABSENT: Any = object()


class Hooks:
    """Replaces names of other libraries. Not thread-safe.

    ``hooks``: ``(owner, name, make)`` sets ``name`` of a class or module to ``make(original)``.
    """

    def __init__(self, *hooks: tuple[Any, str, Callable[[Any], Any]]) -> None:
        self._hooks = hooks
        self._originals: list[tuple[Any, str, Any]] = []

    def put(self) -> None:
        """Replace the names, once."""
        if self._originals:
            return
        for owner, name, make in self._hooks:
            self._originals.append((owner, name, vars(owner).get(name, _ABSENT)))
            setattr(owner, name, make(getattr(owner, name, None)))

    def release(self) -> None:
        """Put the originals back; a name that was inherited is removed."""
        while self._originals:
            owner, name, original = self._originals.pop()
            if original is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, original)


# --- W012 ------------------------------------------------------------------------------

BASES = {
    "rest_framework": ("rest_framework.serializers", "ModelSerializer"),
    "ninja": ("ninja.orm.metaclass", "ModelSchema"),
}
"""The base classes of a project's JSON of models."""


@register_check(Tags.urls)
def check_registered(**_kwargs: Any) -> list[CheckMessage]:
    """W012. One warning for each library that writes ids of this project as numbers."""
    found = {
        name: next(filter(_has_ids, below(getattr(sys.modules[module], base))), None)
        for name, (module, base) in BASES.items()
        if name not in _registered and module in sys.modules and _is_enabled()
    }
    return [
        Warning(
            f"{kind.__module__}.{kind.__qualname__} sends ids as numbers, and JavaScript reads "
            f"those past 2**53 wrong: {name!r} is not in INSTALLED_APPS.",
            hint="Put it there, or call django_idgen.strings.registration.register("
            f"{name!r}) before the class is defined.",
            id="django_idgen.W012",
        )
        for name, kind in found.items()
        if kind is not None
    ]


# --- W013 ------------------------------------------------------------------------------

IN_BROWSERS = {
    "wagtail": "Wagtail's chooser blocks and its API",
    "tastypie": "django-tastypie's resources",
}
"""By app: what writes ids as JSON numbers, and can't be made to write texts."""
EXACT_BITS = 53


@register_check("django_idgen")
def check_browsers(**_kwargs: Any) -> list[CheckMessage]:
    """W013. One warning for each package that browsers get wrong ids from."""
    found = [each for each in IN_BROWSERS if apps.is_installed(each)]
    model = next(filter(_has_long_ids, apps.get_models()), None) if found else None
    return [
        Warning(
            f"{IN_BROWSERS[each]} write ids as JSON numbers. A browser reads ids of "
            f"{model._meta.label} past 2**53 as those of other rows, and saves these.",
            hint="Before the first row, give the generator a layout whose ids browsers read "
            "exactly: IDGEN = {'GENERATORS': {'default': {'LAYOUT': 'js_safe'}}}. See "
            "docs/strings.md.",
            id="django_idgen.W013",
        )
        for each in found
        if model is not None
    ]


def _has_long_ids(model: type[Model]) -> bool:
    held = map(id_held_by, model._meta.local_concrete_fields)
    return any(isinstance(each, SnowflakeSource) and _is_long(each.generator) for each in held)


def _is_long(alias: str) -> bool:
    try:
        known = current_settings().generators
    except SettingsError:
        return False  # django_idgen.E001 reports it
    return alias in known and known[alias].layout.bits > EXACT_BITS


def below(base: type) -> Iterator[type]:
    each: type
    for each in base.__subclasses__():
        yield each
        yield from below(each)


def _has_ids(kind: type) -> bool:
    model = getattr(getattr(kind, "Meta", None), "model", None)
    if not (isinstance(model, type) and issubclass(model, Model)):
        return False
    return any(map(id_held_by, model._meta.concrete_fields))
