"""What stands under a ``BACKEND`` of the settings: a class, by its dotted path, and its options."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.apps import apps
from django.utils.module_loading import import_string

from ..core.errors import ConfigurationError, WorkerOutOfRange
from .values import SettingsError, refuse_unknown

__all__ = ["BackendSettings"]


@dataclass(frozen=True, slots=True)
class BackendSettings:
    """A dotted path to a class, and the keyword arguments it is made with."""

    where: str
    """The path of the setting, for messages: ``IDGEN["GENERATORS"]["default"]["LEASES"]``."""
    path: str
    options: Mapping[str, Any] = field(default_factory=dict)
    also: tuple[str, ...] = ()
    """Options that stand beside these in the settings and are taken by the wiring, for messages."""
    methods: tuple[str, ...] = ()
    """What a class must have to be of use here."""
    base: type | None = None
    """What a class must derive from."""

    def load(self) -> Any:
        """The class. Raises :class:`SettingsError` if there is none."""
        try:
            found = import_string(self.path)
        except ImportError as error:
            raise SettingsError(
                f"{self.where}['BACKEND'] is {self.path!r}, which can't be imported: {error}"
            ) from error
        except ConfigurationError as error:
            # What it needs is not installed.
            raise SettingsError(f"{self.where}['BACKEND'] is {self.path!r}: {error}") from error
        except RuntimeError as error:
            # What Django says of the models of an app that is not installed.
            if apps.is_installed("django_idgen"):
                raise
            raise SettingsError(
                f"{self.where}['BACKEND'] is {self.path!r}, which has tables: add 'django_idgen' "
                f"to INSTALLED_APPS."
            ) from error
        if not _has_signature(found):
            raise SettingsError(
                f"{self.where}['BACKEND'] is {self.path!r}, which is no backend but {found!r:.80}. "
                f"Give the dotted path of a class, or leave it out for the default."
            )
        lacking = [name for name in self.methods if not hasattr(found, name)]
        if lacking and isinstance(found, type):
            raise SettingsError(
                f"{self.where}['BACKEND'] is {self.path!r}, which has no {'(), '.join(lacking)}() "
                f"and so is of another kind than is needed here. Leave it out for the default."
            )
        if self.base and isinstance(found, type) and not issubclass(found, self.base):
            raise SettingsError(
                f"{self.where}['BACKEND'] is {self.path!r}, which does not derive from "
                f"{self.base.__module__}.{self.base.__name__} and so is of another kind than is "
                f"needed here. Leave it out for the default."
            )
        return found

    @property
    def nested(self) -> tuple[str, ...]:
        """The options that describe backends which this one takes from."""
        return self._declared("nested")

    @property
    def wired(self) -> tuple[str, ...]:
        """The arguments that the wiring gives it."""
        return self._declared("wired")

    def _declared(self, name: str) -> tuple[str, ...]:
        found = self.load()
        declared: tuple[str, ...] = getattr(found, name) if isinstance(found, type) else ()
        return declared

    def build(self, *args: Any, **given: Any) -> Any:
        """An instance, from ``args``, what the wiring gives, and the options.

        Raises :class:`SettingsError` for options that the class doesn't take.
        """
        backend = self.load()
        allowed = _options_of(backend, skip=len(args), taken=given)
        known = tuple(dict.fromkeys((*self.also, *allowed)))
        refuse_unknown(f"{self.where}['OPTIONS']", self.options, known)
        missing = _required_of(backend, skip=len(args)) - set(self.options) - set(given)
        if missing:
            raise SettingsError(
                f"{self.where}['OPTIONS'] lacks {', '.join(map(repr, sorted(missing)))}, "
                f"which {self.path} needs."
            )
        try:
            return backend(*args, **given, **self.options)
        except (ConfigurationError, WorkerOutOfRange) as error:
            raise SettingsError(f"{self.where}['OPTIONS']: {error}") from error


def _has_signature(found: object) -> bool:
    try:
        inspect.signature(found)  # type: ignore[arg-type]
    except (TypeError, ValueError):  # a module or a constant; a type of Python's own
        return False
    return True


def _parameters(backend: Any, skip: int) -> list[inspect.Parameter]:
    return list(inspect.signature(backend).parameters.values())[skip:]


def _options_of(backend: Any, *, skip: int, taken: Mapping[str, Any]) -> tuple[str, ...]:
    hidden = {"clock", "emit", "own", *taken}
    return tuple(p.name for p in _parameters(backend, skip) if p.name not in hidden)


def _required_of(backend: Any, *, skip: int) -> set[str]:
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {p.name for p in _parameters(backend, skip) if p.default is p.empty and p.kind in kinds}
