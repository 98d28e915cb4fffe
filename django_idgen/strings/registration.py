"""Ids as strings wherever a library makes JSON of models: which libraries, when, and how.

A library that stands in ``INSTALLED_APPS`` is registered when this app is ready. For one
that does not, call :func:`register`. Importing this package changes no other library.
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
from ..fields.relations import id_held_by
from ..process.handlers import current_settings
from ..settings.config import SettingsError

__all__ = ["Hooks", "check_registered", "register", "register_installed"]

_registered: set[str] = set()


def register(*libraries: str) -> None:
    """Have each library write ids as strings: ``register("ninja")``. Idempotent.

    The libraries are ``"rest_framework"``, ``"django_filters"``, ``"drf_spectacular"`` and
    ``"ninja"``. Call this in the ``ready()`` of an app of your project, or where you import
    the library, before you define schemas of django-ninja or filter sets of django-filter:
    those pick their fields when they are defined. ``IDGEN["REST"]["strings"] = False`` overrides
    this call.

    Raises :class:`~django_idgen.core.errors.ConfigurationError` for any other name, and
    ImportError where the library is missing.
    """
    for name in libraries:
        if name not in LIBRARIES:
            known = ", ".join(map(repr, LIBRARIES))
            raise ConfigurationError(f"Ids as strings: {name!r} is none of {known}.")
        LIBRARIES[name]()
        _registered.add(name)


def register_installed() -> None:
    """Register the libraries that stand in ``INSTALLED_APPS``."""
    register(*filter(apps.is_installed, LIBRARIES))


def _wanted() -> bool:
    try:
        return current_settings().rest.strings
    except SettingsError:
        return True  # django_idgen.E001 says so


def _rest_framework() -> None:
    from rest_framework.metadata import SimpleMetadata

    from . import drf

    SimpleMetadata.label_lookup[drf.IdField] = "string"
    if _wanted():
        drf.adopt()


def _django_filters() -> None:
    if not _wanted():
        return
    from . import filters

    filters.adopt()
    # A copy. One that is made later has what the original has.
    copied = sys.modules.get("django_filters.rest_framework.filterset")
    if copied is not None:
        filters.adopt(copied.FILTER_FOR_DBFIELD_DEFAULTS)


def _drf_spectacular() -> None:
    from . import spectacular  # noqa: F401  # it registers itself


def _ninja() -> None:
    if _wanted():
        from . import ninja

        ninja.adopt()


LIBRARIES: dict[str, Callable[[], None]] = {
    "rest_framework": _rest_framework,
    "django_filters": _django_filters,
    "drf_spectacular": _drf_spectacular,
    "ninja": _ninja,
}


# --- names of other libraries --------------------------------------------------------

_ABSENT: Any = object()


class Hooks:
    """``(owner, name, make)``: each ``name`` of a class or module becomes ``make(original)``.

    ``release`` uncovers an inherited name again. Not thread-safe.
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
        """Put the originals back."""
        while self._originals:
            owner, name, original = self._originals.pop()
            if original is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, original)


# --- W012 ------------------------------------------------------------------------

BASES = {
    "rest_framework": ("rest_framework.serializers", "ModelSerializer"),
    "ninja": ("ninja.orm.metaclass", "ModelSchema"),
}
"""The classes that a project inherits to show models as JSON."""


@register_check(Tags.urls)
def check_registered(**_kwargs: Any) -> list[CheckMessage]:
    """W012. One warning for each library that writes ids of this project as numbers."""
    found = {
        name: next(filter(_has_ids, _below(getattr(sys.modules[module], base))), None)
        for name, (module, base) in BASES.items()
        if name not in _registered and module in sys.modules and _wanted()
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


def _below(base: type) -> Iterator[type]:
    each: type
    for each in base.__subclasses__():
        yield each
        yield from _below(each)


def _has_ids(kind: type) -> bool:
    model = getattr(getattr(kind, "Meta", None), "model", None)
    if not (isinstance(model, type) and issubclass(model, Model)):
        return False
    return any(map(id_held_by, model._meta.concrete_fields))
